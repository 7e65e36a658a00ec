"""Where runs are stored: folders on disks and in object stores, crash-safe writing, and who may write."""
