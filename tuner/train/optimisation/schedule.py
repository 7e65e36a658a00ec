"""The learning rate over a trial, as a share of its highest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

ONE_CYCLE_RISE = 0.3  # share of the trial in which the rate of one-cycle rises
ONE_CYCLE_START, ONE_CYCLE_END = 1 / 25, 1 / 25e4  # as in torch's OneCycleLR


@dataclass(frozen=True)
class Schedule:
    """It depends only on the epochs done, so that it has no state to be restored.

    Attributes:
        kind: "constant"; "cosine" (Loshchilov and Hutter 2017, without restarts); "one-cycle" (Smith and Topin 2018,
            cosine up and down, momentum left alone); "step"
        epochs: of the whole trial, without those of `probe`
        warmup_epochs: epochs in which the rate rises, linearly except in one-cycle
        step_epochs: between two steps
        step_factor: what each step multiplies the rate by
        probe: epochs before all others, with their own schedule of this kind, without warmup
        probe_share: share of the highest rate in these epochs
    """

    kind: str
    epochs: int
    warmup_epochs: float = 0.0
    step_epochs: int = 1
    step_factor: float = 0.1
    probe: int = 0
    probe_share: float = 1.0

    @classmethod
    def of(cls, hyperparameters: dict[str, Any], epochs: int, probe: int = 0) -> Schedule:
        """A configuration's schedule for a trial of `epochs`, in the first `probe` of which only the head learns."""
        epochs = max(1, epochs - probe)
        return cls(
            kind=hyperparameters["schedule"],
            epochs=epochs,
            warmup_epochs=hyperparameters["warmup_epochs"],
            step_epochs=hyperparameters["step_epochs"] or max(1, math.ceil(epochs / 3)),
            step_factor=hyperparameters["step_factor"],
            probe=probe,
            probe_share=(hyperparameters["probe_lr"] or hyperparameters["lr"]) / hyperparameters["lr"],
        )

    def __call__(self, done: float) -> float:
        """The share of the highest rate after `done` epochs, which may be a fraction."""
        if done < self.probe:
            steps = max(1, math.ceil(self.probe / 3))
            return self.probe_share * Schedule(self.kind, self.probe, 0.0, steps, self.step_factor)(done)
        return self._of_the_rest(done - self.probe)

    def of_step(self, epoch: int, step: int, steps: int) -> float:
        """The share of the highest rate in a step, that of its middle.

        Args:
            epoch: finished epochs
            step: finished steps of the next one
            steps: of an epoch
        """
        return float(self(epoch + (step + 0.5) / steps))

    def _of_the_rest(self, done: float) -> float:
        if self.kind == "one-cycle":
            return self._one_cycle(done)
        rise = min(1.0, done / self.warmup_epochs) if self.warmup_epochs else 1.0
        return rise * self._after_warmup(done)

    def _after_warmup(self, done: float) -> float:
        if self.kind == "cosine":
            length = self.epochs - self.warmup_epochs
            return _cosine(1.0, 0.0, (done - self.warmup_epochs) / length) if length > 0 else 1.0
        if self.kind == "step":
            return float(self.step_factor ** (done // self.step_epochs))
        return 1.0

    def _one_cycle(self, done: float) -> float:
        rise = min(self.warmup_epochs or ONE_CYCLE_RISE * self.epochs, self.epochs)
        if done < rise:
            return _cosine(ONE_CYCLE_START, 1.0, done / rise)
        return _cosine(1.0, ONE_CYCLE_END, (done - rise) / (self.epochs - rise)) if self.epochs > rise else 1.0


def _cosine(start: float, end: float, share: float) -> float:
    """From `start` to `end` along half a cosine, as `share` goes from 0 to 1."""
    return end + (start - end) * (1 + math.cos(math.pi * min(1.0, max(0.0, share)))) / 2
