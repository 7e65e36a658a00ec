"""Checkpoints on disk: tensors as safetensors, scalars as JSON, nothing pickled, a cut-off one recognised.

model.safetensors      the model's plain state_dict
training.safetensors   the optimizer's tensors, their names starting with "optimizer."
training.json          scalars, and size and sha256 of the two files above; written last
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from tuner.errors import TrialError

MODEL = "model.safetensors"
TRAINING = "training.safetensors"
INDEX = "training.json"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds: the model's `state_dict`, other tensors that training goes on from, and scalars."""

    model: dict[str, Tensor]
    training: dict[str, Tensor]
    scalars: dict[str, Any]


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into `folder`, which may hold an older one; a crash can't pass a part off as the whole."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    files = {
        MODEL: _write_tensors(folder / MODEL, checkpoint.model),
        TRAINING: _write_tensors(folder / TRAINING, checkpoint.training),
    }
    text = json.dumps({"files": files, "scalars": checkpoint.scalars}, indent=1, allow_nan=False)
    _write_text(folder / INDEX, text)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint back, verified.

    Raises:
        TrialError: it is cut off, damaged or none.
    """
    index = _read_index(folder)
    for name in (MODEL, TRAINING):
        _verify(folder / name, index)
    return Checkpoint(load_file(folder / MODEL), load_file(folder / TRAINING), index["scalars"])


def read_model(folder: Path) -> dict[str, Tensor]:
    """The model's tensors alone, verified.

    Raises:
        TrialError: the checkpoint is cut off, damaged or none.
    """
    _verify(folder / MODEL, _read_index(folder))
    return load_file(folder / MODEL)


def checkpoint_epoch(folder: Path) -> int:
    """Finished epochs of the trial that saved it; -1 where the index can't be read."""
    try:
        return int(_read_index(folder)["scalars"]["epoch"])
    except (TrialError, KeyError, TypeError, ValueError):
        return -1


def _read_index(folder: Path) -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrialError(f"a checkpoint must have {INDEX}, got {folder} without a whole one; use another") from error
    return index


def _verify(path: Path, index: dict[str, Any]) -> None:
    """Raise TrialError unless the file is as the index says."""
    if not path.is_file() or _mark(path) != index["files"].get(path.name):
        raise TrialError(f"a checkpoint must be whole, got {path} cut off or changed; use an earlier one")


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
    _sync(path)
    return _mark(path)


def _write_text(path: Path, text: str) -> None:
    """All or nothing: beside, then renamed."""
    beside = path.with_suffix(".part")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
    _sync(beside)
    beside.replace(path)


def _sync(path: Path) -> None:
    """Wait until the disk has the file: what is older is deleted once a checkpoint is there."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _mark(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def first_whole(candidates: Sequence[Path]) -> tuple[Checkpoint | None, list[str]]:
    """The first checkpoint that isn't damaged, None if there is none; and what is wrong with those before it."""
    problems: list[str] = []
    for candidate in candidates:
        try:
            return read_checkpoint(candidate), problems
        except TrialError as error:
            problems.append(f"a checkpoint is passed over: {error}")
    return None, problems


def load_first_whole(trainer: Any, candidates: list[Path]) -> list[str]:
    """Let a trainer go on from the first checkpoint that isn't damaged; what is wrong with those before it.

    With none it starts from its beginning.
    """
    problems = []
    for candidate in candidates:
        try:
            trainer.load(candidate)
        except TrialError as error:
            problems.append(f"a checkpoint is passed over: {error}")
        else:
            break
    return problems
