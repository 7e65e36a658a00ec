"""How long steps took, remembered for other trials of this machine that take the same steps."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from tuner.machine.cache_folder import default_folder
from tuner.train.data.cache import cache_key
from tuner.trial.image_hyperparameters import CHANGES_IMAGES, is_on

FILE = "steps.json"  # in tuner's cache folder
MOST_ENTRIES = 1000  # the oldest are deleted first
# Hyperparameters whose values a step's time depends on
SIZES = ("batch_size", "optimizer", "precision", "finetune", "auto_augment")
ADDED = ("ema_decay", "clip_norm", "dropout", "freeze_batch_norm", *CHANGES_IMAGES)  # unless off, these add work


class RememberedSeconds:
    """One entry of a JSON file that all trials of this machine share; if it can't be read or written, it is unknown.

    If two processes write at the same time, one entry may be lost, and is then measured again.
    """

    def __init__(self, path: Path, key: str) -> None:
        self._path, self._key = path, key

    def read(self) -> dict[str, float]:
        """Seconds of a step by the way it is taken; infinite for a way that failed."""
        found = self._entries().get(self._key)
        if not isinstance(found, dict):
            return {}
        seconds = {name: math.inf if value is None else value for name, value in found.items()}
        fit = all(isinstance(value, float) and value > 0 for value in seconds.values())
        return seconds if fit else {}

    def write(self, seconds: dict[str, float]) -> None:
        """Replace the entry."""
        entries = {key: value for key, value in self._entries().items() if key != self._key}
        entries[self._key] = {name: value if math.isfinite(value) else None for name, value in seconds.items()}
        newest = dict(list(entries.items())[-MOST_ENTRIES:])
        with suppress(OSError):  # a full disk, another user's folder
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside = self._path.with_name(f".{self._path.name}-{os.getpid()}")
            beside.write_text(json.dumps(newest, indent=1, allow_nan=False), encoding="utf-8")
            beside.replace(self._path)

    def _entries(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def remembered_steps(
    device: torch.device, model: str, sizes: Sequence[int], chosen: Mapping[str, Any], *, whole: bool
) -> RememberedSeconds:
    """Stored times of steps like a trial's: on the same kind of GPU, with the same torch.

    Args:
        device: a GPU
        model: name of its architecture
        sizes: channels, pixels and classes
        chosen: hyperparameters
        whole: whether the whole network is trained, and not its head on features
    """
    software = torch.cuda.get_device_name(device), torch.__version__, str(torch.version.cuda)
    work = [chosen[name] for name in SIZES], [is_on(chosen, name) for name in ADDED]
    return RememberedSeconds(default_folder() / FILE, cache_key(*software, model, list(sizes), *work, whole))
