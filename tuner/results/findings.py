"""The main findings of a run: how certain its winner is, failures, cost, and what to try next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.history.records import TrialRecord
from tuner.history.similar_failures import FailureGroup, failure_groups
from tuner.results.dead import unread_sentence
from tuner.results.importance import FEWEST_TRIALS
from tuner.results.run import RecordedRun
from tuner.results.wording import extended, going_on_by, plural, settings, short, trials_and_repeats
from tuner.search import good_region
from tuner.text import command
from tuner.trial.tasks import SHARES

CLEAR = 2.0  # standard errors from which on a difference counts
LATE = 0.8  # share of a search's epochs; what still improves after them may go on improving
NEGLIGIBLE = 0.03  # of the variance
MANY_FAILURES = 0.1  # of the trials
MORE_TRIALS = 10  # at least, by which a search is extended


@dataclass(frozen=True)
class Certainty:
    """Whether the winner is better than the runner-up beyond the noise of the validation set.

    `value` is the winner's share of right answers, a mean over the epochs `first` to `last`, and `error` its standard
    error. `difference` is its lead and `difference_error` the standard error of the lead, as if both had been evaluated
    on different images: an upper bound, because the same images are equally hard for both. `equals` are the trials
    that, within this error, may be as good as the winner.
    """

    images: int
    value: float
    first: int
    last: int
    error: float
    runner_up: TrialRecord
    difference: float
    difference_error: float
    equals: tuple[str, ...]

    @property
    def clear(self) -> bool:
        """Whether the winner is ahead by two standard errors or more."""
        return self.difference >= CLEAR * self.difference_error


@dataclass(frozen=True)
class Advice:
    """What to try next, and the command that does it, if there is one.

    `verb` is what the command does: "refine", or "extend" to these `limits` of the whole run.
    """

    text: str
    command: str | None = None
    verb: Literal["refine", "extend"] | None = None
    limits: dict[str, float] | None = None


@dataclass(frozen=True)
class Findings:
    """The main findings of a run: its failures, the most frequent first, and advice, the most promising first."""

    certainty: Certainty | None
    failures: list[FailureGroup]
    advice: list[Advice]


def findings_of(run: RecordedRun) -> Findings:
    """All findings of a run."""
    certain, failed = certainty(run), failure_groups(run.record)
    return Findings(certain, failed, _advice(run, certain, failed))


def certainty(run: RecordedRun) -> Certainty | None:
    """The winner's certainty; None without a second trial, or if the metric isn't a share of images."""
    images, best = run.validation_images, run.best
    ranked = run.record.ranked()
    if run.metric not in SHARES or not images or best is None or len(ranked) < 2:
        return None
    winner, second, *_ = ranked
    worth, value = winner.worth, winner.value
    error, sign = share_error(value, images), 1.0 if run.mode == "max" else -1.0

    def error_beside(other: float) -> float:
        return math.hypot(error, share_error(other, images))

    behind = {one.trial.trial: sign * (value - one.value) / error_beside(one.value) for one in ranked[1:]}
    equals = tuple(
        trial for trial, errors in behind.items() if errors < CLEAR
    )  # one of a shorter training may be ahead
    lead, lead_error = sign * (value - second.value), error_beside(second.value)
    return Certainty(images, value, worth.first, worth.last, error, second.trial, lead, lead_error, equals)


def share_error(share: float, images: int) -> float:
    """The standard error of a share of right answers; never 0, because two right and two wrong ones are added.

    After Agresti and Coull (1998), whose intervals also hold for shares near 0 and 1.
    """
    adjusted = (share * images + 2) / (images + 4)
    return math.sqrt(adjusted * (1 - adjusted) / (images + 4))


# Inside


def _advice(run: RecordedRun, certain: Certainty | None, failed: Sequence[FailureGroup]) -> list[Advice]:
    """Advice for the next run, the most promising first.

    What mattered is told from values at full length, see `tuner.results.full_length`: early stopping makes a trial's
    values low, independent of its hyperparameters. What is best is the winner, as everywhere.
    """
    found = [*_dead(run), *_going_on(run), *_borders(run), *_longer(run), *_noise(run, certain)]
    found += [*_unimportant(run), *_failing(run, failed)]
    all_dead = bool(run.dead) and run.space.dimensions.keys() <= {*run.dead}
    if not all_dead and len(run.outcomes()[1]) >= FEWEST_TRIALS and run.info.get("study_file"):
        found.append(
            Advice(
                "Search the good region with a grid, or with narrower ranges (--as narrowed):",
                command("refine", run.path, "-o", "next.py"),
                "refine",
            )
        )
    return found


def _dead(run: RecordedRun) -> list[Advice]:
    told = unread_sentence(run.record, run.space) if run.dead else None
    return [Advice(f"{told[0].upper()}{told[1:]}.")] if told else []


def _going_on(run: RecordedRun) -> list[Advice]:
    trials = run.record.configurations
    if run.status == "interrupted":
        return [Advice("The search was interrupted; to continue it:", going_on_by(run))]
    best, epochs = run.best, run.record.search_epochs()
    limits = extended(run, max(MORE_TRIALS, trials // 2))
    if best is None or run.status != "finished" or not limits or not epochs:
        return []
    first = run.record.same_configuration(best)[0]  # further seeds of it came later
    found = run.record.best_of(first.trial)
    reached = first.epochs[found[0]].time if found else 0.0
    before = sum(e.time <= reached for t in run.record.trials.values() for e in t.epochs.values())
    if before < LATE * epochs or not _is_ahead_of_earlier(run, first, reached):
        return []
    ((name, limit),) = limits.items()
    more = f"run {limit - trials} more trials" if name == "trials" else "go on for half as long again"
    return [
        Advice(
            f"The best value came after {before / epochs:.0%} of the epochs, so the search was still improving; "
            f"to {more}:",
            going_on_by(run, limits),
            "extend",
            limits,
        )
    ]


def _is_ahead_of_earlier(run: RecordedRun, first: TrialRecord, reached: float) -> bool:
    """Whether the winner is better than the best configuration before it by more than values vary between epochs.

    `first` is the first trial of its configuration. Those before it have lower numbers, and had their own value before
    the winner's was `reached`: that a single trial improves from its first to its last epoch doesn't count.
    """
    winner, *others = run.record.ranked()
    before = (one for one in others if one.trial.number < first.number)
    earlier = next((one for one in before if one.trial.epochs[one.worth.epoch].time < reached), None)
    sign = 1.0 if run.mode == "max" else -1.0
    return earlier is not None and sign * (winner.value - earlier.value) > CLEAR * (winner.worth.error or 0.0)


def _borders(run: RecordedRun) -> list[Advice]:
    limits = run.info.get("limits")
    if limits is None:  # an older run, which may be at a border that can't be passed
        return []
    configs, values = run.outcomes()
    if len(values) < FEWEST_TRIALS:
        return []
    space, sign = run.space, 1 if run.mode == "max" else -1
    told = [space.project(config) for config in configs]
    region = good_region(space, told, [sign * value for value in values], limits=limits, kept=run.dead)
    best = space.flatten(region.best)
    return [
        Advice(f"The best value of {name}, {short(best[name])}, lies at the border of "
               f"{space.dimensions[name].describe()}: search beyond it.")
        for name in region.widened
    ]  # fmt: skip


def _longer(run: RecordedRun) -> list[Advice]:
    best, longest = run.best, run.budget.get("max_epochs")
    if best is None or longest is None or longest == 1 or _best_reported(run, best) != longest:
        return []
    return [Advice(f"The winner was best at its last epoch: trials longer than max_epochs={longest} may do better.")]


def _best_reported(run: RecordedRun, trial: TrialRecord) -> int | None:
    """The epoch of the trial's best value, which needn't be the one whose network stands for it."""
    found = run.record.best_report_of(trial.trial)
    return found and found[0]


def _noise(run: RecordedRun, found: Certainty | None) -> list[Advice]:
    if found is None or found.clear or run.record.repeated:
        return []
    return [
        Advice(
            f"{plural(len(found.equals), 'other trial')} may be as good as the winner: {found.images} validation "
            "images are too few to be sure. Choose among them by cost, or train the best again under other seeds:",
            None if run.info["asked"] else going_on_by(run, confirm=0),
        )
    ]


def _unimportant(run: RecordedRun) -> list[Advice]:
    best = run.best
    if best is None or len(run.outcomes()[1]) < 3 * FEWEST_TRIALS:
        return []
    flat = run.space.flatten(best.config)
    small = [one.name for one in run.importances if one.share + CLEAR * one.deviation < NEGLIGIBLE]
    fixed = {name: flat[name] for name in small if name in flat}
    if not fixed:
        return []
    return [Advice(f"By itself, this hardly mattered and can be fixed: {settings(fixed)}.")]


def _failing(run: RecordedRun, failed: Sequence[FailureGroup]) -> list[Advice]:
    total = len(run.record.trials)
    return [
        Advice(
            f"{len(one.trials)} of {trials_and_repeats(run.record)} failed ({one.described}); see the first"
            f"{' with its traceback' if one.first.traceback else ''}:",
            command("show", run.path, "--trial", one.first.trial),
        )
        for one in failed
        if len(one.trials) >= max(2, MANY_FAILURES * total)
    ]
