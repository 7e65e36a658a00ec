"""Study → Ray Tune and back. The only package that imports Ray, and it does so when a search starts."""

from tuner.driver.mirroring import wandb_mode
from tuner.driver.runs import resume, run

__all__ = ["resume", "run", "wandb_mode"]
