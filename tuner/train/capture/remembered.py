"""How long steps took, remembered for other trials of this machine that take the same steps."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from tuner.machine.cache_folder import default_folder
from tuner.storage.durable import replace
from tuner.train.data.cache import cache_key
from tuner.train.memory.device import is_shared
from tuner.trial.image_hyperparameters import CHANGES_IMAGES, is_on

FILE = "steps.json"  # in tuner's cache folder
MOST_ENTRIES = 1000  # the oldest are deleted first
MOST_FAILURES = 2  # trials in which a way fails, before others leave it out: one failure may be that of a moment
# Hyperparameters whose values a step's time depends on
SIZES = ("batch_size", "optimizer", "precision", "finetune", "auto_augment")
ADDED = ("ema_decay", "clip_norm", "dropout", "freeze_batch_norm", *CHANGES_IMAGES)  # unless off, these add work


class RememberedSeconds:
    """One entry of a JSON file that all trials of this machine share; if it can't be read or written, it is unknown.

    If two processes write at the same time, one entry may be lost, and is then measured again.
    """

    def __init__(self, path: Path, key: str, *, alone: bool = True) -> None:
        """`alone`: whether no other trial shares the GPU, so that times measured now hold for all trials."""
        self._path, self._key, self._alone = path, key, alone

    def read(self) -> dict[str, float]:
        """Seconds of a step by the way it is taken; infinite for a way that failed in several trials."""
        known = {way: value for way, value in self._entry().items() if not 0 < _failures(value) < MOST_FAILURES}
        return {way: math.inf if _failures(value) else value for way, value in known.items()}

    def write(self, seconds: Mapping[str, float]) -> None:
        """Replace the times, by those that are finite; does nothing if other trials share the GPU."""
        if self._alone:
            failures = {way: value for way, value in self._entry().items() if _failures(value)}
            self._replace({way: took for way, took in seconds.items() if math.isfinite(took)} | failures)

    def note_failure(self, way: str) -> None:
        """Note that a way failed in one more trial."""
        entry = self._entry()
        self._replace(entry | {way: _failures(entry.get(way, 0)) + 1})

    def _entry(self) -> dict[str, float]:
        """By way its seconds as a float, or in how many trials it failed as an int."""
        found = self._entries().get(self._key)
        fit = isinstance(found, dict) and all(type(value) in (int, float) and value > 0 for value in found.values())
        return dict(found) if fit and found else {}

    def _replace(self, entry: dict[str, float]) -> None:
        entries = {key: value for key, value in self._entries().items() if key != self._key} | {self._key: entry}
        newest = dict(list(entries.items())[-MOST_ENTRIES:])
        with suppress(OSError):  # a full disk, another user's folder
            replace(self._path, json.dumps(newest, indent=1, allow_nan=False).encode())

    def _entries(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def _failures(value: float) -> int:
    return value if isinstance(value, int) else 0


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
    key = cache_key(*software, model, list(sizes), *work, whole)
    return RememberedSeconds(default_folder() / FILE, key, alone=not is_shared(device))
