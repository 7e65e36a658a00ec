"""Callbacks that report for a trainer of another library, inside a training function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.errors import StudyError
from tuner.machine.installation import is_installed

if TYPE_CHECKING:
    from tuner.api.callbacks.lightning_report import LightningReporter
    from tuner.api.callbacks.transformers_report import TransformersReporter


def LightningReport(*, metrics: Sequence[str] = (), checkpoint: bool = True) -> LightningReporter:  # noqa: N802
    """A callback for Lightning's `Trainer` that calls `tuner.report` at the end of each training epoch.

        report = tuner.LightningReport()
        trainer = lightning.Trainer(max_epochs=9, callbacks=[report])
        trainer.fit(module, data, ckpt_path=report.resume_from)

    Args:
        metrics: names of what the module logs, such as "val_loss"; all of it if empty
        checkpoint: whether a checkpoint goes with each report, so that the trial can pause, and survives its worker

    It counts as the trainer's checkpoint callback: the trainer adds no other, and refuses `enable_checkpointing=False`.
    Raises StudyError if Lightning isn't installed.
    """
    _check("LightningReport", "lightning")
    from tuner.api.callbacks.lightning_report import LightningReporter

    return LightningReporter(metrics, checkpoint=checkpoint)


def TransformersReport(*, metrics: Sequence[str] = ()) -> TransformersReporter:  # noqa: N802
    """A callback for the `Trainer` of Hugging Face's transformers that calls `tuner.report` after each evaluation.

        report = tuner.TransformersReport()
        trainer = transformers.Trainer(model, TrainingArguments(eval_strategy="epoch", save_strategy="epoch"),
                                       callbacks=[report], ...)
        trainer.train(resume_from_checkpoint=report.resume_from)

    Args:
        metrics: names of what is evaluated, such as "eval_loss"; all of it if empty

    If the trainer saves as often as it evaluates, each report has its checkpoint; otherwise the trial can't pause.
    Raises StudyError if transformers or accelerate isn't installed.
    """
    _check("TransformersReport", "hf", "transformers", "accelerate")
    from tuner.api.callbacks.transformers_report import TransformersReporter

    return TransformersReporter(metrics)


def _check(what: str, extra: str, *libraries: str) -> None:
    missing = [name for name in libraries or (extra,) if not is_installed(name)]
    if missing:
        raise StudyError(
            f"{what} needs {' and '.join(libraries or (extra,))}, got an installation without {', '.join(missing)}; "
            f"pip install 'image-tuner[{extra}]'"
        )
