"""Trials on a pretended GPU, see `pretend.py`: what they do there, but for the arithmetic, is what they do on a real one."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.conftest import small_model
from tests.train.pretend import GPU, PretendedGPU, on_gpu, pretending
from tuner.train import EpochResult, Trainer
from tuner.train.data import splits
from tuner.trial import ImageClassifier

CONFIG: dict[str, Any] = {"batch_size": 16, "image_size": 12}
CONFIGS: dict[str, dict[str, Any]] = {
    "default": {},
    "sgd": {"optimizer": "sgd", "momentum": 0.9},
    "sgd without momentum": {"optimizer": "sgd", "momentum": 0.0},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.01, "clip_norm": 1.0},
    "averaged weights": {"ema_decay": 0.9},
    "gradual": {"finetune": "gradual", "backbone_lr_scale": 0.3},
    "gradual sgd": {"finetune": "gradual", "optimizer": "sgd", "nesterov": True, "ema_decay": 0.9},
    "bf16": {"precision": "bf16", "optimizer": "adamw"},
    "fp16": {"precision": "fp16", "clip_norm": 1.0},
    "fp16 sgd": {"precision": "fp16", "optimizer": "sgd", "finetune": "gradual"},
    "images changed": {
        **{"flip": 0.5, "crop_padding": 2, "color_jitter": 0.3, "random_erasing": 0.3, "mixup": 0.2},
        **{"class_weights": "balanced", "dropout": 0.2, "label_smoothing": 0.1, "schedule": "cosine"},
    },
}


@pytest.fixture
def gpu() -> Iterator[PretendedGPU]:
    with pretending() as pretended:
        yield pretended


def trainer(trial: ImageClassifier, epochs: int = 2, **config: Any) -> Trainer:
    return Trainer(trial, CONFIG | config, epochs=epochs, seed=0, split_seed=0, device="cuda")


def curve(results: list[EpochResult]) -> list[tuple[float, float]]:
    return [(result.train_loss, result.validation.loss) for result in results]


def held(running: Trainer) -> Iterator[Tensor]:
    """All that a trial holds for longer than a step."""
    modules = [running.module, *([running.parts.average.module] if running.parts.average else [])]
    for module in modules:
        yield from itertools.chain(module.parameters(), module.buffers())
    for state in running.parts.optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))


def assert_it_fits_together(running: Trainer) -> None:
    """Everything lies on the GPU, and an optimizer's state and averaged weights are laid out as their parameters."""
    assert all(map(on_gpu, held(running)))
    for parameter, state in running.parts.optimizer.state.items():
        moments = [value for name, value in state.items() if name != "step"]
        assert {tensor.stride() for tensor in moments if tensor is not None} <= {parameter.stride()}
    if running.parts.average is not None:
        pairs = zip(running.module.parameters(), running.parts.average.module.parameters(), strict=True)
        assert all(live.stride() == average.stride() for live, average in pairs)


@pytest.mark.parametrize("steps", [0, 2], ids=["between epochs", "within an epoch"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_paused_trial_goes_on_as_if_it_never_stopped(
    gpu: PretendedGPU, small: ImageClassifier, tmp_path: Path, config: dict[str, Any], steps: int
) -> None:
    first = trainer(small, **config)
    first.run_epoch()
    first.train(steps)
    first.save(tmp_path / "checkpoint")
    second = trainer(small, **config)
    second.load(tmp_path / "checkpoint")
    assert curve([second.run_epoch()]) == curve([first.run_epoch()])
    for running in (first, second):
        assert running.module[0][0].weight.is_contiguous(memory_format=torch.channels_last)
        assert_it_fits_together(running)
    assert not gpu.mixed
    assert first.parts.device == GPU


def test_a_trial_of_resnet18_with_defaults_goes_on(gpu: PretendedGPU, colours: ImageClassifier, tmp_path: Path) -> None:
    first = trainer(colours)
    first.train(1)
    first.save(tmp_path / "checkpoint")
    second = trainer(colours)
    second.load(tmp_path / "checkpoint")
    second.train(1)
    assert_it_fits_together(second)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_no_step_makes_the_host_wait(
    gpu: PretendedGPU, small: ImageClassifier, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    monkeypatch.setattr(splits, "GATHERED_BYTES", 1)  # as of large images, each batch is gathered by itself
    running = trainer(small, batch_size=8, **config)
    running.train(1)
    waits = []
    for steps in (1, 2):
        gpu.clear()
        running.train(steps)
        assert not gpu.syncs
        assert not gpu.mixed
        waits.append(gpu.waits)
    assert waits[0] == waits[1]  # once for the order of the images, however many steps there are


@pytest.mark.parametrize(("precision", "expected"), [("tf32", (True, "high")), ("fp32", (False, "highest"))])
def test_training_and_validation_round_as_the_precision_says(
    gpu: PretendedGPU, small: ImageClassifier, precision: str, expected: tuple[bool, str]
) -> None:
    running = trainer(small, precision=precision)
    seen: dict[str, set[tuple[bool, str]]] = {"forward": set(), "backward": set()}
    convolution = running.module[0][0]

    def note(kind: str) -> None:
        seen[kind].add((torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()))

    convolution.register_forward_hook(lambda *_: note("forward"))
    convolution.weight.register_hook(lambda _: note("backward"))
    running.train(1)
    assert seen == {"forward": {expected}, "backward": {expected}}
    seen["forward"].clear()
    running.validate()
    assert seen["forward"] == {expected}


def test_images_that_the_gpu_has_no_room_for_come_without_a_wait(small: ImageClassifier) -> None:
    with pretending(free_bytes=1000) as gpu:
        running = trainer(small)
        running.train(1)
        gpu.clear()
        running.train(2)
        assert gpu.copies
        assert not gpu.waits
        assert not gpu.mixed


@pytest.fixture
def pretrained(small: ImageClassifier, tmp_path: Path) -> ImageClassifier:
    """With weights that another trial saved, so that features are worth keeping."""
    torch.save(small_model({}).state_dict(), tmp_path / "saved.pt")
    return replace(small, weights=tmp_path / "saved.pt")


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("finetune", ["head", "gradual"])
def test_a_head_on_frozen_features_trains_pauses_and_goes_on(
    gpu: PretendedGPU, pretrained: ImageClassifier, tmp_path: Path, optimizer: str, finetune: str
) -> None:
    config = {"optimizer": optimizer, "finetune": finetune, "unfreeze_every": 2, "batch_size": 8}
    first = trainer(pretrained, epochs=4, **config)
    first.train(1)
    assert not first.parts.feed.whole
    assert next(first.parts.feed.train.batches([torch.arange(2)], GPU))[0].device == GPU
    gpu.clear()
    first.train(1)
    assert not gpu.syncs
    first.run_epoch()
    first.save(tmp_path / "checkpoint")
    second = trainer(pretrained, epochs=4, **config)
    second.load(tmp_path / "checkpoint")
    for _ in range(2):  # the third epoch of "gradual" goes through the network
        assert curve([second.run_epoch()]) == curve([first.run_epoch()])
    assert_it_fits_together(second)
    assert not gpu.mixed


def run_out_of_memory(running: Trainer, room: int) -> None:
    """Let no more than `room` images through the network while it learns."""

    def allocate(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if len(inputs[0]) > room and torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    running.module.register_forward_pre_hook(allocate)


@pytest.mark.parametrize("config", [CONFIGS[name] for name in ("default", "adamw", "gradual sgd", "bf16", "fp16 sgd")])
def test_a_trial_that_runs_out_of_memory_goes_on_in_parts(
    gpu: PretendedGPU, small: ImageClassifier, tmp_path: Path, config: dict[str, Any]
) -> None:
    first = trainer(small, epochs=3, **config)
    run_out_of_memory(first, room=4)
    result = first.run_epoch()
    assert (result.micro_batch_size, result.oom_retries) == (4, 2)
    first.save(tmp_path / "checkpoint")
    second = trainer(small, epochs=3, **config)
    run_out_of_memory(second, room=4)
    second.load(tmp_path / "checkpoint")
    assert curve([second.run_epoch()]) == curve([first.run_epoch()])
    assert second.parts.training_step.retries == 2
    assert_it_fits_together(second)
    gpu.clear()
    second.train(1)
    assert not gpu.syncs
    assert not gpu.mixed


@pytest.mark.parametrize(
    ("switched_off", "ways"),
    [("", ["eager", "graph", "compiled"]), ("graph", ["eager", "compiled"]), ("graph, compile", ["eager"])],
)
def test_ways_of_taking_steps_that_do_not_work_on_this_gpu_are_not_tried(
    gpu: PretendedGPU, small: ImageClassifier, monkeypatch: pytest.MonkeyPatch, switched_off: str, ways: list[str]
) -> None:
    monkeypatch.setenv("TUNER_SWITCHED_OFF", switched_off)
    running = trainer(small)
    assert list(running.parts.stepping._choices[True]._ways) == ways
