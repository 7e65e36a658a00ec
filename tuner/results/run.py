"""A run, read from its folder."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tuner.budget import SECONDS_PER_HOUR
from tuner.errors import RunFolderError, StudyError
from tuner.foreign_text import in_utf8
from tuner.history.events import Event, Reading, read_all
from tuner.history.logs import log_text
from tuner.history.records import RunRecord, TrialRecord
from tuner.history.run_info import (
    FORMAT,
    RUN_FILE,
    STUDY_FILE,
    STUDY_JSON,
    TIME_FORMAT,
    lives_without_lease,
    new_run_folder,
    now,
    read_info,
    write_info,
)
from tuner.history.scored import BEST, METRICS, read_scored
from tuner.orders.steerable import Steerable
from tuner.results.titles import read_title
from tuner.space import Config, Space, recorded_space
from tuner.storage.folder import Folder
from tuner.storage.lease import ever_held, holder
from tuner.study import Study

if TYPE_CHECKING:
    import pandas as pd

    from tuner.plots import Plots
    from tuner.replay import Replayed
    from tuner.results.courses import Lead
    from tuner.results.importance import Importance

__all__ = [
    "BEST",
    "FORMAT",
    "RUN_FILE",
    "STUDY_FILE",
    "STUDY_JSON",
    "TIME_FORMAT",
    "Run",
    "RunStatus",
    "new_run_folder",
    "now",
    "read_info",
    "write_info",
]

RunStatus = Literal["running", "finished", "interrupted", "failed"]


class Run(Steerable):
    """A run folder, read once; `load_run` makes one. Its methods write only orders, into `inbox/`. Long because users
    read a run through it: each method is a few lines that name where the work is done.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.info, self._odd_fields = read_info(folder)
        self._scored: dict[str, tuple[Any, str | None]] = {}  # content of best/

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
        return holder(self.folder) is not None or (not ever_held(self.folder) and lives_without_lease(self.info))

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

    def declared_study(self, *, trust: bool = True) -> Study:
        """The study that the run's own copy of the file declares, which is run as Python unless it is JSON.

        Without `trust` only the file of a folder that belongs to the present user is run: see `require_own`.

        Raises:
            RunFolderError: the run was started from Python, or the folder is another user's.
            StudyError: the file is missing or fails to run.
        """
        from tuner.results.declaring import declared_study

        return declared_study(self, trust=trust)

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
        from tuner.results.courses import leads

        return leads(self)

    @property
    def trials(self) -> pd.DataFrame:
        """A row per trial."""
        from tuner.results.tables import trials_table

        return trials_table(self.record)

    @property
    def history(self) -> pd.DataFrame:
        """A row per trial and epoch."""
        from tuner.results.tables import history_table

        return history_table(self.record)

    def top(self, count: int = 10) -> pd.DataFrame:
        """The best `count` rows of `trials` that did not fail; of several seeds the best trial's row, with the mean."""
        from tuner.results.tables import best_rows

        return best_rows(self.record, self.trials, count)

    @property
    def configurations(self) -> pd.DataFrame:
        """A row per configuration, the best first: `seeds`, their mean, its standard `error`, `lowest`, `highest`."""
        from tuner.results.tables import configurations_table

        return configurations_table(self.record)

    def confirm(self, top: int | None = None, seeds: int | None = None, **options: Any) -> Run:
        """`tuner.confirm` for this run; returns the run afterwards. A running search has only taken the order then."""
        from tuner.results.confirming import confirm

        return confirm(self, top, seeds, options)

    @property
    def metric_column(self) -> str:
        """The metric's column in `trials`: its name, unless that is one of the table's own."""
        from tuner.results.tables import metric_column

        return metric_column(self.metric)

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

    @property
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
        from tuner.results.dead import dead

        return dead(self.record, self.space)

    @cached_property
    def importances(self) -> tuple[Importance, ...]:
        """The hyperparameters by how much they matter at full length, those that matter most first."""
        from tuner.results.full_length import full_importance

        return full_importance(self)

    def importance(self) -> pd.DataFrame:
        """`hyperparameter`, the `share` of the variance it explains at full length, its standard `error`; ordered."""
        from tuner.results.tables import importance_table

        return importance_table(self.importances)

    def outcomes(self) -> tuple[list[Config], list[float]]:
        """The configurations that have a value, and the value of each, the winner first; failed trials don't count."""
        ranked = self.record.ranked()
        return [one.trial.config for one in ranked], [one.value for one in ranked]

    def advice(self) -> pd.DataFrame:
        """What to try next, the most promising first: `text`, and the `command` that does it if there is one."""
        from tuner.results import findings, tables

        return tables.advice_table(findings.advice(self))

    @property
    def plot(self) -> Plots:
        """Plots of the run: `run.plot.history()` and others, as plotly figures."""
        from tuner.plots import Plots

        return Plots(self)

    def trial(self, trial_id: str) -> TrialRecord:
        """A trial by its id, whose leading zeros may be left out.

        Raises:
            RunFolderError: the run has no such trial.
        """
        trials = self.record.trials
        found = trials.get(trial_id) or trials.get(trial_id.zfill(5))
        if found is None:
            known = f"{next(iter(trials))} to {next(reversed(trials))}" if trials else "none"
            raise RunFolderError(f"a trial is named by its id, got {trial_id!r}; this run has {known}")
        return found

    def trial_summary(self, trial_id: str) -> dict[str, Any]:
        """What `show --trial ID --json` prints: the trial with its configuration, outcome and epochs."""
        from tuner.results.summaries import summary_of_trial

        return summary_of_trial(self.trial(trial_id), self.folder)

    def log(self, trial_id: str) -> str:
        """What the trial printed, each line with its time (UTC) and epoch; empty if nothing. Raises RunFolderError."""
        return log_text(self.folder, self.trial(trial_id).trial)

    def replay(self, trial_id: str, epochs: int | None = None, **options: Any) -> Replayed:
        """Train a trial again and compare its curve; `options` and exceptions are those of `tuner.replay.replay`."""
        from tuner.replay import replay

        return replay(self, trial_id, epochs=epochs, **options)

    def summary(self) -> dict[str, Any]:
        """What `--json` prints: run, status, best, trials, failures, wall_seconds, report."""
        from tuner.results.summaries import summary_of_run

        return summary_of_run(self)

    @property
    def best_epoch(self) -> int | None:
        """The epoch whose network is the winner's."""
        return found[0] if self.best and (found := self.record.best_of(self.best.trial)) else None

    def __repr__(self) -> str:
        """The run in one line, with its winner."""
        from tuner.results.representing import in_a_line

        return in_a_line(self)

    def _repr_html_(self) -> str:
        """For notebooks: the run in a few lines, and its best trials."""
        from tuner.results.representing import in_html

        return in_html(self)

    def scored(self, name: str) -> Any:
        """The content of a file of `best/`; None if the run has no scored winner, or the file can't be used."""
        if name not in self._scored:
            self._scored[name] = read_scored(self.folder, name)
        return self._scored[name][0]
