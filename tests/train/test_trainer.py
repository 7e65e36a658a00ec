import gc
import itertools
import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tuner.errors import StudyError, TrialDiverged, TrialError, TrialOutOfMemory
from tuner.train import EpochResult, Trainer
from tuner.train.checkpoint import Checkpoint, load_first_whole, read_model, write_checkpoint
from tuner.trial import ImageClassifier
from tuner.trial.tasks import ONE_LABEL

METRICS = ONE_LABEL.directions(()).keys() - {"val_top5_accuracy"}  # of three classes

CONFIG: dict[str, Any] = {"lr": 1e-3, "batch_size": 16, "image_size": 12}


def trainer(trial: ImageClassifier, *, seed: int = 0, epochs: int = 3, **config: Any) -> Trainer:
    return Trainer(trial, CONFIG | config, epochs=epochs, seed=seed, split_seed=0)


def curve(results: list[EpochResult]) -> list[tuple[int, float, float, float]]:
    return [
        (result.epoch, result.train_loss, result.validation.loss, result.validation["accuracy"]) for result in results
    ]


def run(running: Trainer) -> list[EpochResult]:
    results = []
    while not running.finished:
        results.append(running.run_epoch())
    return results


def state(running: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in running.module.state_dict().items()}


def same_state(running: Trainer, expected: dict[str, torch.Tensor]) -> None:
    found = running.module.state_dict()
    assert found.keys() == expected.keys()
    assert [name for name, value in expected.items() if not torch.equal(value, found[name])] == []


def test_it_learns_three_colours(colours: ImageClassifier) -> None:
    running = trainer(colours, epochs=4)
    results = run(running)
    assert [result.epoch for result in results] == [1, 2, 3, 4]
    assert results[-1].train_loss < results[0].train_loss / 2
    assert running.evaluate(running.splits.test)["accuracy"] == 1.0


def test_an_epoch_reports_its_metrics_by_name(small: ImageClassifier) -> None:
    metrics = trainer(small).run_epoch().metrics()
    assert set(metrics) == {*METRICS, "batch_norm", "step_path", "threads", "memory_reserved_bytes"}
    numbers = [metrics[name] for name in METRICS if not name.startswith("device_")]
    assert all(isinstance(value, int | float) and math.isfinite(value) for value in numbers)
    assert math.isnan(float(metrics["device_utilisation"]))
    assert (metrics["learning_rate"], metrics["micro_batch_size"], metrics["oom_retries"]) == (1e-3, 16, 0)
    assert metrics["batch_norm"] == "whole batch"


def test_the_hyperparameter_epochs_shortens_a_trial_and_never_lengthens_it(small: ImageClassifier) -> None:
    trainers = [
        Trainer(small, CONFIG | more, epochs=3, seed=0, split_seed=0) for more in ({"epochs": 2}, {"epochs": 9}, {})
    ]
    assert [running.total_epochs for running in trainers] == [2, 3, 3]


def test_the_same_seed_gives_the_same_curve_in_a_used_process(small: ImageClassifier) -> None:
    first = curve(run(trainer(small, epochs=2)))
    run(trainer(small, epochs=1, seed=7, lr=0.01))
    torch.rand(13)
    assert curve(run(trainer(small, epochs=2))) == first
    assert curve(run(trainer(small, epochs=2, seed=1))) != first


def test_training_leaves_torchs_generator_and_the_shared_data_alone(small: ImageClassifier) -> None:
    running = trainer(small)
    before, images = torch.get_rng_state(), running.splits.train.images().clone()
    running.run_epoch()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(running.splits.train.images(), images)


MODES: dict[str, dict[str, Any]] = {
    "all": {"optimizer": "adam", "weight_decay": 0.01},
    "sgd": {"optimizer": "sgd", "momentum": 0.9, "lr": 0.01, "nesterov": True},
    "head": {"finetune": "head", "label_smoothing": 0.1},
    "gradual": {"finetune": "gradual", "backbone_lr_scale": 0.3, "layer_decay": 0.5, "optimizer": "adamw"},
    "everything": {
        **{"finetune": "gradual", "ema_decay": 0.9, "mixup": 0.2, "dropout": 0.2, "clip_norm": 1.0, "flip": 0.5},
        **{"crop_padding": 2, "color_jitter": 0.3, "random_erasing": 0.3, "schedule": "one-cycle", "precision": "fp16"},
        **{"class_weights": "balanced"},
    },
    "lp-ft": {"finetune": "lp-ft", "probe_lr": 0.01, "schedule": "cosine", "ema_decay": 0.9, "flip": 0.5, "mixup": 0.2},
    "policies": {
        **{"auto_augment": "trivial", "random_resized_crop": 0.1, "cutmix": 1.0, "mixup": 0.2, "test_time_flip": True},
        **{"freeze_batch_norm": True},
    },
    "rand": {"auto_augment": "rand", "finetune": "gradual", "cutmix": 0.5},
}


@pytest.mark.parametrize("config", MODES.values(), ids=MODES)
@pytest.mark.parametrize("steps", [0, 2], ids=["between epochs", "within an epoch"])
def test_going_on_from_a_checkpoint_is_never_having_stopped_bit_for_bit(
    small: ImageClassifier, tmp_path: Path, config: dict[str, Any], steps: int
) -> None:
    whole = trainer(small, **config)
    results = run(whole)
    first = trainer(small, **config)
    first.run_epoch()
    first.train(steps)
    first.save(tmp_path / "checkpoint")
    second = trainer(small, **config)
    second.load(tmp_path / "checkpoint")
    assert (second.epoch, second.step) == (1, steps)
    assert curve(run(second)) == curve(results[1:])
    same_state(second, state(whole))
    left, right = whole.parts.best_module.state_dict(), second.parts.best_module.state_dict()
    assert all(torch.equal(value, right[name]) for name, value in left.items())


def test_a_checkpoint_keeps_how_small_the_parts_had_to_become(small: ImageClassifier, tmp_path: Path) -> None:
    first = trainer(small)
    first.parts.training_step.micro_batch_size, first.parts.training_step.retries = 4, 2
    first.save(tmp_path)
    second = trainer(small)
    second.load(tmp_path)
    result = second.run_epoch()
    assert (result.micro_batch_size, result.oom_retries) == (4, 2)
    assert result.batch_norm == "first pass over the whole batch"


def test_a_checkpoint_keeps_how_often_raising_them_failed(small: ImageClassifier, tmp_path: Path) -> None:
    first = trainer(small)
    first.parts.training_step.raising.failures, first.parts.training_step.raising.steps = 2, 7
    first.save(tmp_path)
    second = trainer(small)
    second.load(tmp_path)
    assert (second.parts.training_step.raising.failures, second.parts.training_step.raising.steps) == (2, 7)
    older = {
        name: value
        for name, value in first.snapshot().scalars.items()
        if name not in ("failed_raises", "steps_at_size")
    }
    second.restore(replace(first.snapshot(), scalars=older))
    assert (second.parts.training_step.raising.failures, second.parts.training_step.raising.steps) == (0, 0)


def test_what_is_kept_is_the_moving_average_where_there_is_one(colours: ImageClassifier, tmp_path: Path) -> None:
    running = trainer(colours, ema_decay=0.9)
    running.run_epoch()
    running.save(tmp_path)
    kept, live = read_model(tmp_path)[0], state(running)
    assert running.parts.average is not None
    assert all(torch.equal(value, kept[name]) for name, value in running.parts.average.module.state_dict().items())
    assert not torch.equal(kept["fc.weight"], live["fc.weight"])


UNFIT: dict[str, Callable[[Checkpoint], Checkpoint]] = {
    "other shapes": lambda whole: replace(whole, model=whole.model | {"4.bias": torch.zeros(9)}),
    "other shapes of the moving weights": lambda whole: replace(
        whole, training=whole.training | {"live.4.bias": torch.zeros(9)}
    ),
    "missing": lambda whole: replace(whole, model={"4.bias": whole.model["4.bias"]}),
    "optimizer": lambda whole: replace(whole, training=whole.training | {"optimizer.3.exp_avg": torch.zeros(9)}),
    "optimizer's names": lambda whole: replace(whole, training=whole.training | {"optimizer.x": torch.zeros(9)}),
    "optimizer's groups": lambda whole: replace(whole, scalars=whole.scalars | {"param_groups": [{}]}),
    "no progress": lambda whole: replace(whole, scalars={}),
    "progress": lambda whole: replace(whole, scalars=whole.scalars | {"epoch": "two"}),
    "stages": lambda whole: replace(whole, scalars=whole.scalars | {"opened": 99}),
}


@pytest.mark.parametrize("config", [{"optimizer": "adam", "ema_decay": 0.9}], ids=["adam"])
@pytest.mark.parametrize("damage", UNFIT)
def test_a_whole_checkpoint_that_doesnt_fit_is_passed_over(
    small: ImageClassifier, tmp_path: Path, damage: str, config: dict[str, Any]
) -> None:
    running = trainer(small, **config)
    running.run_epoch()
    running.save(tmp_path / "1")
    expected = running.run_epoch()
    write_checkpoint(tmp_path / "2", UNFIT[damage](running.snapshot()))
    again, fresh = trainer(small, **config), trainer(small, **config)
    (problem,) = load_first_whole(again, [tmp_path / "2", tmp_path / "1"])
    assert problem.startswith(f"a checkpoint is skipped: a checkpoint must fit the trial, got {tmp_path / '2'}: ")
    assert again.epoch == 1
    assert curve([again.run_epoch()]) == curve([expected])
    before = state(fresh)
    assert load_first_whole(fresh, [tmp_path / "2"]) == [problem]
    assert (fresh.epoch, fresh.parts.optimizer.state_dict()["state"]) == (0, {})
    same_state(fresh, before)


def test_images_per_second_count_images_and_not_batches(
    small: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("tuner.train.trainer.time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    running = trainer(small, batch_size=20)  # 48 images: 20, 20 and 8
    assert running.run_epoch().images_per_second == 48
    running.train(1)
    assert running.run_epoch().images_per_second == 28


KINDS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "average": {"ema_decay": 0.9, "dropout": 0.2},
    "features": {"finetune": "head"},
    "gradual": {"finetune": "gradual", "optimizer": "sgd"},
}


def dies_with_its_last_reference(make: Callable[[], Trainer], folder: Path) -> bool:
    gc.collect()
    gc.disable()
    try:
        running = make()
        running.run_epoch()
        running.save(folder)
        running.load(folder)
        alive = [weakref.ref(running), weakref.ref(running.module), weakref.ref(running.parts.optimizer)]
        del running
        return [reference() for reference in alive] == [None, None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_a_trainer_is_freed_with_its_last_reference(
    small: ImageClassifier, tmp_path: Path, config: dict[str, Any]
) -> None:
    assert dies_with_its_last_reference(lambda: trainer(small, **config), tmp_path)


def test_the_rate_follows_the_schedule_step_by_step(small: ImageClassifier) -> None:
    running = trainer(small, schedule="cosine", epochs=2, lr=0.1)
    rates = []
    for _ in range(2):
        while running.step < 3:
            running.train(1)
            rates.append(running.learning_rate)
        running.run_epoch()
    expected = [0.05 * (1 + math.cos(math.pi * (step + 0.5) / 6)) for step in range(6)]
    assert rates == pytest.approx(expected)


def test_a_larger_class_counts_less_where_classes_are_balanced(small: ImageClassifier) -> None:
    for path in sorted((Path(str(small.data).removeprefix("folder:")) / "blue").iterdir())[6:]:
        path.unlink()
    weights = trainer(small, class_weights="balanced").parts.training_step._objective.class_weights
    assert weights is not None
    counts = trainer(small).splits.train.labels.bincount()
    assert (weights * counts).tolist() == pytest.approx([float(counts.sum()) / 3] * 3)
    run(trainer(small, class_weights="balanced", epochs=1))


def test_an_overflow_of_memory_names_what_was_held_and_the_configuration(small: ImageClassifier) -> None:
    running = trainer(small)

    def refuse(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    running.module.register_forward_pre_hook(refuse)
    with pytest.raises(TrialOutOfMemory) as caught:
        running.run_epoch()
    message = str(caught.value)
    assert message.startswith(
        "a single image doesn't fit into memory (CUDA out of memory. Tried to allocate 2 GiB); the trial used up to "
    )
    assert message.endswith(" GB, with lr=0.001 batch_size=16 image_size=12; use a smaller model or image_size")


def test_dropout_goes_on_alike_too(small: ImageClassifier, tmp_path: Path) -> None:
    dropping = replace(small, model="squeezenet1_1")
    whole = curve(run(trainer(dropping, image_size=32, epochs=2)))
    first = trainer(dropping, image_size=32, epochs=2)
    first.run_epoch()
    first.save(tmp_path)
    second = trainer(dropping, image_size=32, epochs=2)
    second.load(tmp_path)
    assert curve(run(second)) == whole[1:]


def test_a_checkpoint_of_another_model_or_a_cut_off_one_is_refused(small: ImageClassifier, tmp_path: Path) -> None:
    running = trainer(small)
    running.save(tmp_path)
    with pytest.raises(TrialError, match=r"^a checkpoint must fit the trial, got .* without features\.0\.weight"):
        trainer(replace(small, model="squeezenet1_1"), image_size=32).load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(TrialError, match="cut off or changed"):
        running.load(tmp_path)


def test_a_frozen_backbone_stays_as_it_is_with_its_statistics(colours: ImageClassifier) -> None:
    running = trainer(colours, finetune="head")
    before = state(running)
    running.run_epoch()
    changed = [name for name, value in state(running).items() if not torch.equal(value, before[name])]
    assert changed == ["fc.weight", "fc.bias"]


def test_all_layers_learn_by_default(small: ImageClassifier) -> None:
    running = trainer(small)
    before = state(running)
    running.run_epoch()
    assert all(not torch.equal(value, before[name]) for name, value in state(running).items())


def test_every_image_is_seen_once_an_epoch_and_a_tail_of_one_joins_its_neighbour(small: ImageClassifier) -> None:
    for size, expected in ((16, [16, 16, 16]), (47, [48]), (20, [20, 20, 8]), (64, [48])):
        batches = trainer(small, batch_size=size).batches(0)
        assert [len(batch) for batch in batches] == expected
        assert sorted(torch.cat(batches).tolist()) == list(range(48))


def test_a_loss_that_explodes_is_a_diverged_trial(colours: ImageClassifier) -> None:
    running = trainer(colours, optimizer="sgd", lr=10, momentum=0.9, epochs=10)
    with torch.no_grad():
        running.module.get_parameter("fc.weight").fill_(1e38)
    with pytest.raises(TrialDiverged) as caught:
        running.run_epoch()
    assert str(caught.value).startswith("the loss must stay finite, got a training loss of ")
    assert str(caught.value).endswith(" in epoch 1 with lr=10; lower lr")
    assert running.epoch == 0


def test_the_losses_are_those_of_the_plain_formulas(small: ImageClassifier) -> None:
    running = trainer(small)
    running.run_epoch()
    split = running.splits.validation
    with torch.inference_mode():
        logits = running.module.eval()(running.splits.normalisation(split.images()))
        expected = torch.nn.functional.cross_entropy(logits, split.labels)
    measured = running.evaluate(split)
    assert measured.loss == pytest.approx(float(expected), rel=1e-6)
    assert measured["accuracy"] == pytest.approx(float((logits.argmax(1) == split.labels).double().mean()))


def test_an_unknown_hyperparameter_is_refused(small: ImageClassifier) -> None:
    with pytest.raises(StudyError, match=r"did you mean 'lr'\?$"):
        trainer(small, learning_rate=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_it_trains_on_a_gpu_and_goes_on_there_from_a_checkpoint(small: ImageClassifier, tmp_path: Path) -> None:
    running = Trainer(small, CONFIG, epochs=4, seed=0, split_seed=0, device="cuda")
    running.run_epoch()
    running.save(tmp_path)
    again = Trainer(small, CONFIG, epochs=4, seed=0, split_seed=0, device="cuda")
    again.load(tmp_path)
    run(again)
    assert again.evaluate(again.splits.test)["accuracy"] == 1.0


def test_a_micro_batch_halved_from_outside_is_not_raised_again(small: ImageClassifier) -> None:
    running = trainer(small)
    running.halve_micro_batch(2)
    running.halve_micro_batch(1)
    metrics = running.run_epoch().metrics()
    assert (metrics["micro_batch_size"], metrics["oom_retries"]) == (4, 1)
    assert running.parts.training_step.largest == 4


def test_what_is_validated_at_once_is_halved_with_a_micro_batch_that_cannot_be(small: ImageClassifier) -> None:
    running = trainer(small)
    running.parts.training_step.micro_batch_size = 1
    at_once = running.parts.evaluator.batch_size(running.splits.validation)
    running.halve_micro_batch(2)
    assert running.parts.evaluator.batch_size(running.splits.validation) == at_once // 4
