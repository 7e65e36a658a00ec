"""Earlier runs as what a search learns from."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import RunFolderError
from tuner.results.events import finite
from tuner.results.run import Run, find_runs
from tuner.search import EarlierStudy, EarlierTrial, History, Learned, learn
from tuner.study import Study

MOST_RUNS = 100  # the newest ones; reading more would hold up the start


def learned(study: Study, storage: str | Path) -> Learned:
    """The configurations that earlier runs under the storage folder suggest to start from."""
    if study.warm_start is None:
        return Learned()
    runs = [run for run in find_runs(study.warm_start.path or storage) if _is_told_of(run, study, study.warm_start)]
    return learn(study.problem, [_as_study(run, study.metric) for run in runs[:MOST_RUNS]], study.warm_start.top)


def describe(found: Learned) -> str:
    """What the user is told."""
    count = f"{len(found.configs)} configuration{'s' if len(found.configs) > 1 else ''}"
    names = ", ".join(found.studies[:3])
    more = f" and {len(found.studies) - 3} more" if len(found.studies) > 3 else ""
    return f"starts with {count} learned from earlier runs ({names}{more}); --no-history leaves them out"


def _is_told_of(run: Run, study: Study, history: History) -> bool:
    if history.studies is not None and run.name not in history.studies:
        return False
    return run.metric == study.metric and run.mode == study.mode and not run.alive


def _as_study(run: Run, metric: str) -> EarlierStudy:
    try:
        records = list(run.record.trials.values())
    except RunFolderError:  # its events can't be read: there is nothing to learn
        records = []
    trials = []
    for record in records:
        curve = {e.epoch: float(e.metrics[metric]) for e in record.epochs.values() if finite(e.metrics.get(metric))}
        if record.status != "failed" and curve:
            trials.append(EarlierTrial(record.config, curve))
    budget = run.info.get("budget") or {}
    longest = max((max(trial.curve) for trial in trials), default=1)
    return EarlierStudy(
        name="/".join(run.path.rstrip("/").split("/")[-2:]),
        max_epochs=max(longest, int(budget.get("max_epochs") or 1)),
        rungs=tuple(run.info.get("rungs") or ()),
        trials=tuple(trials),
    )
