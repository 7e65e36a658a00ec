"""Several runs side by side: what each reached, and what each had reached at equal cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.errors import RunFolderError
from tuner.foreign_text import in_utf8
from tuner.results.run import Run

if TYPE_CHECKING:
    import pandas as pd

    from tuner.plots import Against, Plot


@dataclass(frozen=True)
class Comparison:
    """Runs of the same metric, and the number of epochs that each of them has trained at least."""

    runs: tuple[Run, ...]
    epochs: int

    @property
    def table(self) -> pd.DataFrame:
        """A row per run: what it was, what it cost, its best value, and the best it had after `epochs` epochs."""
        import pandas as pd

        rows = []
        for name, run in zip(self.names, self.runs, strict=True):
            rows.append(
                {
                    "run": name,
                    "search": in_utf8(run.info["search"]),
                    "scheduler": in_utf8(run.info["scheduler"]),
                    "trials": len(run.record.trials),
                    "epochs": run.record.epochs(),
                    "minutes": round(run.record.wall_seconds / 60, 2),
                    run.metric: run.record.best_value,
                    self.equal_cost: self._after(run),
                    **{key: value for key, value in run.best_metrics.items() if key.startswith("test_")},
                }
            )
        return pd.DataFrame(rows)

    @property
    def equal_cost(self) -> str:
        """The column of the values at equal cost."""
        return f"{self.runs[0].metric} after {self.epochs} epochs"

    @property
    def names(self) -> list[str]:
        """The runs' folders, without what they have in common; each is another."""
        paths = [run.path.rstrip("/").split("/") for run in self.runs]
        shared = next((k for k, parts in enumerate(zip(*paths, strict=False)) if len(set(parts)) > 1), 0)
        return [in_utf8("/".join(parts[shared:])) for parts in paths]

    @property
    def conclusion(self) -> str:
        """Who wins at equal cost, and by how much."""
        values = [(name, self._after(run)) for name, run in zip(self.names, self.runs, strict=True)]
        told = [(name, value) for name, value in values if value is not None]
        if not told:
            return "no run has reported a value"
        ranked = sorted(told, key=lambda pair: pair[1], reverse=self.runs[0].mode == "max")
        (best, value), rest = ranked[0], ranked[1:]
        ahead = f", {abs(value - rest[0][1]):.4g} ahead of {rest[0][0]}" if rest else ""
        if rest and rest[0][1] == value:
            return f"after {self.epochs} epochs {best} and {rest[0][0]} are even at {self.runs[0].metric} {value:.4g}"
        return f"after {self.epochs} epochs {best} is best with {self.runs[0].metric} {value:.4g}{ahead}"

    def plot(self, against: Against = "epochs") -> Plot:
        """The best value so far of every run on the same axes."""
        from tuner.plots.comparison import best_values

        return best_values(self, against)

    def _after(self, run: Run) -> float | None:
        """The best value that a run had when all its trials together had trained `self.epochs` epochs."""
        told = run.record.reports()[: self.epochs]
        values = [value for _, trial, _, value in told if trial.status != "failed" and value is not None]
        return (max if run.mode == "max" else min)(values, default=None)


def compare(runs: Sequence[Run]) -> Comparison:
    """Runs side by side; raises RunFolderError unless there are two at least, with the same metric."""
    if len(runs) < 2:
        raise RunFolderError(f"compare needs at least two runs, got {len(runs)}; name another")
    kinds = {f"{run.mode}imises {run.metric}": run for run in runs}
    if len(kinds) > 1:
        told = "; ".join(f"{run.path} {kind}" for kind, run in kinds.items())
        raise RunFolderError(f"compare needs runs of the same metric, got others: {told}; choose runs of one metric")
    return Comparison(tuple(runs), max(1, min(run.record.epochs() for run in runs)))
