"""What is stored of a run: events, the state computed from them, `run.json`, checkpoints, the winner's score."""
