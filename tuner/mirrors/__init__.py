"""A run shown elsewhere, in W&B (`wandb`) or MLflow (`mlflow`): `process` starts and ends the process that does it."""
