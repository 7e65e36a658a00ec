"""Earlier runs as what a search learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner.history.events import finite
from tuner.results.run import Run, survey
from tuner.search import EarlierStudy, EarlierTrial, History, Learned, learn
from tuner.study import Study

MOST_RUNS = 100  # the newest ones; reading more would hold up the start


def learned(study: Study, storage: str | Path) -> Learned:
    """The configurations that earlier runs under the storage folder suggest to start from.

    A run that can't be read, for any reason, is left out and counted: it must not prevent the search.
    """
    if study.warm_start is None:
        return Learned()
    runs, refused = survey(study.warm_start.path or storage)
    told = [run for run in runs if _is_told_of(run, study, study.warm_start)]
    read = [_as_study(run, study.metric) for run in told[:MOST_RUNS]]
    found, left_out = _learned_from([one for one in read if one is not None], study, study.warm_start.top)
    return replace(found, passed_over=len(refused) + read.count(None) + left_out)


def _learned_from(earlier: Sequence[EarlierStudy], study: Study, top: int) -> tuple[Learned, int]:
    """What the studies teach, and how many of them nothing can be computed with."""
    try:
        return learn(study.problem, earlier, top), 0
    except Exception:  # what stands in files of any origin must not end a search before it begins
        sound = [one for one in earlier if _can_be_learned_from(one, study)]
    return (learn(study.problem, sound, top) if len(sound) < len(earlier) else Learned()), len(earlier) - len(sound)


def _can_be_learned_from(one: EarlierStudy, study: Study) -> bool:
    try:
        learn(study.problem, [one], 1)
    except Exception:
        return False
    return True


def describe(found: Learned) -> str:
    """The text of the notice."""
    unread = f"{found.passed_over} earlier run{'s' if found.passed_over > 1 else ''} can't be read"
    unread += ": `python -m tuner runs` says why"
    if not found.configs:
        return f"nothing learned from earlier runs: {unread}" if found.passed_over else "nothing learned"
    return _describe_learned(found) + (f"; {unread}" if found.passed_over else "")


def _describe_learned(found: Learned) -> str:
    count = f"{len(found.configs)} configuration{'s' if len(found.configs) > 1 else ''}"
    names = ", ".join(found.studies[:3])
    more = f" and {len(found.studies) - 3} more" if len(found.studies) > 3 else ""
    return f"starts with {count} learned from earlier runs ({names}{more}); --no-history leaves them out"


def _is_told_of(run: Run, study: Study, history: History) -> bool:
    if history.studies is not None and run.name not in history.studies:
        return False
    return run.metric == study.metric and run.mode == study.mode and not run.alive


def _as_study(run: Run, metric: str) -> EarlierStudy | None:
    """The run as a study to learn from; None if it can't be read."""
    try:
        return _read(run, metric)
    except Exception:  # whatever is wrong with it, there is nothing to learn
        return None


def _read(run: Run, metric: str) -> EarlierStudy:
    records = list(run.record.trials.values())
    trials = []
    for record in records:
        curve = {e.epoch: float(e.metrics[metric]) for e in record.epochs.values() if finite(e.metrics.get(metric))}
        if record.status != "failed" and curve:
            trials.append(EarlierTrial(record.config, curve))
    longest = max((max(trial.curve) for trial in trials), default=1)
    return EarlierStudy(
        name="/".join(run.path.rstrip("/").split("/")[-2:]),
        max_epochs=max(longest, run.budget.get("max_epochs") or 1),
        rungs=tuple(run.info["rungs"]),
        trials=tuple(trials),
    )
