"""A run as users see it, with tables, plots and orders; and several runs, compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.api.driving import driving_with, resumed
from tuner.errors import RunFolderError
from tuner.history.events import Listener
from tuner.orders.steerable import Steerable
from tuner.plots import Against, Plot, Plots
from tuner.plots.groups import comparison_against
from tuner.results import comparison, run_folders
from tuner.results.declaring import declared_study
from tuner.results.findings import findings_of
from tuner.results.front import reported_second
from tuner.results.representing import in_a_line, in_html
from tuner.results.run import RecordedRun
from tuner.results.summaries import summary_of_run, summary_of_trial
from tuner.study.declaration import Study

if TYPE_CHECKING:
    import pandas as pd

    from tuner.replay import Replayed


class Run(RecordedRun, Steerable):
    """A run folder, read once; `load_run` makes one. Its methods write only orders, into `inbox/`."""

    def declared_study(self, *, trust: bool = True) -> Study:
        """The study that the run's own copy of the file declares, which is run as Python unless it is JSON.

        Without `trust` only the file of a folder that belongs to the present user is run: see `require_own`.

        Raises:
            RunFolderError: the run was started from Python, or the folder is another user's.
            StudyError: the file is missing or fails to run.
        """
        return declared_study(self, trust=trust)

    @property
    def trials(self) -> pd.DataFrame:
        """A row per trial."""
        from tuner.results.tables import trials_table

        return trials_table(self.record, self.costs, reported_second(self))

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
    def front(self) -> pd.DataFrame:
        """The configurations that no other beats in two metrics (or one and the first limited cost), by the second.

        Columns: trial, the metric, the second one, and `config/NAME` for each hyperparameter. Empty without two.
        """
        from tuner.results.tables import front_table

        return front_table(self)

    @property
    def configurations(self) -> pd.DataFrame:
        """A row per configuration, the best first: `seeds`, their mean, its standard `error`, `lowest`, `highest`."""
        from tuner.results.tables import configurations_table

        return configurations_table(self.record)

    def confirm(self, top: int | None = None, seeds: int | None = None, **options: Any) -> Run:
        """`tuner.confirm` for this run; returns the run afterwards. A running search has only taken the order then."""
        now = Run(self.folder)  # in its present state
        if not now.alive:
            return confirm(now, top=top, seeds=seeds, **options)
        if options:
            raise RunFolderError(
                f"confirm takes no options of a driver while the search runs, got {', '.join(options)}; leave them out"
            )
        self._order("confirm", {"top": top, "seeds": seeds}, wait=True)
        return Run(self.folder)

    @property
    def metric_column(self) -> str:
        """The metric's column in `trials`: its name, unless that is one of the table's own."""
        from tuner.results.tables import metric_column

        return metric_column(self.metric)

    def importance(self) -> pd.DataFrame:
        """`hyperparameter`, the `share` of the variance it explains at full length, its standard `error`; ordered."""
        from tuner.results.tables import importance_table

        return importance_table(self.importances)

    def advice(self) -> pd.DataFrame:
        """What to try next, the most promising first: `text`, and the `command` that does it if there is one."""
        from tuner.results.tables import advice_table

        return advice_table(findings_of(self).advice)

    @property
    def plot(self) -> Plots:
        """Plots of the run: `run.plot.history()` and others, as plotly figures."""
        return Plots(self)

    def trial_summary(self, trial_id: str) -> dict[str, Any]:
        """What `show --trial ID --json` prints: the trial with its configuration, outcome and epochs."""
        return summary_of_trial(self.trial(trial_id), self.folder)

    def replay(self, trial_id: str, epochs: int | None = None, **options: Any) -> Replayed:
        """Train a trial again and compare its curve; `options` and exceptions are those of `tuner.replay.replay`."""
        from tuner.replay import replay

        return replay(self, trial_id, epochs=epochs, **options)

    def summary(self) -> dict[str, Any]:
        """What `--json` prints: run, status, best, trials, failures, wall_seconds, report."""
        return summary_of_run(self)

    def __repr__(self) -> str:
        """The run in one line, with its winner."""
        return in_a_line(self)

    def _repr_html_(self) -> str:
        """For notebooks: the run in a few lines, and its best trials."""
        return in_html(self)


@dataclass(frozen=True)
class Comparison(comparison.ComparedRuns):
    """Runs with the same metric; `epochs` is the number that each of them has trained at least."""

    runs: tuple[Run, ...]

    def plot(self, against: Against = "epochs") -> Plot:
        """The leaders' values so far on the same axes; for groups the mean and its error, except against trials."""
        return comparison_against(self, against)


def for_users(run: RecordedRun) -> Run:
    """The same run with all that users do with one; what was read of it is not read again."""
    face = Run.__new__(Run)
    vars(face).update(vars(run))
    return face


def load_run(path: str | Path = "runs") -> Run:
    """The run at a folder or URI, or the newest run under a storage folder.

    Raises RunFolderError if there is none, or if a newer version of tuner wrote it.
    """
    return for_users(run_folders.load_run(path))


def find_runs(storage: str | Path) -> list[Run]:
    """The readable runs under a storage folder (or under one study's folder in it), newest first."""
    return [for_users(run) for run in run_folders.find_runs(storage)]


def compare(runs: Sequence[Run]) -> Comparison:
    """Compare runs; raises RunFolderError unless there are at least two, with the same metric."""
    compared = comparison.compare(runs)
    return Comparison(tuple(runs), compared.epochs)


def confirm(
    run: Run | str | Path,
    *,
    top: int | None = None,
    seeds: int | None = None,
    study: Study | None = None,
    concurrency: int | None = None,
    address: str | None = None,
    wandb: str | None = None,
    mlflow: str | None = None,
    nice: int | None = None,
    grace: float | None = None,
    listeners: Iterable[Listener] = (),
    notify: Iterable[str] = (),
    progress: bool = True,
    take_over: bool = False,
) -> Run:
    """Train the best configurations of a run again with other seeds, at full length; returns the run.

    Its `repr` and `run.configurations` give mean and standard error. If it is interrupted, `resume` goes on with it. A
    run whose search was interrupted first trains these trials, then goes on with its search.

    Args:
        run: or the path of its folder, or of a folder above it, for the newest run there
        top: how many of the best configurations; 3, or all of a run that has fewer
        seeds: with how many other seeds each is trained; 5
        study: needed if the run was started from Python and not from a file
        concurrency: trials at once, at most
        address: of an existing Ray cluster
        wandb: unchanged by default
        mlflow: unchanged by default; "off" leaves it out
        nice: as for `run`
        grace: as for `run`
        listeners: as for `run`
        notify: as for `run`
        progress: as for `run`
        take_over: take the run over from a driver that still works on it

    Raises:
        RunFolderError: the run has too few configurations, or none, that have ended with a value; a program asks for
            its trials; a driver works on it: use `Run.confirm` to send that an order.
        StudyError: the study can't work.
    """
    driving = driving_with(concurrency, address, wandb, nice, grace, listeners, notify, mlflow)
    asked = {"study": study, "take_over": take_over, "confirm": (top, seeds)}
    return for_users(resumed(run, {}, driving, progress=progress, **asked))
