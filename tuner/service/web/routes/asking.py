"""Trials of external studies: workers ask for them and report them."""

from __future__ import annotations

import math

from fastapi import APIRouter, Response

from tuner.service.web.context import Shown, Worker
from tuner.service.web.routes.bodies import AskBody, Asked, CompleteBody, FailBody, Id, ReportBody, ToldWorker
from tuner.service.web.routes.trials import TrialId
from tuner.service.web.workers import check_metrics

router = APIRouter(tags=["workers"])


@router.post("/studies/{study}:ask")
async def ask(study: Id, body: AskBody, response: Response, web: Shown, user: Worker) -> Asked:
    """A trial to run now; a worker that asks again gets the same one. If there is none now, Retry-After says when to
    ask again.
    """
    found = Asked(**await web.workers.tell(study, user, body.worker, "ask"))
    if found.retry_after is not None:
        response.headers["retry-after"] = str(math.ceil(found.retry_after))
    return found


@router.post("/studies/{study}/trials/{trial}:report")
async def report_epoch(study: Id, trial: TrialId, body: ReportBody, web: Shown, user: Worker) -> ToldWorker:
    """Record an epoch; the same one again gets the same answer."""
    check_metrics(body.metrics)
    told = {"trial": trial, "epoch": body.epoch, "metrics": body.metrics, "checkpoint": body.checkpoint}
    return ToldWorker(**await web.workers.tell(study, user, body.worker, "report", **told))


@router.post("/studies/{study}/trials/{trial}:heartbeat")
async def heartbeat(study: Id, trial: TrialId, body: AskBody, web: Shown, user: Worker) -> ToldWorker:
    """Keep a trial whose epochs take long."""
    return ToldWorker(**await web.workers.tell(study, user, body.worker, "heartbeat", trial=trial))


@router.post("/studies/{study}/trials/{trial}:complete")
async def complete_trial(study: Id, trial: TrialId, body: CompleteBody, web: Shown, user: Worker) -> ToldWorker:
    """Say that a trial has come to its end by itself; nothing happens where it is over already."""
    check_metrics(body.metrics)
    told = {"trial": trial, "metrics": body.metrics}
    return ToldWorker(**await web.workers.tell(study, user, body.worker, "complete", **told))


@router.post("/studies/{study}/trials/{trial}:fail")
async def fail_trial(study: Id, trial: TrialId, body: FailBody, web: Shown, user: Worker) -> ToldWorker:
    """Say that a trial has failed; it is handed out again if the study's failures allow that."""
    told = {"trial": trial, "error": body.error, "cause": body.cause}
    return ToldWorker(**await web.workers.tell(study, user, body.worker, "fail", **told))
