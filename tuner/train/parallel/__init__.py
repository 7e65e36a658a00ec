"""One trial on several devices: the processes that train it together, and what each of them takes on."""

from tuner.train.parallel.group import ALONE, Group, joined
from tuner.train.parallel.one_process import OneProcess
from tuner.train.parallel.pipeline import Pipeline
from tuner.train.parallel.strategy import Replicas, Strategy

__all__ = ["ALONE", "Group", "OneProcess", "Pipeline", "Replicas", "Strategy", "joined"]
