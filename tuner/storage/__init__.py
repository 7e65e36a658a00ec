"""Where a run lies: folders on disks and in object stores, what survives a crash, who may write."""
