"""What `tuner confirm` asks of a search: which configurations are trained again, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.errors import RunFolderError, setting
from tuner.history.event_lines import MOST_SEEDS
from tuner.history.records import RunRecord, TrialRecord, full_length
from tuner.results.run import RecordedRun
from tuner.results.seeds import TOP

SEEDS = 5  # by default
ASKED_FOR = (
    "confirm needs trials that tuner trains, got a search whose trials your own program asks for; "
    "train the best again there, under other seeds"
)


def check_asked(run: RecordedRun) -> None:
    """Raise RunFolderError if tuner can't train the run's trials."""
    if run.info["asked"]:
        raise RunFolderError(ASKED_FOR)


def cost_of(run: RecordedRun, top: int | None, seeds: int | None) -> str:
    """What `tuner confirm` would train on such a run, in a sentence; raises RunFolderError as `confirmation` does."""
    found = confirmation(run.record, run.longest_trial, top, seeds)
    return found.cost(seconds_per_epoch(run.record), run.info.get("concurrency") or 1)


@dataclass(frozen=True)
class Confirmation:
    """Which trials are repeated.

    Attributes:
        trials: the first trials of the configurations, the best first
        seeds: the number of further seeds of each, after which all have equally many
        longest: epochs of the longest trial
        not_ended: ids of trials that rank higher than the last of them, and go on
    """

    trials: tuple[TrialRecord, ...]
    seeds: tuple[int, ...]
    longest: int
    not_ended: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The trials' ids."""
        return [trial.trial for trial in self.trials]

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the event that asks for the trials; those that need more seeds are named more often, and first."""
        if len(set(self.seeds)) == 1:
            return {"trials": self.names, "seeds": self.seeds[0]}
        rounds = range(max(self.seeds), 0, -1)
        return {
            "trials": [t for left in rounds for t, n in zip(self.names, self.seeds, strict=True) if n >= left],
            "seeds": 1,
        }

    def request(self, ended_by: str | None, *, ended: bool) -> dict[str, Any]:
        """`fields`, with what they need if the search has `ended`, so that nothing else is trained."""
        return self.fields | ({"alone": True, "ended_by": ended_by} if ended else {})

    @property
    def epochs(self) -> int:
        """The epochs of all these trials together."""
        lengths = (full_length(trial.config, self.longest) for trial in self.trials)
        return sum(seeds * length for seeds, length in zip(self.seeds, lengths, strict=True))

    def cost(self, seconds_per_epoch: float | None = None, workers: int = 1) -> str:
        """What will be trained, in a sentence, with the time at this many seconds per epoch."""
        count, more, most = len(self.trials), sum(self.seeds), max(self.seeds)
        which = f"the best {count} configurations" if count > 1 else "the best configuration"
        each = " each" if count > 1 else ""
        seeds = f"{most} other seeds" if most > 1 else "another seed"
        if min(self.seeds) < most:
            seeds, each = f"up to {most} other seeds", ", until they have equally many"
        time = "" if seconds_per_epoch is None else f", about {_rough(seconds_per_epoch * self.epochs / workers)}"
        trials = "1 trial" if more == 1 else f"{more} trials"
        return f"trains {which} under {seeds}{each}: {trials} and {self.epochs} epochs{time}{self._passed_over()}"

    def _passed_over(self) -> str:
        if not self.not_ended:
            return ""
        ids = ", ".join(self.not_ended)
        one = len(self.not_ended) == 1
        who, not_yet = (f"trial {ids} ranks", "hasn't") if one else (f"trials {ids} rank", "haven't")
        return f" ({', '.join(self.names)}; {who} higher so far, but {not_yet} ended)"


def confirmation(record: RunRecord, longest: int, top: int | None, seeds: int | None) -> Confirmation:
    """The best configurations of those that have ended; raises RunFolderError if there are too few, or none.

    `top` and `seeds` are TOP and SEEDS if they are None; a smaller run confirms fewer. Those that are better than the
    winner by too few seeds come first. All get equally many seeds: `seeds` more for those with the fewest, by default
    as many as the winner has, and never fewer, as only then they can win; it gets as many itself.
    """
    _check_counts(top, seeds)
    challengers = [one.trial for one in record.challengers()]
    ranked = challengers + [one.trial for one in record.ranked() if one.trial not in challengers]
    ended = [trial for trial in ranked if not _goes_on(record, trial)]
    if not ended:
        raise RunFolderError(
            "confirm needs a run with a winner, got one in which no trial has ended with a value; "
            "wait until one has, or let `show` say why none did"
        )
    if top is not None and top > len(ended):
        raise RunFolderError(
            "confirm trains configurations again whose trials have ended with a value, got "
            f"{setting('--top', top)} for a run that has {len(ended)}; use {setting('--top', len(ended))}"
        )
    chosen = ended[: top or TOP]
    higher = ranked[: ranked.index(chosen[-1])]
    not_ended = tuple(trial.trial for trial in higher if _goes_on(record, trial))
    have = {record.same_configuration(trial)[0].trial: max(1, record.seed_count(trial)) for trial in chosen}
    missing = record.most_seeds - min(have.values())
    wanted = max(record.most_seeds, min(have.values()) + (seeds or missing or SEEDS))
    winner = record.best_trial()
    if winner is not None and 1 < record.most_seeds < wanted and not _goes_on(record, winner):
        have.setdefault(record.same_configuration(winner)[0].trial, record.most_seeds)  # or it could not win any more
    first = tuple(record.trials[trial] for trial in have)
    return Confirmation(first, tuple(wanted - count for count in have.values()), longest, not_ended)


def seconds_per_epoch(record: RunRecord) -> float | None:
    """Seconds of an epoch of the run's trials, with all overhead of a trial; None before the first epoch."""
    epochs = record.epochs()
    return record.running_seconds() / epochs if epochs else None


def _check_counts(top: int | None, seeds: int | None) -> None:
    for name, value, most in (("top", top, 10**6), ("seeds", seeds, MOST_SEEDS)):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (whole and 1 <= value <= most):
            raise RunFolderError(
                f"confirm needs a whole number from 1 to {most:,} as {name}, got {value!r}; "
                f"use {TOP if name == 'top' else SEEDS}"
            )


def _goes_on(record: RunRecord, trial: TrialRecord) -> bool:
    """Whether its first trial has not ended yet: early stopping may still end it."""
    return record.same_configuration(trial)[0].live


def _rough(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
