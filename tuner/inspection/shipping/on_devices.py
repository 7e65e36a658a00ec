"""A winner for small devices and Intel's processors, made of its ONNX file: integers of 8 bits, and OpenVINO's IR."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

AT_ONCE = 8  # images of a calibration
OPERATORS = (  # without the softmax, whose small probabilities would become 0
    *("Conv", "MatMul", "Gemm", "Add", "Mul", "Concat", "MaxPool", "AveragePool", "GlobalAveragePool"),
    *("Relu", "Clip"),  # otherwise the ranges would be those before them
)


def write_int8(float32: Path, file: Path, images: np.ndarray, metadata: Mapping[str, str]) -> None:
    """Quantise an ONNX file statically, with QDQ nodes: weights per channel, activations per tensor.

    Weights get 7 of the 8 bits: processors without VNNI add products of 8 bits up in 16, where they overflow. See
    https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html.

    Args:
        float32: the file to quantise, whose batch normalisations are folded first
        file: the new one
        images: whose activations set the ranges, [N, C, H, W] uint8
        metadata: of the new file
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with warnings.catch_warnings(action="ignore"):
        quant_pre_process(float32, file)
        quantize_static(
            *(file, file, _Calibration(images)),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(OPERATORS),
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    model = onnx.load(file)
    onnx.helper.set_model_props(model, dict(metadata))
    onnx.save(model, file)


class _Calibration:
    """Images in batches, as onnxruntime asks for them."""

    def __init__(self, images: np.ndarray) -> None:
        starts = range(0, len(images), AT_ONCE)
        self._batches: Iterator[dict[str, np.ndarray]] = ({"images": images[at : at + AT_ONCE]} for at in starts)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)


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
