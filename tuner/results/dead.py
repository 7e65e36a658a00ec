"""Dead hyperparameters: no trial reads them, or trials that differ in them have the same curve to the last bit."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from tuner.history.event_lines import finite
from tuner.history.records import RunRecord, TrialRecord
from tuner.search.points import is_ordered
from tuner.space import Domain, Space
from tuner.space.values import same

NEWEST = 100  # trials that are looked at, so that a search of thousands isn't slowed down
LONG = 20  # trials: what so many leave unread is never read, even if some options were not tried
FEW = 10  # values of a number, of which the highest one must have been tried
FEWEST_ALL = 4  # trials: that so many report the same rounded values is no coincidence
MOST_ASKED = 5  # absent names that are told
UNREAD, ALIKE = "unread", "alike"  # codes of notices
SHARES, SHARES_32 = 100_000, 1_000  # images: shares of so few often coincide; the second as 32-bit numbers

Pair = tuple[str, str, tuple[str, ...]]  # two trials, and the names in which they differ


def dead(record: RunRecord, space: Space) -> tuple[str, ...]:
    """The hyperparameters that are known to change nothing: no trial has read them, or pairs of trials show it.

    That takes two pairs, each with the same curve and differing in this hyperparameter alone, and no such pair with
    different curves: some hyperparameters only matter under some optimizers.
    """
    alone = [names[0] for _, _, names in alike(record, space) if len(names) == 1]
    shown = {name for name in alone if alone.count(name) > 1}
    for one, other in combinations(_completed(record), 2) if shown else ():
        if len(names := _differing(space, one, other)) == 1 and _course(record, one) != _course(record, other):
            shown -= set(names)
    never = unread(record, space)
    return tuple(name for name in space.dimensions if name in shown or name in never)


def unread(record: RunRecord, space: Space) -> tuple[str, ...]:
    """The hyperparameters that no trial has read so far; empty if some trial doesn't say what it reads.

    One that decides about others by `when`, or that a function of the space may use, has its effect through these.
    """
    told = record.readings
    names = {*space.constants, *(name for name, domain in space.dimensions.items() if domain.encodable)}
    sections = {name[:place] for name in names for place in range(len(name)) if name[place] == "."}
    if told.silent or not told.read.keys() <= names | sections:
        return ()
    deciding = {other for name in told.read for other, _ in space.conditions.get(name, ())}
    left = space.dimensions.keys() - told.read.keys() - deciding
    had = set[str]().union(*(space.active(trial.config) for trial in _ended(record))) if left else set[str]()
    return tuple(name for name in space.dimensions if name in left & had)


def alike(record: RunRecord, space: Space) -> list[Pair]:
    """The pairs of trials with different configurations and the same curve to the end, where that is no coincidence.

    Shares of few images coincide often. So the curve needs two values with all their digits; or else all metrics must
    be the same, with two such values in metrics that other trials report differently; or nothing differs in any trial.
    """
    trials, found = _completed(record), list[Pair]()
    for group in _same(trials, [_course(record, trial) for trial in trials]):
        values = [value for _, value in _course(record, group[0])]
        if _tell(values) or (len(trials) == len(group) >= FEWEST_ALL and len(set(values)) > 2):
            found += _pairs(space, group)
            continue
        firsts = [_first(trial) for trial in trials]
        varying = {
            name for name, _ in set[tuple[str, float]]().union(*firsts).difference(firsts[0].intersection(*firsts))
        }
        for equal in _same(group, [_numbers(trial) for trial in group]):
            numbers = [
                row for row in _numbers(equal[0]) if row[1] in varying or (not varying and len(equal) >= FEWEST_ALL)
            ]
            if _tell([value for _, _, value in numbers]):
                found += _pairs(space, equal)
    return found


def unread_sentence(record: RunRecord, space: Space) -> str | None:
    """A sentence about hyperparameters that are never read, once no trial is to be expected that reads them.

    That needs a trial that was trained to its end, and trials on both sides of each branch that it may be in.
    """
    names = [name for name in unread(record, space) if _is_decided(record, space, name)]
    if not names:
        return None
    absent = [*record.readings.absent][:MOST_ASKED]
    asked = [f"{name!r}" for name in absent]
    near = {one: difflib.get_close_matches(one, names, 1) for one in absent}
    meant = [f"{one!r} is asked for, did you mean {found[0]!r}?" for one, found in near.items() if found]
    instead = f"; {' '.join(meant) if meant else 'it asks for ' + ', '.join(asked) + ' instead'}" if asked else ""
    it, its, is_ = ("them", "their values change", "are") if len(names) > 1 else ("it", "its value changes", "is")
    return (
        f"a hyperparameter must be read to have an effect, got {', '.join(names)}, which {is_} searched and read by no "
        f"trial, so {its} nothing; read {it} from the configuration, or take {it} out of the space{instead}"
    )


def alike_sentence(record: RunRecord, space: Space) -> str | None:
    """A sentence about the first pair of `alike` that differs in more than what is never read.

    To be asked after the end of each trial: it only looks further if the newest one ends like another one.
    """
    last = [trial.metrics().get(record.metric) for trial in _completed(record)]
    if not last or last[-1] not in last[:-1]:
        return None
    never = unread(record, space)
    pairs = [pair for pair in alike(record, space) if not set(pair[2]) <= set(never)]
    if not pairs:
        return None
    first, second, names = pairs[0]
    return (
        f"trials {first} and {second} differ in {', '.join(names)} and have the same curve to the last bit: what "
        "differs seems to change nothing; see whether the code uses it"
    )


def news_of_dead(record: RunRecord, space: Space) -> Iterator[tuple[str, str]]:
    """What the user should know after the end of a trial, with the code of its notice: each is said once in a run."""
    for code, sentence in ((UNREAD, unread_sentence), (ALIKE, alike_sentence)):
        if code not in record.notice_codes and (said := sentence(record, space)):
            yield said, code


# Inside


def _ended(record: RunRecord) -> list[TrialRecord]:
    """The newest trials that have ended well after at least an epoch, one for each configuration."""
    ended = {trial.trial: trial for trial in record.ended_trials[-NEWEST:]}
    return [trial for trial in ended.values() if trial.epochs and trial.suggested and trial.status != "failed"]


def _completed(record: RunRecord) -> list[TrialRecord]:
    """Those trained to their end: what acts late has changed nothing yet in others."""
    return [trial for trial in _ended(record) if trial.status == "completed"]


def _course(record: RunRecord, trial: TrialRecord) -> tuple[tuple[int, float], ...]:
    return tuple(trial.values(record.metric))


def _numbers(trial: TrialRecord) -> tuple[tuple[int, str, float], ...]:
    rows = ((epoch, name, value) for epoch in trial.epochs for name, value in trial.epochs[epoch].metrics.items())
    return tuple(sorted(row for row in rows if finite(row[2])))


def _first(trial: TrialRecord) -> set[tuple[str, float]]:
    """The numbers of the first epoch."""
    return {(name, value) for epoch, name, value in _numbers(trial) if epoch == 1}


def _same(trials: Sequence[TrialRecord], keys: Sequence[Any]) -> Iterator[list[TrialRecord]]:
    """The groups of several trials with equal keys."""
    groups = defaultdict(list)
    for trial, key in zip(trials, keys, strict=True):
        groups[key].append(trial)
    return (group for group in groups.values() if len(group) > 1)


def _pairs(space: Space, trials: Sequence[TrialRecord]) -> Iterator[Pair]:
    for one, other in combinations(trials, 2):
        if names := _differing(space, one, other):
            yield one.trial, other.trial, names


def _differing(space: Space, one: TrialRecord, other: TrialRecord) -> tuple[str, ...]:
    first, second = space.flatten(one.config), space.flatten(other.config)
    either = [name for name in space.dimensions if name in first or name in second]
    return tuple(n for n in either if not (n in first and n in second and same(first[n], second[n])))


def _tell(values: Sequence[float]) -> bool:
    """Whether two different values have so many digits that they coincide only if the training is the same."""
    return sum(not _is_share(value) for value in set(values)) > 1


def _is_share(value: float) -> bool:
    """Whether it is a whole number, a rounded one, or a share of few images."""
    if abs(float(Fraction(value).limit_denominator(SHARES)) - value) <= 1e-14 * abs(value):
        return True
    share = float(Fraction(value).limit_denominator(SHARES_32))
    return float(np.float32(value)) == value == float(np.float32(share))


def _is_decided(record: RunRecord, space: Space, name: str) -> bool:
    """Whether trials that had it leave no hope that a later one reads it."""
    trials = [trial for trial in _ended(record) if name in space.active(trial.config)]
    if not any(trial.status == "completed" for trial in trials):
        return False
    units = np.array([space.encode(space.project(trial.config)) for trial in trials])
    read = [n for n in space.dimensions if n in record.readings.read]
    columns = dict(zip(space.dimensions, units.T, strict=True))
    return len(trials) >= LONG or all(_is_tried(space.dimensions[n], columns[n]) for n in read)


def _is_tried(domain: Domain, units: np.typing.NDArray[np.float64]) -> bool:
    """Whether all options were tried, or of a number both halves of its range, and the highest of few values."""
    tried = set(units[~np.isnan(units)].tolist())
    if not is_ordered(domain):
        return len(tried) >= domain.size
    highest = 1 - 1 / domain.size if domain.size <= FEW else 0.5
    return min(tried, default=1.0) < 0.5 and max(tried, default=0.0) >= highest
