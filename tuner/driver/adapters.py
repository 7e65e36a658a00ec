"""Ray Tune's interfaces (search algorithm, scheduler, callback), which pass calls to the `SearchLoop`; and a reporter.

A Ray trial is one stay of a tuner trial on a worker: it ends when that trial is paused, lost or over, and the trial
goes on as another Ray trial. So Ray neither pauses nor restores anything, and never gets a checkpoint.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import wraps
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError
from ray.tune import Callback, ProgressReporter
from ray.tune.experiment import Experiment
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.registry import get_trainable_cls
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import SearchAlgorithm

from tuner.driver.grouping import Together
from tuner.driver.ray_inside.autoscaling import bundles_of
from tuner.driver.ray_inside.controller import (
    IdleWorkers,
    Leaving,
    RayTrial,
    end_all_workers,
    end_worker,
    forget_ended,
    own_controller,
    spare_worker,
    worker_of,
)
from tuner.driver.ray_inside.names import present
from tuner.driver.ray_inside.ray_errors import message_of, text_of
from tuner.driver.ray_inside.tune import KilledForMemoryError
from tuner.driver.shared_devices import share_name
from tuner.driver.unready import Unready
from tuner.history.attempts import DRAINED
from tuner.history.checkpoints import CheckpointStore
from tuner.history.logs import add_to_log
from tuner.history.similar_failures import failed_alike
from tuner.history.stacks import HUNG, hung_message, take_stacks
from tuner.lifecycle.allotment import Allotment
from tuner.lifecycle.interruption import SearchLeft
from tuner.lifecycle.obedience import Orders
from tuner.loop.packing import Place
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.schedule import Decision
from tuner.storage.locations import open_folder
from tuner.study.resources import Resources
from tuner.worker.assignment import REPORT, Assignment
from tuner.worker.pickling import sendable

SECONDS_FOR_SAVES = 15.0  # seconds to wait for checkpoints at the end of a search
SECONDS_WITHOUT_SPARE = 5.0  # since the first workers began, whose own start comes first
SECONDS_TO_REQUEST = 0.1  # in which Ray begins to start a process, and none is ready
_log = logging.getLogger(__name__)
ANOTHER_REPORT = "the function called ray.tune.report; call tuner.report(...) instead"


Method = TypeVar("Method", bound=Callable[..., Any])


def leaves_on_error(method: Method) -> Method:
    """An exception of the loop (a full disk, a constraint that raises) ends the search and is given as the cause.

    Without this, Ray would turn it into the text of a traceback, or log it and go on.
    """

    @wraps(method)
    def guarded(*arguments: Any, **options: Any) -> Any:
        try:
            return method(*arguments, **options)
        except Exception as error:
            raise SearchLeft from error

    return guarded  # type: ignore[return-value]


class RaySearch(SearchAlgorithm):  # type: ignore[misc]
    """Asks the loop what to run next, and makes it a Ray trial."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._experiment: Experiment | None = None

    def add_configurations(self, experiments: Any) -> None:
        """Called by Ray once, with the arguments of `tune.run`."""
        self._experiment = experiments[0] if isinstance(experiments, list) else experiments

    @property
    def total_samples(self) -> int:
        """A number that Ray requires; it is shown nowhere."""
        return self._bridge.loop.study.trials or 0

    @leaves_on_error
    def next_trial(self) -> RayTrial | None:
        """A new Ray trial, or None if no worker is free or there is nothing to do now."""
        self._bridge.look_around()
        starts = self._bridge.unready.next() or self._bridge.next_stay()
        return self._bridge.create(starts, self._experiment) if starts else None

    def is_finished(self) -> bool:
        """Whether no trial runs and none will."""
        return self._bridge.loop.finished

    def save_to_dir(self, dirpath: str, **kwargs: Any) -> None:
        """Does nothing: the run's events hold the state of the search."""


class RayScheduler(TrialScheduler):  # type: ignore[misc]
    """Turns Ray's results into reports to the loop, and the loop's decisions into Ray's."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._bridge = bridge

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Metric and mode are the study's."""
        return True

    @leaves_on_error
    def on_trial_result(self, tune_controller: Any, trial: RayTrial, result: dict[str, Any]) -> str:
        """Take a worker's messages in order: where the trial runs, epochs, or its failure. After the epoch that ends or
        pauses the trial, messages are ignored.
        """
        loop = self._bridge.loop
        if not self._bridge.members(trial):
            return str(TrialScheduler.STOP)
        if REPORT not in result:
            loop.failed(trial.tuner_id, "error", ANOTHER_REPORT)
            return str(TrialScheduler.STOP)
        arrived = time.monotonic()
        taken = (self._take(trial, json.loads(text), arrived - ago) for text, ago in result[REPORT])
        goes_on = all(decision is Decision.CONTINUE for decision in taken)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

    def _take(self, trial: RayTrial, message: dict[str, Any], given: float) -> Decision:
        loop, tuner_id = self._bridge.loop, message.get("trial", trial.tuner_id)
        if "apart" in message:
            self._bridge.part(trial, for_all=message["apart"] == "all")
            return Decision.CONTINUE
        if tuner_id not in self._bridge.members(trial):  # it goes on in another stay
            return Decision.CONTINUE
        if "placed" in message:
            loop.placed(tuner_id, **self._bridge.unready.placed(tuner_id, **message["placed"]))
            return Decision.CONTINUE
        if "features" in message:
            loop.computing(tuner_id, **message["features"])
            return Decision.CONTINUE
        if "failure" in message:
            self._fail(trial, tuner_id, **message["failure"])
            return Decision.CONTINUE  # the worker has something left to do: to return, or to end itself
        saved = self._bridge.take_along(tuner_id, message)
        told = {"saved": saved, "saves": message["saves"], "ago": time.monotonic() - given}
        told |= {"reading": message.get("reading")}
        decision = loop.report(tuner_id, message["epoch"], message["metrics"], **told)
        if message["leaving"] and message["epoch"] in saved and decision is Decision.CONTINUE:
            self._bridge.leave_node(tuner_id)
        if len(trial.members) == 1 or loop.running.isdisjoint(self._bridge.members(trial)):
            return decision
        return Decision.CONTINUE  # a stay ends by itself, unless all of its trials have ended before

    def _fail(self, trial: RayTrial, tuner_id: str, cause: str, message: str, traceback: str | None) -> None:
        """A trial whose GPU failed goes on elsewhere; other failures count as the trial's own, or its used worker's."""
        self._bridge.expect_no_more(tuner_id)
        if cause == "lost":
            if len(trial.members) > 1:
                self._bridge.together.suspect(tuner_id)
            self._bridge.loop.lost(tuner_id, cause, message)
        else:
            known = cause == "error" and failed_alike(self._bridge.loop.record, message, traceback)
            spent = cause != "diverged" and not known  # maybe its process has to do with it
            trial.spent = trial.spent or spent
            self._bridge.loop.failed(tuner_id, cause, message, traceback, used=trial.used and spent)

    @leaves_on_error
    def choose_trial_to_run(self, tune_controller: Any) -> RayTrial | None:
        """None: Ray starts new trials by itself. Ray calls this in every step, so it also runs `look_around`."""
        self._bridge.look_around()
        self._bridge.obey(own_controller(tune_controller))
        return None

    def debug_string(self) -> str:
        """Text for Ray's own console output, which is off."""
        return ""

    def on_trial_add(self, tune_controller: Any, trial: RayTrial) -> None:
        """Does nothing: the loop knows its trials already."""

    def on_trial_error(self, tune_controller: Any, trial: RayTrial) -> None:
        """Does nothing: `RayCallback` tells the loop."""

    @leaves_on_error
    def on_trial_complete(self, tune_controller: Any, trial: RayTrial, result: dict[str, Any]) -> None:
        """The trial's function has returned by itself, unless the loop ended or paused the trial before."""
        if trial.spent:
            end_worker(self._bridge.controller, trial)
        for tuner_id in self._bridge.members(trial):
            self._bridge.returned(trial, tuner_id)

    def on_trial_remove(self, tune_controller: Any, trial: RayTrial) -> None:
        """Does nothing: the loop decided it."""


class RayCallback(Callback):  # type: ignore[misc]
    """Tells the loop of lost workers and failures that no worker could report."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    @leaves_on_error
    def on_trial_start(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        """A worker begins with the trial."""
        self._bridge.take_worker(trial)

    @leaves_on_error
    def on_trial_error(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        """The worker or node died, or could not even start the trial."""
        members = self._bridge.members(trial)
        if not members or self._bridge.unready.take(self._bridge.controller, trial):
            return
        stacks = take_stacks(self._bridge.folder, trial.tuner_id)
        if len(members) > 1:
            self._bridge.together.suspect(*members)
        for tuner_id in members:
            self._bridge.expect_no_more(tuner_id)
            self._end(trial, tuner_id, stacks)

    def _end(self, trial: RayTrial, tuner_id: str, stacks: str | None) -> None:
        error, loop = trial.last_error, self._bridge.loop
        if stacks and isinstance(error, RayActorError):
            add_to_log(self._bridge.folder, tuner_id, stacks)
            loop.lost(tuner_id, HUNG, hung_message(loop.study.failures.hung_minutes), stacks)
        elif isinstance(error, RayActorError):
            cause = "out_of_memory" if isinstance(error, KilledForMemoryError) else "lost"
            loop.lost(tuner_id, cause, message_of(error))
        else:
            loop.failed(tuner_id, "error", message_of(error), text_of(error), used=trial.used)


class SilentReporter(ProgressReporter):  # type: ignore[misc]
    """Shows nothing; Ray Tune's own reporter in a notebook clears the cell's output, and with it tuner's table."""

    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        """Never report."""
        return False

    def report(self, trials: list[Any], done: bool, *sys_info: str) -> None:
        """Does nothing."""


class SilentProgress(TrialProgressCallback):  # type: ignore[misc]
    """Shows nothing, in place of Ray Tune's own, which keeps every trial."""

    def log_result(self, trial: Any, result: dict[str, Any], error: bool = False) -> None:
        """Does nothing."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Does nothing."""


@dataclass
class Bridge:
    """What the three adapters share: the loop, and the Ray trial of each tuner trial. `leave`, called several times a
    second, says whether the search shall end now. `joined`: whether somebody else started the cluster. `orders` are
    users' orders.
    """

    loop: SearchLoop
    resources: Resources
    run_uri: str
    save_epochs: list[int]
    leave: Callable[[], bool]
    session: int = 0
    joined: bool = False
    orders: Orders | None = None
    allotment: Allotment | None = None
    together: Together = field(default_factory=lambda: Together(lambda config: None, most=1))

    def __post_init__(self) -> None:
        """Start with no trials."""
        self._current: dict[str, RayTrial] = {}
        self._stays: dict[str, int] = {}
        self._reported: dict[str, int] = {}  # epochs of each trial, when its stay began
        self._noticed: set[str] = set()
        self.unready = Unready(self.loop)
        self._coming: dict[str, int] = {}
        self.loop.announced = self._coming.keys()
        self._looked = 0.0
        self.folder = open_folder(self.run_uri)
        self._checkpoints = CheckpointStore(self.folder)
        self._leaving, self._idle = Leaving(), IdleWorkers()
        self._workers: set[Any] = set()  # the ids of Ray's actors
        self._spare: Any = None  # an actor that only makes Ray start a process
        self._ahead, self._trainable = math.inf, ""  # when Ray is to start one
        self.controller: Any = None  # Ray's

    def members(self, trial: RayTrial) -> list[str]:
        """The trials whose newest stay this is: messages of an older one are ignored."""
        return [tuner_id for tuner_id in trial.members if self._current.get(tuner_id) is trial]

    def next_stay(self) -> list[Start]:
        """What a free worker should do: one trial, or some that it trains together; nothing if none is free."""
        if self.together.shares and self._busy() >= self.loop.concurrency:  # else the loop says when
            return []
        self.loop.end_waiting(self.together.waiting)
        while self.together.takes_more and (start := self.loop.next_action()) is not None:
            self._wait(start)
        return self.together.take(self.loop.running)

    def _busy(self) -> int:
        """How many workers have a trial, or are to get one."""
        return len({id(trial) for trial in self._current.values() if not trial.is_finished()})

    def part(self, trial: RayTrial, *, for_all: bool) -> None:
        """The trials of a stay can't be trained together; or none can, `for_all` of this study."""
        self.together.suspect(*trial.members)
        if for_all:
            self.together.separate()
            self.loop.separate()

    def returned(self, trial: RayTrial, tuner_id: str) -> None:
        """A trial's stay has ended by itself: so has the trial, unless it shared the stay and goes on in another."""
        if len(trial.members) == 1 or tuner_id not in self.loop.running:
            self.loop.returned(tuner_id)
            return
        goes_on = self.loop.going_on(tuner_id)
        if goes_on.reported == self._reported.get(tuner_id) and not self.together.is_suspect(tuner_id):
            self.loop.returned(tuner_id)
        else:
            self._wait(goes_on)

    def _wait(self, start: Start) -> None:
        """A trial waits for its next stay; how its last one ends has nothing to do with it any more."""
        self._current.pop(start.trial, None)
        self.together.add(start)

    def look_around(self) -> None:
        """Leave if the search is to end, or its trials hang after a limit; note checkpoints that have been written.
        Raises SearchLeft.
        """
        if self.leave() or self.loop.overdue:
            raise SearchLeft
        if time.monotonic() >= self._ahead:
            self._start_ahead()
        if time.monotonic() - self._looked >= 1.0:
            self._looked = time.monotonic()
            self._note_saves()
            self._note_ends()
            self.loop.tend_events()
            self.loop.make_room()

    def obey(self, controller: Any) -> None:
        """Do what users order. Workers of trials that an order ends are ended, and so are workers that are idle for
        long.

        Raises SearchLeft if an order ends the search.
        """
        self.controller = controller
        forget_ended(controller)
        self._forget_stays()
        if self.joined:
            self._idle.end(controller)
        if self.allotment is not None:
            gives_back = self.allotment.look(self._busy())
            self.loop.most_at_once = self.allotment.at_once
            if gives_back:
                self._idle.end(controller, at_once=True)
        if self.orders is None:
            return
        before = self.loop.running
        self.orders.obey(self.loop)
        if self.loop.stopped:
            raise SearchLeft
        for tuner_id in before - self.loop.running:
            self._leave(tuner_id)
        for tuner_id in self._leaving.end(controller, self._coming.__contains__):
            self.expect_no_more(tuner_id)

    def _forget_stays(self) -> None:
        """Drop the stays of trials that have ended, whose memory nobody reads again."""
        for tuner_id, trial in list(self._current.items()):
            if trial.is_finished() and tuner_id not in self.loop.running and tuner_id not in self._coming:
                del self._current[tuner_id], self._reported[tuner_id]
                self.unready.forget(tuner_id)

    def leave_node(self, tuner_id: str) -> None:
        """A saved trial leaves a node that is being drained, and its worker ends; the trial goes on elsewhere."""
        self.expect_no_more(tuner_id)
        self.loop.lost(tuner_id, DRAINED, "its node is drained")
        self._leave(tuner_id)

    def _leave(self, tuner_id: str) -> None:
        """End the worker of a trial that has ended there, unless others of its stay go on."""
        trial = self._current.get(tuner_id)
        if trial is not None and not self.loop.running.intersection(self.members(trial)):
            self._leaving.add(tuner_id, trial)

    def end_workers(self) -> None:
        """After a search that was left while trials ran: kill their workers, and free what these held."""
        if self.controller is None:
            return
        try:
            end_all_workers(self.controller)
        except Exception:  # Ray is ending as well
            _log.debug("workers could not be ended cleanly", exc_info=True)

    def take_worker(self, trial: RayTrial) -> None:
        """A worker begins with the trial. If it is a fresh one, Ray is to start another process for the next."""
        if (worker := worker_of(trial)) is None:
            return
        trial.used = worker in self._workers
        self._workers.add(worker)
        if not (trial.used or self.joined) and present("spare_worker"):
            first = len(self._workers) <= self.loop.concurrency
            self._ahead = time.monotonic() + (SECONDS_WITHOUT_SPARE if first else 0)

    def _start_ahead(self) -> None:
        """Request an actor, and kill it while its process starts: Ray keeps the process for the next actor."""
        if self._spare is None:
            self._spare = spare_worker(self.controller, get_trainable_cls(self._trainable))
            self._ahead = time.monotonic() + SECONDS_TO_REQUEST
        else:
            ray.kill(self._spare)
            self._spare, self._ahead = None, math.inf

    def take_along(self, trial: str, message: dict[str, Any]) -> list[int]:
        """Take what a report has besides metrics: messages for the user, and the epochs of saved checkpoints."""
        for note in message["notes"]:
            if note not in self._noticed:  # each message once for all trials
                self._noticed.add(note)
                self.loop.notice(note)
        for epoch in message.get("no_space", []):
            self.loop.not_saved(trial, epoch)
        if self._coming.get(trial) in (*message["saved"], *message["unsaved"]):
            del self._coming[trial]
        if message["saving"] is not None:
            self._coming[trial] = message["saving"]
        return list(message["saved"])

    def expect_nothing_of_stays(self) -> None:
        """The search is left while trials run: those that share a stay write nothing any more."""
        sharing = {trial for stay in self._current.values() if len(stay.members) > 1 for trial in stay.members}
        for trial in sharing.intersection(self._coming):
            self.expect_no_more(trial)

    def await_saves(self, seconds: float = SECONDS_FOR_SAVES) -> None:
        """After the search: wait for what is still being written."""
        until = time.monotonic() + seconds
        self._note_saves()
        while self._coming and time.monotonic() < until:
            time.sleep(0.05)
            self._note_saves()
        for trial, epoch in self._coming.items():
            self.loop.notice(f"the checkpoint of epoch {epoch} of trial {trial} was not finished")

    def expect_no_more(self, trial: str) -> None:
        """The trial's worker is gone: checkpoints that it hasn't written will not come."""
        self._note_saves()
        self._coming.pop(trial, None)

    def _note_ends(self) -> None:
        """Ray silently ends a trial if a worker can't be reused."""
        for tuner_id in sorted(self.loop.running):
            trial = self._current.get(tuner_id)  # None: it waits for its next stay
            if (
                trial is not None
                and trial.status in (RayTrial.ERROR, RayTrial.TERMINATED)
                and trial not in self.unready
            ):
                self.expect_no_more(tuner_id)
                self.loop.lost(tuner_id, "lost", message_of(trial.last_error))

    def _note_saves(self) -> None:
        """Note checkpoints that were still being written when their trial's last report came."""
        for trial, epoch in list(self._coming.items()):
            if self._checkpoints.has(trial, epoch):
                del self._coming[trial]
                self.loop.saved(trial, epoch)

    def create(self, starts: Sequence[Start], experiment: Experiment | None) -> RayTrial:
        """The Ray trial for a stay of one of our trials, or of some together."""
        if experiment is None:
            raise RuntimeError("Ray asked for a trial before it set the experiment up")
        start, *others = starts
        stay = self._stays[start.trial] = self._stays.get(start.trial, 0) + 1
        name = start.trial if (self.session, stay) == (0, 1) else f"{start.trial}-{self.session + 1}-{stay}"
        self._trainable = experiment.spec["run"]
        trial = RayTrial(
            self._trainable,
            config=asdict(self._assignment(start, others)),
            trial_id=name,
            storage=experiment.spec["storage"],
            checkpoint_config=experiment.spec["checkpoint_config"],
            placement_group_factory=self._placement(start.place),
            trial_dirname_creator=lambda _: name,
            max_failures=0,
        )
        trial.tuner_id, trial.members = start.trial, tuple(each.trial for each in starts)
        self.unready.note(starts)
        for each in starts:
            self._current[each.trial] = trial
            self._reported[each.trial] = each.reported
        return trial

    def _assignment(self, start: Start, others: Sequence[Start] = ()) -> Assignment:
        study, gpu = self.loop.study, start.place if self.resources.gpu_count else None
        return Assignment(
            trial=start.trial,
            config=sendable(start.config),
            seed=start.seed,
            epochs=start.epochs,
            reported=start.reported,
            save_epochs=self.save_epochs,
            metric=study.metric,
            mode=study.mode,
            study_seed=study.seed,
            cpus=self.resources.cpu_count,
            gpus=self.resources.gpu_count if gpu is None else gpu.share,
            device=None if gpu is None else gpu.device.name,
            strategy=start.config.get("strategy", self.resources.strategy),
            placement=self.resources.placement,
            run_uri=self.run_uri,
            to_beat=self.loop.to_beat(start),
            halvings=start.halvings,
            hung_seconds=study.failures.hung_seconds,
            joined=self.joined,
            fresh=start.fresh,
            refit_epochs=start.refit_epochs,
            working_folder=study.working_folder,
            others=[
                {
                    "trial": other.trial,
                    "config": sendable(other.config),
                    "seed": other.seed,
                    "epochs": other.epochs,
                    "reported": other.reported,
                    "to_beat": self.loop.to_beat(other),
                }
                for other in others
            ],
        )

    def _placement(self, place: Place | None) -> ray.tune.PlacementGroupFactory:
        """One bundle whose devices all processes of a trial share, or one bundle for each process, across nodes.

        A trial that shares a GPU requests a part of a resource that stands for this GPU. Ray itself would fill one GPU
        after another; and a reused worker has to stay with its GPU, where it holds memory.
        """
        cpus, gpus = self.resources.cpu_count, self.resources.gpu_count
        if place is not None and gpus:
            return ray.tune.PlacementGroupFactory([{"CPU": cpus, share_name(place.device): gpus}])
        bundles, strategy = bundles_of(self.resources)
        return ray.tune.PlacementGroupFactory(bundles, strategy=strategy)
