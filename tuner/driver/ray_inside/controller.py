"""Trials of Ray Tune, and its controller's state: workers that it would keep, and trials that it would lose."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial

from tuner.driver.ray_inside.names import present

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController

SAVING_SECONDS = 2.0  # that the worker of an ended trial may take to write its last checkpoint
IDLE_SECONDS = 15.0  # that a worker is kept for the next trial, on a cluster that others may use


class RayTrial(Trial):  # type: ignore[misc]
    """A Ray trial that knows its tuner trials, and keeps the exception if it fails: Ray only writes that to a file.

    `members` are the trials of this stay, mostly one; `tuner_id` is the first of them.
    """

    tuner_id: str
    members: tuple[str, ...] = ()
    used = False  # whether its worker has run other trials before
    spent = False  # whether its worker shall not run another one
    last_error: BaseException | None = None

    def handle_error(self, exc: BaseException | None = None) -> None:
        """Keep the exception, then do what Ray does."""
        self.last_error = exc
        super().handle_error(exc)


def own_controller(given: Any) -> Any:
    """Ray's controller, without the wrapper in which a scheduler gets it, which warns of use."""
    return getattr(given, "_tune_controller", given)


def worker_of(trial: RayTrial) -> Any | None:
    """The id of the actor that runs a trial; None on a Ray whose workers can't be used again."""
    return trial.temporary_state.ray_actor._actor_id if present("reused_workers") else None


def spare_worker(controller: TuneController, trainable: type) -> Any:
    """An actor like those that run trials, which takes no CPU."""
    return controller._class_cache.get(trainable).options(num_cpus=0).remote()


def unstage(controller: TuneController, trial: RayTrial) -> bool:
    """Whether the trial was on its way to a used worker; Ray, which doesn't expect that this fails, forgets it."""
    if not present("reused_workers") or trial not in controller._resetting_trials:
        return False
    controller._resetting_trials.discard(trial)
    if trial in controller._staged_trials:
        controller._unstage_trial_with_resources(trial)
    return True


class Leaving:
    """Workers of trials that an order has ended: each is killed once the checkpoint that it is writing is there."""

    def __init__(self) -> None:
        self._leaving: dict[str, tuple[RayTrial, float]] = {}

    def add(self, tuner_id: str, trial: RayTrial) -> None:
        """Add a trial, by its id and its Ray trial."""
        self._leaving[tuner_id] = (trial, time.monotonic() + SAVING_SECONDS)

    def end(self, controller: TuneController, saving: Callable[[str], bool]) -> list[str]:
        """Kill workers whose time is up; returns the trials' ids. While Ray still starts a trial, its worker stays."""
        ended = []
        for tuner_id, (trial, until) in list(self._leaving.items()):
            if trial.is_finished():
                del self._leaving[tuner_id]
            elif trial.status == trial.RUNNING and not (saving(tuner_id) and time.monotonic() < until):
                end_worker(controller, trial)
                ended.append(tuner_id)
                del self._leaving[tuner_id]
        return ended


class IdleWorkers:
    """The worker that Ray Tune keeps for the next trial: it holds devices and a node that could be released."""

    def __init__(self) -> None:
        self._since: float | None = None

    def end(self, controller: TuneController, *, at_once: bool = False) -> None:
        """End the worker once it has been idle for long, or `at_once`."""
        now = time.monotonic()
        if not present("idle_workers") or not controller._actor_cache.num_cached_objects:
            self._since = None
        elif self._since is None and not at_once:
            self._since = now
        elif at_once or now - (self._since or now) >= IDLE_SECONDS:
            controller._cleanup_cached_actors(force_all=True)


def forget_ended(controller: TuneController) -> None:
    """Drop what Ray keeps of each ended trial, which nobody reads again: its state is in the events.

    One trial stays, as Ray looks at the first when none can run.
    """
    if not present("forgotten_trials"):
        return
    for trial in [*controller._stopped_trials, *controller._failed_trials]:
        busy = trial in controller._trial_to_actor or trial in controller._resetting_trials
        if busy or len(controller._trials) == 1:
            continue
        controller._trials.remove(trial)
        controller._live_trials.discard(trial)  # where Ray leaves those that failed
        controller._stopped_trials.discard(trial)
        controller._failed_trials.discard(trial)
        controller._trials_to_cache.discard(trial)
        controller._trial_metadata.pop(trial.trial_id, None)


def end_worker(controller: TuneController, trial: RayTrial) -> None:
    """End a running trial and its worker now: Ray itself would wait for a report, then use the worker again."""
    if not present("ended_workers"):
        return
    actor = controller._trial_to_actor.pop(trial, None)
    controller._set_trial_status(trial, trial.TERMINATED)
    controller._live_trials.discard(trial)
    controller._mark_trial_to_checkpoint(trial)
    if actor is not None:
        controller._actor_manager.clear_actor_task_futures(tracked_actor=actor)
        controller._actor_to_trial.pop(actor, None)
        trial.set_ray_actor(None)
        controller._actor_manager.remove_actor(tracked_actor=actor, kill=True)


def end_all_workers(controller: TuneController) -> None:
    """End every trial's worker and give back what they held, so that the winner can be scored."""
    if present("ended_workers"):
        for trial in list(controller._trial_to_actor):
            end_worker(controller, trial)
        controller.cleanup()
