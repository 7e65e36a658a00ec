"""A run as its folder records it: what every room reads that computes or shows something of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from tuner.errors import RunFolderError, StudyError
from tuner.history.combination import wanted
from tuner.history.events import Event, Reading, read_all
from tuner.history.logs import log_text
from tuner.history.records import RunRecord, TrialRecord
from tuner.history.refits import shipped_refit
from tuner.history.run_info import RUN_FILE, read_info
from tuner.history.scored import BEST, METRICS, read_scored
from tuner.results.courses import Lead, leads
from tuner.results.dead import dead
from tuner.results.full_length import Outcomes, outcomes_at_full_length
from tuner.results.importance import Importance, importance
from tuner.results.titles import read_title
from tuner.space import Config, Space, recorded_space
from tuner.space.mode import Objective
from tuner.storage.folder import Folder
from tuner.storage.lease import holder
from tuner.study.budget import SECONDS_PER_HOUR
from tuner.text import in_utf8
from tuner.trial.inference_cost import KnownCosts

RunStatus = Literal["running", "finished", "interrupted", "failed"]


class RecordedRun:
    """A run folder, read once; `tuner.Run` is the one that users get, with tables, plots and orders."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.info, self._odd_fields = read_info(folder)
        self._scored: dict[str, tuple[Any, str | None]] = {}  # content of best/

    best_folder = BEST  # in the run folder, where the winner's network is

    @property
    def refit(self) -> TrialRecord | None:
        """The trial whose network is in `best/` in place of the winner's; None if that is the winner's own."""
        return shipped_refit(self.record)

    @property
    def path(self) -> str:
        """Folder or URI of the run."""
        return self.folder.uri

    @property
    def name(self) -> str:
        """The study's name."""
        return str(in_utf8(self.info["study"]))

    @cached_property
    def title(self) -> str:
        """The name that `tuner rename` gave it, or the study's."""
        return read_title(self.folder) or self.name

    @property
    def metric(self) -> str:
        """The metric that the study optimises."""
        return str(in_utf8(self.info["metric"]))

    @property
    def mode(self) -> str:
        """Whether the metric is to be "min" or "max"."""
        return str(self.info["mode"])

    @property
    def alive(self) -> bool:
        """Whether a driver works on the run now, as far as this machine can tell."""
        if self.info["status"] != "running":
            return False
        return holder(self.folder) is not None

    @property
    def status(self) -> RunStatus:
        """The run's status; a run whose driver disappeared was interrupted."""
        status: RunStatus = self.info["status"]
        return "interrupted" if status == "running" and not self.alive else status

    @property
    def end_reason(self) -> str | None:
        """What ended the search: a limit of its budget by its name, "space", "stop", …; None while it runs."""
        return in_utf8(self.info["end_reason"])  # type: ignore[no-any-return]

    @property
    def budget(self) -> dict[str, Any]:
        """The study's limits by their names, as last set; None for limits that it doesn't have."""
        return dict(self.info.get("budget") or {}) | self.record.steered.limits

    @property
    def objective(self) -> Objective:
        """The metric with its mode."""
        return Objective(self.metric, self.info["mode"])

    @property
    def second(self) -> Objective | None:
        """The second metric of a search for the front of two."""
        told = self.info["second"]
        return None if told is None else Objective(told["metric"], told["mode"])

    @cached_property
    def costs(self) -> KnownCosts | None:
        """What the networks of the space cost, as measured before the search; None for a study without limits."""
        told = self.info["costs"]
        return None if told is None else KnownCosts.recorded(told)

    @cached_property
    def events(self) -> list[Event]:
        """Everything that happened, in order, as far as it can be read."""
        return self._reading.events

    @property
    def readable_events(self) -> list[Event]:
        """`events` with their texts in UTF-8, as the metric's name is."""
        return in_utf8(self.events) if self._reading.surrogates else self.events

    @cached_property
    def _reading(self) -> Reading:
        return read_all(self.folder)

    @property
    def damages(self) -> list[str]:
        """Damage in the files that were read so far: a sentence for each field, line and file."""
        torn = self._reading.torn
        cut_off = [torn] if torn is not None and not self.alive else []
        of_best = [wrong for _, wrong in self._scored.values() if wrong is not None]
        return [*self._odd_fields, *self._space[1], *self._reading.damages, *cut_off, *of_best]

    @cached_property
    def record(self) -> RunRecord:
        """The trials, computed from the events."""
        record = RunRecord(self.metric, self.mode, self.readable_events)
        if not self.alive:
            record.close()
        return record

    @cached_property
    def leads(self) -> list[Lead]:
        """Who led at each moment, see `tuner.results.courses`."""
        return leads(self.record, self.readable_events)

    @property
    def best(self) -> TrialRecord | None:
        """The winner: the trial that ranks highest, see `tuner.history.standings`; None while none has reported."""
        return self.record.best_trial()

    @property
    def best_metrics(self) -> dict[str, Any]:
        """The winner's metrics at the epoch that stands for it, with the test metrics if it was scored."""
        if (best := self.best) is None or (found := self.record.best_of(best.trial)) is None:
            return {}
        metrics = dict(best.epochs[found[0]].metrics)
        scored = self.scored(METRICS) or {}
        return metrics | scored.get("metrics", {}) if scored.get("trial") == best.trial else metrics

    @cached_property
    def longest_trial(self) -> int:
        """Epochs of a trial that isn't stopped: the budget's, or if that isn't known the longest trial's."""
        return int(self.budget.get("max_epochs") or max((t.epoch for t in self.record.trials.values()), default=1))

    @property
    def test_intervals(self) -> dict[str, tuple[float, float, str]]:
        """Low and high end of the 95 % interval of each of the winner's test metrics, and the method."""
        told = (self.scored(METRICS) or {}).get("intervals", {})
        return {name: (one["low"], one["high"], one["method"]) for name, one in told.items()}

    @property
    def images(self) -> dict[str, int]:
        """How many images the splits "train", "validation" and "test" have; empty while no winner was scored."""
        return dict((self.scored(METRICS) or {}).get("images", {}))

    @property
    def validation_images(self) -> int:
        """On how many images the winner was validated, also if it was trained again on them; 0 if that isn't known."""
        own = (self.scored(METRICS) or {}).get("refit", {}).get("own") or {}
        return int(own.get("validation_images", 0) or self.images.get("validation", 0))

    @property
    def average(self) -> Mapping[str, Any] | None:
        """What `best/` says of an average of several trials, in it or found not to pay; None if none is to ship."""
        found: Mapping[str, Any] | None = (self.scored(METRICS) or {}).get("combined")
        return None if wanted(self.record) is None or self.refit is not None else found

    @property
    def devices(self) -> float:
        """How many devices a running trial holds: its GPUs, or its CPUs if it has none."""
        resources = self.info.get("resources") or {}
        return float(resources.get("gpus") or resources.get("cpus") or 1)

    @property
    def device_hours(self) -> float:
        """Device hours of all trials together; if the run's trials share GPUs, all GPUs for the run's whole time."""
        if self.info.get("shared_gpus"):
            return float(self.info["shared_gpus"] * self.record.wall_seconds / SECONDS_PER_HOUR)
        return self.record.device_hours(self.devices)

    def device_hours_by_status(self) -> dict[str, float]:
        """`device_hours` by the status of the trials, as shares of the time that they ran."""
        seconds: dict[str, float] = {}
        for trial in self.record.trials.values():
            ran = self.record.running_seconds_of(trial)
            seconds[trial.status] = seconds.get(trial.status, 0.0) + ran
        whole = sum(seconds.values())
        return {status: self.device_hours * ran / whole if whole else 0.0 for status, ran in seconds.items()}

    @property
    def space(self) -> Space:
        """The space that was searched, without functions; an empty one if the run doesn't record it."""
        return self._space[0]

    @cached_property
    def _space(self) -> tuple[Space, list[str]]:
        """The space, and what is wrong with its record in run.json."""
        try:
            return recorded_space(in_utf8(self.info["space"] or {})), []
        except (StudyError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
            return Space({}), [f"{RUN_FILE} needs a space that can be searched, got another ({error}); it is left out"]

    @cached_property
    def dead(self) -> tuple[str, ...]:
        """The hyperparameters that are known to change nothing, such as those that no trial has read."""
        return dead(self.record, self.space)

    @cached_property
    def full_outcomes(self) -> Outcomes:
        """The values of the trials at full length, see `tuner.results.full_length`."""
        return outcomes_at_full_length(self.record, self.space, self.longest_trial, self.info.get("rungs") or ())

    @cached_property
    def importances(self) -> tuple[Importance, ...]:
        """The hyperparameters by how much they matter at full length, those that matter most first."""
        found = self.full_outcomes
        return tuple(importance(self.space, found.configs, found.values, draws=found.draws, without=self.dead))

    def outcomes(self) -> tuple[list[Config], list[float]]:
        """The configurations that have a value, and the value of each, the winner first; failed trials don't count."""
        ranked = self.record.ranked()
        return [one.trial.config for one in ranked], [one.value for one in ranked]

    def trial(self, trial_id: str) -> TrialRecord:
        """A trial by its id, whose leading zeros may be left out.

        Raises:
            RunFolderError: the run has no such trial.
        """
        trials, found = self.record.trials, self.record.named(trial_id)
        if found is None:
            known = f"{next(iter(trials))} to {next(reversed(trials))}" if trials else "none"
            raise RunFolderError(f"a trial is named by its id, got {trial_id!r}; this run has {known}")
        return found

    def log(self, trial_id: str) -> str:
        """What the trial printed, each line with its time (UTC) and epoch; empty if nothing. Raises RunFolderError."""
        return log_text(self.folder, self.trial(trial_id).trial)

    @property
    def best_epoch(self) -> int | None:
        """The epoch whose network is the winner's."""
        return found[0] if self.best and (found := self.record.best_of(self.best.trial)) else None

    def scored(self, name: str) -> Any:
        """The content of a file of `best/`; None if the run has no scored winner, or the file can't be used."""
        if name not in self._scored:
            self._scored[name] = read_scored(self.folder, name, self.best_folder)
        return self._scored[name][0]
