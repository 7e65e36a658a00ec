"""How drivers are started and watched: `Executor` says what the supervisor needs, `LocalProcesses` does it here."""

from tuner.service.executors.executor import Ended, Executor, Look, Task
from tuner.service.executors.local import LocalProcesses

__all__ = ["Ended", "Executor", "LocalProcesses", "Look", "Task"]
