"""Weights on the Hugging Face hub: pinned to a commit, kept by a run, and named where they are missing."""

from pathlib import Path

import pytest

from tests import hub_cache
from tuner.errors import WeightsError
from tuner.space import Space, choice
from tuner.storage.regular_files import sha256
from tuner.train import download_missing
from tuner.trial import ImageClassifier

BACKBONE = ImageClassifier("digits", "timm:test_vit", weights="pretrained")
REPOSITORY = "timm/test_vit.r160_in1k"
OTHER = "f" * 40
PROCESSOR = b'{"size": {"height": 28, "width": 28}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return hub_cache.offline(tmp_path, monkeypatch)


def test_a_search_keeps_the_commit_that_it_began_with(home: Path) -> None:
    hub_cache.put(home, REPOSITORY, {"model.safetensors": b"old"}, OTHER)
    pinned = BACKBONE.pinned([])
    assert pinned.copies == ((REPOSITORY, OTHER),)
    assert pinned.weights_fingerprint() == f"{REPOSITORY}@{OTHER}"
    hub_cache.put(home, REPOSITORY, {"model.safetensors": b"new"})
    assert BACKBONE.weights_fingerprint() == f"{REPOSITORY}@{hub_cache.COMMIT}"
    again, told = BACKBONE.pinned_again(None, pinned.weights_fingerprint())
    assert (again.copies, told) == (pinned.copies, None)
    assert again.weights_file is not None
    assert again.weights_file.read_bytes() == b"old"


def test_each_model_of_a_space_has_its_commit(home: Path) -> None:
    for name in ("test_vit", "test_resnet"):
        hub_cache.put(home, f"timm/{name}.r160_in1k", {"model.safetensors": b""})
    space = Space({"model": choice(["timm:test_vit", "resnet18", "timm:test_resnet"])})
    pinned = BACKBONE.within(space).pinned([])
    commits = [f"timm/{name}.r160_in1k@{hub_cache.COMMIT}" for name in ("test_resnet", "test_vit")]
    assert pinned.weights_fingerprint() == ", ".join(commits)
    assert pinned.started_from == (
        "weights r160_in1k of timm/test_vit.r160_in1k or ImageNet weights or weights r160_in1k of "
        "timm/test_resnet.r160_in1k"
    )
    assert BACKBONE.within(space).pinned_again(None, pinned.weights_fingerprint())[0].copies == pinned.copies


def test_a_missing_file_is_named_with_its_place(home: Path) -> None:
    place = home / "hub/models--timm--test_vit.r160_in1k/snapshots/main/model.safetensors"
    assert f"weights of timm:test_vit into {place}" in BACKBONE.missing_downloads()
    for request in (lambda: BACKBONE.pinned([]), lambda: download_missing(BACKBONE)):
        with pytest.raises(WeightsError) as caught:
            request()
        assert str(caught.value).startswith(
            f"weights of timm:test_vit need {place}, which isn't there, and {REPOSITORY} can't be fetched from the "
            "Hugging Face hub ("
        )
        assert str(caught.value).endswith(
            "); copy model.safetensors there, or use --weights PATH, or --weights none for random weights"
        )


def test_a_run_whose_commit_is_gone_is_not_trained_with_another(home: Path) -> None:
    hub_cache.put(home, REPOSITORY, {"model.safetensors": b"new"})
    again, _ = BACKBONE.pinned_again(None, f"{REPOSITORY}@{OTHER}")
    with pytest.raises(WeightsError, match=f"snapshots/{OTHER}/model.safetensors, which isn't there"):
        download_missing(again)


def test_a_users_file_of_the_same_name_is_not_taken_for_published_weights(tmp_path: Path) -> None:
    trial = ImageClassifier("digits", "timm:test_vit", weights=tmp_path / "model.safetensors")
    assert trial.published is None
    assert trial.started_from == str(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            "digits",
            "images of digits are enlarged from 8 to 518 pixels, as the weights expect; image_size=14 is quicker",
        ),
        (
            "folder:photos",
            "timm:vit_small_patch14_dinov2 gets images of 518 pixels, as its weights expect; image_size=224 is several",
        ),
    ],
)
def test_large_images_are_said_with_a_size_that_the_model_takes(home: Path, data: str, told: str) -> None:
    trial = ImageClassifier(data, "timm:vit_small_patch14_dinov2", weights="pretrained")
    assert [said for said in trial.notices(Space({"lr": 0.1}), 1) if said.startswith(told)]
    assert not [said for said in trial.notices(Space({"lr": 0.1, "image_size": 224}), 1) if "as " in said]


@pytest.mark.parametrize("weights", [None, "own.safetensors"])
def test_a_configuration_is_pinned_whatever_the_weights(weights: str | None, home: Path, tmp_path: Path) -> None:
    files = {"config.json": b'{"model_type": "vit", "patch_size": 14}', "preprocessor_config.json": PROCESSOR}
    hub_cache.put(home, "tiny/vit", files, OTHER)
    (tmp_path / "own.safetensors").write_bytes(b"own")
    own = None if weights is None else tmp_path / weights
    pinned = ImageClassifier("digits", "hf:tiny/vit", weights=own).pinned([])
    hub_cache.put(home, "tiny/vit", files | {"config.json": b'{"model_type": "vit", "patch_size": 7}'})
    kept = f"tiny/vit@{OTHER}" if own is None else f"hf:tiny/vit@{sha256(own)[:16]}, tiny/vit@{OTHER}"
    assert pinned.weights_fingerprint() == kept
    again, _ = ImageClassifier("digits", "hf:tiny/vit", weights=own).pinned_again(None, kept)
    assert (again.weights_fingerprint(), again.model_facts.step) == (kept, 14)


def test_a_replay_uses_the_commits_of_the_run(home: Path) -> None:
    hub_cache.put(home, REPOSITORY, {"model.safetensors": b"old"}, OTHER)
    hub_cache.put(home, REPOSITORY, {"model.safetensors": b"new"})
    begun = BACKBONE.at_commits(f"timm/other.in1k@{hub_cache.COMMIT}, {REPOSITORY}@{OTHER}")
    assert begun.weights_fingerprint() == f"{REPOSITORY}@{OTHER}"
    for fingerprint in (None, "0123456789abcdef"):  # none, or that of a file
        assert BACKBONE.at_commits(fingerprint) == BACKBONE
