"""Any classification model by name, its first convolution and last layer fitted to the data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from tuner.errors import TrialError, WeightsError
from tuner.storage.regular_files import regular_file
from tuner.train.download import fetch_stored_weights, fetch_weights
from tuner.train.models.by_name import builder
from tuner.train.models.heads import fit_head
from tuner.train.randomness import HEAD, derive_seed, seeded
from tuner.trial import ImageClassifier
from tuner.trial.models import ModelFacts, find_model
from tuner.trial.pooling import Pooling
from tuner.trial.sources import function_name

AUXILIARY = re.compile(r"^(aux\d|AuxLogits)\.")  # heads that only the original training of Inception and GoogLeNet used
DENSENET_KEY = re.compile(
    r"^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\..*)$"
)  # how published DenseNet files spell it

State = Mapping[str, Tensor]
Stem = Literal["new", "sum"]


@dataclass(frozen=True)
class Network:
    """A model fitted to its data.

    Attributes:
        module: [N, channels, H, W] float32 to [N, classes] logits
        stem: dotted name of the first convolution; empty for a user's model
        head: dotted name of the last layer
        new: which of these two start from fresh weights
        pretrained: whether the other layers have pretrained weights
        layers: names of parameters that learn together, from the input on, if the library says so
        notes: what the user should know about how the weights were loaded, in sentences
        pooling: what the head sees; None for what the library's head does, or for a user's model
    """

    module: nn.Module
    stem: str
    head: str
    new: tuple[str, ...]
    pretrained: bool = False
    layers: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    pooling: Pooling | None = None

    @property
    def head_layer(self) -> nn.Module:
        """The last layer as a module."""
        return self.module.get_submodule(self.head)

    @property
    def backbone(self) -> dict[str, Tensor]:
        """All tensors before the head, by name."""
        return {
            name: tensor for name, tensor in self.module.state_dict().items() if not name.startswith(f"{self.head}.")
        }

    @cached_property
    def backbone_key(self) -> str:
        """A hash of everything before the head, which must not learn: names, types, shapes and contents of tensors."""
        digest = hashlib.sha256()
        for name, tensor in self.backbone.items():
            values = tensor.detach().cpu().contiguous()
            digest.update(f"{name}\x1f{values.dtype}\x1f{tuple(values.shape)}\x1e".encode())
            digest.update(values.view(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def head_is_last(self, images: Tensor) -> bool:
        """See the function; found out once."""
        found = self.__dict__.setdefault("_head_is_last", [])
        if not found:
            found.append(head_is_last(self.module, images))
        return bool(found[0])

    def drop_before_head(self, share: float) -> None:
        """Drop a share of the head's inputs in training; the names of the weights don't change."""
        if share:
            self.head_layer.register_forward_pre_hook(
                lambda layer, inputs: (dropped(inputs[0], share) if layer.training else inputs[0], *inputs[1:])
            )

    def leave_blocks_out(self, share: float, name: str) -> None:
        """Skip the last residual block for a share of the images in training, earlier ones for proportionally fewer.

        Raises:
            TrialError: the model, which is called `name`, has no stochastic depth.
        """
        rates = depth_rates(self.module)
        highest = max(rates.values(), default=0.0)
        if share and not highest:
            raise TrialError(
                f"stochastic_depth needs a model with layers for it, such as torchvision's StochasticDepth, got {name} "
                "without; leave it out"
            )
        for layer, rate in rates.items():
            setattr(layer, _rate_name(layer), share * rate / highest if highest else 0.0)


def dropped(values: Tensor, share: float) -> Tensor:
    """Values [B, ...] of which a share is 0 and the others are larger for that, as `F.dropout` gives them.

    Each is decided by 16 random bits, four of which torch draws at once: on a CPU five times as fast as its own.
    """
    bits = torch.empty(-(-values.numel() // 4), dtype=torch.int64, device=values.device).random_(-(2**63), None)
    kept = bits.view(torch.int16)[: values.numel()].view(values.shape) >= round(share * 2**16) - 2**15
    return values * kept / (1 - share)


def depth_rates(module: nn.Module) -> dict[nn.Module, float]:
    """The layers that leave residual blocks out in training, each with its share of the images."""
    return {layer: float(getattr(layer, name) or 0) for layer in module.modules() if (name := _rate_name(layer))}


def _rate_name(layer: nn.Module) -> str:
    """The attribute with the rate of stochastic depth; empty for other layers. transformers has a class per model."""
    own = "drop_prob" if type(layer).__name__.endswith("DropPath") else ""
    return "p" if isinstance(layer, StochasticDepth) else own


def build_network(
    trial: ImageClassifier,
    *,
    channels: int,
    classes: int,
    seed: int,
    stem: Stem = "new",
    config: dict[str, Any] | None = None,
) -> Network:
    """The trial's model with the trial's weights.

    Args:
        trial: names model and weights
        channels: of the images
        classes: of the data
        seed: of the layers that start from random weights
        stem: how the first convolution is changed if the images have other channels than the weights
        config: hyperparameters, for a model that is a user's function

    Raises:
        WeightsError: the weights are missing, unreadable or another model's.
        TrialError: the user's function doesn't return a model.
    """
    if not isinstance(trial.model, str):
        return given_network(trial.model, config or {}, fetch_stored_weights(trial), seed=seed)
    named, facts = trial.named_weights, _facts_for(trial, config)
    path = fetch_weights(trial.model, named) if named else fetch_stored_weights(trial)
    if path is None:
        return random_network(facts, channels=channels, classes=classes, seed=seed, stem=stem)
    return pretrained_network(
        facts, path, channels=channels, classes=classes, seed=seed, stem=stem, keep_head=named is None
    )


def random_network(model: str | ModelFacts, *, channels: int, classes: int, seed: int, stem: Stem = "new") -> Network:
    """The model with random weights that depend only on `seed`."""
    with seeded(seed):
        network = _named_network(_facts(model))
        new = _fit(network, channels=channels, classes=classes, stem=stem, keep_head=False)
    return replace(network, new=new)


def pretrained_network(
    model: str | ModelFacts,
    path: Path,
    *,
    channels: int,
    classes: int,
    seed: int,
    stem: Stem = "new",
    keep_head: bool = True,
) -> Network:
    """The model with the weights of a file; layers that don't fit the data are replaced by fresh ones.

    Args:
        model: its name, or its facts
        path: a saved `state_dict` for any number of channels and classes
        channels: of the images
        classes: of the data
        seed: decides the fresh layers
        stem: how the first convolution is changed if the images have other channels
        keep_head: the file is a user's own, whose last layer is also used if it has the same number of classes; else it
            is one that the library publishes

    Raises:
        WeightsError: the file is unreadable, or another model's.
    """
    facts = _facts(model)
    state = read_state(path) if keep_head else _read_published(facts, path)
    with seeded(seed):
        network = _named_network(facts)
        headless = _adopt_shapes(network, state)
        load_state(network.module, {**state, **headless}, source=str(path), name=facts.name)
        keep_head = keep_head and not headless
        new = _fit(network, channels=channels, classes=classes, stem=stem, keep_head=keep_head)
    if network.head in new:
        draw_head(network.head_layer, seed)
    notes = tuple(
        _new_head(classes)
        if layer == network.head
        else f"{path.name} has no weights that fit {layer}; it starts from random weights"
        for layer in new
    )
    return replace(network, new=new, pretrained=True, notes=notes)


def _new_head(classes: int) -> str:
    return f"the last layer is new: it has {f'{classes} classes' if classes > 1 else 'one output'}"


def draw_head(layer: nn.Module, seed: int) -> None:
    """Give a head the fresh weights of a network's `seed`: they don't depend on what is drawn for layers before it."""
    with seeded(derive_seed(seed, HEAD)):
        layer.reset_parameters()  # type: ignore[operator]


def given_network(
    function: Callable[[dict[str, Any]], Any], config: dict[str, Any], path: Path | None, *, seed: int
) -> Network:
    """The model that a user's function makes, with random weights from `seed`; its last layer is the head.

    Args:
        function: the user's
        config: its argument
        path: a `state_dict` of exactly this model, None for the weights that the function gave it
        seed: of the function's draws from torch's generator

    Raises:
        TrialError: the function returns no `nn.Module` with a linear layer or a convolution, or one with lazy layers.
        WeightsError: the file is unreadable, or another model's.
    """
    with seeded(seed):
        module = function(dict(config))
    if not isinstance(module, nn.Module) or not _weighted_layers(module):
        raise TrialError(
            f"a model function must return an nn.Module with a linear layer or a convolution, got {_kind_of(module)} "
            f"from {function_name(function)}; return the model"
        )
    lazy = next((n for n, value in module.named_parameters() if isinstance(value, nn.UninitializedParameter)), None)
    if lazy is not None:
        raise TrialError(
            f"a model function must return a model whose layers know their sizes, got an uninitialised {lazy} from "
            f"{function_name(function)}; name the sizes, or call the model once on torch.zeros of an image's shape"
        )
    if path is not None:
        load_state(module, read_state(path), source=str(path), name=f"{function_name(function)}()")
    return Network(module, stem="", head=find_head(module), new=(), pretrained=path is not None)


def empty_network(trial: ImageClassifier, *, channels: int, classes: int, config: dict[str, Any]) -> Network:
    """The structure of the trial's model, whose weights the caller loads."""
    if not isinstance(trial.model, str):
        return given_network(trial.model, config, None, seed=0)
    return random_network(_facts_for(trial, config), channels=channels, classes=classes, seed=0)


def _facts_for(trial: ImageClassifier, config: Mapping[str, Any] | None) -> ModelFacts:
    """The facts of the trial's model for the configuration's image size, stochastic depth and head."""
    chosen = config or {}
    facts, pooling = trial.model_facts.for_images(chosen.get("image_size")), Pooling.of(chosen)
    facts = replace(facts, skipped=chosen.get("stochastic_depth"))
    return facts if pooling is None else facts.with_head_for(pooling)


def _read_published(facts: ModelFacts, path: Path) -> State:
    """The tensors of a file that the library publishes; raises WeightsError as `read_state` does."""
    read = builder(facts).read
    if read is None:
        return read_state(path)
    try:
        regular_file(path).close()
        return read(facts, path)
    except MemoryError:
        raise
    except Exception as error:  # the library may raise anything for a damaged file
        raise _unreadable(path, error) from error


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a saved `state_dict`: .safetensors, or .pt/.pth read without running pickled code.

    Raises:
        WeightsError: the file is missing, damaged, or holds anything else.
    """
    try:
        regular_file(path).close()
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # torch.load may raise anything for a damaged file
        raise _unreadable(path, error) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise WeightsError(
            f"weights must be a plain state_dict of tensors, got {path} with {_kind(state)}; "
            "save model.state_dict() alone"
        )
    return {str(key): value for key, value in state.items()}


def _unreadable(path: Path, error: Exception) -> WeightsError:
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return WeightsError(f"weights must be a saved state_dict, got {path}: {reason[0]}; save it again")


def load_state(module: nn.Module, state: State, *, source: str, name: str) -> None:
    """Copy tensors into a module of exactly their names and shapes.

    Published files may lack batch norm's step counter, may have auxiliary heads, and may use DenseNet's older names.

    Raises:
        WeightsError: names or shapes differ; the message names the first few, and the module is unchanged.
    """
    state = fitting_state(module, state, source=source, name=name)
    own = module.state_dict()
    with torch.no_grad():
        for key in own.keys() & state.keys():
            own[key].copy_(state[key])


def fitting_state(module: nn.Module, state: State, *, source: str, name: str) -> State:
    """The tensors under the module's names. Raises WeightsError as `load_state` does."""
    state = {DENSENET_KEY.sub(r"\1\2", key): value for key, value in state.items()}
    own = module.state_dict()
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    unknown = [key for key in state if key not in own and not AUXILIARY.match(key)]
    shapes = [key for key in own if key in state and state[key].shape != own[key].shape]
    problems = [_named("without", missing), _named("with unknown", unknown), _named("with other shapes of", shapes)]
    if any(problems):
        raise WeightsError(
            f"weights must fit {name}, got {source} {' and '.join(filter(None, problems))}; name the model they are of"
        )
    return state


def _facts(model: str | ModelFacts) -> ModelFacts:
    return find_model(model) if isinstance(model, str) else model


def _named_network(facts: ModelFacts) -> Network:
    """The library's model, with stem and head identified."""
    how = builder(facts)
    module = how.build(facts)
    layers = () if how.layers is None else tuple(map(tuple, how.layers(module)))
    head = find_head(module)
    if facts.pooling is not None:
        fit_head(module, head, how.tokens, facts.pooling)
    return Network(module, _find_stem(module), head, new=(), layers=layers, pooling=facts.pooling)


def _find_stem(module: nn.Module) -> str:
    """The first convolution among those that take three channels."""
    return next(name for name, layer in _weighted_layers(module) if _takes_rgb(layer))


def _takes_rgb(layer: nn.Module) -> bool:
    return getattr(layer, "in_channels", 0) == 3


def head_of(module: nn.Module) -> nn.Module:
    """The last layer of any network."""
    return module.get_submodule(find_head(module))


def find_head(module: nn.Module) -> str:
    """The name of the last layer with weights: linear, or a convolution as in SqueezeNet."""
    return _weighted_layers(module)[-1][0]


def head_is_last(module: nn.Module, images: Tensor) -> bool:
    """Whether a network's output is that of its last layer with weights, which takes a vector of features per image.

    It is left in evaluation mode. `images` are normalised, [B, C, H, W] float32, and on its device.
    """
    seen: list[tuple[Tensor, Tensor]] = []
    hook = head_of(module).register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    try:
        with torch.inference_mode():
            output = module.eval()(images)
    finally:
        hook.remove()
    return len(seen) == 1 and seen[0][0].ndim == 2 and torch.equal(output, seen[0][1])


def _weighted_layers(module: nn.Module) -> list[tuple[str, nn.Linear | nn.Conv2d]]:
    """Names and layers, from the input to the output."""
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]


def _adopt_shapes(network: Network, state: State) -> State:
    """Give the stem the file's channels and the head the file's classes, so that the file can be loaded completely.

    Returns the head's tensors, which are random, if the file is a backbone's, or its head sees something else.
    """
    stem, head = state.get(f"{network.stem}.weight"), state.get(f"{network.head}.weight")
    if stem is not None and stem.ndim == 4:
        _set_channels(network, stem.shape[1])
    if head is not None and head.ndim >= 2:
        _set_classes(network, head.shape[0])
    own = {f"{network.head}.{name}": value for name, value in network.head_layer.state_dict().items()}
    others = any(name in state and state[name].shape != value.shape for name, value in own.items())
    return own if others or not own.keys() & state.keys() else {}


def _fit(network: Network, *, channels: int, classes: int, stem: Stem, keep_head: bool) -> tuple[str, ...]:
    """Replace the stem if the data has other channels, and the head unless it may be kept and fits; the new layers."""
    new_head = _set_classes(network, classes, force=not keep_head)
    old = network.module.get_submodule(network.stem)
    new_stem = _set_channels(network, channels)
    if new_stem and stem == "sum":
        _sum_channels(old, network.module.get_submodule(network.stem))
        new_stem = False
    return (network.stem,) * new_stem + (network.head,) * new_head


def _set_channels(network: Network, channels: int) -> bool:
    """Replace the stem by a fresh one for `channels`; False if it takes as many already."""
    old = network.module.get_submodule(network.stem)
    if not isinstance(old, nn.Conv2d) or old.in_channels == channels:
        return False
    if others := [
        name for name, layer in _weighted_layers(network.module) if _takes_rgb(layer) and name != network.stem
    ]:
        raise TrialError(
            f"a model whose images go into several layers needs images of {old.in_channels} channels, got {channels} "
            f"for one with {network.stem} and {others[0]}; convert them to RGB, or choose another model"
        )
    network.module.set_submodule(network.stem, _like_conv(old, inputs=channels, outputs=old.out_channels))
    for layer in network.module.modules():  # transformers' layers refuse images of other channels
        if getattr(layer, "num_channels", None) == old.in_channels:
            setattr(layer, "num_channels", channels)  # noqa: B010
    if hasattr(network.module, "transform_input"):  # Inception and GoogLeNet can rescale the three channels of ImageNet
        setattr(network.module, "transform_input", False)  # noqa: B010 -- nn.Module's type allows tensors only
    return True


def _sum_channels(old: nn.Module, new: nn.Module) -> None:
    """Give every channel of the new stem an equal part of the old channels' sum: grey images act like grey RGB did."""
    with torch.no_grad():
        kernels = old.get_parameter("weight").sum(1, keepdim=True)
        weight = new.get_parameter("weight")
        weight.copy_((kernels / weight.shape[1]).expand_as(weight))
        for bias, old_bias in zip(new.parameters(), old.parameters(), strict=True):
            if bias.ndim == 1:
                bias.copy_(old_bias)


def _set_classes(network: Network, classes: int, *, force: bool = False) -> bool:
    """Replace the head by a fresh one for `classes`; False if it has as many already and `force` is off."""
    old = network.module.get_submodule(network.head)
    if isinstance(old, nn.Conv2d) and (force or old.out_channels != classes):
        network.module.set_submodule(network.head, _like_conv(old, inputs=old.in_channels, outputs=classes))
        return True
    if isinstance(old, nn.Linear) and (force or old.out_features != classes):
        new = nn.Linear(old.in_features, classes, bias=old.bias is not None)  # drawn by torch: U(±1/sqrt(fan-in))
        network.module.set_submodule(network.head, new)
        return True
    return False


def _like_conv(old: nn.Conv2d, *, inputs: int, outputs: int) -> nn.Conv2d:
    """A fresh convolution of the old one's geometry, its weights and bias drawn by torch from U(±1/sqrt(fan-in)).

    Xavier's weights, narrower in a stem and wider in a head, learn more slowly over the first dozens of steps, by which
    early stopping judges.
    """
    new = deepcopy(old)  # a library may have a class of its own, which pads as TensorFlow does
    new.in_channels, new.out_channels = inputs, outputs
    new.weight = nn.Parameter(old.weight.new_empty(outputs, inputs, *old.kernel_size))
    new.bias = None if old.bias is None else nn.Parameter(old.bias.new_empty(outputs))
    new.reset_parameters()
    return new


def _kind_of(value: object) -> str:
    return f"a {type(value).__name__}"


def _kind(value: object) -> str:
    if not isinstance(value, dict):
        return _kind_of(value)
    strangers = [str(key) for key, entry in value.items() if not isinstance(entry, Tensor)]
    return f"{_list(strangers)}, which are no tensors"


def _named(problem: str, keys: Collection[str]) -> str:
    return f"{problem} {_list(keys)}" if keys else ""


def _list(keys: Collection[str]) -> str:
    first = ", ".join(list(keys)[:3])
    return f"{first} and {len(keys) - 3} more" if len(keys) > 3 else first
