"""Measures what the network of a configuration costs when it answers, without training it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tuner.errors import TrialError, describe_error
from tuner.inspection.shipping.forms import TRACED_IMAGES, WholeModel
from tuner.machine.child_process import ending, last_line
from tuner.machine.hardware import NO_GPUS, python_environment
from tuner.machine.repeated_runs import median_of_repeated
from tuner.train.data import Normalisation
from tuner.train.models import answering_network, empty_model, single_networks
from tuner.train.models.eight_bits import quantised, save_as_it_answers
from tuner.train.models.onnx_layers import answer_by
from tuner.trial import ImageClassifier
from tuner.trial.hyperparameters import INT8
from tuner.trial.inference_cost import InferenceCost, Latency

MB = 1e6
RUNS = 6  # where its memory lies makes a network slower in some processes: seen up to 1.4 times, in half of them
EXAMPLES = 8  # random images by which a network is quantised
SECONDS = 600.0  # after which a network that is timed has hung
PROGRAM = "tuner.machine.repeated_runs"


def inference_cost(
    trial: ImageClassifier, config: dict[str, Any], latency: Latency, *, channels: int, classes: int, often: bool = True
) -> InferenceCost:
    """The cost of the network that the winner would have with this configuration; its weights don't matter.

    On the CPU it is the exported ONNX file's, in a process that has nothing but onnxruntime; on a GPU that of the model
    in torch, in this process.

    Args:
        trial: whose configuration it is; of a cross-validation the winner has all networks
        config: hyperparameters by name
        latency: how time is measured
        channels: of the images
        classes: of the data
        often: whether its time is measured in `RUNS` processes, or in one

    Raises:
        TrialError: the network can't be exported, or doesn't answer.
    """
    own = trial.of(config)
    chosen = own.hyperparameters(config)
    size = chosen["image_size"]
    network = _network(own, chosen, channels=channels, classes=classes).eval()
    _make_distinct(network)
    whole = WholeModel(network, Normalisation((0.5,) * channels, (0.25,) * channels), _softmax, half=False).eval()
    images = torch.zeros(TRACED_IMAGES, channels, size, size, dtype=torch.uint8)
    try:
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            network(torch.zeros(1, channels, size, size))
        if chosen["quantization"] == INT8:
            _quantise(network, torch.randn(EXAMPLES, channels, size, size), latency)
        on_device = _on_a_gpu if latency.device == "cuda" else _exported
        measured = on_device(whole, images, latency, runs=RUNS if often else 1)
    except Exception as error:  # any operator without a counterpart in ONNX, or too little memory
        raise TrialError(describe_error(error)) from error
    return replace(measured, flops=int(counter.get_total_flops()))


def _network(trial: ImageClassifier, chosen: dict[str, Any], *, channels: int, classes: int) -> nn.Module:
    """The winner's network; those of a cross-validation share all but the last layer if only that was trained."""
    if trial.folds and chosen["finetune"] == "head" and trial.starts_from_weights:
        return answering_network(trial, channels=channels, outputs=classes * trial.folds, config=chosen)
    return empty_model(trial, channels=channels, classes=classes, config=chosen, task=trial.label_task)


@torch.no_grad()
def _make_distinct(network: nn.Module) -> None:
    """Change tensors of one value, as fresh networks have them: equal ones would be written once into a file."""
    for tensor in network.state_dict().values():
        if tensor.is_floating_point() and tensor.numel() and bool((tensor == tensor.flatten()[0]).all()):
            tensor.add_(0.01 * torch.rand_like(tensor))


def _quantise(network: nn.Module, images: Tensor, latency: Latency) -> None:
    """Let all networks answer in 8 bits, quantised by some images: what they show doesn't matter for the cost."""
    if latency.device != "cpu":
        raise TrialError(
            f"quantization='{INT8}' computes on the CPU, got Latency(device='{latency.device}'); leave out either"
        )
    for one in single_networks(network):
        answer_by(one, quantised(one, images))


def _softmax(logits: Tensor) -> Tensor:
    return logits.softmax(1)


def _exported(whole: WholeModel, images: Tensor, latency: Latency, *, runs: int) -> InferenceCost:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.onnx")
        save_as_it_answers(whole, images, file, output="answers", facts={})
        times, memory = timed(file, (latency.batch, *images.shape[1:]), threads=latency.threads, runs=runs)
        return _cost(times, file.stat().st_size, memory)


def timed(file: Path, shape: tuple[int, ...], *, threads: int, runs: int) -> tuple[list[float], int]:
    """How long an ONNX file answers images [N, C, H, W], in processes that have nothing but onnxruntime.

    Returns:
        The median in ms of each of so many processes, one after another, and how many bytes one takes more at most once
        it has answered.

    Raises:
        RuntimeError: a process ended before.
    """
    told = [_timed_once(file, shape, threads) for _ in range(runs)]
    return [one["milliseconds"] for one in told], max(one["bytes"] for one in told)


def _timed_once(file: Path, shape: tuple[int, ...], threads: int) -> dict[str, Any]:
    asked = json.dumps({"file": str(file), "threads": threads, "shape": shape})
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM],
            input=asked.encode(),
            stdout=subprocess.PIPE,
            stderr=said,
            env={**python_environment(), **NO_GPUS},
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the process that runs it {ending(done.returncode)}{last_line(said)}")
        told: dict[str, Any] = json.loads(done.stdout)
        return told


def _on_a_gpu(whole: WholeModel, images: Tensor, latency: Latency, *, runs: int) -> InferenceCost:
    device = torch.device("cuda")
    before = torch.cuda.memory_allocated(device)
    model, asked = whole.to(device), images[:1].expand(latency.batch, *images.shape[1:]).contiguous().to(device)
    torch.cuda.reset_peak_memory_stats(device)

    def ask() -> None:
        with torch.inference_mode():
            model(asked)
        torch.cuda.synchronize(device)

    times = [median_of_repeated(ask) for _ in range(runs)]
    size = sum(tensor.numel() * tensor.element_size() for tensor in whole.network.state_dict().values())
    return _cost(times, size, torch.cuda.max_memory_allocated(device) - before)


def _cost(medians: list[float], size: int, memory: int) -> InferenceCost:
    return InferenceCost(max(medians), min(medians), size / MB, max(0, memory) / MB, 0)
