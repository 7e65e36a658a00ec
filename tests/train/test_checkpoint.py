import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.mounts import needs_mounts, run_on_tmpfs
from tuner.errors import TrialError
from tuner.train.checkpoint import (
    INDEX,
    MODEL,
    TRAINING,
    Checkpoint,
    Progress,
    read_checkpoint,
    read_model,
    write_checkpoint,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    checkpoint = Checkpoint(
        {"weight": torch.arange(6.0).view(2, 3)}, {"optimizer.0.step": torch.tensor(3.0)}, {"lr": 0.1}
    )
    write_checkpoint(tmp_path / "checkpoint", checkpoint)
    return tmp_path / "checkpoint"


def test_what_is_written_is_read_back(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    assert torch.equal(checkpoint.model["weight"], torch.arange(6.0).view(2, 3))
    assert torch.equal(checkpoint.training["optimizer.0.step"], torch.tensor(3.0))
    assert checkpoint.scalars == {"lr": 0.1}
    tensors, scalars = read_model(folder)
    assert torch.equal(tensors["weight"], checkpoint.model["weight"])
    assert scalars == checkpoint.scalars
    assert sorted(path.name for path in folder.iterdir()) == [MODEL, INDEX, TRAINING]


def test_a_newer_one_replaces_an_older_one(folder: Path) -> None:
    write_checkpoint(folder, Checkpoint({"weight": torch.zeros(1)}, {}, {}))
    assert read_checkpoint(folder) == Checkpoint({"weight": torch.zeros(1)}, {}, {})


@pytest.mark.parametrize("name", [MODEL, TRAINING, INDEX])
def test_a_cut_off_file_is_refused(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TrialError, match=r"^a checkpoint must "):
        read_checkpoint(folder)


@pytest.mark.parametrize("name", [MODEL, TRAINING, INDEX])
def test_a_missing_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(TrialError, match=r"^a checkpoint must "):
        read_checkpoint(folder)


def test_a_changed_byte_is_noticed(folder: Path) -> None:
    path = folder / MODEL
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    message = f"a checkpoint must be complete, got {path} cut off or changed; use an earlier one"
    for read in (read_checkpoint, read_model):
        with pytest.raises(TrialError) as caught:
            read(folder)
        assert str(caught.value) == message


def test_an_index_or_tensors_of_another_kind_are_refused(folder: Path) -> None:
    (folder / MODEL).write_bytes(b"no tensors")
    index = json.loads((folder / INDEX).read_text())
    index["files"][MODEL] = {"bytes": 10, "sha256": hashlib.sha256(b"no tensors").hexdigest()}
    (folder / INDEX).write_text(json.dumps(index))
    for read in (read_checkpoint, read_model):
        with pytest.raises(TrialError, match=r"^a checkpoint must hold tensors, got "):
            read(folder)
    for text in ("[]", "{}", '{"files": 3, "scalars": {}}', '{"files": {}, "scalars": null}', "[" * 100_000):
        (folder / INDEX).write_text(text)
        with pytest.raises(TrialError, match=r"^a checkpoint must have training\.json"):
            read_checkpoint(folder)


def test_progress_is_of_its_types() -> None:
    scalars: dict[str, Any] = {
        **{"epoch": 1, "step": 0, "opened": 2, "loss": 0.5, "param_groups": [], "scaler": {}},
        **{"average_updates": 0, "micro_batch_size": 8, "oom_retries": 0, "seed": 4},
    }
    assert Progress.of(scalars).epoch == 1
    for name, value in (("epoch", "1"), ("step", -1), ("loss", None), ("scaler", []), ("oom_retries", True)):
        with pytest.raises(ValueError, match=f"^training.json has {name}="):
            Progress.of(scalars | {name: value})
    del scalars["opened"]
    with pytest.raises(ValueError, match=r"^training\.json has opened=None"):
        Progress.of(scalars)


FULL = """
import sys
from pathlib import Path
import torch
from tuner.storage.locations import no_space
from tuner.train.checkpoint import Checkpoint, write_checkpoint

try:
    write_checkpoint(Path(sys.argv[1]) / "checkpoint", Checkpoint({"weight": torch.zeros(200_000)}, {}, {}))
except OSError as error:
    print(no_space(error))
"""


@needs_mounts
def test_a_full_disk_is_an_error_of_the_disk(tmp_path: Path) -> None:
    done = run_on_tmpfs("400k", tmp_path, sys.executable, "-c", FULL, tmp_path)
    assert done.stdout == "True\n", done.stderr
