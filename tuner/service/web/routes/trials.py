"""Trials of a study's run; those of external studies are asked for and reported by workers."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel

from tuner.history.records import Status, TrialRecord
from tuner.results.run import RecordedRun
from tuner.results.summaries import summary_of_trial
from tuner.results.trial_rows import Column, Row, trial_rows
from tuner.results.trial_texts import epochs_told, ranks_of, trial_texts, why_stopped
from tuner.results.wording import settings
from tuner.service.model import place_of
from tuner.service.web.context import Shown, Submitter, Viewer, Worker
from tuner.service.web.routes.bodies import (
    Answered,
    AskBody,
    Asked,
    CompleteBody,
    Cursor,
    FailBody,
    Id,
    Listed,
    ReportBody,
    Size,
    ToldWorker,
    TryBody,
)
from tuner.service.web.viewed_runs import trial_of
from tuner.service.web.workers import check_metrics
from tuner.text import in_utf8

router = APIRouter(tags=["trials"])
Order = Annotated[Literal["started", "best"], Query(description="best: without a value last")]
Statuses = Annotated[list[Status] | None, Query(max_length=10, description="only these")]
Text = Annotated[str, Query(max_length=200, description="words in id, configuration or failure")]
TrialId = Annotated[str, Path(max_length=64, pattern="^[A-Za-z0-9_.-]+$", description="leading zeros may be left out")]
of_workers = APIRouter(tags=["workers"])


@dataclass(frozen=True)
class Part:
    """Which trials of a study are asked for: of these statuses and words, in an order, so many from `start` on."""

    limit: int
    order: str
    statuses: tuple[Status, ...]
    text: str
    start: int

    def of(self, run: RecordedRun) -> tuple[list[TrialRecord], str | None]:
        """The trials, and the cursor of the next part."""
        trials, end = chosen(run, self.order, self.statuses, self.text), self.start + self.limit
        return trials[self.start : end], _next(end, len(trials))


def _part(
    limit: Size, order: Order = "started", status: Statuses = None, text: Text = "", cursor: Cursor = None
) -> Part:
    return Part(limit, order, tuple(status or ()), text, place_of(cursor))


AskedPart = Annotated[Part, Depends(_part)]


@router.get("/studies/{study}/trials")
def list_trials(study: Id, web: Shown, user: Viewer, part: AskedPart) -> Listed[dict[str, Any]]:
    """Trials without their epochs; while a search runs, the order of the best may change between two pages."""
    with web.runs.looking(study) as run:
        trials, cursor = part.of(run)
        return Listed(items=[_brief(run, trial) for trial in trials], cursor=cursor)


class ShownTrials(BaseModel):
    """A part of the table of trials as people read it; `cursor` asks for the next one, and is null at the end."""

    columns: list[Column]
    rows: list[Row]
    cursor: str | None


@router.get("/studies/{study}/table")
def show_table(study: Id, web: Shown, user: Viewer, part: AskedPart) -> ShownTrials:
    """The same trials as a table of text, as pages, reports and notebooks show them."""
    with web.runs.looking(study) as run:
        trials, cursor = part.of(run)
        others = [name for name in run.record.metric_names() if name != run.metric]
        found = trial_rows(run, trials, others)
    return ShownTrials(columns=list(found.columns), rows=list(found.rows), cursor=cursor)


@router.get("/studies/{study}/trials/{trial}")
def show_trial(study: Id, trial: TrialId, web: Shown, user: Viewer) -> dict[str, Any]:
    """One trial with its configuration, outcome and epochs; `told` has what pages say of it."""
    with web.runs.looking(study) as run:
        found = trial_of(run, trial)
        columns, epochs = epochs_told(found)
        of_it = trial_texts(run, found, ranks_of(run.record), why_stopped(run.record))
        said = {**asdict(of_it), "columns": columns, "epochs": epochs}
        return _plain({**summary_of_trial(found, run.folder), "told": said})


@router.post("/studies/{study}/trials", status_code=202)
def try_configuration(study: Id, body: TryBody, web: Shown, user: Submitter) -> Answered:
    """Run a trial with this configuration next."""
    answer = web.service.try_(study, user, body.config)
    return Answered(id=answer.order, outcome=answer.outcome, message=answer.message)


@router.post("/studies/{study}/trials/{trial}:stop", status_code=202)
def stop_trial(study: Id, trial: TrialId, web: Shown, user: Submitter) -> Answered:
    """End one trial."""
    answer = web.service.stop_trial(study, user, trial)
    return Answered(id=answer.order, outcome=answer.outcome, message=answer.message)


def chosen(run: RecordedRun, order: str, statuses: Collection[str], text: str) -> list[TrialRecord]:
    """Trials in an order, of these statuses if any are given, with every word of a text in what is known of them."""
    trials = list(run.record.trials.values())
    if order == "best":
        rows = {trial.trial: trial for trial in run.record.rows()}  # those of a report, before other seeds of theirs
        trials = [*rows.values(), *(trial for trial in trials if trial.trial not in rows)]
    words = text.casefold().split()
    return [
        trial
        for trial in trials
        if (not statuses or trial.status in statuses) and all(word in _words(trial) for word in words)
    ]


def _next(end: int, count: int) -> str | None:
    return str(end) if end < count else None


def _words(trial: TrialRecord) -> str:
    failure = f"{trial.cause or ''} {trial.message or ''}"
    return f"{trial.trial} {trial.status} {settings(trial.config)} {failure}".casefold()


def _brief(run: RecordedRun, trial: TrialRecord) -> dict[str, Any]:
    best = run.record.best_of(trial.trial)
    return _plain(
        {
            "trial": trial.trial,
            "number": trial.number,
            "status": trial.status,
            "config": trial.config_in_json,
            "epoch": trial.epoch,
            "best_epoch": best and best[0],
            "best": best and best[1],
            "metrics": trial.metrics(),
            "started": trial.started,
            "ended": trial.ended,
            "cause": trial.cause,
            "message": trial.message,
            "running_seconds": round(trial.running_seconds, 3),
        }
    )


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it; lone surrogates as their escapes."""
    found: dict[str, Any] = in_utf8(value)
    return found


@of_workers.post("/studies/{study}:ask")
async def ask(study: Id, body: AskBody, response: Response, web: Shown, user: Worker) -> Asked:
    """A trial to run now; a worker that asks again gets the same one. If there is none now, Retry-After says when to
    ask again.
    """
    found = Asked(**await web.workers.tell(study, user, body.worker, "ask"))
    if found.retry_after is not None:
        response.headers["retry-after"] = str(math.ceil(found.retry_after))
    return found


@of_workers.post("/studies/{study}/trials/{trial}:report")
async def report_epoch(study: Id, trial: TrialId, body: ReportBody, web: Shown, user: Worker) -> ToldWorker:
    """Record an epoch; the same one again gets the same answer."""
    check_metrics(body.metrics)
    told = {"trial": trial, "epoch": body.epoch, "metrics": body.metrics, "checkpoint": body.checkpoint}
    return ToldWorker(**await web.workers.tell(study, user, body.worker, "report", **told))


@of_workers.post("/studies/{study}/trials/{trial}:heartbeat")
async def heartbeat(study: Id, trial: TrialId, body: AskBody, web: Shown, user: Worker) -> ToldWorker:
    """Keep a trial whose epochs take long."""
    return ToldWorker(**await web.workers.tell(study, user, body.worker, "heartbeat", trial=trial))


@of_workers.post("/studies/{study}/trials/{trial}:complete")
async def complete_trial(study: Id, trial: TrialId, body: CompleteBody, web: Shown, user: Worker) -> ToldWorker:
    """Say that a trial has come to its end by itself; nothing happens where it is over already."""
    check_metrics(body.metrics)
    told = {"trial": trial, "metrics": body.metrics}
    return ToldWorker(**await web.workers.tell(study, user, body.worker, "complete", **told))


@of_workers.post("/studies/{study}/trials/{trial}:fail")
async def fail_trial(study: Id, trial: TrialId, body: FailBody, web: Shown, user: Worker) -> ToldWorker:
    """Say that a trial has failed; it is handed out again if the study's failures allow that."""
    told = {"trial": trial, "error": body.error, "cause": body.cause}
    return ToldWorker(**await web.workers.tell(study, user, body.worker, "fail", **told))
