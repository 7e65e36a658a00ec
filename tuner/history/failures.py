"""Recognises searches in which every trial fails with the same error."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

from tuner.errors import one_line
from tuner.history.records import TrialRecord

ALIKE = 5  # trials in a row that fail alike: the next ones would as well
COINCIDENCE = 1e-5  # chance of a row of failures that is put up with
_FRAME = re.compile(r'^ +File "(?P<file>[^"]*)", line (?P<line>\d+)', re.MULTILINE)
_VARYING = re.compile(
    r"0x[0-9a-fA-F]+"  # addresses
    r"|[+-]?\d+(?:[.,_]\d+)*(?:e[+-]?\d+)?"  # numbers
    r"|(?:[A-Za-z]:)?(?:[\w.~-]*[/\\]){2,}[\w.~-]*"  # paths
)


def fails_always(ended: Sequence[TrialRecord], live: Iterable[TrialRecord] = ()) -> bool:
    """Whether ALIKE or more of the trials that ended last failed with the same exception, so that the next ones would.

    A trial of `live` that got farther than they did, since the first of them, says that not every trial fails. So do
    trials that failed in the same way earlier and between others that ended well: that is a part of the space, and it
    takes a row of such failures that is no coincidence.
    """
    row = _alike(ended)
    before = ended[: len(ended) - len(row)]
    if len(row) < _enough(sum(_signature(trial) == _signature(row[-1]) for trial in before) if row else 0, len(before)):
        return False
    farthest, first = max(trial.epoch for trial in row), row[0].ended or 0.0
    return not any(trial.epoch > farthest and trial.epochs[trial.epoch].time >= first for trial in live)


def all_failed_alike(ended: Sequence[TrialRecord]) -> str | None:
    """Why a search ended over such failures, as a part of a sentence; None if they weren't alike."""
    row = _alike(ended)
    if len(row) < ALIKE:
        return None
    return f"the last {len(row)} trials failed with the same error: {one_line(row[-1].message or 'without a message')}"


def _alike(ended: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The last trials that all failed as the very last one did, in their order."""
    if not ended or ended[-1].cause != "error":
        return []
    signature = _signature(ended[-1])
    row = list(takewhile(lambda trial: _signature(trial) == signature, reversed(ended)))
    return row[::-1]


def _enough(failed_before: int, ended_before: int) -> int:
    """How many in a row are no coincidence if `failed_before` of `ended_before` trials failed in the same way."""
    if not failed_before:
        return ALIKE
    share = (failed_before + 1) / (ended_before + 2)
    return max(ALIKE, math.ceil(math.log(COINCIDENCE) / math.log(share)))


def _signature(trial: TrialRecord) -> tuple[str, str] | None:
    """The exception without what differs from trial to trial, and the line that raised it; None for other ends."""
    if trial.cause != "error":
        return None
    frames = _FRAME.findall(trial.traceback or "")
    file, line = frames[-1] if frames else ("", "")
    name = re.split(r"[/\\]", file)[-1]
    return _VARYING.sub("#", trial.message or ""), f"{name}:{line}"
