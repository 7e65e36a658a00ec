"""One trial on several devices: the processes that train it together, and what each of them takes on."""

from tuner.train.parallel.group import ALONE, Group, joined

__all__ = ["ALONE", "Group", "joined"]
