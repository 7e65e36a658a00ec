"""The best trials as one model that averages their answers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.train.conftest import small_model, write_colours
from tests.train.test_features import pretrained_colours
from tuner import Folds
from tuner.history.combination import Candidate
from tuner.inspection import load_model
from tuner.inspection.combining import SCALED, SINGLE, Found, chosen_shares, found_among, write_combined
from tuner.inspection.networks import Pool, trained, trial_splits
from tuner.study.declaration import DISTILLED, ENSEMBLE, SOUP
from tuner.train import trainer_of
from tuner.train.checkpoint import read_checkpoint, write_checkpoint
from tuner.train.data import Normalisation
from tuner.train.evaluation import Evaluator
from tuner.train.models import Ensemble, Member, networks_of, random_network
from tuner.train.tasks import targets_of
from tuner.trial import ImageClassifier
from tuner.trial.tasks import NUMBER, ONE_LABEL, SEVERAL_LABELS

HEAD: dict[str, Any] = {"finetune": "head", "lr": 0.01, "batch_size": 16, "image_size": 32}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> ImageClassifier:
    """See `pretrained_colours`."""
    return pretrained_colours(tmp_path_factory.mktemp("data"))


def candidates(trial: ImageClassifier, folder: Path, *configs: dict[str, Any], epochs: int = 2) -> list[Candidate]:
    found = []
    for number, config in enumerate(configs):
        running = trainer_of(trial, config, seed=number, epochs=epochs, split_seed=0)
        for _ in range(epochs):
            running.run_epoch()
        running.save(folder / f"{number:05}")
        found.append(Candidate(f"{number:05}", epochs, config, folder / f"{number:05}"))
    return found


def combined(trial: ImageClassifier, members: list[Candidate], best: Path, how: str = "ensemble") -> dict[str, Any]:
    record = {"trial": members[0].trial, "epoch": members[0].epoch, "metrics": {}, "combined": {"asked": how}}
    write_combined(trial, members, best, record=record, split_seed=0)
    told: dict[str, Any] = json.loads((best / "metrics.json").read_text())
    return told


def answers(module: nn.Module, images: Tensor) -> Tensor:
    with torch.inference_mode():
        return module.eval()(images).softmax(1)


def scaled_answers(module: nn.Module, images: Tensor, scale: float) -> Tensor:
    """The mean answer of a trial's networks, the outputs of each times a factor."""
    if not isinstance(module, Ensemble):
        with torch.inference_mode():
            return (module.eval()(images) * scale).softmax(1)
    members = [one for one in module.eval().networks if isinstance(one, Member)]
    with torch.inference_mode():
        each = torch.cat([member.apart(member(images)) for member in members])
    return (each * scale).softmax(2).mean(0)


@pytest.mark.parametrize("folds", [None, Folds(3)])
@pytest.mark.parametrize("flips", [False, True])
def test_heads_of_one_backbone_answer_with_their_mean_and_share_it(
    pretrained: ImageClassifier, tmp_path: Path, folds: Folds | None, flips: bool
) -> None:
    trial = replace(pretrained, validation=folds)
    base = HEAD | {"test_time_flip": flips}
    members = candidates(trial, tmp_path, base, base | {"lr": 0.1}, base | {"optimizer": "lbfgs", "weight_decay": 0.1})
    pool = Pool(trial, members, 0, "cpu")
    each = [trained(trial, one.config, one.checkpoint, 0, "cpu") for one in members]
    assert pool.outputs is not None
    for one, outputs in zip(each, pool.outputs, strict=True):
        assert one.validated is not None
        torch.testing.assert_close(outputs.softmax(1), one.validated[0].softmax(1), rtol=1e-4, atol=1e-4)
        assert pool.labels.equal(one.validated[1])

    shares = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)
    model = pool.averaged(shares)
    parts = model.parts
    assert len(parts) == len(networks_of(model.module)) == 1
    splits = trial_splits(trial, base, split_seed=0)
    images = splits.normalisation(splits.test.images())
    expected = sum(answers(each[number].module, images) for number in (0, 2)) / 2
    torch.testing.assert_close(answers(model.module, images), expected, rtol=1e-4, atol=1e-5)

    scales = torch.tensor([1.0, 1.0, 0.3], dtype=torch.float64) / pool.outputs.std((1, 2))  # answers far from 0 and 1
    scaled = pool.averaged(shares, scales)
    torch.testing.assert_close(answers(scaled.module, images), scaled.tested.softmax(1), rtol=1e-4, atol=1e-5)
    assert scaled.validated is not None
    assert model.validated is not None
    assert not scaled.validated[0].softmax(1).allclose(model.validated[0].softmax(1))
    seen = sum(scaled_answers(each[number].module, images, float(scales[number])) for number in (0, 2))
    torch.testing.assert_close(answers(scaled.module, images), seen / 2, rtol=1e-4, atol=1e-5)

    told = combined(trial, members, tmp_path / "best")
    loaded = load_model(tmp_path / "best")
    assert loaded.card.test_time_flip == flips
    assert told["combined"]["in"]
    found = sum(
        one["share"] * scaled_answers(each[int(one["trial"])].module, images, one["scale"])
        for one in told["combined"]["members"]
    )
    torch.testing.assert_close(answers(loaded.module, images), found, rtol=1e-4, atol=1e-5)
    (part,), (network,) = loaded.card.parts, loaded.module.networks  # the answers here are too sure to show it
    assert dict(zip(part.trials, part.scales, strict=True)) == {
        one["trial"]: one["scale"] for one in told["combined"]["members"]
    }
    assert network.scales.tolist() == pytest.approx(part.scales)
    by_class = told["combined"]["classes"]
    counts = torch.bincount(splits.test.labels, minlength=len(splits.classes)).tolist()
    assert {one["class"]: one["images"] for one in by_class} == dict(zip(splits.classes, counts, strict=True))
    for name, accuracy in (("own", told["combined"]["own"]), ("average", told["metrics"])):
        right = sum(one[name] * one["images"] for one in by_class) / sum(counts)
        assert right == pytest.approx(accuracy["test_accuracy"])
    own = load_model(tmp_path / "best" / SINGLE)
    torch.testing.assert_close(answers(own.module, images), answers(each[0].module, images))
    assert sum(file.stat().st_size for file in (tmp_path / "best").glob("model.safetensors")) < 1.2 * sum(
        tensor.numel() * 4 for tensor in each[0].module.state_dict().values()
    )


def test_smaller_sizes_and_other_networks_see_the_largest_images_resized(
    pretrained: ImageClassifier, tmp_path: Path
) -> None:
    members = candidates(pretrained, tmp_path, HEAD, HEAD | {"image_size": 48}, HEAD | {"finetune": "all"})
    told = combined(pretrained, members, tmp_path / "best")
    pool = Pool(pretrained, members, 0, "cpu")
    model = pool.averaged(torch.full((3,), 1 / 3, dtype=torch.float64))
    assert [part.image_size for part in model.parts] == [32, 48, 32]
    assert told["combined"]["candidates"] == 3
    splits = trial_splits(pretrained, HEAD | {"image_size": 48}, split_seed=0)
    assert (model.splits.image_size, pool.splits.image_size) == (48, 32)
    images = splits.normalisation(splits.test.images())
    resized = nn.functional.interpolate(images, (32, 32), mode="bilinear", antialias=True)
    each = [trained(pretrained, one.config, one.checkpoint, 0, "cpu") for one in members]
    expected = answers(each[0].module, resized) + answers(each[1].module, images) + answers(each[2].module, resized)
    torch.testing.assert_close(answers(model.module, images), expected / 3, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.tested.softmax(1), expected / 3, rtol=1e-4, atol=1e-5)
    assert isinstance(model.module, Ensemble)
    smaller = model.module.networks[0]
    assert isinstance(smaller, Member)
    torch.testing.assert_close(smaller.fitted(images), resized, rtol=0, atol=0.01)  # other statistics by a little
    assert pool.outputs is not None
    for one, outputs in zip(each, pool.outputs, strict=True):  # to images as each takes them
        assert one.validated is not None
        torch.testing.assert_close(outputs, one.validated[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("folds", [None, Folds(3)])
@pytest.mark.parametrize("settings", [{}, {"test_time_flip": True}, {"views": 2, "flip": 0.5}])
def test_validation_images_are_answered_from_stored_features(
    pretrained: ImageClassifier,
    tmp_path: Path,
    folds: Folds | None,
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = replace(pretrained, validation=folds)
    members = candidates(trial, tmp_path, HEAD | settings, HEAD | settings | {"image_size": 48, "lr": 0.1})
    seen = Pool(trial, members, 0, "cpu").outputs
    with monkeypatch.context() as patch:  # no backbone runs
        patch.setattr(Evaluator, "logits", lambda *given: pytest.fail("images went through a backbone"))
        found = Pool(trial, members, 0, "cpu").outputs
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "another machine's"))
    computed = Pool(trial, members, 0, "cpu").outputs
    assert seen is not None
    assert found is not None
    assert computed is not None
    assert found.equal(seen)
    torch.testing.assert_close(found, computed, rtol=1e-4, atol=1e-4)


def test_networks_of_a_users_function_are_averaged(tmp_path: Path) -> None:
    trial = ImageClassifier(f"folder:{write_colours(tmp_path / 'colours')}", small_model, weights=None)
    config = {"lr": 1e-2, "batch_size": 16, "image_size": 12}
    members = candidates(trial, tmp_path, config, config | {"lr": 1e-3})
    told = combined(trial, members, tmp_path / "best")["combined"]
    if told["in"]:
        loaded = load_model(tmp_path / "best", trial=trial)
        assert len(networks_of(loaded.module)) == len(told["members"])
    else:
        assert load_model(tmp_path / "best", trial=trial).card.parts == ()


def drawn(images: int, trials: int, *, together: float, seed: int, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Outputs of equally good networks, of whose errors a part is the same, and labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (images,), generator=generator)
    truth = 2.0 * nn.functional.one_hot(labels, classes)
    shared = torch.randn(1, images, classes, generator=generator) * together**0.5
    own = torch.randn(trials, images, classes, generator=generator) * (1 - together) ** 0.5
    return truth + 1.5 * (shared + own), labels


def targets(classes: int = 4) -> Any:
    return targets_of(ONE_LABEL)(tuple(map(str, range(classes))))


def test_networks_that_err_differently_pay() -> None:
    outputs, labels = drawn(300, 6, together=0.3, seed=0)
    found = found_among(outputs, labels, targets(), seed=0)
    assert found.pays
    assert float(found.shares.sum()) == pytest.approx(1)
    fresh, others = drawn(4000, 6, together=0.3, seed=1)
    fresh = fresh * found.scales.float()[:, None, None]
    averaged = targets().together(fresh, found.shares.float())
    before, after = (targets().metrics(one, others) for one in (fresh[0] / float(found.scales[0]), averaged))
    assert found.gain == pytest.approx(before.loss - after.loss, abs=3 * found.error)
    assert after["accuracy"] > before["accuracy"]


def test_it_does_not_count_how_sure_networks_are_of_themselves() -> None:
    """One may have learned from smoothed labels, another for too long."""
    outputs, labels = drawn(400, 4, together=0.5, seed=2)
    factors = torch.tensor([0.2, 1.0, 3.0, 0.5])
    plain, found = (
        found_among(each, labels, targets(), seed=0, how=ENSEMBLE)
        for each in (outputs, outputs * factors[:, None, None])
    )
    torch.testing.assert_close(found.scales * factors, plain.scales, rtol=0.02, atol=0)
    torch.testing.assert_close(found.shares, plain.shares, rtol=0, atol=0.1)
    assert found.loss - found.gain == pytest.approx(plain.loss - plain.gain, rel=0.02)


def test_answers_that_are_all_right_are_not_scaled_without_end() -> None:
    labels = torch.arange(60) % 4
    outputs = 3.0 * nn.functional.one_hot(labels, 4)[None]
    assert 1 < float(targets().scales(outputs, labels)) < 5


def test_numbers_are_not_scaled() -> None:
    labels = torch.randn(30, 1, dtype=torch.float64)
    of_task = targets_of(NUMBER).of(("length",), labels)
    assert of_task.scales(torch.randn(2, 30, 1), labels).tolist() == [1, 1]


def test_the_same_network_several_times_pays_nothing() -> None:
    outputs, labels = drawn(300, 1, together=1.0, seed=0)
    found = found_among(outputs.expand(5, -1, -1), labels, targets(), seed=0)
    assert not found.pays
    assert found.shares.tolist() == [1, 0, 0, 0, 0]


def test_a_winner_that_is_too_sure_is_scaled_where_others_add_nothing() -> None:
    outputs, labels = drawn(300, 1, together=1.0, seed=0)
    found = found_among(3 * outputs.expand(5, -1, -1), labels, targets(), seed=0)
    assert found.pays
    assert found.way == SCALED
    assert (found.better, found.better_error) == (0, 0)
    fresh, others = drawn(4000, 1, together=1.0, seed=1)
    before, after = (targets().metrics(3 * fresh[0] * factor, others).loss for factor in (1, float(found.scales[0])))
    assert found.gain == pytest.approx(before - after, abs=3 * found.error)
    assert not found_among(outputs, labels, targets(), seed=0).pays


@pytest.mark.parametrize(("together", "averaged"), [(0.998, range(1, 8)), (0.3, range(8, 9))])
def test_of_an_average_and_the_scaled_winner_the_one_ships_that_gains_more(together: float, averaged: range) -> None:
    several = 0
    for seed in range(8):
        outputs, labels = drawn(150, 5, together=together, seed=seed)
        auto = found_among(3 * outputs, labels, targets(), seed=seed)
        average = found_among(3 * outputs, labels, targets(), seed=seed, how=ENSEMBLE)
        assert auto.pays
        assert average.way == ENSEMBLE  # as it was asked for in any case
        assert auto.way != ENSEMBLE or auto.gain == average.gain
        several += auto.way == ENSEMBLE
    assert several in averaged


@pytest.mark.parametrize(("model", "more"), [("squeezenet1_1", {}), ("resnet18", {"test_time_flip": True})])
def test_a_scaled_winner_ships_as_a_plain_network(tmp_path: Path, model: str, more: dict[str, Any]) -> None:
    """SqueezeNet's outputs come from a ReLU after its last layer."""
    trial = ImageClassifier(f"folder:{write_colours(tmp_path / 'colours')}", model, weights=None)
    found = scaled_winner(
        trial, {"lr": 3e-4, "batch_size": 16, "image_size": 32, "label_smoothing": 0.4} | more, tmp_path
    )
    assert load_model(tmp_path / "best").card.parts == ()
    assert_scaled(tmp_path / "best", None, found["members"][0]["scale"], 32)


def test_a_scaled_winner_of_a_function_ships_with_its_factor(tmp_path: Path) -> None:
    trial = ImageClassifier(f"folder:{write_colours(tmp_path / 'colours')}", small_model, weights=None)
    config = {"lr": 1e-2, "batch_size": 16, "image_size": 12, "label_smoothing": 0.4}
    found = scaled_winner(trial, config, tmp_path)
    ((part,),) = [load_model(tmp_path / "best", trial=trial).card.parts]
    assert [one["scale"] for one in found["members"]] == list(part.scales)
    assert_scaled(tmp_path / "best", trial, part.scales[0], 12)


def scaled_winner(trial: ImageClassifier, config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What metrics.json says of a trial that ships with its factor."""
    (member,) = candidates(trial, folder, config, epochs=6)
    told = combined(trial, [member], folder / "best", "auto")
    found: dict[str, Any] = told["combined"]
    assert found["in"]
    assert found["classes"] == []
    assert told["metrics"]["test_accuracy"] == found["own"]["test_accuracy"]
    assert told["metrics"]["test_loss"] < found["own"]["test_loss"]
    return found


def assert_scaled(best: Path, trial: ImageClassifier | None, factor: float, size: int) -> None:
    images = torch.randint(256, (5, 3, size, size), dtype=torch.uint8)
    scaled, plain = (load_model(one, trial=trial).probabilities(images) for one in (best, best / SINGLE))
    torch.testing.assert_close((factor * plain.log()).softmax(1), scaled, rtol=1e-3, atol=1e-5)
    assert not scaled.allclose(plain, rtol=1e-2)


def shifted(one: Candidate, folder: Path, by: float) -> Candidate:
    """The candidate with other numbers in its last layers."""
    checkpoint, generator = read_checkpoint(one.checkpoint), torch.Generator().manual_seed(0)
    model = {
        name: tensor + by * torch.randn(tensor.shape, generator=generator)
        if {"fc", "classifier"} & set(name.split("."))
        else tensor
        for name, tensor in checkpoint.model.items()
    }
    write_checkpoint(folder, replace(checkpoint, model=model))
    return replace(one, trial=folder.name, checkpoint=folder)


@pytest.mark.parametrize("folds", [None, Folds(3)])
@pytest.mark.parametrize("finetune", ["head", "all"])
def test_a_soup_is_one_network_with_the_mean_of_weights(
    pretrained: ImageClassifier, tmp_path: Path, folds: Folds | None, finetune: str
) -> None:
    trial, base = replace(pretrained, validation=folds), HEAD | {"finetune": finetune}
    middle, other = candidates(trial, tmp_path, base, base | {"image_size": 48}, epochs=8)
    beside = [shifted(middle, tmp_path / name, by) for name, by in (("right", 2.0), ("left", -2.0))]
    expected = trained(trial, base, middle.checkpoint, 0, "cpu")
    pool = Pool(trial, [*beside, other], 0, "cpu")
    assert pool.mix() == (0, 1)  # images of another size have no part in it
    assert pool.outputs is not None
    assert expected.validated is not None
    shares = torch.tensor([0, 0, 0, 1.0])
    soup = pool.averaged(shares)
    torch.testing.assert_close(soup.tested.softmax(1), expected.tested.softmax(1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(pool.outputs[3], expected.validated[0], rtol=1e-3, atol=1e-3)

    told = combined(trial, [*beside, other], tmp_path / "best", "soup")
    found = told["combined"]
    assert (found["way"], found["in"], found["candidates"]) == (SOUP, True, 3)
    assert [(one["trial"], one["share"]) for one in found["members"]] == [("right", 0.5), ("left", 0.5)]
    loaded = load_model(tmp_path / "best")
    images = soup.splits.normalisation(soup.splits.test.images())
    scaled = scaled_answers(expected.module, images, found["members"][0]["scale"])
    torch.testing.assert_close(answers(loaded.module, images), scaled, rtol=1e-3, atol=1e-4)
    assert len(networks_of(loaded.module)) == (1 if finetune == "head" or not folds else 3)
    assert bool(loaded.card.parts) == bool(folds)  # else a plain network


@pytest.mark.parametrize("more", [{"test_time_flip": True}, {"model": "squeezenet1_1"}])
def test_outputs_by_which_a_soup_is_judged_are_those_of_its_network(
    pretrained: ImageClassifier, tmp_path: Path, more: dict[str, Any]
) -> None:
    """Also where a head's outputs aren't linear in its weights, as SqueezeNet's ends with a ReLU."""
    if model := more.get("model"):
        state = random_network(model, channels=3, classes=7, seed=9).module.state_dict()
        torch.save(state, tmp_path / "saved.pt")
        pretrained = replace(pretrained, model=model, weights=tmp_path / "saved.pt")
    config = HEAD | {name: value for name, value in more.items() if name != "model"}
    (middle,) = candidates(pretrained, tmp_path, config, epochs=8)
    beside = [shifted(middle, tmp_path / name, by) for name, by in (("right", 2.0), ("left", -2.0))]
    pool = Pool(pretrained, beside, 0, "cpu")
    assert pool.mix() == (0, 1)
    assert pool.outputs is not None
    images = [pool.splits.normalisation(each.images()) for each in (pool.splits.validation, pool.splits.test)]
    for number, factor in ((2, 1.0), (2, 0.02), (0, 0.02)):
        one = pool.averaged(torch.eye(3)[number], torch.full((3,), factor))
        validated, tested = (scaled_answers(one.module, each, 1.0) for each in images)
        assert one.validated is not None
        torch.testing.assert_close(one.validated[0].softmax(1), validated, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close((factor * pool.outputs[number]).softmax(1), validated, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(one.tested.softmax(1), tested, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("weights", [None, "none"])
def test_networks_that_learned_from_nothing_are_no_soup(tmp_path: Path, weights: str | None) -> None:
    trial = ImageClassifier(f"folder:{write_colours(tmp_path / 'colours')}", "squeezenet1_1", weights=weights)
    config = {"lr": 1e-3, "batch_size": 16, "image_size": 32}
    members = candidates(trial, tmp_path, config, config | {"lr": 3e-4}, epochs=1)
    assert Pool(trial, members, 0, "cpu").mix() == ()


def test_a_network_that_learned_from_the_average_ships_as_a_plain_one(
    pretrained: ImageClassifier, tmp_path: Path
) -> None:
    """Also where a member takes larger images than the winner, whose size the student has."""
    base = HEAD | {"finetune": "all", "lr": 1e-3, "epochs": 2}
    members = candidates(pretrained, tmp_path, base, base | {"image_size": 48}, epochs=2)
    record = {"trial": "00000", "epoch": 2, "metrics": {}, "combined": {"asked": DISTILLED, "epochs": 6}}
    write_combined(pretrained, members, tmp_path / "best", record=record, split_seed=0)
    told = json.loads((tmp_path / "best" / "metrics.json").read_text())
    found = told["combined"]
    assert (found["way"], found["in"], found["epochs"], found["candidates"]) == (DISTILLED, True, 6, 2)
    assert {one["trial"] for one in found["members"]} <= {"00000", "00001"}
    assert sum(one["share"] for one in found["members"]) == pytest.approx(1)
    loaded, own = load_model(tmp_path / "best"), load_model(tmp_path / "best" / SINGLE)
    assert (loaded.card.parts, loaded.card.inputs.image_size) == ((), 32)
    split = trial_splits(pretrained, base, split_seed=0).test
    assert loaded.evaluate(split)["loss"] == pytest.approx(told["metrics"]["test_loss"], rel=1e-3)
    weights = [dict(one.module.state_dict()) for one in (loaded, own)]
    assert any(not torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_nothing_learns_from_a_single_trial(pretrained: ImageClassifier, tmp_path: Path) -> None:
    members = candidates(pretrained, tmp_path, {"finetune": "all", "lr": 0.003, "batch_size": 16, "image_size": 32})
    record = {"trial": "00000", "epoch": 2, "metrics": {}, "combined": {"asked": DISTILLED, "epochs": 6}}
    write_combined(pretrained, members, tmp_path / "best", record=record, split_seed=0)
    found = json.loads((tmp_path / "best" / "metrics.json").read_text())["combined"]
    assert (found["way"], found["candidates"]) == (SCALED, 1)
    assert "epochs" not in found


def test_a_soup_that_answers_best_is_chosen_among_others() -> None:
    outputs, labels = drawn(300, 6, together=0.3, seed=0)
    soup = torch.cat([outputs, outputs.mean(0)[None]])
    found = found_among(soup, labels, targets(), seed=0, soup=True, how=SOUP)
    assert (found.way, found.shares.tolist()) == (SOUP, [0.0] * 6 + [1.0])
    assert found.pays
    assert found_among(soup, labels, targets(), seed=0, soup=True).gain >= found.gain
    assert found_among(outputs, labels, targets(), seed=0, how=SOUP).way == SCALED  # there is none


@pytest.mark.parametrize("by_loss", [False, True])
def test_what_an_average_gains_is_told_right_though_luck_made_the_winner(by_loss: bool) -> None:
    surplus = []
    for seed in range(24):
        outputs, labels = drawn(60, 6, together=0.7, seed=seed)
        losses = torch.tensor([targets().metrics(one, labels).loss for one in outputs])
        right = torch.stack([(one.argmax(1) == labels).double().mean() for one in outputs])
        order = (losses if by_loss else -right).argsort(stable=True)
        found = found_among(outputs[order], labels, targets(), seed=seed, how=ENSEMBLE, by_loss=by_loss)
        fresh, others = drawn(3000, 6, together=0.7, seed=100 + seed)
        averaged = targets().together(fresh[order] * found.scales.float()[:, None, None], found.shares.float())
        gain = targets().metrics(fresh[order[0]], others).loss - targets().metrics(averaged, others).loss
        surplus.append(found.gain - gain)
    error = float(np.std(surplus)) / len(surplus) ** 0.5
    assert abs(float(np.mean(surplus))) < 2 * error


def test_what_ships_has_the_least_loss_of_what_pays_whatever_the_winner_was_like() -> None:
    """A winner by accuracy may be much surer than it is right; a network that is like it gains most beside it."""
    outputs, labels = drawn(200, 5, together=0.3, seed=0)
    outputs[0] *= 4
    soup = 2.5 * outputs[1:2]
    found = found_among(torch.cat([outputs, soup]), labels, targets(), seed=0, soup=True)
    mixed = found_among(torch.cat([outputs, soup]), labels, targets(), seed=0, soup=True, how=SOUP)
    assert found.way == ENSEMBLE
    assert found.loss - found.gain < mixed.loss - mixed.gain
    assert mixed.pays


def test_a_gain_beside_a_rival_with_a_higher_loss_is_not_taken_for_the_larger_one() -> None:
    """Without some images one wins that answers more of them right, but is far too sure."""
    outputs, labels = drawn(300, 5, together=0.5, seed=0)
    soup = outputs.mean(0, keepdim=True) + nn.functional.one_hot(labels, 4)
    outputs[0] = outputs[0] / 2 + torch.randn(outputs[0].shape, generator=torch.Generator().manual_seed(1)) / 2
    outputs[1:] *= 8
    both = torch.cat([outputs, soup])
    found, average = (found_among(both, labels, targets(), seed=0, soup=True, how=how) for how in ("auto", ENSEMBLE))
    assert found.way == SOUP
    assert average.pays
    assert average.gain > found.gain
    assert average.loss - average.gain > found.loss - found.gain


def test_of_equally_good_networks_a_gain_is_rarely_claimed() -> None:
    claims = sum(
        found_among(*drawn(150, 5, together=0.998, seed=seed), targets(), seed=seed).pays for seed in range(100)
    )
    assert claims <= 10


def test_a_trial_that_loses_gets_no_share() -> None:
    outputs, labels = drawn(200, 2, together=0.5, seed=3)
    useless = torch.zeros(1, *outputs.shape[1:])
    found = found_among(torch.cat([outputs, useless]), labels, targets(), seed=0)
    assert float(found.shares[2]) == 0


def test_fewer_right_answers_beyond_chance_do_not_pay() -> None:
    kinds = {
        "way": ENSEMBLE,
        "shares": torch.ones(2) / 2,
        "scales": torch.ones(2),
        "loss": 1.0,
        "gain": 0.1,
        "error": 0.01,
        "images": 100,
    }
    assert Found(**kinds, better=-0.01, better_error=0.02).pays
    assert not Found(**kinds, better=-0.05, better_error=0.02).pays
    assert not Found(**(kinds | {"gain": 0.01, "error": 0.001}), better=0.1, better_error=0.02).pays  # too little
    assert not Found(**(kinds | {"error": 0.1}), better=0.1, better_error=0.02).pays


@pytest.mark.parametrize("task", [ONE_LABEL, SEVERAL_LABELS, NUMBER])
def test_the_loss_of_averaged_answers_is_that_of_the_mean_merits(task: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    width = 1 if task is NUMBER else 3
    names = tuple("abc"[:width])
    outputs = torch.randn(4, 50, width, generator=generator).double()
    labels = {
        ONE_LABEL.name: torch.randint(3, (50,), generator=generator),
        SEVERAL_LABELS.name: (torch.rand(50, 3, generator=generator) > 0.5).float(),
        NUMBER.name: 10 * torch.randn(50, 1, generator=generator).double(),
    }[task.name]
    of_task = targets_of(task).of(names, labels)
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    merits = (of_task.merits(outputs, labels) * shares[:, None, None]).sum(0)
    expected = of_task.metrics(of_task.together(outputs, shares), labels).loss
    assert float(of_task.losses(merits).mean()) == pytest.approx(expected, rel=1e-6)


def test_shares_are_chosen_from_as_little_as_one_image() -> None:
    merits = torch.tensor([[[0.2]], [[0.9]]], dtype=torch.float64)
    assert chosen_shares(merits, targets().losses, np.random.default_rng(0)).tolist() == [0, 1]
    assert chosen_shares(merits[:, :0], targets().losses, np.random.default_rng(0)).tolist() == [
        1,
        0,
    ]  # none tells more


def test_a_network_sees_images_as_it_learnt_to_whatever_the_average_takes() -> None:
    given, own = Normalisation((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)), Normalisation((0.1, 0.2, 0.6), (0.5, 0.1, 0.2))
    member = Member(nn.Flatten(), (1.0,), normalisation=(given, own))
    images = torch.randint(256, (2, 3, 4, 4), dtype=torch.uint8)
    torch.testing.assert_close(member.fitted(given(images)), own(images), rtol=1e-4, atol=1e-5)


def test_an_average_weighs_heads_by_their_shares() -> None:
    first, second = nn.Linear(5, 6, bias=False), nn.Linear(5, 3, bias=False)
    module = Ensemble([Member(first, (0.5, 0.1), scales=(2.0, 1.0)), Member(second, (0.4,))], targets(3).together)
    features = torch.randn(7, 5)
    one, two = first(features).unflatten(1, (2, 3)).unbind(1)
    expected = 0.5 * (2 * one).softmax(1) + 0.1 * two.softmax(1) + 0.4 * second(features).softmax(1)
    torch.testing.assert_close(module(features).softmax(1), expected)


def test_a_choice_that_only_fits_its_own_images_claims_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (40,), generator=generator)
    outputs = torch.randn(60, 40, 4, generator=generator)  # of which some are right by chance, together mostly
    assert not found_among(outputs, labels, targets(), seed=0).better > 0.2
