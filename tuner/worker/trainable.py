"""The worker's side: run one trial inside a Ray actor that is also used for other trials.

A worker imports torch once and then runs trial after trial. Nothing of one trial reaches the next: `clean_process`
restores the process, and a user's function is unpickled again for each trial, so that its module globals are new, too.
A worker whose trial left what can't be restored runs no other.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from ray import cloudpickle, tune
from ray.tune.trainable import wrap_function

from tuner.errors import TrialLost, WorkerSpent, describe_error, describe_failure
from tuner.errors.gpu_errors import context_is_dead, dead_context
from tuner.history.placement import Placement
from tuner.trial import Trial, session
from tuner.worker.assignment import Assignment
from tuner.worker.clean_process import clean_process
from tuner.worker.forking import no_forked_process
from tuner.worker.implementation import implementation_of
from tuner.worker.output import captured
from tuner.worker.pickling import pickle_trial, received
from tuner.worker.placing import placement_here, visible_gpus
from tuner.worker.ray_inside.last_trial import LAST, comes_from_ray, session_of_ray
from tuner.worker.reporting import WRITER, WorkerSession
from tuner.worker.study_code import extend_import_path

SECONDS_FOR_WRITING = 10.0


def make_trainable(trial: Trial) -> type[tune.Trainable]:
    """What Ray Tune runs for every trial of a study: a function of an `Assignment` as a dict."""
    pickled, import_path = pickle_trial(trial), list(map(os.path.abspath, sys.path))  # trials change their folder

    def run_trial(assignment: dict[str, Any]) -> None:
        extend_import_path(import_path)
        others = [other | {"config": received(other["config"])} for other in assignment["others"]]
        told = Assignment(**assignment | {"config": received(assignment["config"]), "others": others})
        os.environ.update(visible_gpus(told))  # before CUDA is initialised; a worker stays with its GPU, or none
        perform(pickled, told)

    class TrialRunner(wrap_function(run_trial)):  # type: ignore[misc]
        def reset_config(self, new_config: dict[str, Any]) -> bool:
            """Called before the next trial begins; raises WorkerSpent if it needs another worker."""
            end_last_trial()
            if new_config["fresh"]:
                raise WorkerSpent
            return bool(super().reset_config(new_config))

        def cleanup(self) -> None:
            """Called before the process ends, which may be while a checkpoint is still being written."""
            try:
                super().cleanup()
            finally:
                finish_writing()

    return TrialRunner


def finish_writing() -> None:
    """Wait for checkpoints that training did not wait for."""
    WRITER.flush(SECONDS_FOR_WRITING)


def end_last_trial() -> None:
    """Tell the code of the last trial that it has ended, and wait for that.

    Raises WorkerSpent if it goes on, or has spoiled this process.
    """
    LAST.end(session_of_ray())


def perform(pickled: bytes, assignment: Assignment) -> None:
    """Run one trial; its failure is reported and not raised, so that the worker can be used again.

    But if the process can't use its GPU any more, the exception ends it, and Ray starts another.
    """
    waited, threads = LAST.begin(assignment.trial), max(1, int(assignment.cpus))
    with clean_process(seed=assignment.seed, threads=threads, gpu_share=assignment.gpus, spoiled=LAST.change):
        placement = placement_here(assignment)
        opening = f"trial {assignment.trial} {_verb(assignment)} on {placement.described}"
        with captured(assignment.trial, assignment.run_uri, opening) as output:
            _perform(pickled, assignment, WorkerSession(assignment, output), placement, waited)


def _perform(
    pickled: bytes, assignment: Assignment, worker: WorkerSession, placement: Placement, waited: float
) -> None:
    try:
        worker.watch.start()
        worker.placed(placement, waited)
        _check_context()
        with session.activate(worker), no_forked_process():
            trial = cloudpickle.loads(pickled)
            implementation_of(trial).train(trial, assignment, worker)
        worker.flush()
    except BaseException as error:  # KeyboardInterrupt, too: the worker's own signals don't reach this thread
        if worker.stopped or comes_from_ray(error):  # the search wants the trial to stop
            _let_go(error)
            raise SystemExit(0) from None
        worker.watch.stop()
        finish_writing()  # before the driver gives the trial to another worker
        worker.fail(*describe_failure(error))
        if context_is_dead(error):
            raise
    finally:
        worker.close()


def _let_go(error: BaseException) -> None:
    """Print an error of the clean-up, for the trial's log, and clear frames: they hold network and optimizer."""
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
    found: BaseException | None = error
    while found is not None:
        traceback.clear_frames(found.__traceback__)
        found = found.__context__


def _verb(assignment: Assignment) -> str:
    return f"goes on, with {assignment.reported} epochs recorded," if assignment.reported else "begins"


def _check_context() -> None:
    """Raise TrialLost if an earlier trial, which swallowed the error, left the GPU unusable for this process."""
    error = dead_context()
    if error is not None:
        raise TrialLost(f"an earlier trial left its worker's GPU unusable ({describe_error(error)})") from error
