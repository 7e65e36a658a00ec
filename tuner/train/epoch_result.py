"""A trainer's results of an epoch, and notes about the whole trial."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tuner.train.tasks import Metrics


@dataclass(frozen=True)
class EpochResult:
    """The results of one epoch.

    Attributes:
        epoch: finished epochs, this one included
        train_loss: mean of the minimised loss over the epoch's images
        validation: metrics on the validation split; None if all its images are trained on
        learning_rate: of the epoch's last step, for layers without pretrained weights
        seconds: training and validation
        images_per_second: training images per second of training
        micro_batch_size: images that went through the network at once, on each device
        oom_retries: steps of the trial so far that were repeated in smaller parts because memory ran out
        step_path: how steps were taken at the epoch's end: "eager", "graph" or "compiled"
        threads: of this process, for work on the CPU
        batch_norm: where batch norms take their statistics from, see `TrainingStep`
        memory_peak_bytes: the most memory that was held within the epoch, on the device (on the CPU: by the process);
            of several devices the fullest one's
        memory_bytes: held at the epoch's end, on the same device
        memory_reserved_bytes: what torch then keeps of the GPU's memory, in use or not; NaN on the CPU
        device_utilisation: share of the time in which the GPU was busy, with any program's work; NaN on the CPU
        device_memory_bytes: used on the whole GPU at the epoch's end; NaN on the CPU
    """

    epoch: int
    train_loss: float
    validation: Metrics | None
    learning_rate: float
    seconds: float
    images_per_second: float
    micro_batch_size: int
    oom_retries: int
    step_path: str
    threads: int
    batch_norm: str
    memory_peak_bytes: float
    memory_bytes: float
    memory_reserved_bytes: float
    device_utilisation: float
    device_memory_bytes: float

    def metrics(self) -> dict[str, float | str]:
        """Everything but the epoch's number, by name."""
        plain = {name: value for name, value in asdict(self).items() if name not in ("epoch", "validation")}
        validated = self.validation.by_name("val") if self.validation is not None else {}
        return {"train_loss": plain.pop("train_loss"), **validated, **plain}


class Notes(list[str]):
    """What the user should know, each sentence once."""

    def add(self, sentence: str | None) -> None:
        """Add a note, if there is one and it is new."""
        if sentence is not None and sentence not in self:
            self.append(sentence)
