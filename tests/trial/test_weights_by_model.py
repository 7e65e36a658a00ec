"""Weights as a dict from model to name, file or None: each model of a space starts from its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.models import MobileNet_V2_Weights

from tests import hub_cache
from tests.s3_server import put_objects, s3_endpoint
from tuner import Budget, Study, choice
from tuner.errors import StudyError, WeightsError
from tuner.space import Space
from tuner.storage.regular_files import sha256
from tuner.train import download_missing
from tuner.train.models import build_network, random_network
from tuner.trial import ImageClassifier

VIT = "timm:test_vit"
REPOSITORY = "timm/test_vit.r160_in1k"
MODELS = choice(["resnet18", VIT, "squeezenet1_1"])


@pytest.fixture(autouse=True)
def _caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Weights of squeezenet1_1 for three classes."""
    path = tmp_path / "mine.pth"
    torch.save(random_network("squeezenet1_1", channels=3, classes=3, seed=3).module.state_dict(), path)
    return path


def three(file: Path) -> ImageClassifier:
    weights = {"resnet18": "IMAGENET1K_V1", VIT: "pretrained", "squeezenet1_1": str(file)}
    return ImageClassifier("digits", weights=weights).within(Space({"model": MODELS}))


def refused(weights: Any, space: dict[str, Any], model: Any = "resnet18") -> str:
    with pytest.raises(StudyError) as caught:
        ImageClassifier("digits", model, weights=weights).check(Space({"lr": 0.1, **space}))
    return str(caught.value)


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        (
            {"resnet18": "imagenet"},
            f"weights must name those of each model, got ['resnet18'] without '{VIT}'; add '{VIT}': 'pretrained', a file, "
            "or None",
        ),
        ({}, "weights must name those of each model, got [] without 'resnet18'; add 'resnet18': 'pretrained'"),
        (
            {"resnet18": None, VIT: None, "vgg11": None},
            f"weights must be of models in the space (resnet18, {VIT}), got some for 'vgg11'; correct the name, or leave it",
        ),
        (
            {"resnet18": None, VIT: None, 7: None},
            f"weights must be of models in the space (resnet18, {VIT}), got some for 7",
        ),
        (
            {"resnet18": 1, VIT: None},
            "weights must be 'pretrained', a name such as 'IMAGENET1K_V2', None, the path of a",
        ),
        (
            {"resnet18": "", VIT: None},
            "weights must be 'pretrained', a name such as 'IMAGENET1K_V2', None, the path of a",
        ),
        (
            {"resnet18": ["a"], VIT: None},
            "weights must be 'pretrained', a name such as 'IMAGENET1K_V2', None, the path",
        ),
        (
            {"resnet18": {}, VIT: None},
            "weights must be 'pretrained', a name such as 'IMAGENET1K_V2', None, the path of a",
        ),
        (
            {"resnet18": "IMAGENET1K_V2", VIT: None},
            "weights of resnet18 are imagenet, IMAGENET1K_V1, got 'IMAGENET1K_V2'",
        ),
        (
            "mine.pth",
            "weights of a file fit one model, got 'mine.pth' for 2 models in the space; name those of each: weights="
            f"{{'resnet18': 'mine.pth', '{VIT}': 'pretrained'}}",
        ),
    ],
)
def test_what_cant_be_is_refused_with_the_fix(weights: Any, told: str) -> None:
    assert refused(weights, {"model": choice(["resnet18", VIT])}).startswith(told)


def test_a_single_model_and_a_functions_model_are_checked_too() -> None:
    def net(config: dict[str, Any]) -> Any: ...

    assert refused({"vgg11": None}, {}).startswith(
        "weights must name those of each model, got ['vgg11'] without 'resnet18'"
    )
    assert refused({"net()": None}, {}, net).startswith(
        "weights by model need a model with a name, got {'net()': None}"
    )
    ImageClassifier("digits", weights={"resnet18": None}).check(Space({"lr": 0.1}))


def test_what_needs_weights_is_asked_of_each_model() -> None:
    models = {"model": choice(["resnet18", "squeezenet1_1"])}
    some = {"resnet18": "imagenet", "squeezenet1_1": None}
    assert refused(some, {**models, "finetune": "lp-ft"}).startswith(
        "finetune='lp-ft' needs pretrained weights, whose features its first epochs learn from, got None for 'squeezenet1_1'"
    )
    space = Space({**models, "finetune": choice(["lp-ft"]).when(model="resnet18")})
    ImageClassifier("digits", weights=some).check(space)
    assert ImageClassifier("digits", weights=some).within(space).portfolio == ("random", "weights")
    frozen = Space({**models, "finetune": "head"})
    assert (
        ImageClassifier("digits", weights=some)
        .notices(frozen, 9)[0]
        .startswith("finetune='head' with None for 'squeezenet1_1' trains the last layer on features of random weights")
    )


def test_each_model_starts_from_its_own(file: Path, tmp_path: Path) -> None:
    trial = three(file)
    torchs = tmp_path / "torch" / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    hubs = hub_cache.put_timms(tmp_path / "hf", "test_vit.r160_in1k")
    assert [each.weights_file for each in trial.each] == [torchs, hubs, file]
    assert [each.named_weights and each.named_weights.name for each in trial.each] == [
        "IMAGENET1K_V1",
        "r160_in1k",
        None,
    ]
    assert trial.started_from == f"ImageNet weights IMAGENET1K_V1 or weights r160_in1k of {REPOSITORY} or {file}"
    assert trial.identity()["weights"] == f"resnet18: IMAGENET1K_V1, squeezenet1_1: {file}, {VIT}: pretrained"
    assert trial.portfolio == ("random", "weights")
    assert trial.missing_downloads() == [f"weights of resnet18 into {torchs}"]
    assert trial.hyperparameters({"model": VIT})["image_size"] == 160
    loaded = build_network(trial.of({"model": "squeezenet1_1"}), channels=3, classes=3, seed=0)
    saved = torch.load(file)
    assert loaded.new == ()
    assert all(torch.equal(value, saved[name]) for name, value in loaded.module.state_dict().items())
    file.unlink()
    with pytest.raises(WeightsError, match=r"^weights must be pretrained, none or the path .* there is no file "):
        trial.check_files()


def test_names_are_torchvisions_too_and_a_trial_knows_of_its_own_model_alone(file: Path) -> None:
    weights = {
        "mobilenet_v2": MobileNet_V2_Weights.IMAGENET1K_V2,
        "resnet18": "ResNet18_Weights.DEFAULT",
        VIT: Path(file),
    }
    trial = ImageClassifier("digits", "mobilenet_v2", weights=weights)  # type: ignore[arg-type]
    assert trial.weights == {"mobilenet_v2": "IMAGENET1K_V2", "resnet18": "imagenet", VIT: file}
    assert trial.own_weights == "IMAGENET1K_V2"
    with pytest.raises(
        StudyError, match=r"^weights must name those of each model, got \['mobilenet_v2', .* 'vgg11'; add"
    ):
        trial.of({"model": "vgg11"}).weights_file  # noqa: B018


def test_a_run_keeps_the_version_of_each_and_goes_on_with_them(file: Path, tmp_path: Path) -> None:
    hub_cache.put_timms(tmp_path / "hf", "test_vit.r160_in1k")
    trial = three(file).pinned([])
    kept = f"squeezenet1_1@{sha256(file)[:16]}, {REPOSITORY}@{hub_cache.COMMIT}"
    assert trial.weights_fingerprint() == kept
    other = "f" * 40
    hub_cache.put_timms(tmp_path / "hf", "test_vit.r160_in1k", seed=1, commit=other)
    assert three(file).weights_fingerprint() == kept.replace(hub_cache.COMMIT, other)
    again, told = three(file).pinned_again(None, kept)
    assert (again.weights_fingerprint(), told) == (kept, None)
    assert three(file).at_commits(kept).weights_fingerprint() == kept
    file.write_bytes(b"others")
    assert three(file).at_commits(kept).weights_fingerprint() != kept


def test_weights_of_several_stores_are_pinned_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    with s3_endpoint("bucket") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        put_objects(endpoint, {"a.pth": b"first", "b.pth": b"second"})
        weights = {"resnet18": "s3://bucket/a.pth", "squeezenet1_1": "s3://bucket/b.pth"}
        space = Space({"model": choice([*weights])})
        trial = ImageClassifier("digits", weights=weights).within(space)
        versions = [one.version for one in trial.stored()]
        assert len(trial.missing_downloads()) == 2
        pinned = trial.pinned(trial.stored())
        download_missing(pinned)
        assert [each.weights_file.read_bytes() for each in pinned.each if each.weights_file] == [b"first", b"second"]
        kept = pinned.weights_fingerprint()
        assert kept == f"resnet18@{versions[0]}, squeezenet1_1@{versions[1]}"
        put_objects(endpoint, {"a.pth": b"other"})
        assert trial.pinned_again(None, kept)[0].weights_fingerprint() != kept
    again, told = trial.pinned_again(None, kept)  # the store is gone
    assert told is not None
    assert again.weights_fingerprint() == kept


def test_a_study_is_changed_by_options_described_and_resolved(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    hub_cache.put_timms(file.parent / "hf", "test_vit.r160_in1k")
    trial = three(Path("mine.pth"))
    study = Study("photos", trial=trial, space={"model": MODELS, "lr": 0.1}, budget=Budget(max_epochs=2))
    resolved = trial.resolved()
    assert isinstance(resolved.weights, dict)
    assert list(resolved.weights.values()) == ["IMAGENET1K_V1", "pretrained", str(file)]
    narrow = study.with_options(fixed={"model": "squeezenet1_1"})
    narrow.declared_trial.check(narrow.search_space)
    assert narrow.declared_trial.identity()["weights"] == "squeezenet1_1: mine.pth"
    assert study.with_options(weights="none").declared_trial.identity()["weights"] == "None"
    assert "'mine.pth'" in repr(trial)


def test_a_configuration_without_a_model_has_one_of_the_dict(file: Path) -> None:
    assert three(file).hyperparameters({})["model"] == "resnet18"
    trial = ImageClassifier("digits", weights={"squeezenet1_1": None, VIT: None})
    assert (
        trial.within(Space({"model": choice(["squeezenet1_1", VIT])})).hyperparameters({})["model"] == "squeezenet1_1"
    )
