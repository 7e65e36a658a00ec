"""Similar failures: their common cause, and whether all further trials would fail in the same way."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.errors import one_line
from tuner.history.records import RunRecord, TrialRecord

ERROR = "error"
COINCIDENCE = 1e-5  # accepted probability that a row of failures is chance
Signature = tuple[str, str]  # the message without varying parts, and the place
_FRAME = re.compile(r'^ +File "(?P<file>[^"\n]*)", line (?P<line>\d+)', re.MULTILINE)
_VARYING = re.compile(  # a path is looked for where a word begins: within it that would take quadratic time
    r"(?<![\w.~-])(?:[A-Za-z]:)?(?:[\w.~-]*[/\\]){2,}[\w.~-]*"  # paths
    r"|0x[0-9a-fA-F]+"  # addresses
    r"|[+-]?\d+(?:[.,_]\d+)*(?:e[+-]?\d+)?"  # numbers
)
_INSTALLED = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python3[.\d]*)[/\\]|^<frozen ")
_WORKER = re.compile(r"[/\\]worker[/\\]trainable\.py$")  # the first frame of a trial's traceback


@dataclass(frozen=True)
class FailureGroup:
    """Failed trials of one cause; those that raised, with the same exception at the same place.

    `place` is "file:line" of the last frame in the user's code, None if the cause isn't an exception.
    """

    cause: str
    message: str  # of the first trial
    place: str | None
    trials: tuple[TrialRecord, ...]

    @property
    def first(self) -> TrialRecord:
        """The first of these trials."""
        return self.trials[0]

    @property
    def described(self) -> str:
        """What happened, in a line: the cause, and for an exception its message and place."""
        if self.cause != ERROR:
            return f"{self.cause}: {one_line(self.message)}"
        return one_line(self.message or "an exception without a message") + (f" ({self.place})" if self.place else "")

    @property
    def name(self) -> str:
        """What distinguishes the group from others: the cause, and for an exception its message and place."""
        return f"{ERROR}: {self.described}" if self.cause == ERROR else self.cause


def failed_from_the_start(record: RunRecord, ended: Sequence[TrialRecord]) -> int:
    """How many of the trials that ended have failed, while no trial of the run has reported an epoch; else 0."""
    return 0 if record.epochs() else sum(trial.status == "failed" for trial in _each_once(ended))


def failure_groups(record: RunRecord) -> list[FailureGroup]:
    """The failed trials by failure, the most frequent first; of equally frequent ones the one with the lowest trial."""
    groups: dict[tuple[str, Signature | None], list[TrialRecord]] = {}  # trials' names may vary like numbers
    for trial in record.trials.values():
        if trial.status == "failed":
            groups.setdefault((trial.cause or ERROR, _signature(trial)), []).append(trial)
    found = [
        FailureGroup(cause, trials[0].message or "", signature[1] or None if signature else None, tuple(trials))
        for (cause, signature), trials in groups.items()
    ]
    return sorted(found, key=lambda group: -len(group.trials))


def fails_always(
    ended: Sequence[TrialRecord], alike: int, live: Iterable[TrialRecord] = (), *, now: float = 0.0
) -> bool:
    """Whether at least `alike` of the trials that `ended` failed with the same exception, so that others would, too.

    It counts the failures like the last one, even if others failed differently in between, back to the last trial that
    went well: one that was completed, or got farther than they did. A trial of `live` that has got farther since the
    first of them shows that not every trial fails.

    If only a part of the space fails, such rows happen by chance. So a longer row is needed if trials failed like this
    before others went well, or if some trials may go well because by `now` (seconds since 1970) they have run longer
    than any of the failed ones.
    """
    if not ended or ended[-1].cause != ERROR:  # nearly always; the rest is slow but rarely needed
        return False
    row, before = _row_of_last(_each_once(ended))
    if len(row) < alike:
        return False
    running, farthest, first = list(live), max(trial.epoch for trial in row), row[0].ended or 0.0
    if any(trial.epoch > farthest and trial.epochs[trial.epoch].time >= first for trial in running):
        return False
    signature, longest = _signature(row[-1]), max(trial.running_seconds for trial in row)
    failed = sum(_signature(trial) == signature for trial in before)
    outlasting = sum(_seconds_running(trial, now) > longest for trial in running)
    return alike == 1 or len(row) >= _enough(alike, failed, len(before), outlasting)


def all_failed_alike(ended: Sequence[TrialRecord], alike: int) -> str | None:
    """Why a search ended because of such failures, as a part of a sentence; None if they weren't similar.

    Trials that ran at the same time as the last of them may have ended after it, in any way.
    """
    rows = (_row_of_last(_each_once(ended[:count]))[0] for count in range(len(ended), 0, -1))
    row = next((row for row in rows if len(row) >= max(1, alike)), None)
    if row is None:
        return None
    last = row[-1]
    signature = _signature(last)
    place = f" ({signature[1]})" if signature and signature[1] else ""
    what = one_line(last.message or "without a message") + place
    if len(row) == 1:
        return f"a trial failed: {what}"
    return f"{len(row)} trials failed with the same error and none got farther: {what}"


def _each_once(ended: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Trials in the order of their ends; one that ran again counts by its last end, but not while it runs."""
    last = {trial.trial: trial for trial in reversed(ended) if not trial.live}
    return list(last.values())[::-1]


def _row_of_last(ended: Sequence[TrialRecord]) -> tuple[list[TrialRecord], Sequence[TrialRecord]]:
    """The failures like the last one since a trial went well, in their order; and the trials before the first."""
    signature = _signature(ended[-1]) if ended else None
    row: list[TrialRecord] = []
    begin = len(ended)
    if signature is None:
        return row, ended
    for index in range(len(ended) - 1, -1, -1):
        trial = ended[index]
        if _went_well(trial, max((each.epoch for each in row), default=0)):
            break
        if _signature(trial) == signature:
            row.insert(0, trial)
            begin = index
    return row, ended[:begin]


def _went_well(trial: TrialRecord, farthest: int) -> bool:
    return trial.status == "completed" or (trial.status == "stopped" and trial.epoch > farthest)


def _enough(alike: int, failed_before: int, ended_before: int, outlasting: int) -> int:
    """How long a row must be not to be a coincidence.

    `failed_before` of `ended_before` trials failed in the same way before, and `outlasting` running ones may go well.
    """
    if not failed_before and not outlasting:
        return alike
    share = (max(1, failed_before) + 1) / (max(1, ended_before) + outlasting + 2)
    return max(alike, math.ceil(math.log(COINCIDENCE) / math.log(share)))


def _seconds_running(trial: TrialRecord, now: float) -> float:
    """How long the trial's present stay on a worker has lasted."""
    return now - trial.running_since if trial.running_since is not None else 0.0


def failed_alike(record: RunRecord, message: str, traceback: str | None) -> bool:
    """Whether another trial has failed for good with this exception at this place."""
    signature = _signature_of(message, traceback)
    return any(_signature(trial) == signature for trial in reversed(record.ended_trials) if trial.status == "failed")


def _signature(trial: TrialRecord) -> Signature | None:
    """The exception without what differs from trial to trial, and its place; None for other ends."""
    if trial.cause != ERROR:
        return None
    return _signature_of(trial.message, trial.traceback)


def _signature_of(message: str | None, traceback: str | None) -> Signature:
    return _VARYING.sub("#", message or ""), place_of(traceback or "")


def place_of(traceback: str) -> str:
    """The file's name and the line of the last frame in the user's code; if there is none, of the last frame of all.

    The user's code is all code that is neither where Python installs libraries nor part of tuner. The first frame of
    each traceback of a trial says where tuner is.
    """
    frames = _FRAME.findall(traceback)
    folders = tuple(file[: found.start() + 1] for file, _ in frames if (found := _WORKER.search(file)))
    own = [frame for frame in frames if not _INSTALLED.search(frame[0]) and not frame[0].startswith(folders)]
    file, line = (own or frames or [("", "")])[-1]
    name = re.split(r"[/\\]", file)[-1]
    return f"{name}:{line}" if file else ""
