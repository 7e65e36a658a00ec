"""CUDA graphs for real: what Repeating stands in for elsewhere."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from tuner.train import EpochResult, Trainer
from tuner.train.capture import COMPILED, EAGER, GRAPH, CudaGraphRecorder
from tuner.train.randomness import reseed, seeded
from tuner.trial import ImageClassifier

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CONFIGS: dict[str, dict[str, Any]] = {
    "adam": {},
    "sgd": {"optimizer": "sgd", "momentum": 0.9, "clip_norm": 1.0, "schedule": "one-cycle"},
    "average and mixup": {"ema_decay": 0.9, "mixup": 0.2, "optimizer": "adamw", "weight_decay": 0.01},
    "augmented": {"flip": 0.5, "crop_padding": 2, "color_jitter": 0.3, "random_erasing": 0.3, "dropout": 0.2},
    "bf16": {"precision": "bf16", "label_smoothing": 0.1},
    "fp16": {"precision": "fp16", "clip_norm": 1.0, "class_weights": "balanced"},
    "gradual": {"finetune": "gradual"},
    "head": {"finetune": "head"},
}


def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def trainer(trial: ImageClassifier, path: str | None, **config: Any) -> Trainer:
    config = {"lr": 1e-4, "batch_size": 9, "image_size": 32} | config
    return Trainer(trial, config, epochs=3, seed=0, split_seed=0, device="cuda", step_path=path)


def run(running: Trainer) -> list[EpochResult]:
    results = []
    while not running.finished:
        results.append(running.run_epoch())
    return results


def losses(results: list[EpochResult]) -> list[float]:
    """Of training: with TF32 those of validation, on few images, differ by a quarter between two runs of one way."""
    return [result.train_loss for result in results]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_replayed_steps_train_as_eager_ones_do(colours: ImageClassifier, config: dict[str, Any]) -> None:
    expected = run(trainer(colours, EAGER, **config))
    running = trainer(colours, GRAPH, **config)
    found = run(running)
    assert [result.step_path for result in found] == [GRAPH] * 3, running.notes
    assert losses(found) == pytest.approx(losses(expected), rel=0.02)  # cuDNN may choose other algorithms


def test_a_trial_goes_on_from_a_checkpoint_with_replayed_steps(colours: ImageClassifier, tmp_path: Path) -> None:
    whole = run(trainer(colours, GRAPH, ema_decay=0.9))
    first = trainer(colours, GRAPH, ema_decay=0.9)
    first.run_epoch()
    first.save(tmp_path)
    second = trainer(colours, GRAPH, ema_decay=0.9)
    second.load(tmp_path)
    assert losses(run(second)) == pytest.approx(losses(whole[1:]), rel=0.02)


def test_replays_draw_what_the_seed_says_as_eager_work_does() -> None:
    drawn = torch.zeros(64, device=device())

    def work() -> None:
        drawn.copy_(torch.rand(64, device=drawn.device) + torch.rand(64, device=drawn.device))

    def after(seed: int) -> list[float]:
        reseed(seed, drawn.device)
        recorder.replay(work)
        return list(drawn.tolist())

    recorder = CudaGraphRecorder(device())
    with seeded(0, device()):
        with recorder.warming_up():
            work()
        recorder.record(work)
        reseed(7, device())
        work()
        eager = drawn.tolist()
        assert after(7) == eager
        assert after(8) != eager
        assert after(7) == eager
    recorder.release()


def test_what_waits_for_the_gpu_cant_be_recorded_and_training_goes_on(colours: ImageClassifier) -> None:
    running = trainer(colours, GRAPH, dropout=0.2)  # torch's generator, which the recording had, is free again
    running.module.register_forward_pre_hook(lambda module, inputs: float(inputs[0].sum()) and None)
    usual = torch.cuda.current_stream()
    assert [result.step_path for result in run(running)] == [EAGER] * 3
    assert torch.cuda.current_stream() == usual
    assert running.notes[-1].startswith("steps are no longer taken as one CUDA graph: ")


@pytest.mark.parametrize("path", [GRAPH, COMPILED])
def test_memory_is_back_where_it_was_after_a_trial(colours: ImageClassifier, path: str) -> None:
    def one_trial() -> int:
        running = trainer(colours, path)
        run(running)
        running.close()
        del running
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    after = [one_trial() for _ in range(4)]
    assert after[1:] == after[1:2] * 3


def test_the_way_is_measured_chosen_and_remembered(
    colours: ImageClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    running = Trainer(colours, {"batch_size": 8, "image_size": 32}, epochs=5000, device="cuda")
    for _ in range(20):
        running.run_epoch()
    assert running.notes[-1].startswith("a step takes ")
    assert (tmp_path / "steps.json").is_file()
    again = Trainer(colours, {"batch_size": 8, "image_size": 32}, epochs=5000, device="cuda")
    again.run_epoch()
    again.run_epoch()
    assert again.parts.stepping.path == running.parts.stepping.path
