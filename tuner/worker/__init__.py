"""One trial inside a Ray actor: its assignment, its reports, its checkpoints, its processes on several devices."""
