"""Models of the Hugging Face hub whose files this machine doesn't have: downloaded, pinned, and gone on with."""

import shutil
from pathlib import Path

import pytest
import torch
import transformers

from tests import hub_cache
from tests.commands import tuner
from tests.hub_server import hub_server
from tests.unclean import write_unclean
from tuner import load_run

OTHER = "f" * 40
STUDY = """
from tuner import Budget, Grid, ImageClassifier, Study, grid_search

study = Study(
    "photos",
    trial=ImageClassifier("folder:photos", "timm:test_vit", weights="pretrained"),
    space={"model": grid_search(["timm:test_vit", "hf:tiny/dinov2"]), "finetune": "head", "lr": 1e-2, "batch_size": 8},
    search=Grid(),
    budget=Budget(max_epochs=1),
)
"""


@pytest.mark.ray
@pytest.mark.slow
def test_missing_files_are_downloaded_by_the_pinned_commit_even_after_the_cache_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    hub_cache.put_timms(there, "test_vit.r160_in1k")
    put_dinov2(tmp_path, there, 0, hub_cache.COMMIT)
    write_unclean(tmp_path / "photos")
    (tmp_path / "study.py").write_text(STUDY)
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with hub_server(there) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        checked = tuner("check", "study.py", "--json", folder=tmp_path)
        assert checked.code == 0, checked.err
        assert not [each for each in hub.asked if each.startswith("GET") and each.endswith(".safetensors")]
        hub.cut_after = 1_000
        done = tuner("run", "study.py", "--wandb", "off", "--json", "--trials", "1", folder=tmp_path)
        assert done.code == 0, done.err
        assert hub.cut_after is None  # the download that broke off went on
        pinned = load_run(tmp_path / "runs").info["weights_fingerprint"]
        assert pinned == f"timm/test_vit.r160_in1k@{hub_cache.COMMIT}, tiny/dinov2@{hub_cache.COMMIT}"

        hub_cache.put_timms(there, "test_vit.r160_in1k", seed=1, commit=OTHER)  # the hub has others since
        put_dinov2(tmp_path, there, 1, OTHER)
        shutil.rmtree(tmp_path / "hf")  # as on another machine
        more = tuner("resume", "runs", "--json", "--trials", "2", folder=tmp_path)
        assert more.code == 0, more.err
        assert more.json["trials"] == {"total": 2, "completed": 2, "stopped": 0, "failed": 0}
        assert load_run(tmp_path / "runs").info["weights_fingerprint"] == pinned
        for name in load_run(tmp_path / "runs").record.trials:
            again = tuner("replay", "runs", name, "--json", folder=tmp_path)
            assert again.code == 0, again.err + again.out


def put_dinov2(folder: Path, home: Path, seed: int, commit: str) -> None:
    """A tiny DINOv2 as a repository of the hub."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 56, "patch_size": 14}
    torch.manual_seed(seed)
    model = transformers.Dinov2Model(transformers.Dinov2Config(**small))
    processor = transformers.BitImageProcessor(size={"shortest_edge": 64}, crop_size={"height": 56, "width": 56})
    hub_cache.put_saved(home, "tiny/dinov2", folder / f"saved-{seed}", model, processor, commit=commit)
