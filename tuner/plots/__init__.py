"""Plots of a run, as plotly figures with their numbers: `run.plot.NAME()`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from tuner.plots import curves, mistakes, progress, space, tradeoff
from tuner.plots.configurations import Tried, tried
from tuner.plots.figure import Plot, nothing
from tuner.results.courses import Against
from tuner.results.importance import headline
from tuner.results.run import RecordedRun
from tuner.trial.tasks import TASKS

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Against", "Plot", "Plots", "of_tasks"]

NO_SCORE_OF_IT = "The run has no such score of its winner: it was not scored, or its task or version has none"


@cache
def of_tasks() -> dict[str, Callable[[RecordedRun], Plot | None]]:
    """The plots of a winner that tasks declare, by the names of their functions; None for runs of other tasks."""
    return {name.rpartition(":")[2]: resolve_name(name) for task in TASKS.values() for name in task.plots}


class Plots:
    """The plots of a run; each returns a plotly figure whose title says what it shows.

    If there is nothing to show, the title says why. Beside the methods below there are those of a winner's task, see
    `of_tasks`: for one label `confusion`, `classes` and `calibration`.
    """

    def __init__(self, run: RecordedRun) -> None:
        self._run = run

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The methods that draw a plot."""
        return (*(name for name in vars(cls) if not name.startswith("_") and name != "names"), *of_tasks())

    def __getattr__(self, name: str) -> Callable[[], go.Figure]:
        """The plot of a task with this name."""
        if name not in of_tasks():
            raise AttributeError(f"a run has no plot {name!r}; there are {', '.join(self.names())}")
        return lambda: self._shown(of_tasks()[name](self._run), NO_SCORE_OF_IT)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *of_tasks()]

    def history(self, against: Against = "trials") -> go.Figure:
        """Each trial's value and the leader's so far, against "trials", "epochs" or "time"."""
        return self._shown(progress.optimisation_history(self._run, against), self._no_value)

    def curves(self) -> go.Figure:
        """Learning curves coloured by outcome, with the rungs of early stopping; bands if there are many trials."""
        return self._shown(curves.learning_curves(self._run), self._no_value)

    def importance(self) -> go.Figure:
        """The share of the metric's variance that each hyperparameter explains, with its standard error."""
        return self._shown(space.importances(self._run), headline((), self._run.dead).text)

    def parallel(self) -> go.Figure:
        """A line per trial through its hyperparameters to the metric."""
        return self._shown(space.parallel_coordinates(self._run, self._tried), self._nothing_searched)

    def slice(self) -> go.Figure:
        """The metric against each hyperparameter."""
        return self._shown(space.slices(self._run, self._tried), self._nothing_searched)

    def contour(self, x: str | None = None, y: str | None = None) -> go.Figure:
        """The metric over two hyperparameters, by default those that matter most."""
        reason = "A contour needs two hyperparameters that are numbers, and eight trials that have both"
        return self._shown(space.contour(self._run, self._tried, x, y), reason)

    def rank(self) -> go.Figure:
        """Trials over the two hyperparameters that matter most, coloured by rank."""
        return self._shown(space.ranks(self._run, self._tried), self._nothing_searched)

    def distribution(self) -> go.Figure:
        """The share of trials that reached a value: the empirical distribution."""
        return self._shown(progress.distribution(self._run), self._no_value)

    def timeline(self) -> go.Figure:
        """When each trial ran on which worker, with the idle time in between."""
        return self._shown(progress.timeline(self._run), "No trial has run yet")

    def tradeoff(self) -> go.Figure:
        """What configurations reach in two metrics, with the front; for studies with two, or with `limits`."""
        two = self._run.second is not None or self._run.costs is not None
        return self._shown(
            tradeoff.tradeoff(self._run), self._no_value if two else "The study has one metric, and no limits of costs"
        )

    def front_growth(self) -> go.Figure:
        """How much of the area that the front of two metrics dominates the first trials did."""
        two = self._run.second is not None
        return self._shown(tradeoff.front_growth(self._run), self._no_value if two else "The study has one metric")

    def savings(self) -> go.Figure:
        """Epochs spent and saved by early stopping, by where trials ended."""
        return self._shown(progress.savings(self._run), "No trial has finished an epoch")

    def costs(self) -> go.Figure:
        """Memory and throughput of each trial."""
        return self._shown(progress.costs(self._run), "The trials reported no memory and images per second")

    def mistakes(self) -> go.Figure:
        """The test images that the winner is most wrong about, and where it looked."""
        return self._shown(mistakes.mistakes(self._run), "The winner has no mistakes to show")

    def least_sure(self) -> go.Figure:
        """The test images that the winner is least sure about, and where it looked."""
        return self._shown(mistakes.least_sure(self._run), NO_SCORE_OF_IT)

    def winner_curves(self) -> go.Figure:
        """The winner's training and validation metrics after each epoch."""
        reason = "The winner reports no metric of both training and validation, such as train_loss and val_loss"
        return self._shown(curves.winner_curves(self._run), reason)

    @property
    def _tried(self) -> Tried:
        return tried(self._run)

    @property
    def _no_value(self) -> str:
        return f"No trial has reported {self._run.metric}"

    @property
    def _nothing_searched(self) -> str:
        return (
            self._no_value if not self._run.record.reported() else "The run records no hyperparameter that was searched"
        )

    @staticmethod
    def _shown(plot: Plot | None, reason: str) -> Any:
        return nothing(reason) if plot is None else plot.figure


class Numbers(Plots):
    """The numbers of a run's plots by the same names; None where there is nothing to show."""

    @staticmethod
    def _shown(plot: Plot | None, reason: str) -> Any:
        return None if plot is None else plot.table
