"""The heads of many trials, trained at once on features of the backbone they share, each as if it were alone."""

from tuner.train.heads.batch import HeadBatch
from tuner.train.heads.heads import HeadTrial, NotTogether

__all__ = ["HeadBatch", "HeadTrial", "NotTogether"]
