"""Layers of a network that onnxruntime computes on the CPU: convolutional ones 1.5 to 3 times as fast as torch.

They give what torch computes but for the rounding of sums: each batch normalisation becomes a part of the convolution
before it.
"""

from __future__ import annotations

import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tuner.machine.installation import is_installed
from tuner.train.models.network import find_head, head_is_last, head_of
from tuner.train.models.onnx_files import IMAGES, onnx_session

PIXELS_AT_ONCE = 2**20  # more would take much memory of the host, beside a GPU
WORTH = 100 * 224**2  # pixels of all images together, from which on the file's writing, a second or two, pays
SAME = 1e-4  # largest difference from what torch computes, as a share of the largest output
OUTPUTS = "outputs"
NEEDED = ("onnx", "onnxruntime")
FULL = ("fp32", "tf32")  # precisions; a CPU rounds nothing in either


class OnnxLayers(nn.Module):
    """Layers that onnxruntime computes.

    Attributes:
        content: of an ONNX file, from normalised images [N, C, H, W] float32 to outputs [N, F] float32
    """

    def __init__(self, content: bytes) -> None:
        """Load the file. Raises an exception of onnxruntime's if it is damaged."""
        super().__init__()
        self.content, self._session = content, onnx_session(content)

    @property
    def outputs(self) -> int:
        """How many there are of each image."""
        return int(self._session.get_outputs()[0].shape[1])

    def forward(self, images: Tensor) -> Tensor:
        """Outputs of images, on the images' device."""
        at_once = max(1, PIXELS_AT_ONCE // images[0, 0].numel())
        parts = [part.detach().float().cpu().numpy() for part in torch.split(images, at_once)]
        found = [torch.from_numpy(self._session.run(None, {IMAGES: part})[0]) for part in parts]
        return torch.cat(found).to(images.device)


def pays(module: nn.Module, images: int, size: int, device: torch.device, precision: str = FULL[0]) -> bool:
    """Whether so many images [size, size] are worth the start; it depends on nothing that differs between two runs.

    Transformers, with one convolution at most, gain nothing.
    """
    fits = device.type == "cpu" and precision in FULL and images * size**2 >= WORTH and all(map(is_installed, NEEDED))
    return fits and sum(isinstance(layer, nn.Conv2d) for layer in module.modules()) > 1


def headless(module: nn.Module, images: Tensor) -> nn.Module | None:
    """A copy of a network for one view, without its last layer; None if that isn't what gives its output.

    `images` are normalised, [N, C, H, W], on its device.
    """
    copy = deepcopy(module)
    copy._forward_hooks.clear()  # a hook would make two views of one
    if not head_is_last(copy, images):
        return None
    copy.set_submodule(find_head(copy), nn.Identity())
    return copy


def by_onnxruntime(module: nn.Module, images: Tensor) -> OnnxLayers | None:
    """A module's layers, in evaluation mode; None if ONNX can't express them, or gives something else.

    Args:
        module: gives outputs [N, F]
        images: on the CPU, three or more normalised ones [N, C, H, W], by which it is checked
    """
    images = images[:3]
    try:
        with torch.inference_mode():
            expected = module.eval()(images).numpy()
        found = OnnxLayers(_written(module, images[:2]))
        same = np.abs(found(images).numpy() - expected).max() <= SAME * max(1.0, float(np.abs(expected).max()))
    except MemoryError:
        raise
    except Exception as error:  # any operator without a counterpart
        logging.getLogger(__name__).info("%s isn't computed by onnxruntime: %s", type(module).__name__, error)
        return None
    return found if same else None


def _written(module: nn.Module, images: Tensor) -> bytes:
    """An ONNX file by torch's older exporter, which records one pass: the newer one takes twenty times as long."""
    names: dict[str, Any] = {"input_names": [IMAGES], "output_names": [OUTPUTS]}
    names["dynamic_axes"] = {name: {0: "batch"} for name in (IMAGES, OUTPUTS)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "layers.onnx")
        with warnings.catch_warnings(action="ignore"), redirect_stdout(io.StringIO()), torch.no_grad():
            torch.onnx.export(module, (images,), file, dynamo=False, **names)
        return file.read_bytes()


def answer_by(module: nn.Module, before: OnnxLayers) -> None:
    """Let a network's layers before its last one be these; its tensors keep their names and values."""
    last = head_of(module)
    vars(module).update(forward=lambda images: last(before(images)), computed_by=before)


def layers_of(module: nn.Module) -> OnnxLayers | None:
    """The layers that compute for a network; None if it does that itself."""
    return vars(module).get("computed_by")


def answer_alone(module: nn.Module) -> None:
    """Let a network compute all of its layers itself."""
    for name in ("forward", "computed_by"):
        vars(module).pop(name, None)


@contextmanager
def quickened(module: nn.Module, images: Tensor, *, count: int) -> Iterator[None]:
    """Within it onnxruntime computes for a network on the CPU, if `count` images like these are worth it.

    Args:
        module: ends in a linear layer, or nothing changes
        images: three or more normalised ones [N, C, H, W], on its device
        count: how many will be answered
    """
    before = None
    if layers_of(module) is None and pays(module, count, images.shape[-1], images.device):
        backbone = headless(module, images[:1])
        before = None if backbone is None else by_onnxruntime(backbone, images)
    if before is not None:
        answer_by(module, before)
    try:
        yield
    finally:
        if before is not None:
            answer_alone(module)
