"""The arithmetic of each task: targets, losses, metrics, and what a network's outputs say."""

from pkgutil import resolve_name

from tuner.train.tasks.base import Metrics, Targets
from tuner.trial.tasks import Task

__all__ = ["Metrics", "Targets", "targets_of"]


def targets_of(task: Task) -> type[Targets]:
    """The class with a task's arithmetic."""
    found: type[Targets] = resolve_name(task.training)
    return found
