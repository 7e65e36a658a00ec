"""The summary of one search for its page, from its record alone: cheap enough to be computed every second."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from tuner.history.records import RunRecord, TrialRecord, flat_config, saved_epochs, saved_share
from tuner.history.similar_failures import failure_groups
from tuner.history.steered import Note
from tuner.plots.learning import OneCurve, learning_traces, live_layout, quantiles_of
from tuner.results.run import RecordedRun
from tuner.results.winner_metrics import test_metrics
from tuner.results.wording import averaged, report_of, shipped, with_error
from tuner.service.errors import ServiceError
from tuner.service.web.files import part_of
from tuner.space.values import recorded
from tuner.study.budget import SECONDS_PER_HOUR
from tuner.text import in_utf8, printable

ALIKE = 5  # after so many trials with the same error pausing is proposed
NAMED = 50  # the most trials of a failure that are named
FEWEST = 3  # trials with a value before anything is said about the next ones
MOST_CURVES = 60
MIRROR_STATE = "mirror.json"  # in the folder of each
LONGEST_STATE = 10_000  # bytes


@dataclass(frozen=True)
class Winner:
    """The trial that is ahead: what it is compared by, and the epoch whose network stands for it."""

    trial: str
    epoch: int
    value: float
    told: str  # the value with its standard error, as far as that is known
    averaged: str  # the epochs that it is the mean of; empty where it is of one
    config: dict[str, Any]
    tests: list[tuple[str, str]]  # metrics on the test split, as text
    ships: list[str]  # sentences about the network in `best/`, where it isn't just this trial's


@dataclass(frozen=True)
class Failing:
    """Trials that failed alike."""

    cause: str
    described: str
    count: int
    trials: list[str]  # the first of them


@dataclass(frozen=True)
class NextHour:
    """The expected result of the next device-hour.

    This many trials, and how likely one of them is the best so far if configurations keep being drawn as they were:
    k of n + k, as each of n + k alike trials is the best with the same chance. A search that learns does better.
    `gained` is by how much the last device-hour improved the best trial, None if no trial had ended before it.
    """

    trials: float
    chance: float
    gained: float | None


@dataclass(frozen=True)
class Summary:
    """A search as the head of its page shows it."""

    metric: str
    mode: str
    status: str  # of the run, as `tuner show` says
    end_reason: str | None
    trials: dict[str, int]  # by status
    wanted: int | None
    epochs: int  # each counted once
    epochs_again: int  # trained in addition, to go on after interruptions
    longest: int  # epochs of a trial that isn't stopped
    rungs: list[int]
    best: Winner | None
    device_hours: dict[str, float]  # by the status of the trials that had them
    saved_share: float  # of the epochs that all trials would have had without early stopping
    saved_hours: float  # device-hours, computed with the mean length of an epoch
    failures: list[Failing]
    alike: int  # trials of the most frequent failure, where it is worth a pause; else 0
    next_hour: NextHour | None
    metrics: list[str]
    notes: list[Note]
    has_report: bool
    wandb: str  # "online", "offline" or "off"
    wandb_url: str | None  # where W&B shows it
    mlflow: bool  # whether it goes to an MLflow server
    mlflow_url: str | None  # where that shows it


def summary(run: RecordedRun) -> Summary:
    """The summary of a run now."""
    record, trials = run.record, list(run.record.trials.values())
    hours = run.device_hours_by_status()
    groups = failure_groups(record)
    failing = [
        Failing(one.cause, printable(one.described), len(one.trials), [t.trial for t in one.trials[:NAMED]])
        for one in groups
    ]
    running, notes = run.status == "running", record.steered.notes_of(None)
    return Summary(
        metric=run.metric,
        mode=run.mode,
        status=run.status,
        end_reason=run.end_reason,
        trials={str(status): count for status, count in record.counts().items()},
        wanted=run.budget.get("trials"),
        epochs=record.epochs(),
        epochs_again=record.epochs_again(),
        longest=run.longest_trial,
        rungs=[int(rung) for rung in run.info.get("rungs") or []],
        best=in_utf8(_winner(run)),
        device_hours=hours,
        saved_share=saved_share(trials, run.longest_trial),
        saved_hours=_saved_hours(record, trials, run.longest_trial, sum(hours.values())),
        failures=failing,
        alike=failing[0].count if running and failing and failing[0].count >= ALIKE else 0,
        next_hour=_next_hour(record, sum(hours.values())) if running else None,
        metrics=list(dict.fromkeys([run.metric, *record.metric_names()])),
        notes=[replace(note, text=printable(note.text), by=printable(note.by)) for note in notes],
        has_report=report_of(run) is not None,
        wandb=run.info["wandb"],
        wandb_url=_url_at(run, "wandb") if run.info["wandb"] == "online" else None,
        mlflow=bool(run.info["mlflow"]) and run.info["mlflow"] != "off",
        mlflow_url=_url_at(run, "mlflow"),
    )


@dataclass(frozen=True)
class Curves:
    """Learning curves of the best trials and of those that run; of all others the quantiles at each epoch.

    `count` trials have a value, `shown` of them a curve. The figure is plotly's JSON, drawn as in reports.
    """

    metric: str
    mode: str
    rungs: list[int]
    longest: int
    count: int
    shown: int
    figure: dict[str, Any]


def curves(run: RecordedRun, metric: str, most: int = MOST_CURVES) -> Curves:
    """The curves of a metric, at most this many; the best first, then those that run."""
    record = run.record
    best = [one.trial for one in record.ranked()]
    running = [trial for trial in record.trials.values() if trial.status == "running"]
    ordered = {trial.trial: trial for trial in (*best[: most // 2], *running[: most // 4], *best, *running)}
    ordered |= {trial.trial: trial for trial in record.trials.values() if trial.trial not in ordered}
    with_value = [(trial, points) for trial in ordered.values() if (points := trial.values(metric))]
    drawn = [OneCurve(trial.trial, trial.status, points) for trial, points in with_value[:most]]
    others = quantiles_of([points for _, points in with_value]) if len(with_value) > most else None
    rungs = [int(rung) for rung in run.info.get("rungs") or []]
    figure = {
        "data": learning_traces(drawn, best[0].trial if best else None, others),
        "layout": live_layout(metric, run.mode, rungs, run.longest_trial, drawn, others),
    }
    return Curves(metric, run.mode, rungs, run.longest_trial, len(with_value), len(drawn), in_utf8(figure))


# Inside


def _url_at(run: RecordedRun, mirror: str) -> str | None:
    """The address that the mirror wrote; the folder is its user's, so that the file may contain anything."""
    try:
        told = json.loads(part_of(run.folder, f"{mirror}/{MIRROR_STATE}", 0, LONGEST_STATE))
        url = urlsplit(told["url"])
    except (ServiceError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    sound = url.scheme in ("http", "https") and bool(url.hostname) and url.username is None
    return printable(url.geturl()) if sound else None


def _winner(run: RecordedRun) -> Winner | None:
    best = run.best
    worth = best and run.record.standing_of(best.trial)
    if best is None or not worth:
        return None
    told, mean, config = with_error(worth), averaged(worth).strip(), recorded(flat_config(best.config))
    return Winner(best.trial, worth.epoch, worth.value, told, mean, config, test_metrics(run), shipped(run))


def _saved_hours(record: RunRecord, trials: list[TrialRecord], longest: int, used: float) -> float:
    trained = record.epochs() + record.epochs_again()
    return saved_epochs(trials, longest) * used / trained if trained else 0.0


def _next_hour(record: RunRecord, used: float) -> NextHour | None:
    with_value = len(record.reported())
    wall = record.wall_seconds / SECONDS_PER_HOUR
    if with_value < FEWEST or used <= 0 or wall <= 0:
        return None
    ended = sum(not trial.live for trial in record.trials.values())
    more = max(ended, 1) / used
    return NextHour(more, more / (with_value + more), _gained(record, wall / used))


def _gained(record: RunRecord, hours_a_device_hour: float) -> float | None:
    """How much better the winner is than the best that had ended a device-hour ago, at the mean number of devices."""
    before = record.wall_seconds - hours_a_device_hour * SECONDS_PER_HOUR
    ranked = record.ranked()
    earlier = (one for one in ranked if one.trial.ended is not None and record.active.at(one.trial.ended) <= before)
    led = next(earlier, None)
    return None if led is None else abs(ranked[0].value - led.value)
