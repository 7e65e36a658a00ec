"""K-fold cross-validation as one trial: a network for each part, all trained an epoch at a time.

So an epoch means the same as in other trials for early stopping, checkpoints and the search: after it every network has
seen its training images equally often, and the mean over the parts is reported. Otherwise each network is trained like
a trial of its own, with its own seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Protocol

from torch import Tensor

from tuner.errors import TrialError
from tuner.train.checkpoint import INDEX, Checkpoint, read_checkpoint, read_model, write_checkpoint
from tuner.train.epoch_result import EpochResult, Notes
from tuner.train.models import build_network
from tuner.train.parallel.group import Group
from tuner.train.state import BACKBONE, completed
from tuner.train.step import collect_garbage
from tuner.train.trainer import Trainer
from tuner.trial import ImageClassifier
from tuner.trial.metrics import STANDARD_ERROR

NETWORKS = "networks"  # prefix of the networks' tensors in a checkpoint
SUMMED = ("seconds", "oom_retries")
HIGHEST = ("memory_peak_bytes", "memory_bytes", "memory_reserved_bytes", "device_memory_bytes")
LOWEST = ("micro_batch_size",)
NORMAL_90 = 1.645  # 90 % lie within so many standard errors on either side of the mean
STUDENT_90 = {2: 6.314, 3: 2.920}  # the same by Student's t, for this many values


def reported_error(values: Sequence[float]) -> float:
    """The reported standard error of a metric's mean over the k parts of a cross-validation; NaN for none.

    The mean plus and minus 1.645 times it is a 90 % interval. It is that of `corrected_error`, without quantiles of
    Student's t, which made the interval too wide in `benchmarks/folds.py`; only with two or three parts, whose spread
    is too uncertain, they are included.
    """
    return STUDENT_90.get(len(values), NORMAL_90) / NORMAL_90 * corrected_error(values)


def corrected_error(values: Sequence[float]) -> float:
    """The standard error of the mean over k parts; NaN where a value isn't finite.

    After Nadeau and Bengio (2003), "Inference for the generalization error": the networks share most of their training
    images, so the variance of k values is multiplied by 1/k + 1/(k - 1), not by 1/k; the second term is the ratio of
    the sizes of validation and training.
    """
    count = len(values)
    if not all(map(math.isfinite, values)):
        return math.nan
    return math.sqrt(1 / count + 1 / (count - 1)) * stdev(values)


@dataclass(frozen=True)
class CrossValidated:
    """The results of one epoch of each network."""

    each: tuple[EpochResult, ...]

    def metrics(self) -> dict[str, float | str]:
        """Means over the parts, under the names of one network's metrics; for those of validation with standard errors.

        Seconds and repeated steps are those of all networks, memory and images at once those of the extreme one.
        """
        told = [result.metrics() for result in self.each]
        by_name: dict[str, list[Any]] = {name: [one[name] for one in told] for name in told[0]}
        found = {name: _together(name, values) for name, values in by_name.items()}
        images = [one * seconds for one, seconds in zip(by_name["images_per_second"], by_name["seconds"], strict=True)]
        found["images_per_second"] = sum(images) / sum(by_name["seconds"])
        validated = [name for name in by_name if name.startswith("val_")]
        return found | {f"{name}{STANDARD_ERROR}": reported_error(by_name[name]) for name in validated}


class Resumable(Protocol):
    """What trains a network of a trial, as far as checkpoints are concerned; see `Trainer`."""

    @property
    def epoch(self) -> int: ...

    def snapshot(self) -> Checkpoint: ...

    def restore(self, checkpoint: Checkpoint, source: str = ...) -> None: ...


class CrossValidation:
    """Trains the networks of one trial, like a `Trainer` for one network; `tuner.train.trainer_of` creates it."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        """Take the trainers of all parts, in their order."""
        self.trainers = tuple(trainers)

    @property
    def group(self) -> Group:
        """A group of one process."""
        return self.trainers[0].group

    @property
    def epoch(self) -> int:
        """Finished epochs, the same for all networks."""
        return self.trainers[-1].epoch

    @property
    def total_epochs(self) -> int:
        """Length of the trial."""
        return self.trainers[0].total_epochs

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.total_epochs

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know, each sentence once."""
        found = Notes()
        for note in (note for trainer in self.trainers for note in trainer.notes):
            found.add(note)
        return tuple(found)

    @property
    def broken(self) -> str | None:
        """See `Trainer.broken`."""
        return next(filter(None, (trainer.broken for trainer in self.trainers)), None)

    def run_epoch(self) -> CrossValidated:
        """Train an epoch of each network, and validate each on its part; raises as `Trainer.run_epoch`."""
        return CrossValidated(tuple(trainer.run_epoch() for trainer in self.trainers))

    def halve_micro_batch(self, times: int) -> None:
        """Halve the micro-batch as if memory had run out this often."""
        for trainer in self.trainers:
            trainer.halve_micro_batch(times)

    def close(self) -> None:
        """See `Trainer.close`."""
        for trainer in self.trainers:
            trainer.release()
        collect_garbage()

    def snapshot(self) -> Checkpoint:
        """Everything that the next epoch depends on, of all networks."""
        return joint_snapshot(self.trainers)

    def save(self, folder: Path) -> None:
        """Write everything from which training goes on."""
        write_checkpoint(folder, self.snapshot())

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote; raises TrialError as `Trainer.load` does."""
        self.restore(read_checkpoint(folder), str(folder))

    def restore(self, checkpoint: Checkpoint, source: str = "another trial's") -> None:
        """Go on from a checkpoint that was read.

        Raises:
            TrialError: it doesn't fit; all networks are as they were.
        """
        restore_jointly(self.trainers, checkpoint, source)


def joint_snapshot(networks: Sequence[Resumable]) -> Checkpoint:
    """Everything that the next epoch of all networks depends on."""
    each = [network.snapshot() for network in networks]
    return Checkpoint(
        _joined([one.model for one in each]),
        _joined([one.training for one in each]),
        {"epoch": networks[-1].epoch, NETWORKS: [one.scalars for one in each]},
    )


def restore_jointly(networks: Sequence[Resumable], checkpoint: Checkpoint, source: str) -> None:
    """Let all networks go on from what `joint_snapshot` returned.

    Raises:
        TrialError: it doesn't fit; all networks are as they were.
    """
    scalars = checkpoint.scalars.get(NETWORKS)
    if not isinstance(scalars, list) or len(scalars) != len(networks):
        raise TrialError(
            f"a checkpoint must fit the trial, got {source}, whose {INDEX} isn't of {len(networks)} networks"
        )
    before = [network.snapshot() for network in networks]
    try:
        for part, network in enumerate(networks):
            model, training = (_of(tensors, part) for tensors in (checkpoint.model, checkpoint.training))
            network.restore(Checkpoint(model, training, scalars[part]), source)
        if len({network.epoch for network in networks}) > 1:
            raise TrialError(f"networks of a checkpoint must be of one epoch, got {source} of several; use another")
    except TrialError:
        for network, earlier in zip(networks, before, strict=True):
            network.restore(earlier)
        raise


def whole_model(
    folder: Path, trial: ImageClassifier, config: dict[str, Any], *, channels: int, classes: int
) -> dict[str, Tensor]:
    """The model's tensors of a checkpoint, of a cross-validation all networks', with the layers that it left out.

    Args:
        folder: that `save` wrote
        trial: its weights have the layers before the head
        config: its hyperparameters
        channels: of the images
        classes: of the data

    Raises:
        TrialError: it is cut off, damaged or missing, or the trial's weights have changed since.
        WeightsError: the trial's weights are needed, and missing.
    """
    tensors, scalars = read_model(folder)
    each = scalars.get(NETWORKS, [])
    if not any(BACKBONE in one for one in [scalars, *each]):
        return tensors
    trial, chosen = trial.of(config), trial.hyperparameters(config)
    network = build_network(trial, channels=channels, classes=classes, seed=0, stem=chosen["stem"], config=chosen)
    try:
        if not each:
            return completed(tensors, scalars, network)
        return _joined([completed(_of(tensors, part), one, network) for part, one in enumerate(each)])
    except ValueError as error:
        raise TrialError(f"a checkpoint must fit the trial, got {folder}: {error}") from error


def _together(name: str, values: list[Any]) -> Any:
    """The value for all networks together."""
    if name in SUMMED:
        return sum(values)
    if name in HIGHEST:
        return max(values)
    if name in LOWEST:
        return min(values)
    return values[-1] if isinstance(values[-1], str) or name == "threads" else fmean(values)


def _joined(each: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{NETWORKS}.{part}.{name}": one for part, tensors in enumerate(each) for name, one in tensors.items()}


def _of(tensors: Mapping[str, Tensor], part: int) -> dict[str, Tensor]:
    prefix = f"{NETWORKS}.{part}."
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
