"""Study → Ray Tune and back. With `worker`, which runs in its actors, it is what uses Ray, from a search's start on."""

from tuner.driver.options import Driving
from tuner.driver.run_and_resume import resume, run
from tuner.mirrors.process import wandb_mode

__all__ = ["Driving", "resume", "run", "wandb_mode"]
