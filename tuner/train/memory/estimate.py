"""The most memory that a configuration's training holds at once, found without training it.

The trial's network takes a step, and predicts validation images, with tensors that have shapes but no contents
(PyTorch's `FakeTensorMode`); the storages that are alive at each operator are counted, rounded as CUDA's caching
allocator does. So this covers the real step with the real optimizer, and what autograd keeps. What libraries take for
themselves (a CUDA context, cuDNN's workspaces) is not included.
"""

from __future__ import annotations

import json
import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tuner.errors import describe_error
from tuner.machine.techniques import allowed
from tuner.train.data import Splits, load_splits
from tuner.train.data.device_images import fits, needed_images
from tuner.train.evaluation import VALUES_PER_BATCH
from tuner.train.fine_tuning import LP_FT, FineTuning
from tuner.train.models import Network, build_network
from tuner.train.optimisation import (
    AveragedWeights,
    Precision,
    build_optimizer,
    parameter_groups,
)
from tuner.train.step import TrainingStep
from tuner.train.tasks.one_label import CrossEntropy
from tuner.train.without_compiler import compiler_not_needed
from tuner.trial import ImageClassifier, MemoryEstimate
from tuner.trial.hyperparameters import TABLE
from tuner.trial.image_hyperparameters import CHANGES_IMAGES, is_on

ROUNDED_TO = 512  # bytes: the smallest block of CUDA's caching allocator
CPU = torch.device("cpu")  # the fake tensors' device: those of a GPU would need a GPU
MATTERS_MOST = ("batch_size", "image_size")
ON_OR_OFF = ("momentum", "ema_decay", "clip_norm", "dropout", "stochastic_depth", *CHANGES_IMAGES)


class MemoryEstimator:
    """Estimates the memory of one configuration of a trial after another; computed once for similar ones.

    Attributes:
        device: "cuda" or "cpu", which differ in how many images they validate at once
        free_bytes: of the device; images may take a part of it
    """

    def __init__(self, trial: ImageClassifier, *, epochs: int, split_seed: int, device: str, free_bytes: float) -> None:
        self._trial, self._epochs, self._split_seed = trial, epochs, split_seed
        self.device, self.free_bytes = device, free_bytes
        self._known: dict[str, MemoryEstimate] = {}

    def __call__(self, config: dict[str, Any]) -> MemoryEstimate:
        """The estimate for one configuration; if it can't be known, it says why, without an error."""
        try:
            key = alike(self._trial, config)
            if key not in self._known:
                self._known[key] = replace(self._estimate(config), alike=key)
            return self._known[key]
        except Exception as error:  # raised by a user's model, or an operator that needs its tensors' contents
            return MemoryEstimate(unknown=f"its memory can't be estimated ({describe_error(error)})")

    def _estimate(self, config: dict[str, Any]) -> MemoryEstimate:
        trial = self._trial.of(config)
        trial.hyperparameters(config)
        images = Images.of(load_splits(trial, seed=self._split_seed, image_size=trial.asked_size(config)))
        if self.device == "cpu" or not fits(images.held_bytes, self.free_bytes):
            images = replace(images, held_bytes=0)
        try:
            return estimate_memory(trial, config, images, epochs=self._epochs, device=self.device)
        except Exception as error:
            return MemoryEstimate(unknown=f"its memory can't be estimated ({describe_error(error)})")


def alike(trial: ImageClassifier, config: dict[str, Any]) -> str:
    """A key that configurations share if they need the same memory and time per image; JSON, without defaults."""
    chosen = trial.hyperparameters(config)
    default = trial.hyperparameters({})
    for name in ON_OR_OFF:
        chosen[name], default[name] = is_on(chosen, name), is_on(default, name)
    kind = chosen["finetune"]
    if kind != "gradual":
        del chosen["unfreeze_every"]
    if kind != LP_FT:
        del chosen["probe_epochs"]
    if kind not in ("gradual", LP_FT):
        del chosen["epochs"]
    told = chosen.keys() - {row.name for row in TABLE if not row.costs}
    kept = {name: chosen[name] for name in told if name in MATTERS_MOST or chosen[name] != default.get(name)}
    return json.dumps(kept, sort_keys=True, default=str)


@dataclass(frozen=True)
class Images:
    """A network's input: the images' channels, height and width, the number of classes, and the bytes of held images.

    `train` and `validation` are the numbers of images, which limit a batch.
    """

    channels: int
    height: int
    width: int
    classes: int
    train: int
    validation: int
    held_bytes: int = 0

    @classmethod
    def of(cls, splits: Splits) -> Images:
        """The images of a data set, of which a GPU holds a copy of those for training and validation."""
        _, channels, height, width = splits.train.images(torch.zeros(1, dtype=torch.int64)).shape
        held = sum(needed.nbytes for needed in needed_images([splits.train, splits.validation]))
        return cls(channels, height, width, len(splits.classes), len(splits.train), len(splits.validation), held)


def estimate_memory(
    trial: ImageClassifier, config: dict[str, Any], images: Images, *, epochs: int, device: str
) -> MemoryEstimate:
    """Bytes that training and validation hold at once, and the smallest amount with which they can work.

    Args:
        trial: whose network it is; its weights are read if it has any
        config: hyperparameters by name
        images: what the network gets
        epochs: the budget's length of a trial, in which `finetune="gradual"` opens stage after stage
        device: "cuda" or "cpu", which differ in how many images they validate at once

    Raises:
        StudyError: a hyperparameter's name or value can't work (WeightsError: the weights can't be fetched).
        TrialError: the user's function doesn't return a model.
        Exception: whatever a network raises that can't work on tensors without contents.
    """
    chosen = trial.hyperparameters(config)
    total_epochs = min(epochs, chosen["epochs"] or epochs)
    network = build_network(
        trial, channels=images.channels, classes=images.classes, seed=0, stem=chosen["stem"], config=chosen
    )
    network.drop_before_head(chosen["dropout"])
    features = _feature_bytes(network, chosen, images)
    batch = min(chosen["batch_size"], images.train)
    most = images.train if features else images.validation
    asked = max(1, min(most, VALUES_PER_BATCH[device] // (images.height * images.width)))
    with (
        warnings.catch_warnings(action="ignore"),
        compiler_not_needed(),
        FakeTensorMode(allow_non_fake_inputs=True) as mode,
    ):
        replace_contents(network.module, mode.from_tensor)
        training = _Training(network, chosen, images.classes, total_epochs)
        step = training.measure(batch, images)
        answers = training.measure_answers(asked, images)
    networks = max(1, trial.folds)  # of a cross-validation
    waiting = step.before * (networks - 1)
    peak = waiting + max(step.peak, answers.peak)
    if device == "cuda":
        if allowed("graph"):  # recordings keep their memory while validation, or a smaller last batch, takes its own
            last = (step.peak - step.before) * (images.train % batch) // batch
            peak = max(peak, networks * step.peak + max(last, answers.peak - answers.before))
        peak += images.held_bytes + networks * features
    least = waiting + max(step.for_one(batch), answers.for_one(asked))
    return MemoryEstimate(peak_bytes=peak, least_bytes=least)


@dataclass(frozen=True)
class Measured:
    """Bytes held before some images went through the network, and the most held while they did."""

    before: int
    peak: int

    def for_one(self, images: int) -> int:
        """The most that one image alone would take: what was added to the bytes before, divided by the images."""
        return self.before + -(-(self.peak - self.before) // images)


class _Training:
    """Everything that lives while a configuration is trained, its tensors without contents."""

    def __init__(self, network: Network, chosen: dict[str, Any], classes: int, epochs: int) -> None:
        module = network.module
        fine_tuning = FineTuning(network, chosen, epochs)
        learning = fine_tuning.open(fine_tuning.due(epochs - 1))  # most learns in the last epoch
        fine_tuning.set_mode()
        self._module, self._classes = module, classes
        self._precision = Precision(chosen["precision"], CPU)
        self._optimizer = build_optimizer(parameter_groups(learning, chosen["weight_decay"]), chosen)
        self._average = AveragedWeights(module, chosen["ema_decay"]) if chosen["ema_decay"] else None
        self._mixed = is_on(chosen, "mixup") or is_on(chosen, "cutmix")
        self._step = TrainingStep(
            module,
            CrossEntropy(chosen["label_smoothing"]),
            self._precision,
            batch_size=chosen["batch_size"],
            clip_norm=chosen["clip_norm"],
        )
        begin_state(self._optimizer)

    def measure(self, batch: int, images: Images) -> Measured:
        """Measure a step after the first one, when the optimizer's state exists."""
        storages = LiveStorages()
        storages.count(self._lasting())

        def prepared() -> tuple[Tensor, Tensor]:
            inputs = torch.empty(batch, images.channels, images.height, images.width)
            targets = torch.empty(batch, self._classes) if self._mixed else torch.zeros(batch, dtype=torch.int64)
            return inputs, targets

        with storages:
            gradients = sum(_rounded(p.nbytes) for g in self._optimizer.param_groups for p in g["params"])
            before = storages.bytes + gradients
            self._step(self._optimizer, prepared, lambda: None, batch)
            if self._average is not None:
                self._average.update()
        return Measured(before, max(before, storages.peak))

    def measure_answers(self, count: int, images: Images) -> Measured:
        """Measure validation, while the gradients of the last step still exist."""
        module = self._module if self._average is None else self._average.module
        module.eval()
        storages = LiveStorages()
        storages.count([*self._lasting(), *_gradients(self._optimizer)])
        before = storages.bytes
        with storages, torch.inference_mode(), self._precision.arithmetic():
            module(torch.empty(count, images.channels, images.height, images.width))
        return Measured(before, storages.peak)

    def _lasting(self) -> Iterable[Tensor]:
        """The tensors that live from step to step."""
        yield from [*self._module.parameters(), *self._module.buffers()]
        if self._average is not None:
            yield from [*self._average.module.parameters(), *self._average.module.buffers()]
        yield from (value for state in self._optimizer.state.values() for value in state.values())


class LiveStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all storages that operators within it create, as long as they live.

    Attributes:
        bytes: held now
        peak: the most that were held at once
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.peak = 0
        self._sizes: dict[int, int] = {}

    def count(self, tensors: Iterable[object]) -> None:
        """Count the storages of tensors, except those already known."""
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                continue
            storage = tensor.untyped_storage()
            if storage._cdata in self._sizes:
                continue
            self._sizes[storage._cdata] = size = _rounded(storage.nbytes())
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self._drop, storage._cdata)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and count what it made."""
        made = func(*args, **(kwargs or {}))
        self.count(tree_iter(made))
        return made

    def _drop(self, key: int) -> None:
        self.bytes -= self._sizes.pop(key, 0)


def replace_contents(module: nn.Module, replaced: Callable[[Tensor], Tensor]) -> None:
    """Replace each of a module's parameters and buffers by another tensor; shared ones stay shared."""
    known: dict[Tensor, Tensor] = {}
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter not in known:
                known[parameter] = nn.Parameter(replaced(parameter.detach()), requires_grad=parameter.requires_grad)
            part._parameters[name] = known[parameter]  # type: ignore[assignment]
        for name, buffer in part.named_buffers(recurse=False):
            known.setdefault(buffer, replaced(buffer))
            part._buffers[name] = known[buffer]


def begin_state(optimizer: Optimizer) -> None:
    """Let an optimizer create its state, by a step with meaningless gradients."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _gradients(optimizer: Optimizer) -> list[Tensor]:
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _rounded(size: int) -> int:
    return -(-size // ROUNDED_TO) * ROUNDED_TO


def _feature_bytes(network: Network, chosen: dict[str, Any], images: Images) -> int:
    """Bytes of the features that replace all images while only the head learns; 0 if that isn't possible."""
    changing = chosen["finetune"] != LP_FT and any(is_on(chosen, name) for name in CHANGES_IMAGES)
    if chosen["finetune"] == "all" or changing or any(layer != network.head for layer in network.new):
        return 0
    width = network.head_layer.get_parameter("weight").shape[1]
    return 4 * (images.train + images.validation) * width
