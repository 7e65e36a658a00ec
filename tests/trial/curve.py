"""A third kind of trial, which tuner has never heard of: what a package of your own would hold."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from tuner import StudyError
from tuner.space import Space
from tuner.trial import Hyperparameter, Trial
from tuner.worker.implementation import Implementation

ROWS = (
    Hyperparameter("x", "float", 0.0, "Where the curve is looked at.", low=0, high=1),
    Hyperparameter("batch_size", "int", 4, "How much at once.", low=1, high=64),
)


@dataclass(frozen=True)
class Curve(Trial):
    """A curve that is better near `lowest`, and with every epoch."""

    kind: ClassVar[str] = "curve"
    implementation: ClassVar[str] = f"{__name__}:Reading"
    uses_gpu: ClassVar[bool] = True
    strategies: ClassVar[tuple[str, ...]] = ("ddp", "pipeline")

    lowest: float = 0.3
    folder: str = "curves"

    @property
    def name(self) -> str:
        return f"curve at {self.lowest}"

    @property
    def reports(self) -> tuple[str, ...]:
        return ("loss", "first")

    @property
    def directions(self) -> dict[str, Any]:
        return {"loss": "min", "first": None}

    @property
    def known_hyperparameters(self) -> dict[str, Hyperparameter]:
        return {row.name: row for row in ROWS}

    @property
    def started_from(self) -> str:
        return "nothing"

    def check(self, space: Space) -> None:
        if "x" not in space.names:
            raise StudyError(f"a curve is looked at somewhere, got {space.names}; write x=uniform(0, 1)")

    def missing_downloads(self) -> list[str]:
        return [] if Path(self.folder).is_dir() else [f"the curve into {self.folder}"]

    def with_options(self, *, weights: str | None = None, data_dir: str | None = None) -> "Curve":
        return super().with_options(weights=weights) if data_dir is None else replace(self, folder=data_dir)


class Reading(Implementation[Curve]):
    """Reads the curve off."""

    def train(self, trial: Curve, order: Any, session: Any) -> None:
        found = session.checkpoints()
        first = int((found[0] / "epoch").read_text()) if found else 0
        for epoch in range(first + 1, order.epochs + 1):
            loss = abs(order.config["x"] - trial.lowest) + 1 / epoch

            def fill(folder: Path, epoch: int = epoch) -> None:
                (folder / "epoch").write_text(str(epoch))

            session.report_epoch(epoch, {"loss": loss, "first": first}, fill=fill)

    def download(self, trial: Curve) -> None:
        Path(trial.folder).mkdir()

    def check_splits(self, trial: Curve, config: dict[str, Any], *, stages: int, splits: Sequence[Any]) -> None:
        raise StudyError(f"{trial.name} is whole, got {stages} stages, {splits}, {sorted(config)}; leave strategy out")

    def score(
        self,
        trial: Curve,
        config: dict[str, Any],
        checkpoint: Path,
        best: Path,
        *,
        record: Mapping[str, Any],
        split_seed: int,
        device: str,
    ) -> None:
        best.mkdir()
        test_loss = config["x"] + int((checkpoint / "epoch").read_text())
        scored = {**record, "metrics": {**record["metrics"], "test_loss": test_loss}}
        (best / "metrics.json").write_text(json.dumps(scored))
