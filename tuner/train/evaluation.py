"""A model's predictions for a split, and their metrics."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuner.train.data.splits import Split
from tuner.train.memory.errors import is_out_of_memory
from tuner.train.optimisation.precision import Precision
from tuner.trial.metrics import ChosenMetric, NamedMetric, RecallAtPrecision

# Pixels, or features, at once: few on the CPU, whose caches are small; on a GPU enough to keep it busy.
VALUES_PER_BATCH = {"cpu": 2**19, "cuda": 2**20}
TOP = 5


@dataclass(frozen=True)
class Metrics:
    """The metrics of a model's predictions for a split.

    Attributes:
        loss: mean cross-entropy
        accuracy: share of correct answers
        top5_accuracy: share of answers with the right class among the five likeliest
        f1: mean over the classes of the harmonic mean of precision and recall (macro F1)
        chosen: metrics of the user's choice, by name
    """

    loss: float
    accuracy: float
    top5_accuracy: float
    f1: float
    chosen: Mapping[str, float] = field(default_factory=dict)

    def by_name(self, split: str) -> dict[str, float]:
        """All metrics, named like `val_accuracy` for the split "val"."""
        plain = {name: value for name, value in asdict(self).items() if name != "chosen"}
        return {f"{split}_{name}": value for name, value in {**plain, **self.chosen}.items()}


class Evaluator:
    """Runs models over splits in evaluation mode, in batches that are halved, for good, whenever memory runs out."""

    def __init__(self, device: torch.device | str = "cpu", precision: Precision | None = None) -> None:
        self.device = torch.device(device)
        self.precision = precision or Precision("fp32", self.device)
        self._halvings = 0
        self._most: int | None = None

    def logits(
        self,
        module: nn.Module,
        split: Split,
        normalise: Callable[[Tensor], Tensor],
        chosen: Tensor | None = None,
    ) -> Tensor:
        """The model's outputs, in the split's order; the module is left in evaluation mode.

        Args:
            module: on the device
            split: the images
            normalise: from the split's images as stored to the model's input
            chosen: [N] indices of the images; None for all

        Returns:
            [N, classes] float32 on the device

        Raises:
            RuntimeError: a single image doesn't fit into memory.
        """
        module.eval()
        indices = torch.arange(len(split)) if chosen is None else chosen
        while True:
            size = self.batch_size(split)
            try:
                return self._in_batches(module, split, normalise, indices, size)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or size == 1:
                    raise
            while self.batch_size(split) > max(1, min(size, len(indices)) // 2):
                self._halvings += 1
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def metrics(self, module: nn.Module, split: Split, normalise: Callable[[Tensor], Tensor]) -> Metrics:
        """The metrics of the model's predictions."""
        return metrics_of(self.logits(module, split, normalise), split.labels)

    def halve(self, times: int) -> None:
        """Halve the number of images at once, this often."""
        self._halvings += times

    @contextmanager
    def at_most(self, images: int) -> Iterator[None]:
        """Within it this many images at once, for which memory was enough before; fewer large ones on the CPU."""
        self._most = images
        try:
            yield
        finally:
            self._most = None

    def batch_size(self, split: Split) -> int:
        """How many images of the split are evaluated at once."""
        size: int = VALUES_PER_BATCH.get(self.device.type, VALUES_PER_BATCH["cpu"]) // _values(split)
        if self._most is not None:
            size = self._most if self.device.type == "cuda" else min(size, self._most)
        return max(1, size >> self._halvings)

    def _in_batches(
        self, module: nn.Module, split: Split, normalise: Callable[[Tensor], Tensor], chosen: Tensor, size: int
    ) -> Tensor:
        with torch.inference_mode(), self.precision.kernels(), self.precision.arithmetic():
            parts = [chosen[start : start + size] for start in range(0, len(chosen), size)]
            batches = split.batches(parts, self.device)
            return torch.cat([module(normalise(images)).float() for images, _ in batches])


def _values(split: Split) -> int:
    """Pixels of an image, or the number of its features."""
    example = split.images(torch.zeros(1, dtype=torch.int64))[0]
    return example.numel() if example.ndim == 1 else example[0].numel()


def metrics_of(
    logits: Tensor, labels: Tensor, chosen: Sequence[ChosenMetric] = (), names: Sequence[str] = ()
) -> Metrics:
    """Loss and shares from logits [N, classes] and labels [N] int64, on any devices, and the user's `chosen` metrics.

    With fewer than five classes the top-5 accuracy is 1. The four formulas are those of torchmetrics, whose import also
    imports scipy: most of a second, in every worker's first epoch. `names` are those of the classes.
    """
    labels = labels.to(logits.device)
    classes = logits.shape[1]
    with torch.inference_mode():
        loss = F.cross_entropy(logits, labels)
        answers = logits.argmax(1)
        accuracy = (answers == labels).float().mean()
        likeliest = logits.topk(min(TOP, classes), dim=1).indices
        top5 = (likeliest == labels[:, None]).any(1).float().mean()
        f1 = _macro_f1(answers, labels, classes)
        further = values_of(chosen, logits, labels, names)
    values = torch.cat([torch.stack([loss, accuracy, top5, f1]), further]).tolist()  # the host waits here, once
    of_chosen = dict(zip((metric.name for metric in chosen), values[4:], strict=True))
    return Metrics(values[0], values[1], values[2], values[3], of_chosen)


def _macro_f1(answers: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Mean F1 of the classes that occur among predictions or labels, both [N] int64."""
    right = torch.where(answers == labels, labels, classes)  # wrong predictions are counted as a class of their own
    hits = torch.bincount(right, minlength=classes + 1)[:classes]
    asked, answered = (torch.bincount(each, minlength=classes) for each in (labels, answers))
    return (2 * hits / (asked + answered)).nanmean()  # a class that doesn't occur is 0 / 0


def values_of(chosen: Iterable[ChosenMetric], logits: Tensor, labels: Tensor, classes: Sequence[str]) -> Tensor:
    """The values of M metrics for logits [N, C] and labels [N]: [M] float32 on the logits' device."""
    labels = labels.to(logits.device)
    with torch.inference_mode(), _without_warnings():
        probabilities = logits.float().softmax(1)
        found = [metric.compute(probabilities, labels, classes).float().reshape(()) for metric in chosen]
    return torch.stack(found) if found else logits.new_empty(0)


def of_all_classes(metric: NamedMetric, probabilities: Tensor, labels: Tensor, classes: Sequence[str]) -> Tensor:
    """One number for all classes; see `NamedMetric`."""
    # Only imported where it is used, here and below, because it also imports scipy: about a second.
    from torchmetrics.functional import classification

    function = getattr(classification, metric.function)
    count = len(classes)
    if not metric.by_class:
        value: Tensor = function(probabilities, labels, num_classes=count, validate_args=False, **metric.settings)
        return value
    each: Tensor = function(
        probabilities, labels, num_classes=count, average="none", validate_args=False, **metric.settings
    )
    images = torch.bincount(labels, minlength=count)
    return each[(images > 0) & (images < len(labels))].mean()  # NaN if there is only one class


def recall_at_precision(
    metric: RecallAtPrecision, probabilities: Tensor, labels: Tensor, classes: Sequence[str]
) -> Tensor:
    """The highest recall of the class at the precision; 0 if no threshold reaches it, NaN without its images."""
    from torchmetrics.functional.classification import binary_recall_at_fixed_precision

    metric.check_classes(classes)
    index = list(classes).index(metric.of)
    wanted = (labels == index).long()
    if not bool(wanted.any()):
        return probabilities.new_tensor(float("nan"))
    recall: Tensor = binary_recall_at_fixed_precision(
        probabilities[:, index], wanted, metric.precision, validate_args=False
    )[0]
    return recall


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Without warnings of classes without images, which are handled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
