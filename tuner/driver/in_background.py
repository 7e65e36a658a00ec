"""The process of a background search: it works for the process that started it, and ends when that process ends."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import Any

from tuner.errors import StudyError, asked_from_python, describe_error
from tuner.machine.child_process import answering, end_with_the_input


def main(descriptor: int) -> None:
    """Run the search that standard input describes; write the run's path, or the error, to the descriptor."""
    from ray import cloudpickle

    task = cloudpickle.load(sys.stdin.buffer)
    end_with_the_input(partial(os.kill, os.getpid(), signal.SIGTERM))  # which acts as a batch system's
    sys.path.extend(folder for folder in task["path"] if folder not in sys.path)
    with answering(descriptor) as tell:
        try:
            _search(task, lambda path: tell(run=path))
        except StudyError as error:
            tell(error=[type(error).__name__, str(error)])
        except BaseException as error:
            tell(error=["TunerError", str(error) if isinstance(error, KeyboardInterrupt) else describe_error(error)])


def _search(task: dict[str, Any], begun: Any) -> None:
    from ray import cloudpickle

    from tuner.driver import Driving, run

    study = cloudpickle.loads(task["study"])
    with asked_from_python():
        run(study, task["changes"], Driving(**task["driving"], begun=begun), storage=task["storage"])


if __name__ == "__main__":
    main(int(sys.argv[1]))
