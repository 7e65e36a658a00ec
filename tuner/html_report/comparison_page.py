"""Several runs on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.history.records import flat_config
from tuner.html_report.elements import Table, cell, figures_of, render, table_of
from tuner.results.courses import Against

if TYPE_CHECKING:
    from tuner.results.comparison import Comparison

COSTS: tuple[Against, ...] = ("epochs", "time", "trials")


def comparison_html(comparison: Comparison) -> str:
    """Runs side by side: HTML that needs no other file and no network."""
    conclusion = comparison.conclusion
    return render(
        "comparison.html",
        names=comparison.names,
        conclusion=conclusion[0].upper() + conclusion[1:],
        runs=table_of(comparison.table),
        groups=table_of(comparison.by_group) if comparison.has_groups else None,
        going=figures_of(comparison.plot(against) for against in COSTS),
        importances=_importances(comparison),
        winners=_winners(comparison),
    )


def _importances(comparison: Comparison) -> Table:
    """A row per hyperparameter, a column per run: the share of the variance that it explains, with its error."""
    shares = [
        {one.name: f"{one.share:.0%} ± {one.deviation:.0%}" for one in run.importances} for run in comparison.runs
    ]
    names = dict.fromkeys(name for of_run in shares for name in of_run)
    rows = [(name, *(of_run.get(name, "") for of_run in shares)) for name in names]
    return Table(("hyperparameter", *comparison.names), tuple(rows))


def _winners(comparison: Comparison) -> Table:
    """A row per hyperparameter, a column per run: the winner's value."""
    configs = [flat_config(run.best.config) if run.best else {} for run in comparison.runs]
    names = dict.fromkeys(name for config in configs for name in config)
    rows = [(name, *(cell(config.get(name)) for config in configs)) for name in names]
    return Table(("hyperparameter", *comparison.names), tuple(rows))
