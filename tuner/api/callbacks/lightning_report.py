"""The callback of `tuner.LightningReport`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from tuner.trial.session import checkpoint, chosen, report

FILE = "lightning.ckpt"


class LightningReporter(Checkpoint):
    """Reports at the end of each training epoch, after all other callbacks and the module's own hook."""

    def __init__(self, metrics: Sequence[str], *, checkpoint: bool) -> None:
        super().__init__()
        self._metrics, self._saves = tuple(metrics), checkpoint

    @property
    def resume_from(self) -> str | None:
        """What `Trainer.fit` gets as `ckpt_path`: the trial's newest checkpoint, None at its beginning."""
        folder = checkpoint()
        return None if folder is None else str(folder / FILE)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """See `lightning.pytorch.Callback`."""
        logged: dict[str, Any] = {name: value.item() for name, value in trainer.callback_metrics.items()}
        found = chosen(logged, self._metrics, "call self.log(...) in the module's validation_step")
        if not self._saves:
            report(found)
            return
        with tempfile.TemporaryDirectory() as folder:
            trainer.save_checkpoint(Path(folder) / FILE)
            report(found, checkpoint=folder)
