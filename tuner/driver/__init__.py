"""Study → Ray Tune and back. The only package that imports Ray, and it does so when a search starts."""

from tuner.driver.options import Driving
from tuner.driver.run_and_resume import resume, run
from tuner.wandb_mirror.process import wandb_mode

__all__ = ["Driving", "resume", "run", "wandb_mode"]
