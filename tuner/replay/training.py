"""The process that trains for a replay, with the functions that a worker calls, but without Ray."""

from __future__ import annotations

import json
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tuner.errors import describe_failure
from tuner.machine.child_process import answering, end_with_the_input
from tuner.replay.stays import Stay
from tuner.replay.training_process import Task
from tuner.trial import Trial, session
from tuner.worker.clean_process import clean_process
from tuner.worker.forking import no_forked_process
from tuner.worker.implementation import implementation_of
from tuner.worker.messages import Message
from tuner.worker.reporting import WRITER, WorkerSession

SECONDS_FOR_WRITING = 600.0
Tell = Callable[[dict[str, Any]], None]


def main(descriptor: int) -> None:
    """Train what standard input says, and write a line of JSON per report; the waiting process handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task: Task = pickle.load(sys.stdin.buffer)
    end_with_the_input()
    sys.path.extend(folder for folder in task.import_path if folder not in sys.path)
    with answering(descriptor) as tell:
        trial, stays = pickle.loads(task.pickled)
        train(trial, stays, task.folder, lambda message: tell(**message))


class StayOver(SystemExit):
    """Leaves the trial's code at the end of a stay, as Ray's SystemExit does."""


class ReplaySession(WorkerSession):
    """Passes reports to `tell`, and leaves after the stay's last epoch; checkpoints are in the stay's folder."""

    quick_seconds = 0.0  # so that no epoch is trained beyond the stay

    def __init__(self, stay: Stay, tell: Tell) -> None:
        super().__init__(stay.assignment)
        self._until, self._tell = stay.until, tell

    def ignored(self) -> None:
        """The trial's code goes on after the end of the stay: it leaves it again at each report."""

    def tell_features(self, progress: dict[str, Any]) -> None:
        """Nobody looks on."""

    def _deliver(self, messages: Sequence[Message]) -> None:
        """Convert metrics to what a run's events have: plain JSON, without NaN."""
        for message in messages:
            told = json.loads(message.text, parse_constant=lambda _: None)
            self._tell({name: told[name] for name in ("epoch", "metrics", "notes")})
            if told["epoch"] >= self._until:
                raise StayOver


def train(trial: Trial, stays: Sequence[Stay], folder: str, tell: Tell) -> None:
    """Train the stays one after another, with their checkpoints in `folder`.

    `tell` gets "epoch", "metrics" and "notes" of each epoch, and "failure" with its message if the trial fails.
    """
    try:
        for stay in stays:
            _train_one(trial, Stay(replace(stay.assignment, run_uri=folder), stay.until), tell)
    except BaseException as error:
        tell({"failure": describe_failure(error)[1]})


def _train_one(trial: Trial, stay: Stay, tell: Tell) -> None:
    assignment = stay.assignment
    with clean_process(seed=assignment.seed, threads=max(1, int(assignment.cpus)), gpu_share=assignment.gpus):
        worker = ReplaySession(stay, tell)
        try:
            worker.watch.start()
            with session.activate(worker), no_forked_process():
                implementation_of(trial).train(trial, assignment, worker)
        except BaseException:
            if not worker.stopped:  # otherwise the stay is over, whatever the trial's code makes of that
                raise
        finally:
            worker.watch.stop()
            WRITER.flush(SECONDS_FOR_WRITING)
            worker.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
