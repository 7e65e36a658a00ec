from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.pretend import pretending
from tests.train.test_features import CONFIG, state_of_seven_classes
from tuner.errors import TrialDiverged, TrialError
from tuner.train import Trainer, trainer_of
from tuner.train.checkpoint import Checkpoint
from tuner.train.cross_validation import CrossValidated
from tuner.train.data.splits import HeldSplit, Weights
from tuner.train.epoch_result import EpochResult
from tuner.train.heads import HeadBatch, HeadTrial, NotTogether
from tuner.train.heads.epoch import Epoch
from tuner.train.heads.features import SharedFeatures
from tuner.train.heads.head import Head, flat
from tuner.train.models import random_network
from tuner.train.models.network import dropped
from tuner.train.optimisation import AveragedWeights, Precision, Schedule, build_optimizer, parameter_groups
from tuner.train.optimisation.optimizer import set_learning_rate
from tuner.train.randomness import STEPS, derive_seeds, epoch_order, seeded
from tuner.train.step import in_batches
from tuner.train.tasks.one_label import CrossEntropy, balanced_weights
from tuner.trial import Folds, ImageClassifier
from tuner.trial.same_backbone import batch_key

BASE = CONFIG | {"lr": 1e-3}
SGD = {"optimizer": "sgd"}
EACH: list[dict[str, Any]] = [
    {},
    {"lr": 3e-3},
    {"batch_size": 7},
    {"batch_size": 47},  # of 48 images: the last one joins
    {"batch_size": 500},
    {"weight_decay": 0.3},
    {"optimizer": "adamw", "weight_decay": 0.3},
    SGD,
    SGD | {"momentum": 0.0},
    SGD | {"momentum": 0.5, "weight_decay": 0.3},
    SGD | {"nesterov": True},
    SGD | {"nesterov": True, "momentum": 0.0},
    {"label_smoothing": 0.2},
    {"class_weights": "balanced"},
    {"label_smoothing": 0.2, "class_weights": "balanced"},
    {"dropout": 0.4},
    {"schedule": "cosine", "warmup_epochs": 0.5},
    {"schedule": "one-cycle"},
    {"schedule": "step", "step_epochs": 1, "step_factor": 0.3},
    {"ema_decay": 0.9},
    {"clip_norm": 0.05},
    {"epochs": 2, "schedule": "cosine"},
    SGD | {"batch_size": 7, "clip_norm": 0.5, "dropout": 0.2, "ema_decay": 0.5, "weight_decay": 1e-2, "lr": 0.1},
    {"optimizer": "adamw", "clip_norm": 0.5, "dropout": 0.2, "label_smoothing": 0.1, "ema_decay": 0.99},
]


def batch(trial: ImageClassifier, *configs: dict[str, Any], epochs: int = 3) -> HeadBatch:
    members = [HeadTrial(BASE | config, seed) for seed, config in enumerate(configs)]
    return HeadBatch(trial, members, epochs=epochs, split_seed=0)


def alone(trial: ImageClassifier, config: dict[str, Any], seed: int, epochs: int = 3) -> Trainer:
    return Trainer(trial, BASE | config, epochs=epochs, seed=seed, split_seed=0)


def assert_close(found: Checkpoint, expected: Checkpoint, tolerance: float) -> None:
    """Tensors by the scale of each, scalars exactly."""
    assert found.scalars == expected.scalars
    for left, right in ((found.model, expected.model), (found.training, expected.training)):
        assert left.keys() == right.keys()
        for name, value in right.items():
            assert left[name].dtype == value.dtype
            scale = float(value.abs().max())
            torch.testing.assert_close(left[name], value, rtol=0, atol=tolerance * scale, msg=name)


def same(left: Checkpoint, right: Checkpoint) -> bool:
    pairs = [(left.model, right.model), (left.training, right.training)]
    return left.scalars == right.scalars and all(
        one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one) for one, other in pairs
    )


def numbers(result: EpochResult | CrossValidated | TrialError) -> dict[str, float]:
    """What doesn't depend on the machine, but for texts."""
    assert isinstance(result, EpochResult)
    assert (result.step_path, result.batch_norm) == ("eager", "whole batch")
    kept = ("train_loss", "learning_rate", "micro_batch_size", "oom_retries", "threads")
    metrics = {"epoch": result.epoch, **result.metrics()}
    return {name: float(value) for name, value in metrics.items() if name in ("epoch", *kept) or name[:4] == "val_"}


@pytest.mark.parametrize("test_time_flip", [False, True])
def test_each_of_many_heads_learns_as_if_it_were_alone(pretrained: ImageClassifier, test_time_flip: bool) -> None:
    configs = [config | {"test_time_flip": test_time_flip} for config in EACH]
    together = batch(pretrained, *configs)
    trainers = [alone(pretrained, config, seed) for seed, config in enumerate(configs)]
    assert together.total_epochs == [trainer.total_epochs for trainer in trainers]
    assert together.notes == trainers[0].notes
    for member, trainer in enumerate(trainers):
        assert same(together.snapshot(member), trainer.snapshot())
    for epoch in range(3):
        members = [member for member, total in enumerate(together.total_epochs) if epoch < total]
        results = together.run_epoch(members)
        for member, result in zip(members, results, strict=True):
            expected = numbers(trainers[member].run_epoch())
            tolerance = 1e-4 if epoch else 1e-5  # rounding grows, most with rates at which losses rise
            assert numbers(result) == pytest.approx(expected, rel=tolerance, abs=1e-6), configs[member]
            assert_close(together.snapshot(member), trainers[member].snapshot(), 10 * tolerance)
    assert together.epoch == together.total_epochs


def test_metrics_of_the_users_choice_are_those_of_a_trainer(pretrained: ImageClassifier) -> None:
    trial = replace(pretrained, metrics=["balanced_accuracy", "auroc"])
    (result,), expected = batch(trial, {}).run_epoch([0]), alone(trial, {}, 0).run_epoch()
    assert {"val_balanced_accuracy", "val_auroc"} < numbers(result).keys()
    assert numbers(result) == pytest.approx(numbers(expected), rel=1e-5)


def test_members_of_different_epochs_and_sizes_take_part_in_one_call(pretrained: ImageClassifier) -> None:
    configs = [{}, {"batch_size": 7}, SGD | {"epochs": 2}]
    together, trainers = batch(pretrained, *configs), [alone(pretrained, c, seed) for seed, c in enumerate(configs)]
    for members in ([0], [0, 1], [2, 1, 0], [1, 2]):
        results = together.run_epoch(members)
        expected = [trainers[member].run_epoch() for member in members]
        for result, one in zip(results, expected, strict=True):
            assert numbers(result) == pytest.approx(numbers(one), rel=1e-5)
    assert together.epoch == [3, 3, 2]


def test_it_does_not_matter_who_else_is_in_a_batch(pretrained: ImageClassifier) -> None:
    many = batch(pretrained, *[{"lr": 1e-2 * 0.9**member} for member in range(51)])
    few = batch(pretrained, {}, {"lr": 1e-2 * 0.9})
    for _ in range(2):
        many.run_epoch(range(51))
        few.run_epoch([1])
    assert_close(many.snapshot(1), few.snapshot(1), 1e-6)


def test_heads_that_are_trained_by_two_threads_learn_the_same(pretrained: ImageClassifier) -> None:
    options = {"dropout": 0.4, "batch_size": 7}
    one, two = batch(pretrained, *[options] * 9), batch(pretrained, *[options] * 9)
    expected = list(map(numbers, one.run_epoch(range(9))))
    before = torch.get_rng_state()
    torch.set_num_threads(2)
    try:
        found = list(map(numbers, two.run_epoch(range(9))))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(torch.get_rng_state(), before)
    assert [each["threads"] for each in found] == [2] * 9
    for member, (left, right) in enumerate(zip(found, expected, strict=True)):
        assert left == pytest.approx(right | {"threads": 2}, rel=1e-6)
        assert_close(one.snapshot(member), two.snapshot(member), 1e-5)


@pytest.mark.slow
def test_on_a_gpu_heads_learn_as_if_they_were_alone(pretrained: ImageClassifier) -> None:
    configs: list[dict[str, Any]] = [{"dropout": 0.4, "ema_decay": 0.9}, SGD | {"clip_norm": 0.5}]
    members = [HeadTrial(BASE | config, seed) for seed, config in enumerate(configs)]
    with pretending():
        together = HeadBatch(pretrained, members, epochs=3, split_seed=0, device="cuda")
        results = together.run_epoch([0, 1])
        for member, result in enumerate(results):
            trainer = Trainer(
                pretrained,
                members[member].config,
                epochs=3,
                seed=member,
                split_seed=0,
                device="cuda",
                step_path="eager",
            )
            assert numbers(result) == pytest.approx(numbers(trainer.run_epoch()), rel=1e-5)
            assert_close(together.snapshot(member), trainer.snapshot(), 1e-4)


def test_a_refit_has_no_validation(pretrained: ImageClassifier) -> None:
    trial = pretrained.refitted()
    (result,), expected = batch(trial, {}).run_epoch([0]), alone(trial, {}, 0).run_epoch()
    assert isinstance(result, EpochResult)
    assert result.validation is None
    assert numbers(result) == pytest.approx(numbers(expected), rel=1e-5)


def test_a_head_with_weights_for_the_classes_is_not_drawn(pretrained: ImageClassifier, tmp_path: Path) -> None:
    state = state_of_seven_classes()
    state |= {name: state[name][:3].clone() for name in ("fc.weight", "fc.bias")}
    torch.save(state, tmp_path / "three.pt")
    trial = replace(pretrained, weights=tmp_path / "three.pt")
    together, trainer = batch(trial, {}, {}), alone(trial, {}, 1)
    assert torch.equal(together.snapshot(0).model["fc.weight"], state["fc.weight"])
    assert same(together.snapshot(1), trainer.snapshot())
    result = together.run_epoch([1])[0]
    assert numbers(result) == pytest.approx(numbers(trainer.run_epoch()), rel=1e-5)


@pytest.mark.parametrize("check_every", [5, 64])  # steps, of 24
@pytest.mark.parametrize("options", [{}, SGD | {"momentum": 0.0}])
def test_a_head_that_diverges_leaves_the_others_as_they_would_be(
    pretrained: ImageClassifier, options: dict[str, Any], check_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("trainer", "heads.heads"):
        monkeypatch.setattr(f"tuner.train.{module}.STEPS_BETWEEN_CHECKS", check_every)
    options = options | {"batch_size": 2}
    others, diverging = {"label_smoothing": 0.1, "batch_size": 2}, options | {"lr": 10.0, "schedule": "cosine"}
    with_it = batch(pretrained, others, options, diverging, options | {"lr": 1e-3})
    without = batch(pretrained, others, options, options, options | {"lr": 1e-3})
    trainer = alone(pretrained, diverging, 2)
    with torch.no_grad():
        with_it._each[0]._heads[2].live[:-3] = 1e38
        trainer.module.get_parameter("fc.weight").fill_(1e38)
    *results, last = with_it.run_epoch([0, 1, 3, 2])
    assert list(map(numbers, results)) == list(map(numbers, without.run_epoch([0, 1, 3])))
    for member in (0, 1, 3):
        assert same(with_it.snapshot(member), without.snapshot(member))
    with pytest.raises(TrialDiverged) as caught:
        trainer.run_epoch()
    assert isinstance(last, TrialDiverged)
    assert str(last) == str(caught.value)
    assert with_it.epoch == [1, 1, 0, 1]


@pytest.mark.parametrize("config", [EACH[0], EACH[-1], EACH[-2], SGD | {"momentum": 0.0}, EACH[6]])
def test_either_goes_on_from_the_others_checkpoint(pretrained: ImageClassifier, config: dict[str, Any]) -> None:
    together, trainer = batch(pretrained, {}, config), alone(pretrained, config, 1)
    together.run_epoch([0, 1])
    trainer.run_epoch()
    other, another = alone(pretrained, config, 1), batch(pretrained, {}, config)
    other.restore(together.snapshot(1))
    assert same(other.snapshot(), together.snapshot(1))
    another.restore(1, trainer.snapshot(), "a trainer's")
    assert same(another.snapshot(1), trainer.snapshot())
    assert another.epoch == [0, 1]
    for _ in range(2):
        (left,), (right,) = together.run_epoch([1]), another.run_epoch([1])
        expected = numbers(trainer.run_epoch())
        assert numbers(left) == pytest.approx(expected, rel=1e-4)
        assert numbers(right) == pytest.approx(expected, rel=1e-4)
        assert numbers(other.run_epoch()) == pytest.approx(expected, rel=1e-4)


def damaged(whole: Checkpoint) -> dict[str, Checkpoint]:
    without_weight = {name: value for name, value in whole.model.items() if name != "fc.weight"}
    other_shape = whole.training | {"optimizer.0.exp_avg": torch.zeros(2, 2)}
    of_sgd = {f"optimizer.{i}.momentum_buffer": whole.training[f"optimizer.{i}.exp_avg"] for i in range(2)}
    without_bias = {name: value for name, value in whole.training.items() if not name.startswith("optimizer.1")}
    return {
        "got HERE without fc.weight": replace(whole, model=without_weight),
        "the optimizer's 0.exp_avg has the shape": replace(whole, training=other_shape),
        "got HERE: 'step'": replace(whole, training=of_sgd),
        "got HERE of another optimizer; use another": replace(whole, training=without_bias),
        "training.json has epoch=-1": replace(whole, scalars=whole.scalars | {"epoch": -1}),
        "got HERE within one": replace(whole, scalars=whole.scalars | {"step": 2}),
        "other weights": replace(whole, scalars=whole.scalars | {"backbone": "0"}),
    }


def test_a_damaged_checkpoint_leaves_the_member_as_it_was(pretrained: ImageClassifier) -> None:
    together, other = batch(pretrained, {}, {}), batch(pretrained, {"ema_decay": 0.5})
    together.run_epoch([0, 1])
    other.run_epoch([0])
    before = together.snapshot(0)
    for message, checkpoint in damaged(together.snapshot(1)).items():
        with pytest.raises(TrialError, match=message):
            together.restore(0, checkpoint, "HERE")
        assert same(together.snapshot(0), before), message
    with pytest.raises(TrialError):
        other.restore(0, replace(before, model={}), "HERE")
    assert other.epoch == [1]


@pytest.fixture
def folded(pretrained: ImageClassifier) -> ImageClassifier:
    return replace(pretrained, validation=Folds(3))


def test_the_networks_of_cross_validations_learn_as_those_of_a_trial_alone(folded: ImageClassifier) -> None:
    configs: list[dict[str, Any]] = [{}, SGD | {"batch_size": 7, "ema_decay": 0.5}]
    together = batch(folded, *configs)
    trainers = [
        trainer_of(folded, BASE | config, seed=seed, epochs=3, split_seed=0) for seed, config in enumerate(configs)
    ]
    assert together.notes == trainers[0].notes
    for _ in range(2):
        for member, result in enumerate(together.run_epoch([0, 1])):
            assert isinstance(result, CrossValidated)
            expected = trainers[member].run_epoch()
            assert isinstance(expected, CrossValidated)
            for one, other in zip(result.each, expected.each, strict=True):
                assert numbers(one) == pytest.approx(numbers(other), rel=1e-4, abs=1e-6)
            found, snapshot = together.snapshot(member), trainers[member].snapshot()
            assert_close(found, snapshot, 1e-3)
            trainers[member].restore(found)
            together.restore(member, snapshot, "a trainer's")
            assert same(together.snapshot(member), snapshot)
    assert together.epoch == [2, 2]


def test_a_damaged_checkpoint_leaves_all_networks_of_a_cross_validation(folded: ImageClassifier) -> None:
    together = batch(folded, {}, {})
    begun = together.snapshot(1)
    together.run_epoch([0])
    whole = together.snapshot(0)
    for damage in (
        replace(whole, model={name: value for name, value in whole.model.items() if "2.fc.bias" not in name}),
        replace(whole, scalars=whole.scalars | {"networks": whole.scalars["networks"][:2]}),
    ):
        with pytest.raises(TrialError):
            together.restore(1, damage, "HERE")
        assert same(together.snapshot(1), begun)


def test_only_heads_on_features_that_stay_have_a_key(pretrained: ImageClassifier) -> None:
    assert batch_key(pretrained, BASE) is not None
    for change in (
        *({"finetune": "all"}, {"precision": "bf16"}, {"flip": 0.5}, {"mixup": 0.1}, {"auto_augment": "rand"}),
        *({"strategy": "ddp"}, {"lr": "wrong"}),
    ):
        assert batch_key(pretrained, BASE | change) is None, change
    for changed in ({"weights": None}, {"task": "several"}, {"model": lambda config: nn.Linear(1, 1)}):
        assert batch_key(replace(pretrained, **changed), BASE) is None, changed


def test_a_key_is_of_what_heads_must_share(pretrained: ImageClassifier) -> None:
    key = batch_key(pretrained, BASE)
    assert {batch_key(pretrained, BASE | config) for config in EACH} == {key}
    unasked, asked = {"finetune": "head"}, {"finetune": "head", "image_size": 64}  # which is the default
    assert pretrained.hyperparameters(unasked) == pretrained.hyperparameters(asked)
    assert batch_key(pretrained, unasked) != batch_key(pretrained, asked)
    others = [{"test_time_flip": True}, {"image_size": 16}, {"precision": "fp32"}, {"stem": "sum"}]
    assert len({key, *(batch_key(pretrained, BASE | other) for other in others)}) == 5


def test_models_whose_head_is_not_last_or_not_alone_are_trained_alone(
    pretrained: ImageClassifier, tmp_path: Path
) -> None:
    torch.save(random_network("squeezenet1_1", channels=3, classes=7, seed=0).module.state_dict(), tmp_path / "s.pt")
    with pytest.raises(NotTogether, match="linear"):  # its head is a convolution
        batch(replace(pretrained, model="squeezenet1_1", weights=tmp_path / "s.pt"), {"image_size": 32})
    digits = replace(pretrained, data="digits")
    with pytest.raises(NotTogether, match=r"conv1\.0\.weight"):
        batch(digits, {"image_size": 24})


def test_heads_that_would_fill_the_memory_are_trained_alone(
    pretrained: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.train.heads.heads.MOST_BYTES", 5 * 4 * 3 * 1024 * 2)  # of two heads
    batch(pretrained, {}, {}).close()
    with pytest.raises(NotTogether, match=r"^all heads together must take at most 0\.0 GB"):
        batch(pretrained, {}, {}, {})


def objective_of(chosen: Mapping[str, Any], labels: Tensor, *, weighted: bool) -> CrossEntropy:
    weights = balanced_weights(labels, 4).double() if chosen["class_weights"] == "balanced" else None
    return CrossEntropy(chosen["label_smoothing"], weights, weighted=weighted)


def learnt(head: Head, split: HeldSplit, layer: nn.Linear, epochs: int) -> tuple[list[float], Tensor, Tensor]:
    """Losses, weights and average of a head that learns by torch's own optimizer, loss, norm and autograd."""
    chosen = head.chosen
    optimizer = build_optimizer(
        parameter_groups([(layer.weight, 1.0), (layer.bias, 1.0)], chosen["weight_decay"]), chosen
    )
    average, losses = AveragedWeights(layer, chosen["ema_decay"]), []
    for epoch in range(epochs):
        loss = 0.0
        batches = in_batches(epoch_order(len(split), head.seed, epoch), chosen["batch_size"], 2)
        seeds = derive_seeds(len(batches), head.seed, STEPS, epoch)
        for step, (values, labels) in enumerate(split.batches(batches, "cpu")):
            set_learning_rate(optimizer, chosen["lr"] * head.schedule.of_step(epoch, step, len(batches)))
            optimizer.zero_grad()
            with seeded(seeds[step]):
                logits = layer(dropped(values, chosen["dropout"]) if chosen["dropout"] else values)
            targets = labels.double() if labels.ndim == 2 else labels
            mean = head.objective.total(logits, targets) / head.objective.weight(targets)
            mean.backward()
            Precision("fp32", torch.device("cpu")).step(optimizer, chosen["clip_norm"])
            average.update()
            loss += float(mean.detach()) * len(values)
        losses.append(loss)
    averaged = average.module
    assert isinstance(averaged, nn.Linear)
    return losses, flat(layer.weight, layer.bias), flat(averaged.weight, averaged.bias)


@pytest.mark.parametrize("weighted", [False, True])
def test_in_double_precision_heads_learn_as_by_autograd_and_torchs_optimizers(
    pretrained: ImageClassifier, weighted: bool
) -> None:
    torch.manual_seed(0)
    labels = torch.randint(4, (61,)) ** 2 // 3
    weights = Weights(torch.rand(61), 4) if weighted else None
    split = HeldSplit(torch.randn(80, 9, dtype=torch.float64), labels, torch.randperm(80)[:61], weights=weights)
    features, heads, layers = SharedFeatures(split, torch.device("cpu")), [], []
    for seed, config in enumerate(EACH):
        chosen = pretrained.hyperparameters(BASE | {"lr": 0.1} | config)
        layer = nn.Linear(9, 4).double()
        groups = build_optimizer(
            parameter_groups([(layer.weight, 1.0), (layer.bias, 1.0)], chosen["weight_decay"]), chosen
        )
        begun = flat(layer.weight, layer.bias)
        average = begun.clone() if chosen["ema_decay"] else None
        objective = objective_of(chosen, labels, weighted=weighted)
        plain = groups.state_dict()["param_groups"]
        heads.append(Head(chosen, seed, Schedule.of(chosen, 2), objective, begun, average, plain))
        layers.append(layer)
    expected = [learnt(head, split, layer, 2) for head, layer in zip(heads, layers, strict=True)]
    for epoch in range(2):
        for size in {head.chosen["batch_size"] for head in heads}:
            for sgd in (False, True):
                places = [
                    place
                    for place, head in enumerate(heads)
                    if head.chosen["batch_size"] == size and (head.chosen["optimizer"] == "sgd") == sgd
                ]
                if not places:
                    continue
                with torch.no_grad(), seeded(0):
                    losses = Epoch([heads[place] for place in places], features, layers[0], least=2).run(None)
                for place, loss in zip(places, losses, strict=True):
                    heads[place].epoch += 1
                    assert loss == pytest.approx(expected[place][0][epoch], rel=1e-9), EACH[place]
    for head, config, (_, live, average) in zip(heads, EACH, expected, strict=True):
        torch.testing.assert_close(head.live, live, rtol=1e-9, atol=1e-9, msg=str(config))
        assert (head.average is None) == ("ema_decay" not in config)
        if head.average is not None:
            torch.testing.assert_close(head.average, average, rtol=1e-9, atol=1e-9, msg=str(config))
