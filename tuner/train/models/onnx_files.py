"""ONNX files of torch's modules, and the same in integers of 8 bits."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

BATCH = "batch"
LARGEST_BATCH = 4096
IMAGES = "images"  # the input of all files
METADATA = "tuner"  # key of tuner's facts in a file's own metadata
AT_ONCE = 8  # images of a calibration
OPERATORS = (  # without the softmax, whose small probabilities would become 0
    *("Conv", "MatMul", "Gemm", "Add", "Mul", "Concat", "MaxPool", "AveragePool", "GlobalAveragePool"),
    *("Relu", "Clip"),  # otherwise the ranges would be those before them
)


def save_onnx(
    module: nn.Module,
    example: Tensor,
    file: Path,
    *,
    output: str,
    facts: Mapping[str, Any],
    optimize: bool = True,
) -> int:
    """Write a model as an ONNX file; returns its opset. Raises any exception for what ONNX can't express.

    Args:
        module: the model, in evaluation mode
        example: images [N, C, H, W], of which N may be another later, but must not be 1
        file: the new one
        output: its name in the file
        facts: JSON in the file's metadata
        optimize: fold what doesn't depend on images; otherwise each of the module's tensors is in the file by its name
    """
    shapes = ({0: torch.export.Dim(BATCH, min=1, max=LARGEST_BATCH)},)
    with warnings.catch_warnings(action="ignore"), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            optimize=optimize,
            verbose=False,
            input_names=[IMAGES],
            output_names=[output],
            dynamic_shapes=shapes,
        )
        if program is None:
            raise RuntimeError("torch wrote no program")
        program.model.metadata_props[METADATA] = json.dumps(facts)
        program.save(file)
    return int(program.model.opset_imports[""])


def onnx_session(model: Path | bytes, threads: int | None = None) -> Any:
    """A session of onnxruntime on the CPU, for a file or its content; None: as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # only errors
    options.intra_op_num_threads = threads or torch.get_num_threads()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def write_int8(float32: Path, file: Path, images: np.ndarray, metadata: Mapping[str, str]) -> None:
    """Quantise an ONNX file statically, with QDQ nodes: weights per channel, activations per tensor.

    Weights get 7 of the 8 bits: processors without VNNI add products of 8 bits up in 16, where they overflow. See
    https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html.

    Args:
        float32: the file to quantise, whose batch normalisations are folded first
        file: the new one
        images: whose activations set the ranges, [N, C, H, W] as the file takes them
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
        self._batches: Iterator[dict[str, np.ndarray]] = ({IMAGES: images[at : at + AT_ONCE]} for at in starts)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)
