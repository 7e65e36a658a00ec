"""A run, or one of its trials, as plain data for `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tuner.history.logs import end_of_log
from tuner.history.records import TrialRecord
from tuner.history.refits import TRAINED_ON, shipped_refit
from tuner.history.scored import METRICS
from tuner.history.similar_failures import failure_groups
from tuner.results.front import front_of, second_of
from tuner.results.run import RecordedRun
from tuner.results.seeds import Repeated, repeated, verdict
from tuner.results.wording import report_of
from tuner.space.mode import Objective
from tuner.storage.folder import Folder


def summary_of_trial(trial: TrialRecord, folder: Folder) -> dict[str, Any]:
    """The trial with its configuration, outcome, the end of its output, where it ran, and its epochs."""
    return {
        "trial_id": trial.trial,
        "config": trial.config_in_json,
        "seed": trial.seed,
        "configuration": trial.configuration,
        "repeats": trial.repeats,
        "refits": trial.refits,
        "status": trial.status,
        "cause": trial.cause,
        "message": trial.message,
        "traceback": trial.traceback,
        "output": end_of_log(folder, trial.trial),
        "stays": [asdict(stay) for stay in trial.stays],
        "worker": trial.worker,
        "running_seconds": round(trial.running_seconds, 3),
        "epochs": [{"epoch": epoch.epoch, **epoch.metrics} for epoch in trial.epochs.values()],
    }


def summary_of_run(run: RecordedRun) -> dict[str, Any]:
    """The run with its winner, and how many trials and failures there are."""
    counts = run.record.counts()
    return {
        "run": run.path,
        "status": run.status,
        "best": _winner(run),
        "trials": {
            "total": len(run.record.trials),
            **{status: counts[status] for status in ("completed", "stopped", "failed")},
        },
        "failures": {group.name: len(group.trials) for group in failure_groups(run.record)},
        **({"front": _front(run, second)} if (second := second_of(run)) else {}),
        "wall_seconds": round(run.record.wall_seconds, 3),
        "report": report_of(run),
    }


def _front(run: RecordedRun, second: Objective) -> list[dict[str, Any]]:
    """The configurations that no other beats in both metrics, the best in the second one first."""
    return [
        {
            "trial_id": one.trial.trial,
            "config": one.trial.config_in_json,
            run.metric: one.value,
            second.metric: one.cost,
        }
        for one in front_of(run)
    ]


def _trained_again(run: RecordedRun, refit: TrialRecord) -> dict[str, Any]:
    own = (run.scored(METRICS) or {}).get("refit", {}).get("own")
    return {"trial_id": refit.trial, "epochs": refit.refit_epochs, "trained_on": TRAINED_ON, "own": own}


def _told_of_seeds(run: RecordedRun, seeds: int, known: Sequence[Repeated]) -> dict[str, Any]:
    return {"seeds": seeds, "repeated": [_of_seeds(one) for one in known], "verdict": verdict(run, known)}


def _of_seeds(one: Repeated) -> dict[str, Any]:
    """A configuration with several trials: their ids, the seeds' values, mean and standard error."""
    trials, worth = [trial.trial for trial in one.trials], one.worth
    return {"trials": trials, "values": list(one.values), "mean": worth.value, "error": worth.error}


def _winner(run: RecordedRun) -> dict[str, Any] | None:
    """The winner; None without one.

    `value` is what trials are compared by: the mean `over_epochs` (the first and the last), or over this many `seeds`
    if several trained its configuration to the end; `error` is its standard error, None if unknown; `epoch` and
    `metrics` are those of its network. If configurations have several trials, `repeated` lists them, the best first,
    and `verdict` says which is best and how certainly. `refit` names the trial that trained it again on training and
    validation images together; `best/` has its network, whose test metrics are given. `own` in it has those of the
    winner's own network, and what the refit gains in the `metric` that it names, with its standard error. `combined`
    says what an average of several trials gains, and whether `best/` has it.
    """
    best = run.best
    worth = best and run.record.standing_of(best.trial)
    if best is None or not worth:
        return None
    known, refit = repeated(run), shipped_refit(run.record)
    trained = _trained_again(run, refit) if refit else None
    return {
        "trial_id": best.trial,
        "config": best.config_in_json,
        "value": worth.value,
        "error": worth.error,
        "over_epochs": [worth.first, worth.last],
        "epoch": worth.epoch,
        "metrics": run.best_metrics,
        "refit": trained,
        **({"cost": asdict(cost)} if run.costs and (cost := run.costs.of(best.config)) else {}),
        **({"combined": run.average} if run.average else {}),
        **(_told_of_seeds(run, worth.seeds, known) if known else {}),
    }
