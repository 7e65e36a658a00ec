"""Checkpoints on disk: tensors as safetensors, scalars as JSON, nothing pickled; an incomplete one is recognised.

model.safetensors      the model's plain state_dict; without the layers before the head if these never learn and come
                       from the trial's weights, whose hash is the scalar "backbone"
training.safetensors   the optimizer's tensors, their names starting with "optimizer."
training.json          scalars, and size and sha256 of the two files above; written last
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tuner.errors import TrialError
from tuner.storage.durable import replace
from tuner.storage.regular_files import mark

MODEL = "model.safetensors"
TRAINING = "training.safetensors"
INDEX = "training.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint's content: the model's `state_dict`, other tensors from which training goes on, and scalars."""

    model: dict[str, Tensor]
    training: dict[str, Tensor]
    scalars: dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """A trial's progress: a checkpoint's scalars, with the right types.

    Attributes:
        epoch: finished epochs
        step: finished steps of the current epoch
        opened: stages that learn
        loss: sum over the images of the current epoch
        param_groups: of the optimizer's `state_dict`
        scaler: state of the scaling of fp16's gradients
        average_updates: of the moving average of the weights
        micro_batch_size: images that went through the network at once
        oom_retries: steps that were taken again
        failed_raises: failed attempts to raise the micro-batch again; 0 in checkpoints of older versions
        steps_at_size: steps since the micro-batch changed; 0 in checkpoints of older versions
    """

    epoch: int
    step: int
    opened: int
    loss: float
    param_groups: list[dict[str, Any]]
    scaler: dict[str, Any]
    average_updates: int
    micro_batch_size: int
    oom_retries: int
    failed_raises: int = 0
    steps_at_size: int = 0

    @classmethod
    def of(cls, scalars: Mapping[str, Any]) -> Progress:
        """The progress in a parsed file. Raises ValueError if something is missing or of another type."""
        later = {"failed_raises": 0, "steps_at_size": 0}
        scalars = later | dict(scalars)
        counts = ("epoch", "step", "opened", "average_updates", "micro_batch_size", "oom_retries", *later)
        types: dict[str, Any] = dict.fromkeys(counts, int) | {"loss": float | int, "param_groups": list, "scaler": dict}
        for name, kind in types.items():
            value: Any = scalars.get(name)
            if not isinstance(value, kind) or isinstance(value, bool) or (name in counts and value < 0):
                raise ValueError(f"{INDEX} has {name}={value!r}")
        return cls(**{name: scalars[name] for name in types})


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into `folder`, which may hold an older one; after a crash a part is never taken for the whole.

    Raises OSError if it can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    files = {
        MODEL: write_tensors(folder / MODEL, checkpoint.model),
        TRAINING: write_tensors(folder / TRAINING, checkpoint.training),
    }
    text = json.dumps({"files": files, "scalars": checkpoint.scalars}, indent=1, allow_nan=False)
    replace(folder / INDEX, text.encode())


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint back, verified.

    Raises:
        TrialError: it is cut off, damaged or missing.
    """
    index = _read_index(folder)
    for name in (MODEL, TRAINING):
        _verify(folder / name, index)
    return Checkpoint(_read_tensors(folder / MODEL), _read_tensors(folder / TRAINING), index["scalars"])


def read_model(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Only the model's tensors, verified, and the scalars.

    Raises:
        TrialError: the checkpoint is cut off, damaged or missing.
    """
    index = _read_index(folder)
    _verify(folder / MODEL, index)
    return _read_tensors(folder / MODEL), index["scalars"]


def _read_index(folder: Path) -> dict[str, Any]:
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        return {"files": dict(index["files"]), "scalars": dict(index["scalars"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise TrialError(f"a checkpoint must have {INDEX}, got {folder} without a complete one; use another") from error


def _verify(path: Path, index: dict[str, Any]) -> None:
    """Raise TrialError unless the file agrees with the index."""
    try:
        whole = mark(path) == index["files"].get(path.name)
    except OSError:
        whole = False
    if not whole:
        raise TrialError(f"a checkpoint must be complete, got {path} cut off or changed; use an earlier one")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise TrialError(f"a checkpoint must hold tensors, got {path}: {error}; use an earlier one") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write tensors by name; returns the file's size and hash. Raises OSError if it can't be written."""
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # a full disk: the caller handles OSError
        raise OSError(f"{path.name}: {error}") from error
    _sync(path)
    return mark(path)


def _sync(path: Path) -> None:
    """Wait until the file is on the disk: older checkpoints are deleted once a new one exists."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def load_first_whole(trainer: Any, candidates: Sequence[Path]) -> list[str]:
    """Let a trainer go on from the first checkpoint that is complete and fits; returns the problems of those before it.

    Without one it starts from its beginning. If there are several processes, all call it; only process 0 has the files.
    """
    problems: list[str] = []
    for candidate in candidates:
        problem = _go_on_from(trainer, candidate)
        if problem is None:
            break
        problems.append(f"a checkpoint is skipped: {problem}")
    return problems


def _go_on_from(trainer: Any, candidate: Path) -> str | None:
    """What is wrong with a checkpoint; None if the trainer goes on from it."""
    group = trainer.group
    checkpoint, problem = group.told(_try_to_read(candidate) if group.rank == 0 else [None, None])
    if checkpoint is None:
        return str(problem)
    try:
        trainer.restore(checkpoint, str(candidate))
    except TrialError as error:
        return str(error)
    return None


def _try_to_read(candidate: Path) -> list[Any]:
    try:
        return [read_checkpoint(candidate), None]
    except TrialError as error:
        return [None, str(error)]
