"""Ray Tune's three interfaces (search algorithm, scheduler, callback), each handing on to the `SearchLoop`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.tune import Callback
from ray.tune.experiment import Experiment
from ray.tune.experiment import Trial as RayTrialBase
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import SearchAlgorithm

from tuner.driver.host_memory import KilledForMemoryError
from tuner.loop.search_loop import Resume, SearchLoop, Start, StudyInterrupted
from tuner.resources import Resources
from tuner.results.folder import open_folder
from tuner.schedule import Decision
from tuner.worker.runner import REPORT, Order
from tuner.worker.saving import INDEX, saved_path

SECONDS_FOR_SAVES = 15.0  # that the end of a search waits for checkpoints
LOSSES_ALLOWED = 3  # a trial is tried again so often after its worker or node died
_DECISIONS = {
    Decision.CONTINUE: TrialScheduler.CONTINUE,
    Decision.STOP: TrialScheduler.STOP,
    Decision.PAUSE: TrialScheduler.PAUSE,
}


class RayTrial(RayTrialBase):  # type: ignore[misc]
    """A Ray trial that remembers why it failed: Ray itself only writes it to a file."""

    last_error: BaseException | None = None

    def handle_error(self, exc: BaseException | None = None) -> None:
        """Keep the exception, then do what Ray does."""
        self.last_error = exc
        super().handle_error(exc)


class RaySearch(SearchAlgorithm):  # type: ignore[misc]
    """Asks the loop for the next trial, and makes it a Ray trial under the loop's own id."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._experiment: Experiment | None = None

    def add_configurations(self, experiments: Any) -> None:
        """Called by Ray once, with what `tune.run` was given."""
        self._experiment = experiments[0] if isinstance(experiments, list) else experiments

    @property
    def total_samples(self) -> int:
        """Shown nowhere; Ray wants a number."""
        return self._bridge.loop.study.trials or 0

    def next_trial(self) -> RayTrial | None:
        """A new Ray trial, or None; a paused one that should go on is left to the scheduler."""
        if self._bridge.going_on is not None:
            return None
        action = self._bridge.loop.next_action()
        if isinstance(action, Resume):
            self._bridge.going_on = action.trial
            return None
        return None if action is None else self._bridge.create(action, self._experiment)

    def is_finished(self) -> bool:
        """Whether no trial runs and none will."""
        return self._bridge.loop.finished

    def save_to_dir(self, dirpath: str, **kwargs: Any) -> None:
        """Nothing: the run's events hold the state of the search."""


class RayScheduler(TrialScheduler):  # type: ignore[misc]
    """Turns Ray's results into reports to the loop, and the loop's decisions into Ray's."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._bridge = bridge

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Metric and mode are the study's."""
        return True

    def on_trial_result(self, tune_controller: Any, trial: RayTrial, result: dict[str, Any]) -> str:
        """One message of a worker: an epoch, or the trial's failure."""
        loop = self._bridge.loop
        message = json.loads(result[REPORT][0])
        if "failure" in message:
            loop.failed(trial.trial_id, **message["failure"])
            trial.max_failures = 0
            return str(TrialScheduler.CONTINUE)
        self._bridge.take_along(trial.trial_id, message)
        counted = self._bridge.first_epoch[trial.trial_id] + result["training_iteration"]
        epoch = message.get("epoch", counted)
        handed_over = result.get("checkpoint_dir_name")
        if handed_over:  # here rather than in Ray's callback, which a trial that is paused and dropped never gets to
            loop.saved(trial.trial_id, epoch, f"tune/{self._bridge.folders[trial.trial_id]}/{handed_over}")
        has_checkpoint = handed_over is not None
        return str(_DECISIONS[loop.report(trial.trial_id, epoch, message["metrics"], has_checkpoint=has_checkpoint)])

    def choose_trial_to_run(self, tune_controller: Any) -> RayTrial | None:
        """A paused trial that the loop lets go on; new trials Ray starts by itself."""
        if self._bridge.interrupted():
            raise StudyInterrupted
        self._bridge.look_for_saves()
        for trial_id in self._bridge.loop.drop_eliminated():
            if trial_id in self._bridge.trials:
                tune_controller.stop_trial(self._bridge.trials[trial_id])
        if self._bridge.going_on is None:
            return None
        trial = self._bridge.trials[self._bridge.going_on]
        if trial.status == RayTrialBase.PAUSED:
            self._bridge.going_on = None
            return trial
        return None

    def debug_string(self) -> str:
        """Ray prints it in its own console output, which is off."""
        return ""

    def on_trial_add(self, tune_controller: Any, trial: RayTrial) -> None:
        """Nothing: the loop knows its trials."""

    def on_trial_error(self, tune_controller: Any, trial: RayTrial) -> None:
        """Nothing: the callback tells the loop."""

    def on_trial_complete(self, tune_controller: Any, trial: RayTrial, result: dict[str, Any]) -> None:
        """The function has returned by itself, unless the loop ended the trial before."""
        self._bridge.loop.returned(trial.trial_id)

    def on_trial_remove(self, tune_controller: Any, trial: RayTrial) -> None:
        """Nothing: the loop decided it."""


class RayCallback(Callback):  # type: ignore[misc]
    """Tells the loop of lost workers and failures that no worker could report."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def on_trial_recover(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        """A worker or node died; Ray starts the trial again from its last checkpoint.

        One that was killed for its memory starts with a micro-batch half the size, as it would kill its worker again.
        """
        if _cause(trial.last_error) == "out_of_memory":
            trial.config["halvings"] += 1
        self._bridge.loop.lost(trial.trial_id, _first_line(trial.last_error))

    def on_trial_error(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        """The trial is over: its worker died too often, or could not even start it."""
        self._bridge.loop.failed(
            trial.trial_id, _cause(trial.last_error), _first_line(trial.last_error), str(trial.last_error)
        )


@dataclass
class Bridge:
    """What the three adapters share: the loop, and which Ray trial is which of ours."""

    loop: SearchLoop
    resources: Resources
    run_uri: str
    save_epochs: list[int]
    interrupted: Callable[[], bool]
    session: int = 0

    def __post_init__(self) -> None:
        """No trial is known yet."""
        self.trials: dict[str, RayTrial] = {}
        self.first_epoch: dict[str, int] = {}
        self.folders: dict[str, str] = {}
        self.going_on: str | None = None
        self._noticed: set[str] = set()
        self._coming: dict[str, int] = {}
        self._looked = 0.0

    def take_along(self, trial: str, message: dict[str, Any]) -> None:
        """What a report brings beside its metrics: sentences for the user, and word of checkpoints."""
        for note in message.get("notes", []):
            if note not in self._noticed:  # each sentence once for all trials
                self._noticed.add(note)
                self.loop.notice(note)
        for epoch in message.get("saved", []):
            self._saved(trial, epoch)
        if message.get("saving") is not None:
            self._coming[trial] = message["saving"]

    def look_for_saves(self) -> None:
        """Note checkpoints that were still being written when their trial's last report came; looks once a second."""
        if time.monotonic() - self._looked < 1.0:
            return
        self._looked = time.monotonic()
        for trial, epoch in list(self._coming.items()):
            if not self.loop.record.trials[trial].live and self._is_there(trial, epoch):
                self._saved(trial, epoch)

    def await_saves(self, seconds: float = SECONDS_FOR_SAVES) -> None:
        """After the search: wait for what is still being written, and delete what was cut off."""
        until = time.monotonic() + seconds
        while self._coming and time.monotonic() < until:
            for trial, epoch in list(self._coming.items()):
                if self._is_there(trial, epoch):
                    self._saved(trial, epoch)
            time.sleep(0.05 if self._coming else 0)
        for trial, epoch in self._coming.items():
            self.loop.notice(f"the checkpoint of epoch {epoch} of trial {trial} was not finished")
            open_folder(self.run_uri).delete(saved_path(trial, epoch))

    def _is_there(self, trial: str, epoch: int) -> bool:
        return open_folder(self.run_uri).exists(f"{saved_path(trial, epoch)}/{INDEX}")

    def _saved(self, trial: str, epoch: int) -> None:
        if self._coming.get(trial) == epoch:
            del self._coming[trial]
        self.loop.saved(trial, epoch, saved_path(trial, epoch))

    def create(self, start: Start, experiment: Experiment | None) -> RayTrial:
        """The Ray trial for a trial of ours."""
        if experiment is None:
            raise RuntimeError("Ray asked for a trial before it set the experiment up")
        folder = start.trial if self.session == 0 else f"{start.trial}-resumed{self.session}"
        trial = RayTrial(
            experiment.spec["run"],
            config=asdict(self._order(start)),
            trial_id=start.trial,
            storage=experiment.spec["storage"],
            checkpoint_config=experiment.spec["checkpoint_config"],
            placement_group_factory=self._placement(),
            trial_dirname_creator=lambda _: folder,
            max_failures=LOSSES_ALLOWED,
        )
        self.trials[start.trial] = trial
        self.first_epoch[start.trial] = start.from_epoch
        self.folders[start.trial] = folder
        return trial

    def _order(self, start: Start) -> Order:
        study = self.loop.study
        return Order(
            trial=start.trial,
            config=start.config,
            seed=start.seed,
            epochs=start.epochs,
            save_epochs=self.save_epochs,
            metric=study.metric,
            mode=study.mode,
            study_seed=study.seed,
            cpus=self.resources.cpus or 1,
            gpus=self.resources.gpus or 0,
            strategy=start.config.get("strategy", self.resources.strategy),
            placement=self.resources.placement,
            run_uri=self.run_uri,
            to_beat=self.loop.record.best_ended,
            checkpoint_uri=start.from_checkpoint and open_folder(self.run_uri).child(start.from_checkpoint).uri,
        )

    def _placement(self) -> ray.tune.PlacementGroupFactory:
        """One bundle, whose devices all processes of a trial share out; or one for each process, over the nodes."""
        cpus, gpus = float(self.resources.cpus or 1), float(self.resources.gpus or 0)
        count = int(self.resources.devices) if self.resources.placement == "spread" else 1
        bundle = {"CPU": cpus / count} | ({"GPU": gpus / count} if gpus else {})
        return ray.tune.PlacementGroupFactory([bundle] * count, strategy="SPREAD" if count > 1 else "PACK")


def _cause(error: BaseException | None) -> str:
    if isinstance(error, KilledForMemoryError):
        return "out_of_memory"
    if isinstance(error, RayTaskError):
        return "error"
    return "lost" if isinstance(error, RayActorError) else "error"


def _first_line(error: BaseException | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
