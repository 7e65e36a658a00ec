"""Plots of a run, as plotly figures with their numbers: `run.plot.NAME()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.plots import mistakes, progress, space
from tuner.plots.base import Plot
from tuner.plots.progress import Against

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from tuner.results.run import Run

__all__ = ["Against", "Plot", "Plots"]


class Plots:
    """The plots of a run; each returns a plotly figure whose title says what is to be seen."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The methods that draw a plot."""
        return tuple(name for name in vars(cls) if not name.startswith("_") and name != "names")

    def history(self, against: Against = "trials") -> go.Figure:
        """Each trial's best value and the best so far, against "trials", "epochs" or "time"."""
        return progress.optimisation_history(self._run, against).figure

    def curves(self) -> go.Figure:
        """Learning curves coloured by outcome, with the rungs of early stopping."""
        return progress.learning_curves(self._run).figure

    def importance(self) -> go.Figure:
        """What each hyperparameter explains of the metric's variance, with its standard error."""
        return space.importances(self._run).figure

    def parallel(self) -> go.Figure:
        """A line per trial through its hyperparameters to the metric."""
        return space.parallel_coordinates(self._run).figure

    def slice(self) -> go.Figure:
        """The metric against each hyperparameter."""
        return space.slices(self._run).figure

    def contour(self, x: str | None = None, y: str | None = None) -> go.Figure:
        """The metric over two hyperparameters, by default those that matter most."""
        return space.contour(self._run, x, y).figure

    def rank(self) -> go.Figure:
        """Trials over the two hyperparameters that matter most, coloured by rank."""
        return space.ranks(self._run).figure

    def distribution(self) -> go.Figure:
        """The share of trials that reached a value: the empirical distribution."""
        return progress.distribution(self._run).figure

    def timeline(self) -> go.Figure:
        """When each trial ran on which worker, with the idle time between."""
        return progress.timeline(self._run).figure

    def savings(self) -> go.Figure:
        """Epochs spent and saved by early stopping, by where trials ended."""
        return progress.savings(self._run).figure

    def costs(self) -> go.Figure:
        """Memory and throughput of each trial."""
        return progress.costs(self._run).figure

    def confusion(self) -> go.Figure:
        """How often the winner takes each class for another, on the test split."""
        return mistakes.confusion_matrix(self._run).figure

    def mistakes(self) -> go.Figure:
        """The test images that the winner is most confidently wrong about."""
        return mistakes.mistakes(self._run).figure
