"""What is stored of a run: events, the state that they add up to, `run.json`, checkpoints, the winner's score."""
