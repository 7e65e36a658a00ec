"""A winner for Intel's processors, made of its ONNX file: OpenVINO's IR."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch


def write_openvino(float32: Path, file: Path) -> None:
    """Write an ONNX file as OpenVINO's IR, in float32: `file` with its graph, and .bin beside it with the weights."""
    import openvino

    model = openvino.Core().read_model(float32)  # `convert_model` does the same, but sends statistics to OpenVINO
    openvino.save_model(model, file, compress_to_fp16=False)


def openvino_answers(file: Path) -> Callable[[np.ndarray], np.ndarray]:
    """The probabilities of such a file, on the CPU; in float32 on processors that would take bfloat16, too."""
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    model = openvino.Core().compile_model(file, "CPU", settings)
    return lambda images: np.array(model(images)[0])
