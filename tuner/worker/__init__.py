"""One trial inside a Ray actor: its order, its reports, its checkpoints, its processes on several devices."""
