"""What every driver of a run does, under Ray or for a user's program: run.json, orders, conclusion, resuming."""
