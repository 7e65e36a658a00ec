from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from tests.train.test_features import CONFIG
from tuner import Study, choice, loguniform
from tuner.errors import StudyError, TrialDiverged, TrialError
from tuner.space import Space
from tuner.train import CrossValidation, LoneHead, Trainer, assembly, trainer_of
from tuner.train.cross_validation import NETWORKS
from tuner.train.data.splits import HeldSplit, Weights
from tuner.train.epoch_result import EpochResult
from tuner.train.heads import HeadBatch, HeadTrial, solver
from tuner.train.heads.features import SharedFeatures
from tuner.train.heads.head import Head, flat, parts_of
from tuner.train.heads.solver import SMALL as SOLVED
from tuner.train.heads.solver import Solver
from tuner.train.models import Network
from tuner.train.optimisation import Schedule
from tuner.train.randomness import PARTS, derive_seed
from tuner.train.tasks.one_label import CrossEntropy, balanced_weights
from tuner.trial import Folds, ImageClassifier
from tuner.trial.hyperparameters import HYPERPARAMETERS
from tuner.trial.only_the_head import IGNORED

DEFAULTS: dict[str, Any] = {name: row.default for name, row in HYPERPARAMETERS.items()}
BASE = CONFIG | {"optimizer": "lbfgs", "weight_decay": 1.0}


def problem(dtype: torch.dtype, images: int = 90) -> tuple[Tensor, Tensor, nn.Linear]:
    """Features that are far from 0, as those of a backbone are, labels that they tell with mistakes, and a layer."""
    draw = torch.Generator().manual_seed(3)
    features = torch.randn(images, 20, generator=draw, dtype=dtype) * torch.linspace(0.1, 3, 20, dtype=dtype) + 5
    scores = features @ torch.randn(20, 4, generator=draw, dtype=dtype)
    labels = (scores - scores.mean(0) + 3 * torch.randn(images, 4, generator=draw, dtype=dtype)).argmax(1)
    return features, labels, nn.Linear(20, 4, dtype=dtype)


def head_of(layer: nn.Linear, objective: CrossEntropy, decay: float, live: Tensor | None = None) -> Head:
    chosen = DEFAULTS | {"optimizer": "lbfgs", "weight_decay": decay}
    return Head(
        chosen=chosen,
        seed=0,
        schedule=Schedule.of(chosen, 1),
        objective=objective,
        live=flat(*layer.parameters()) if live is None else live,
        average=None,
        groups=[{"lr": 1.0, "weight_decay": decay}],
    )


def objective_of(head: Head, layer: nn.Linear, features: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """As torch computes it, at the head's weights, to which it has a gradient."""
    head.live.requires_grad_(True)
    kernel, bias = parts_of(head.live, layer)
    targets = labels
    if weights is not None:
        targets = nn.functional.one_hot(labels, 4).to(features) * weights[:, None]
    outputs = features @ kernel.T + bias
    loss = head.objective.total(outputs, targets) / head.objective.weight(targets)
    return loss + 0.5 * head.chosen["weight_decay"] * (kernel**2).sum()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, SOLVED), (torch.float32, 2 * SOLVED)])
@pytest.mark.parametrize("weighted", [False, True])
def test_where_it_ends_the_gradient_is_small(
    dtype: torch.dtype, tolerance: float, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver, "BYTES_AT_ONCE", 4000)  # several parts of the images
    features, labels, layer = problem(dtype)
    values = torch.linspace(0.2, 3, len(labels), dtype=dtype) if weighted else None
    balanced = balanced_weights(labels, 4).to(dtype)
    heads = [
        head_of(layer, CrossEntropy(smoothing, of_class, weighted=weighted), decay)
        for smoothing, of_class, decay in [
            (0.0, None, 0.01),
            (0.2, None, 0.01),
            (0.0, balanced, 0.3),
            (0.2, balanced, 1e-3),
            (0.0, None, 1.0),
        ]
    ]
    weights = None if values is None else Weights(values, 4)
    shared = SharedFeatures(HeldSplit(features, labels, weights=weights), torch.device("cpu"))
    with torch.no_grad():
        for _ in range(3):
            losses = Solver(heads, shared, layer).run()
    for head, loss in zip(heads, losses, strict=True):
        found = objective_of(head, layer, features, labels, values)
        found.backward()  # type: ignore[no-untyped-call]
        head.live.requires_grad_(False)
        assert head.live.grad is not None
        assert float(head.live.grad.abs().max()) < tolerance * (1 + float(features.mean(0).max())), head.chosen
        penalty = 0.5 * head.chosen["weight_decay"] * float((parts_of(head.live, layer)[0] ** 2).sum())
        assert loss + penalty == pytest.approx(float(found.detach()), rel=1e-5)


def test_it_finds_what_scikit_learn_finds() -> None:
    features, labels, layer = problem(torch.float64)
    head = head_of(layer, CrossEntropy(), 0.02)
    shared = SharedFeatures(HeldSplit(features, labels), torch.device("cpu"))
    with torch.no_grad():
        Solver([head], shared, layer).run()
    known = LogisticRegression(C=1 / (0.02 * len(labels)), tol=1e-8, max_iter=5000).fit(features, labels)
    kernel, bias = parts_of(head.live, layer)
    torch.testing.assert_close(kernel, torch.from_numpy(known.coef_), rtol=0, atol=1e-3)
    answers = features @ kernel.T + bias
    torch.testing.assert_close(answers.softmax(1), torch.from_numpy(known.predict_proba(features)), rtol=0, atol=1e-4)


def test_a_head_that_is_solved_stays_as_it_is_and_others_do_not_matter() -> None:
    features, labels, layer = problem(torch.float32)
    shared = SharedFeatures(HeldSplit(features, labels), torch.device("cpu"))
    one, others = head_of(layer, CrossEntropy(), 1.0), [head_of(layer, CrossEntropy(), 1e-4) for _ in range(3)]
    alone = head_of(layer, CrossEntropy(), 1.0)
    with torch.no_grad():
        Solver([*others, one], shared, layer).run()
        Solver([alone], shared, layer).run()
        torch.testing.assert_close(one.live, alone.live, rtol=0, atol=1e-4)
        before = alone.live.clone()
        Solver([alone], shared, layer).run()
    torch.testing.assert_close(alone.live, before, rtol=0, atol=1e-6)


def solved(trial: ImageClassifier, seed: int = 0, **config: Any) -> LoneHead:
    found = trainer_of(trial, BASE | config, seed=seed, epochs=2, split_seed=0)
    assert isinstance(found, LoneHead)
    return found


def test_in_a_batch_with_others_it_is_what_it_is_alone(
    pretrained: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver, "ITERATIONS", 2000)  # features of random weights are hard to tell apart
    configs = [{}, {"optimizer": "adam"}, {"weight_decay": 0.3, "label_smoothing": 0.1}]
    members = [HeadTrial(BASE | config, seed) for seed, config in enumerate(configs)]
    batch = HeadBatch(pretrained, members, epochs=2, split_seed=0)
    results = batch.run_epoch([0, 1, 2])
    for member in (0, 2):
        alone, told = solved(pretrained, member, **configs[member]), results[member]
        result = alone.run_epoch()
        assert isinstance(told, EpochResult)
        assert isinstance(result, EpochResult)
        assert told.train_loss == pytest.approx(result.train_loss, abs=1e-4)
        assert told.learning_rate == result.learning_rate == 1.0
        assert told.metrics()["val_loss"] == pytest.approx(result.metrics()["val_loss"], abs=1e-3)
        assert batch.snapshot(member).scalars == alone.snapshot().scalars


@pytest.mark.parametrize("folds", [0, 3])
def test_it_goes_on_from_a_checkpoint_as_if_it_had_not_ended(
    pretrained: ImageClassifier, folds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solver, "ITERATIONS", 3)
    trial = replace(pretrained, validation=Folds(folds)) if folds else pretrained
    one, other = solved(trial), solved(trial)
    first = one.run_epoch().metrics()
    one.save(tmp_path / "saved")
    second = one.run_epoch().metrics()
    assert one.finished
    assert second["train_loss"] < first["train_loss"]  # type: ignore[operator]
    other.load(tmp_path / "saved")
    assert (other.epoch, other.total_epochs, other.broken, other.notes) == (1, 2, None, one.notes)
    other.run_epoch()
    for name, value in one.snapshot().model.items():
        assert torch.equal(other.snapshot().model[name], value)
    one.close()


def test_heads_of_a_cross_validation_share_one_network(
    pretrained: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []
    build = assembly.build_network

    def counted(*given: Any, **how: Any) -> Network:
        built.append(given)
        return build(*given, **how)

    monkeypatch.setattr(assembly, "build_network", counted)
    monkeypatch.setattr(solver, "ITERATIONS", 3)
    trial = replace(pretrained, validation=Folds(3))
    batch = HeadBatch(trial, [HeadTrial(BASE, 0), HeadTrial(BASE | {"weight_decay": 0.3}, 1)], epochs=1)
    assert len(built) == 1
    batch.run_epoch([0, 1])
    found = batch.snapshot(0).model  # taken before the other's, which are filled into the same network
    batch.snapshot(1)
    for part in range(3):
        alone = solved(trial.fold(part), derive_seed(0, PARTS, part))
        alone.run_epoch()
        for name, value in alone.snapshot().model.items():
            torch.testing.assert_close(found[f"{NETWORKS}.{part}.{name}"], value, rtol=1e-3, atol=1e-3)


def test_a_head_whose_weights_are_not_finite_diverged(pretrained: ImageClassifier) -> None:
    head = solved(pretrained)
    with torch.no_grad():
        head._batch._each[0]._heads[0].live.fill_(float("nan"))
    with pytest.raises(
        TrialDiverged, match="training loss of nan in epoch 1 with optimizer='lbfgs'; raise weight_decay"
    ):
        head.run_epoch()


def test_a_trainer_of_batches_refuses_it(pretrained: ImageClassifier) -> None:
    with pytest.raises(TrialError, match="takes steps on batches of images, got optimizer='lbfgs'"):
        Trainer(pretrained, BASE, epochs=1)
    assert isinstance(
        trainer_of(replace(pretrained, validation=Folds(2)), BASE | {"optimizer": "sgd"}, epochs=1), CrossValidation
    )


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"finetune": "all"}, "finetune='all'"),
    ({}, {"flip": 0.5}, "flip=0.5"),
    ({}, {"precision": "bf16"}, "precision='bf16'"),
    ({"weights": None}, {}, "weights=None"),
    ({}, {"flip": choice([0.5, 1.0]), "lr": loguniform(1e-4, 1.0)}, "flip="),
]


@pytest.mark.parametrize(("of_trial", "of_space", "told"), REFUSED)
def test_what_can_not_be_solved_is_refused_before_anything_starts(
    pretrained: ImageClassifier, of_trial: dict[str, Any], of_space: dict[str, Any], told: str
) -> None:
    trial = replace(pretrained, **of_trial)
    space = {"finetune": "head", "optimizer": "lbfgs", "weight_decay": loguniform(1e-4, 1.0)} | of_space
    with pytest.raises(StudyError, match=f"got {told}"):
        Study("refused", trial=trial, space=space)
    if "flip" not in of_space or not isinstance(of_space["flip"], type(choice([0]))):
        with pytest.raises(StudyError, match=f"got {told}"):
            trainer_of(trial, BASE | of_space, epochs=1)


def test_what_it_ignores_changes_nothing(pretrained: ImageClassifier) -> None:
    ignored = {"lr": 5.0, "batch_size": 7, "momentum": 0.1, "nesterov": True, "clip_norm": 1e-3, "dropout": 0.5}
    ignored |= {"schedule": "step", "warmup_epochs": 0.5, "step_epochs": 1, "step_factor": 0.5, "ema_decay": 0.99}
    assert ignored.keys() == set(IGNORED)
    plain, other = solved(pretrained), solved(pretrained, **ignored)
    expected, found = plain.run_epoch().metrics(), other.run_epoch().metrics()
    for name in ("train_loss", "val_loss", "val_accuracy", "learning_rate"):
        assert found[name] == expected[name], name
    assert found["val_loss"] < 1  # type: ignore[operator]
    for name, value in plain.snapshot().model.items():
        assert torch.equal(other.snapshot().model[name], value)


def test_what_it_ignores_is_told(pretrained: ImageClassifier) -> None:
    space: dict[str, Any] = {"finetune": "head", "lr": loguniform(1e-4, 0.1), "dropout": choice([0.0, 0.3])}
    both: dict[str, Any] = space | {"optimizer": choice(["sgd", "lbfgs"])}
    conditional = {name: space[name].when(optimizer="sgd") for name in ("lr", "dropout")}

    def told(chosen: dict[str, Any]) -> list[str]:
        return [one for one in pretrained.notices(Space(chosen), 3) if "lbfgs" in one]

    start = "optimizer='lbfgs' ignores lr and dropout, so that its trials repeat one another; "
    assert told(both) == [f"{start}give each .when(optimizer=['sgd'])"]
    assert told(space | {"optimizer": "lbfgs"}) == [f"{start}leave these out"]
    assert told(both | conditional) == told(space | {"optimizer": "sgd"}) == []


def test_epochs_in_which_nothing_is_left_to_solve_are_told(pretrained: ImageClassifier) -> None:
    solved = Space({"finetune": "head", "optimizer": "lbfgs", "weight_decay": loguniform(1e-3, 1)})
    some = Space({"finetune": "head", "optimizer": choice(["lbfgs", "adam"])})
    told = (
        "optimizer='lbfgs' mostly solves a last layer in its first epoch, and changes nothing later; in place of "
        "max_epochs=9 write 1, or at most 3 where weight_decay is small"
    )
    assert told in pretrained.notices(solved, 9)
    for space, epochs in ((solved, 3), (some, 9)):
        assert not any("mostly solves" in one for one in pretrained.notices(space, epochs))


def test_a_space_in_which_some_can_be_solved_is_accepted(pretrained: ImageClassifier) -> None:
    space = {
        "finetune": choice(["head", "all"]),
        "optimizer": choice(["adam", "lbfgs"]).when(finetune="head"),
        "flip": choice([0.0, 0.5]),
    }
    study = Study("accepted", trial=pretrained, space=space)
    assert study.search_space.dimensions.keys() == space.keys()
