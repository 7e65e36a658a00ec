"""What every driver of a run does, whoever runs its trials: run.json, users' orders, the conclusion, going on later."""
