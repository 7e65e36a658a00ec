"""What a terminal shows: progress while a search runs, tables of a run afterwards."""
