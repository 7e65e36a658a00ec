"""Winners of models of timm and of the hub: loaded by the commit that they began with, and used without tuner."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests import hub_cache
from tests.inspection.test_shipping import answers_here
from tests.train.models.test_hubs import FAMILIES, put
from tuner.errors import RunFolderError
from tuner.inspection import LoadedModel, load_model, score, write_best
from tuner.inspection.shipping import forms
from tuner.inspection.shipping.card import _licence
from tuner.inspection.shipping.writing import MOST_APART, predict_script
from tuner.train import Trainer
from tuner.trial import ImageClassifier
from tuner.trial.pixels import __file__ as reader

BEGAN = "f" * 40
CONFIG: dict[str, Any] = {"finetune": "all", "lr": 1e-3, "batch_size": 4, "stochastic_depth": 0.0}


def winner(trial: ImageClassifier, folder: Path, **config: Any) -> Path:
    """The folder `best` of a trial with this model that was trained for an epoch."""
    trainer = Trainer(trial, CONFIG | config, epochs=1, seed=0)
    trainer.run_epoch()
    (folder / "checkpoint").mkdir(parents=True)
    trainer.save(folder / "checkpoint")
    scored = score(trial, CONFIG | config, folder / "checkpoint", split_seed=0)
    write_best(folder / "best", trial, CONFIG | config, scored, {"trial": "00001", "epoch": 1})
    return folder / "best"


def check_used_alone(
    loaded: LoadedModel,
    photos: list[Path],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """predict.py beside the winner's safetensors answers as tuner does, and so does what checks the file."""
    forms.write_safetensors(loaded, folder / "model.safetensors")
    script = predict_script("safetensors", loaded)
    assert script is not None
    (folder / "predict.py").write_text(script)
    (folder / "pixels.py").write_bytes(Path(reader).read_bytes())
    expected = loaded.predict(photos)
    capsys.readouterr()
    found = answers_here(folder / "predict.py", photos, monkeypatch, capsys)
    assert [label for _, label, _ in found] == [one.label for one in expected]
    assert [value for *_, value in found] == pytest.approx([one.confidence for one in expected], abs=2e-2)
    pixels = torch.cat([loaded.read(path, loaded.scale_of(photos)[0]) for path in photos]).numpy()
    apart = forms.safetensors_answers(folder / "model.safetensors", loaded)(pixels) - forms.original_answers(loaded)(
        pixels
    )
    assert abs(apart).max() < MOST_APART


@pytest.mark.parametrize("family", ["dinov2", "vit", "convnext", "siglip", "swin"])
def test_a_winner_of_the_hub_is_built_by_its_own_commit_and_used_alone(
    family: str,
    home: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(home, tmp_path, family, BEGAN)
    trial = ImageClassifier(f"folder:{photos}", f"hf:tiny/{family}", weights="pretrained").pinned([])
    best = winner(trial, tmp_path / "run", **({"image_size": 56} if family == "dinov2" else {}))
    before = load_model(best).predict(sorted(photos.rglob("*.png")))
    other = transformers.ViTConfig(hidden_size=48, num_hidden_layers=1, num_attention_heads=2, image_size=64)
    hub_cache.put_saved(home, f"tiny/{family}", tmp_path / "newer", other, FAMILIES["vit"][1])  # "main" has changed
    loaded = load_model(best)
    assert loaded.predict(sorted(photos.rglob("*.png"))) == before
    assert loaded.card.commit == f"tiny/{family}@{BEGAN}"
    assert f"commit {BEGAN}" in _licence(loaded)
    (alone := tmp_path / "alone").mkdir()
    check_used_alone(loaded, sorted(photos.rglob("*.png")), alone, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("name", "config"),
    [("test_vit", {"image_size": 96}), ("test_resnet", {}), ("test_convnext", {"stochastic_depth": 0.2})],
)
def test_a_winner_of_timm_is_used_alone(
    name: str,
    config: dict[str, Any],
    home: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trial = ImageClassifier(f"folder:{photos}", f"timm:{name}", weights=None)
    loaded = load_model(winner(trial, tmp_path / "run", **config))
    (alone := tmp_path / "alone").mkdir()
    check_used_alone(loaded, sorted(photos.rglob("*.png")), alone, monkeypatch, capsys)


def test_a_winner_whose_commit_is_gone_is_not_built_by_another(home: Path, photos: Path, tmp_path: Path) -> None:
    folder = put(home, tmp_path, "vit", BEGAN)
    best = winner(ImageClassifier(f"folder:{photos}", "hf:tiny/vit", weights=None).pinned([]), tmp_path / "run")
    put(home, tmp_path, "vit")
    (folder / "config.json").unlink()
    with pytest.raises(RunFolderError, match=rf"hf:tiny/vit needs .*snapshots/{BEGAN}/config.json, which isn't there"):
        load_model(best)
