"""What a trial costs, measured by real steps on a few images; no test says how long anything takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.first_study.scenes import write_scenes
from tuner import Folds, RecallAtPrecision
from tuner.train import load_splits
from tuner.train.models import onnx_layers
from tuner.train.speed import measure_trial
from tuner.trial import ImageClassifier
from tuner.trial.speed import Speed

CONFIG: dict[str, Any] = {"lr": 1e-3, "batch_size": 8}


def measured(trial: ImageClassifier, epochs: int = 4, **config: Any) -> Speed:
    torch.set_num_threads(1)
    return measure_trial(trial, {**CONFIG, **config}, epochs=epochs, split_seed=0, device="cpu", seconds=0.05)


def photos(root: Path, count: int = 24) -> Path:
    write_scenes(root / "a", count, 0, size=(40, 30))
    write_scenes(root / "b", count, 1_000, size=(40, 30))
    return root


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are really taken and told in billions of operations: seconds of a busy machine can't be compared."""

    def operations(work: Callable[[], None], *_: object) -> float:
        with FlopCounterMode(display=False) as counter:
            work()
        return counter.get_total_flops() / 1e9

    monkeypatch.setattr("tuner.train.speed._repeated", operations)


@pytest.mark.parametrize("validation", [None, 0.25])
def test_images_are_counted_as_they_will_be_cut(tmp_path: Path, validation: float | None) -> None:
    trial = ImageClassifier(f"folder:{photos(tmp_path)}", "squeezenet1_1", None, validation=validation)
    found = measured(trial, image_size=32)
    splits = load_splits(trial, seed=0, image_size=32)
    assert found.images == (len(splits.train), len(splits.validation), len(splits.test))
    assert found.cache_bytes == 48 * 3 * 32 * 32
    assert min(found.start_seconds, found.score_seconds, found.look_seconds, *found.epoch_seconds) > 0
    assert found.once_seconds == 0.0  # all layers learn: there are no features
    assert found.memory_bytes > 10**8


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("data", ["a folder", "digits"])
def test_a_cross_validation_counts_all_its_networks(tmp_path: Path, data: str) -> None:
    named = f"folder:{photos(tmp_path)}" if data == "a folder" else data
    trial = ImageClassifier(named, "squeezenet1_1", None, validation=Folds(4))
    found, splits = measured(trial, image_size=32), load_splits(trial.fold(0), seed=0, image_size=32)
    assert found.images == pytest.approx((len(splits.train), len(splits.validation), len(splits.test)), abs=1)
    train, validation, test = found.images
    assert found.score_seconds * found.images_per_second == pytest.approx(train + validation + 4 * test)
    assert found.epoch_seconds[0] * found.images_per_second > 4 * (train + validation)  # to learn takes longer still


def test_splits_on_the_disk_are_counted_as_they_are(tmp_path: Path) -> None:
    photos(tmp_path / "train")
    photos(tmp_path / "test", 5)
    found = measured(ImageClassifier(f"folder:{tmp_path}", "squeezenet1_1", None), image_size=32)
    assert found.images == (48 - 4, 4, 10)


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("epochs", [1, 4])
def test_a_frozen_backbone_runs_once_and_its_epochs_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    trial = ImageClassifier(f"folder:{photos(tmp_path / 'photos')}", "mobilenet_v3_small")  # its weights aren't here
    head = measured(trial, epochs, finetune="head", image_size=64)
    everything = measured(trial, epochs, finetune="head", image_size=64, flip=0.5)
    assert head.once_for == "mobilenet_v3_small 64"
    assert head.once_seconds == pytest.approx((40 + 4) / head.images_per_second)
    assert head.epoch_seconds[0] < everything.epoch_seconds[0]
    assert everything.once_seconds == 0.0
    assert list((tmp_path / "empty").rglob("*")) == []  # nothing was downloaded or left behind


def test_features_that_onnxruntime_computes_are_measured_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    monkeypatch.setattr(onnx_layers, "WORTH", 44 * 64**2)
    by_onnxruntime: list[bool] = []

    def repeated(work: Callable[[], None], *_: object) -> float:
        """One call, which takes longer if a network of torch computes it."""
        with FlopCounterMode(display=False) as counter:
            work()
        by_onnxruntime.append(not counter.get_total_flops())
        return 0.5 if by_onnxruntime[-1] else 16.0

    monkeypatch.setattr("tuner.train.speed._repeated", repeated)
    trial = ImageClassifier(f"folder:{photos(tmp_path / 'photos')}", "mobilenet_v3_small")
    found = measured(trial, finetune="head", image_size=64)
    assert by_onnxruntime.count(True) == 1
    assert found.features_per_second == pytest.approx(16 / 0.5)
    assert found.images_per_second == pytest.approx(8 / 16)
    assert found.once_seconds > (40 + 4) / found.features_per_second  # writing the file takes time, too
    assert found.score_seconds - found.once_seconds == pytest.approx((4 - 40 - 4) / found.features_per_second)


@pytest.mark.usefixtures("counted")
def test_a_last_layer_that_is_solved_in_one_epoch_needs_the_backbone_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    trial = ImageClassifier(f"folder:{photos(tmp_path / 'photos')}", "mobilenet_v3_small", validation=Folds(4))
    found = measured(trial, 1, finetune="head", optimizer="lbfgs", image_size=64)
    assert found.once_seconds > 0
    assert found.epoch_seconds[0] < 0.1 * found.once_seconds


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize(("folds", "images"), [(None, 3 * 40 + 4), (Folds(4), 4 * 44)])
def test_views_and_mirror_images_come_on_top_of_plain_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folds: Folds | None, images: int
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    trial = ImageClassifier(f"folder:{photos(tmp_path / 'photos')}", "mobilenet_v3_small", validation=folds)
    config = {"finetune": "head", "optimizer": "lbfgs", "image_size": 64, "views": 3, "flip": 0.5}
    found = measured(trial, 1, **config, test_time_flip=True)
    assert found.views_seconds == pytest.approx(images / found.features_per_second)
    assert found.once_seconds == pytest.approx(44 / found.features_per_second)
    plain = measured(trial, 1, **config | {"views": 0, "flip": 0.0})
    assert plain.once == [(found.once_for, plain.once_seconds)]


@pytest.mark.usefixtures("counted")
def test_gradual_fine_tuning_takes_longer_from_epoch_to_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    trial = ImageClassifier(f"folder:{photos(tmp_path / 'photos')}", "mobilenet_v3_small")
    found = measured(trial, finetune="gradual", image_size=64)
    assert len(found.epoch_seconds) == 4
    assert found.epoch_seconds[0] < found.epoch_seconds[-1]  # features first, then stages that learn
    assert found.epoch(9) == found.epoch_seconds[-1]


@pytest.mark.usefixtures("counted")
def test_the_epochs_of_a_linear_probe_are_short_all_alike_and_those_after_it_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    trial = ImageClassifier(f"folder:{photos(tmp_path / 'photos')}", "mobilenet_v3_small")
    found = measured(trial, finetune="lp-ft", probe_epochs=2, image_size=64, flip=0.5, test_time_flip=True)
    assert found.once_seconds == pytest.approx((40 + 4) / found.images_per_second)
    assert found.views_seconds == pytest.approx(4 / found.images_per_second)
    assert len(found.epoch_seconds) == 3
    assert found.epoch_seconds[0] == found.epoch_seconds[1] < found.epoch_seconds[2]


def test_data_by_name_is_loaded_as_a_trial_loads_it() -> None:
    found = measured(ImageClassifier("digits", "squeezenet1_1", None), image_size=32)
    assert sum(found.images) == 1797
    assert (found.cache_bytes, found.look_seconds) == (0, 0.0)


@pytest.mark.parametrize("data", ["photos", "digits"])
def test_each_network_of_a_cross_validation_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    monkeypatch.setattr("tuner.train.speed._repeated", lambda *_: 1.0)  # seconds of each step and each 8 images
    source = "digits" if data == "digits" else f"folder:{photos(tmp_path)}"
    trial = ImageClassifier(source, "squeezenet1_1", None, validation=Folds(3))
    found = measured(trial, image_size=32)
    splits = load_splits(trial.fold(0), seed=0, image_size=32)
    assert found.images == (len(splits.train), len(splits.validation), len(splits.test))
    train, validation, test = found.images
    assert found.epoch_seconds[0] == pytest.approx(3 * (train / 8 + validation / 8))
    assert found.score_seconds == pytest.approx((train + validation + 3 * test) / 8)


@pytest.mark.usefixtures("counted")
def test_heads_of_a_cross_validation_answer_together(tmp_path: Path) -> None:
    trial = ImageClassifier(f"folder:{photos(tmp_path)}", "squeezenet1_1", "imagenet", validation=Folds(3))
    found = measured(trial, image_size=32, finetune="head")
    assert found.score_seconds * found.images_per_second == pytest.approx(sum(found.images))


def test_a_metric_of_a_class_is_measured(tmp_path: Path) -> None:
    trial = ImageClassifier(
        f"folder:{photos(tmp_path)}", "squeezenet1_1", None, metrics=[RecallAtPrecision(0.9, of="b")]
    )
    assert measured(trial, image_size=32).epoch_seconds[0] > 0
