"""A trial on several devices, from its worker: the processes that train it, and what happens when one fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tuner.errors import TrialLost, TrialOutOfMemory
from tuner.train.memory.errors import SMALLER_MODEL
from tuner.train.parallel.launching import Here, RankLost, Ranks, Task
from tuner.train.step import RUNNING
from tuner.trial import ImageClassifier
from tuner.worker.pickling import with_code_of_studies
from tuner.worker.saving import SavingPolicy

if TYPE_CHECKING:
    from tuner.worker.assignment import Assignment
    from tuner.worker.output import Output
    from tuner.worker.reporting import WorkerSession


def train_on_several(trial: ImageClassifier, assignment: Assignment, worker: WorkerSession) -> None:
    """Train with a process for each device, and report as one process does.

    If one has too little memory, all go on from the last checkpoint with micro-batches of half the size, or without
    passes over whole batches for batch norm's statistics if those didn't fit. Whatever ends the trial ends its
    processes.

    Raises TrialLost if a process died, for instance because it was killed; otherwise what a process raised.
    """
    count = int(assignment.gpus or assignment.cpus)
    halvings, first_pass_fits = assignment.halvings, True
    batch_size = trial.hyperparameters(assignment.config)["batch_size"]
    policy = SavingPolicy(assignment, worker.is_leaving)
    while True:
        task = Task(
            pickled=with_code_of_studies((trial, assignment.config)),
            import_path=tuple(sys.path),
            epochs=assignment.epochs,
            seed=assignment.seed,
            split_seed=assignment.study_seed,
            threads=max(1, int(assignment.cpus) // count),
            strategy=assignment.strategy,
            halvings=halvings,
            first_pass_fits=first_pass_fits,
            checkpoints=tuple(worker.checkpoints()),
        )
        try:
            with (
                _started(task, assignment, count, worker.output) as ranks,
                worker.watch.of_several(ranks.show_stacks),
            ):
                _follow(ranks, assignment, worker, policy)
                return
        except TrialOutOfMemory as error:
            if error.remedy is None:
                raise
            if 2**halvings >= batch_size:
                raise TrialOutOfMemory(f"{error}; {SMALLER_MODEL}") from error
            if error.remedy == RUNNING and first_pass_fits:
                first_pass_fits = False
                worker.notes.append(f"{error}: all processes go on, batch norms with their running statistics")
            else:
                halvings += 1
                worker.notes.append(f"{error}: all processes go on with micro-batches half the size")
        except RankLost as error:
            raise TrialLost(str(error)) from error


@contextmanager
def _started(task: Task, assignment: Assignment, count: int, output: Output) -> Iterator[Ranks]:
    """The started processes: on this machine, or each in its bundle."""
    pipes = [output.pipe(f"rank {index}") for index in range(count)]
    if assignment.placement != "spread":
        places = [Here(f"cuda:{index}" if assignment.gpus else "cpu", pipes[index]) for index in range(count)]
        with Ranks(task, places) as ranks:
            yield ranks
        return
    from tuner.worker.spread import in_bundles

    bundles, store, meeting = in_bundles(count, cpus=assignment.cpus / count, gpus=bool(assignment.gpus), pipes=pipes)
    with Ranks(task, bundles, meeting) as ranks:
        yield ranks
    del store  # it had to exist until now


def _follow(ranks: Ranks, assignment: Assignment, worker: WorkerSession, policy: SavingPolicy) -> None:
    epoch = 0
    while epoch < assignment.last:
        told = ranks.next_epoch()
        epoch = told.epoch
        worker.notes += told.notes
        chosen = policy.choose(epoch, told.metrics)
        worker.report_epoch(epoch, told.metrics, fill=ranks.save if chosen else None)
