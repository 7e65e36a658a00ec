"""A cache of the Hugging Face hub as its library lays it out, with files of random weights."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def offline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of an empty cache in the folder, which is asked alone: the hub isn't."""
    from huggingface_hub import constants

    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(folder / "hf"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder / "hf"


def put(home: Path, repository: str, files: dict[str, bytes], commit: str = COMMIT) -> Path:
    """Files of a repository's commit, which becomes its "main"; returns the folder of the commit."""
    folder = home / "hub" / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    for each in (folder / "blobs", folder / "refs", snapshot):
        each.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content)
        (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
    (folder / "refs" / "main").write_text(commit, encoding="utf-8")
    return snapshot


def put_timms(home: Path, name: str, seed: int = 0, commit: str = COMMIT) -> Path:
    """Random weights of timm's NAME.WEIGHTS, as timm would publish them; returns their file."""
    import timm
    import torch
    from safetensors.torch import save

    torch.manual_seed(seed)
    state = {key: _drawn(value) for key, value in timm.create_model(name).state_dict().items()}
    return put(home, f"timm/{name}", {"model.safetensors": save(state)}, commit) / "model.safetensors"


def put_saved(home: Path, repository: str, saved: Path, *parts: Any, commit: str = COMMIT) -> Path:
    """What transformers' model and image processor save of themselves, in the folder `saved`; the commit's folder."""
    for part in parts:
        part.save_pretrained(saved)
    return put(home, repository, {path.name: path.read_bytes() for path in saved.iterdir()}, commit)


def _drawn(value: Any) -> Any:
    """A vector gets some noise, by which no block's output is next to nothing, as it is at first with layer scale."""
    import torch

    return (value + 0.1 * torch.rand_like(value) if value.ndim == 1 else value).contiguous()
