"""The child process of a replay: trains what standard input says, and writes its reports to a descriptor."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
from typing import Any

from tuner.replay.child import Task
from tuner.replay.training import train


def main(descriptor: int) -> None:
    """Write a line of JSON per report; the waiting process handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task: Task = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    sys.path.extend(folder for folder in task.import_path if folder not in sys.path)
    with open(descriptor, "w", encoding="utf-8") as answers:

        def tell(message: dict[str, Any]) -> None:
            answers.write(json.dumps(message) + "\n")
            answers.flush()

        trial, stays = pickle.loads(task.pickled)
        train(trial, stays, task.folder, tell)


def _end_with_the_input() -> None:
    """The other process keeps it open while it waits; reads without Python's buffer, which is locked meanwhile."""
    if not os.read(sys.stdin.fileno(), 1):
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
