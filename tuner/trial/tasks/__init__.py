"""Tasks: what a label is. One class for each image, several labels, or a number; `TASKS` has them by name.

A task's declaration is here, without torch. Its arithmetic is in `tuner.train.tasks`, what becomes of a winner's
answers in `tuner.inspection.tasks`, what the report draws in `tuner.plots`; the declaration names them.
"""

from tuner.trial.tasks.number import NUMBER
from tuner.trial.tasks.one_label import ONE_LABEL
from tuner.trial.tasks.several_labels import SEVERAL_LABELS
from tuner.trial.tasks.task import Label, LabelError, Strata, Task

__all__ = ["NUMBER", "ONE_LABEL", "SEVERAL_LABELS", "SHARES", "TASKS", "USUAL", "Label", "LabelError", "Strata", "Task"]

TASKS: dict[str, Task] = {task.name: task for task in (ONE_LABEL, SEVERAL_LABELS, NUMBER)}
USUAL = tuple(task.metric for task in TASKS.values())  # the most important metric of each
SHARES = frozenset(  # metrics that are shares of a split's images
    f"{split}_{name}" for task in TASKS.values() for name in task.shares for split in ("val", "test")
)
