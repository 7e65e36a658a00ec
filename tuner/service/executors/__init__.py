"""How drivers are started and watched: `Executor` says what the supervisor needs.

`LocalProcesses` does it on this machine, `RayJobs` on a Ray cluster.
"""

from tuner.service.executors.executor import Ended, Executor, Look, Task
from tuner.service.executors.local import LocalProcesses
from tuner.service.executors.ray_jobs import RayJobs

__all__ = ["Ended", "Executor", "LocalProcesses", "Look", "RayJobs", "Task"]
