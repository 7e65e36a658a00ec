from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.capture.repeating import Repeating
from tests.train.step_lint import Operation, difference, recorded
from tuner.train import EpochResult, Trainer
from tuner.train.capture import COMPILED, EAGER, GRAPH, Way
from tuner.train.stepping import Stepping
from tuner.trial import ImageClassifier

# 48 training images: five full batches and a last one of three, eagerly
CONFIG: dict[str, Any] = {"lr": 1e-3, "batch_size": 9, "image_size": 12, "schedule": "one-cycle"}

CONFIGS: dict[str, dict[str, Any]] = {
    "adam": {"weight_decay": 0.01},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.01, "clip_norm": 0.5, "label_smoothing": 0.1},
    "sgd": {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "batch_size": 11, "schedule": "cosine", "lr": 0.01},
    "average": {"ema_decay": 0.9, "class_weights": "balanced", "dropout": 0.2},
    "mixup": {"mixup": 0.3, "label_smoothing": 0.1},
    "augmented": {"flip": 0.5, "crop_padding": 2, "color_jitter": 0.3, "random_erasing": 0.3},
    "cutmix": {"cutmix": 1.0, "label_smoothing": 0.1, "class_weights": "balanced"},
    "either": {"cutmix": 1.0, "mixup": 0.3},
    "trivial": {"auto_augment": "trivial", "random_resized_crop": 0.2},
    "frozen norms": {"freeze_batch_norm": True},
    "lp-ft": {"finetune": "lp-ft", "probe_epochs": 1, "cutmix": 1.0},
    "bf16": {"precision": "bf16", "clip_norm": 1.0},
    "fp16": {"precision": "fp16", "optimizer": "sgd", "momentum": 0.9, "clip_norm": 1.0, "ema_decay": 0.5},
    "gradual": {"finetune": "gradual", "backbone_lr_scale": 0.3, "layer_decay": 0.5, "ema_decay": 0.9},
    "head": {"finetune": "head", "ema_decay": 0.9},
}


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Let trainers record by the recorder that is given."""

    def record_by(recorder: Repeating) -> Repeating:
        monkeypatch.setattr("tuner.train.assembly.Stepping", partial(Stepping, recorder=recorder))
        return recorder

    return record_by


def trainer(trial: ImageClassifier, *, path: str | None = GRAPH, epochs: int = 3, **config: Any) -> Trainer:
    return Trainer(trial, CONFIG | config, epochs=epochs, seed=0, split_seed=0, step_path=path)


def run(running: Trainer) -> list[tuple[float, ...]]:
    results: list[EpochResult] = []
    while not running.finished:
        results.append(running.run_epoch())
    return [(one.train_loss, one.validation.loss, one.validation["accuracy"], one.learning_rate) for one in results]


def running_batch(running: Trainer) -> int:
    return int(running.parts.chosen["batch_size"])


def tensors(running: Trainer) -> dict[str, Tensor]:
    whole = running.snapshot()
    return whole.model | whole.training


def assert_same(left: Trainer, right: Trainer) -> None:
    expected, found = tensors(left), tensors(right)
    assert expected.keys() == found.keys()
    assert [name for name, value in expected.items() if not torch.equal(value, found[name])] == []


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_recorded_steps_are_the_eager_ones_bit_for_bit(
    small: ImageClassifier, recording: Callable[..., Any], config: dict[str, Any]
) -> None:
    plain = trainer(small, path=None, **config)
    expected = run(plain)
    recorder = recording(Repeating())
    static = trainer(small, **config)
    assert run(static) == expected
    assert_same(plain, static)
    assert plain.snapshot().scalars == static.snapshot().scalars
    recorded_so_often = {"gradual": (3, 6), "lp-ft": (2, 9)}  # each stage that opens is recorded again
    if config.get("finetune") in recorded_so_often:
        assert (recorder.done.count("record"), recorder.done.count("replay")) == recorded_so_often[config["finetune"]]
    else:
        full = 3 * (48 // running_batch(static))
        expected_order = ["warm up"] * 3 + ["record"] + ["replay"] * (full - 3)
        assert [one for one in recorder.done if one != "release"] == expected_order


def test_a_trial_goes_on_from_a_checkpoint_with_recorded_steps_bit_for_bit(
    small: ImageClassifier, recording: Callable[..., Any], tmp_path: Path
) -> None:
    config = {"ema_decay": 0.9, "precision": "fp16"}
    whole = trainer(small, path=None, **config)
    expected = run(whole)
    recorder = recording(Repeating())
    first = trainer(small, **config)
    first.run_epoch()
    first.train(2)
    first.save(tmp_path)
    first.load(tmp_path)  # tensors are others now than those that were recorded
    recorder.done.clear()
    assert run(first) == expected[1:]
    assert [one for one in recorder.done if one != "release"] == ["warm up"] * 3 + ["record"] + ["replay"] * 5
    second = trainer(small, **config)
    second.load(tmp_path)
    assert run(second) == expected[1:]
    assert_same(whole, second)


LINTED: dict[str, dict[str, Any]] = {
    name: config for name, config in CONFIGS.items() if name not in ("gradual", "head", "bf16", "trivial", "lp-ft")
}


@pytest.mark.parametrize("config", LINTED.values(), ids=LINTED)
def test_consecutive_steps_are_the_same_operators_numbers_and_addresses(
    small: ImageClassifier, recording: Callable[..., Any], config: dict[str, Any]
) -> None:
    logs: list[list[Operation]] = []
    recording(Repeating(lambda work: logs.append(recorded(work))))
    running = trainer(small, **config)
    running.run_epoch()
    logs.clear()
    running.train(2)
    found = difference(*logs)
    assert (found.sequence, found.scalars, found.moved, found.waits) == (None, (), (), ())


def test_the_lint_would_see_a_learning_rate_that_is_a_number(
    small: ImageClassifier, recording: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import nullcontext

    from tuner.train.capture import StaticStep

    monkeypatch.setattr(StaticStep, "_rates_from_buffer", lambda self: nullcontext())
    logs: list[list[Operation]] = []
    recording(Repeating(lambda work: logs.append(recorded(work))))
    trainer(small).train(5)
    assert difference(*logs).scalars == ("aten._fused_adam_.default",)


def test_images_of_many_sizes_leave_the_buffers_alone(small: ImageClassifier, recording: Callable[..., Any]) -> None:
    recorder = recording(Repeating())
    running = trainer(small, batch_size=20)  # 20, 20 and 8
    run(running)
    assert recorder.done.count("replay") == 3
    assert running.parts.stepping._static is not None
    assert [len(buffer) for buffer in running.parts.stepping._static.buffers[:2]] == [20, 20]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("operation not permitted when stream is capturing\nand more"), "RuntimeError: operation not"),
        (torch.OutOfMemoryError("CUDA out of memory"), "OutOfMemoryError: CUDA out of memory"),
    ],
)
def test_what_cant_be_recorded_is_trained_eagerly(
    small: ImageClassifier, recording: Callable[..., Any], error: Exception, reason: str
) -> None:
    plain = trainer(small, path=None, ema_decay=0.9, precision="fp16", clip_norm=1.0)
    expected = run(plain)
    recorder = recording(Repeating(fails=error))
    running = trainer(small, ema_decay=0.9, precision="fp16", clip_norm=1.0)
    assert run(running) == expected
    assert_same(plain, running)
    assert recorder.done.count("record") == 1
    assert running.notes[-1].startswith(f"steps are no longer taken as one CUDA graph: {reason}")
    assert running.parts.training_step.micro_batch_size == 9
    assert (running.broken or "").startswith(f"taking a trial's steps as one CUDA graph failed ({reason}")
    assert plain.broken is None


def test_after_a_failed_recording_the_process_records_and_compiles_nothing_else(
    small: ImageClassifier, recording: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recording(Repeating(fails=RuntimeError("operation not permitted when stream is capturing")))
    monkeypatch.setattr("tuner.train.stepping.AS_ONE_GRAPH", Way(GRAPH, "as one CUDA graph"))
    monkeypatch.setattr("tuner.train.stepping.WITH_COMPILER", Way(COMPILED, "with torch.compile"))
    monkeypatch.setattr("tuner.train.capture.choice.MEASURED_STEPS", 2)
    compiled: list[Any] = []
    stepping = partial(Stepping, recorder=recorder, compiled=compiled.append)
    monkeypatch.setattr("tuner.train.assembly.Stepping", stepping)
    running = trainer(small, path=None, epochs=8)
    paths = [running.run_epoch().step_path for _ in range(8)]
    assert recorder.done.count("record") == 1
    assert (paths[-1], compiled) == (EAGER, [])


def test_memory_that_runs_out_gives_the_recording_up_before_the_micro_batch(
    small: ImageClassifier, recording: Callable[..., Any]
) -> None:
    recorder = recording(Repeating())
    running = trainer(small)
    running.train(5)
    recorder.done.clear()
    failures = [torch.OutOfMemoryError("CUDA out of memory")]

    def starve(*_: object) -> None:
        if failures:
            raise failures.pop()

    running.module.register_forward_pre_hook(starve)
    running.train(1)  # the last three images, eagerly
    assert recorder.done == ["release"]
    assert running.broken is None  # nothing was being recorded
    assert (running.parts.training_step.micro_batch_size, running.parts.training_step.retries) == (9, 1)
    result = running.run_epoch()
    assert (result.step_path, result.micro_batch_size) == ("eager", 9)


@pytest.mark.parametrize(("graph_seconds", "kept"), [(0.5, "graph"), (2.0, "eager")])
def test_a_recording_that_doesnt_pay_is_released(
    small: ImageClassifier,
    recording: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    graph_seconds: float,
    kept: str,
) -> None:
    recorder = recording(Repeating())
    monkeypatch.setattr("tuner.train.stepping.AS_ONE_GRAPH", Way(GRAPH, "as one CUDA graph"))
    monkeypatch.setattr("tuner.train.capture.choice.MEASURED_STEPS", 2)
    begun_and_done = iter([0.0, 2.0, 10.0, 10.0 + 2 * graph_seconds])
    monkeypatch.setattr("tuner.train.stepping._now", lambda device: next(begun_and_done))
    running = trainer(small, path=None, epochs=4)
    results = [running.run_epoch() for _ in range(4)]
    assert results[-1].step_path == kept
    assert running.notes[-1] == (
        f"a step takes 1000.00 ms eagerly, {1000 * graph_seconds:.2f} ms as one CUDA graph: steps are taken "
        + ("as one CUDA graph" if kept == "graph" else "eagerly")
    )
    assert (recorder.done[-1] == "release") == (kept == "eager")


def test_a_trainer_that_was_closed_trains_on_eagerly(small: ImageClassifier, recording: Callable[..., Any]) -> None:
    plain = trainer(small, path=None)
    expected = run(plain)
    recorder = recording(Repeating())
    running = trainer(small)
    assert run_epochs(running, 2) == expected[:2]
    running.close()
    running.close()
    recorder.done.clear()
    assert run(running) == expected[2:]
    assert recorder.done == []


def run_epochs(running: Trainer, epochs: int) -> list[tuple[float, ...]]:
    results = [running.run_epoch() for _ in range(epochs)]
    return [(one.train_loss, one.validation.loss, one.validation["accuracy"], one.learning_rate) for one in results]


def test_the_path_of_an_epochs_steps_is_reported(small: ImageClassifier, recording: Callable[..., Any]) -> None:
    assert trainer(small, path=None).run_epoch().metrics()["step_path"] == "eager"
    assert trainer(small).run_epoch().step_path == "eager"  # nothing to record with
    recording(Repeating())
    result = trainer(small).run_epoch()
    assert (result.step_path, result.threads) == ("graph", 1)
