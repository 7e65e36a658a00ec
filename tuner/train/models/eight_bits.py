"""Networks that answer in 8 bits: all before the last layer is quantised, and computed by onnxruntime on the CPU.

The last layer stays in float32, as is usual, so it can learn from what the layers before it give in 8 bits. What is
validated, scored, loaded and exported is the same quantised file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn

from tuner.errors import TrialDiverged, TrialError, describe_error
from tuner.train.models.onnx_files import IMAGES, onnx_session, save_onnx, write_int8
from tuner.train.models.onnx_layers import OnnxLayers, answer_alone, answer_by, headless, layers_of

MOST_PROGRAMS = 4
SAME = 1e-3  # largest difference between a network and its ONNX file, as a share of the largest feature
DOMAIN, NODE = "tuner", "EightBits"  # of the nodes that stand for layers in 8 bits while a file is written
FEATURES = "features"


class EightBits(OnnxLayers):
    """The layers of a network before its last one, in 8 bits.

    Attributes:
        number: of this object in this process
    """

    def __init__(self, content: bytes) -> None:
        """Load the file. Raises an exception of onnxruntime's if it is damaged."""
        super().__init__(content)
        self.number = next(_numbers)
        _loaded[self.number] = self

    def forward(self, images: Tensor) -> Tensor:
        """Features of images, on the images' device; while a file is written, a node that stands for them."""
        if torch.compiler.is_exporting():
            shape, kind = (images.shape[0], self.outputs), f"{DOMAIN}::{NODE}"
            return torch.onnx.ops.symbolic(
                kind, (images,), {"number": self.number}, dtype=torch.float32, shape=shape, version=1
            )
        return super().forward(images)


_numbers = count()
_loaded: WeakValueDictionary[int, EightBits] = WeakValueDictionary()
_programs: dict[str, bytes] = {}  # ONNX files of networks of this process, for other weights of the same network


def quantised(module: nn.Module, images: Tensor) -> EightBits:
    """The layers of a network before its last one, in 8 bits.

    Args:
        module: the network, whose output is that of its last layer
        images: normalised, [N, C, H, W], by whose activations the ranges are set

    Raises:
        TrialError: it doesn't end in a linear layer, or ONNX can't express it.
        TrialDiverged: its answers aren't finite.
    """
    whole, images = deepcopy(module).cpu().float().eval(), images.float().cpu()
    two = images[torch.arange(2) % len(images)]
    with torch.inference_mode():
        if not whole(two).isfinite().all():
            raise TrialDiverged("a network's answers must stay finite, got others in validation; lower lr")
        backbone = headless(whole, two)
        if backbone is None:
            raise TrialError(
                f"quantization='int8' needs a network that ends in a linear layer, got {type(module).__name__}; leave "
                "it out for this model"
            )
        features = backbone(two)
    with tempfile.TemporaryDirectory() as folder:
        float32, file = Path(folder, "float32.onnx"), Path(folder, "int8.onnx")
        try:
            _write_float32(backbone, two, features, float32)
            write_int8(float32, file, images.numpy(), {})
            return EightBits(file.read_bytes())
        except MemoryError:
            raise
        except Exception as error:  # any operator without a counterpart
            raise TrialError(
                f"quantization='int8' needs a network that can be written as ONNX, got {type(module).__name__} with "
                f"{describe_error(error)}; leave it out for this model"
            ) from error


def _write_float32(backbone: nn.Module, two: Tensor, features: Tensor, file: Path) -> None:
    """Write an ONNX file of a network with these features for two images.

    How it computes, which takes longest, is found out once for all with the same layers; then weights are exchanged.
    """
    import onnx
    from onnxscript import optimizer

    state = {name: value.detach().numpy() for name, value in backbone.state_dict().items()}
    key = repr([backbone, two.shape, [(name, value.shape) for name, value in state.items()]])
    expected = features.numpy()
    for known in (True, False):
        if not known or key not in _programs:
            save_onnx(backbone, two, file, output=FEATURES, facts={}, optimize=False)
            _programs[key] = file.read_bytes()
        while len(_programs) > MOST_PROGRAMS:
            del _programs[next(iter(_programs))]
        model = onnx.load_from_string(_programs[key])
        for tensor in model.graph.initializer:
            if tensor.name in state:
                tensor.CopyFrom(onnx.numpy_helper.from_array(state[tensor.name], tensor.name))
        onnx.save(optimizer.optimize(model), file)
        found = np.asarray(onnx_session(file).run(None, {IMAGES: two.numpy()})[0])
        if np.abs(found - expected).max() <= SAME * max(1.0, np.abs(expected).max()):
            return
    raise ValueError("other answers as ONNX")


def eight_bits_of(module: nn.Module) -> EightBits | None:
    """The layers in 8 bits of a network; None if it has none."""
    found = layers_of(module)
    return found if isinstance(found, EightBits) else None


@contextmanager
def answering_in_eight_bits(module: nn.Module, images: Tensor) -> Iterator[nn.Module]:
    """Within it the network answers in 8 bits, quantised by normalised images [N, C, H, W]; raises as `quantised`."""
    answer_by(module, quantised(module, images))
    try:
        yield module
    finally:
        answer_alone(module)


@contextmanager
def answering_in_float(module: nn.Module) -> Iterator[None]:
    """Within it a network computes all of its layers itself: those in 8 bits have neither maps nor gradients."""
    before = layers_of(module)
    answer_alone(module)
    try:
        yield
    finally:
        if before is not None:
            answer_by(module, before)


def save_as_it_answers(module: nn.Module, example: Tensor, file: Path, *, output: str, facts: Mapping[str, Any]) -> int:
    """See `save_onnx`, also for a model whose networks answer in 8 bits."""
    opset = save_onnx(module, example, file, output=output, facts=facts)
    if any(eight_bits_of(one) for one in module.modules()):
        import onnx

        model = onnx.load(file)
        _fill_in(model)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, file)
    return opset


def _fill_in(model: Any) -> None:
    """Put the layers in 8 bits in the place of the nodes that stand for them."""
    import onnx

    graph, nodes, present = model.graph, list(model.graph.node), set[str]()
    domains = {each.domain: each for each in model.opset_import if each.domain != DOMAIN}
    del graph.node[:]
    for place, node in enumerate(nodes):
        if node.domain != DOMAIN:
            graph.node.append(node)
            continue
        number = node.attribute[0].i
        whole = onnx.load_from_string(_loaded[number].content)
        domains, inner = {each.domain: each for each in whole.opset_import} | domains, whole.graph
        shared = {tensor.name for tensor in inner.initializer}
        ends = {inner.input[0].name: node.input[0], inner.output[0].name: node.output[0]}
        own = {name: f"eight_bits_{number}/{name}" for name in shared}
        for part in inner.node:
            for names in (part.input, part.output):
                names[:] = [_renamed(name, ends, own, f"eight_bits_{place}/") for name in names]
            part.name = f"eight_bits_{place}/{part.name}"
            graph.node.append(part)
        for tensor in inner.initializer:
            tensor.name = own[tensor.name]
            if tensor.name not in present:
                graph.initializer.append(tensor)
                present.add(tensor.name)
    kept = list(domains.values())
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _renamed(name: str, ends: dict[str, str], own: dict[str, str], prefix: str) -> str:
    """The name of a value of inner layers in the whole; an empty one is an input that is left out."""
    return ends.get(name) or own.get(name) or (f"{prefix}{name}" if name else "")
