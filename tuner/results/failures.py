"""Failures that are one and the same: what a search in which every trial fails alike is told by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tuner.errors import one_line
from tuner.results.records import TrialRecord

ALIKE = 5  # trials in a row that fail alike: the next ones would as well
_FRAME = re.compile(r'^ +File "(?P<file>[^"]*)", line (?P<line>\d+)', re.MULTILINE)
_VARYING = re.compile(
    r"0x[0-9a-fA-F]+"  # addresses
    r"|[+-]?\d+(?:[.,_]\d+)*(?:e[+-]?\d+)?"  # numbers
    r"|(?:[A-Za-z]:)?(?:[\w.~-]*[/\\]){2,}[\w.~-]*"  # paths
)


def failed_alike(ended: Sequence[TrialRecord], live: Iterable[TrialRecord] = ()) -> TrialRecord | None:
    """The last of ALIKE ended trials where all of them failed with the same exception; None otherwise.

    A trial of `live` that got farther than they did, since the first of them, says that not every trial fails.
    """
    last = ended[-ALIKE:]
    if len(last) < ALIKE or any(trial.cause != "error" for trial in last):
        return None
    if len({_signature(trial) for trial in last}) > 1:
        return None
    farthest, first = max(trial.epoch for trial in last), last[0].ended or 0.0
    if any(trial.epoch > farthest and trial.epochs[trial.epoch].time >= first for trial in live):
        return None
    return last[-1]


def all_failed_alike(ended: Sequence[TrialRecord]) -> str | None:
    """Why a search ended over such failures, as a part of a sentence."""
    trial = failed_alike(ended)
    if trial is None:
        return None
    return f"the last {ALIKE} trials failed alike: {one_line(trial.message or 'without a message')}"


def _signature(trial: TrialRecord) -> tuple[str, str]:
    """The exception without what differs from trial to trial, and the line that raised it."""
    frames = _FRAME.findall(trial.traceback or "")
    file, line = frames[-1] if frames else ("", "")
    name = re.split(r"[/\\]", file)[-1]
    return _VARYING.sub("#", trial.message or ""), f"{name}:{line}"
