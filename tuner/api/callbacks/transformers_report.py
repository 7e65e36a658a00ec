"""The callback of `tuner.TransformersReport`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tuner.errors import StudyError
from tuner.trial.session import checkpoint, chosen, report


class TransformersReporter(TrainerCallback):
    """Reports after each evaluation, once its checkpoint is written if there is one."""

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = tuple(metrics)
        self._found: dict[str, float] = {}
        self._trains, self._began_at = False, 0

    @property
    def resume_from(self) -> str | None:
        """What `Trainer.train` gets as `resume_from_checkpoint`: the newest checkpoint, None if there is none."""
        folder = checkpoint()
        return None if folder is None else str(folder)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any
    ) -> None:
        """See `TrainerCallback`; raises StudyError for a trainer that never evaluates."""
        if args.eval_strategy == "no":
            raise StudyError("TransformersReport needs evaluations, got eval_strategy='no'; set eval_strategy='epoch'")
        self._trains, self._began_at = True, state.global_step

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """See `TrainerCallback`."""
        self._trains = False

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] = MappingProxyType({}),
        **more: Any,
    ) -> None:
        """See `TrainerCallback`; an evaluation before the first step, or by the user's own code, is no epoch."""
        if not self._trains or state.global_step == self._began_at:
            return
        numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, Real)}
        self._found = chosen(numbers, self._metrics, "compute them in the trainer's compute_metrics")
        if not control.should_save:
            self._report(None)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """See `TrainerCallback`."""
        if self._found:
            self._report(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}")

    def _report(self, folder: Path | None) -> None:
        found, self._found = self._found, {}
        report(found, checkpoint=folder)
