"""What a page shows of one search: its head and its curves, cheap enough to be asked each second."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from tuner.errors import did_you_mean
from tuner.results.findings import Advice, findings_of
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Role
from tuner.service.refining import NextStudy, next_study
from tuner.service.rights import require
from tuner.service.web import summary
from tuner.service.web.comparing import Compared, compared
from tuner.service.web.context import Asking, Shown, Viewer
from tuner.service.web.routes.bodies import Advised, Id, Listed, RefineBody, RefinedView
from tuner.space.values import LARGEST_EXACT
from tuner.text import in_utf8, printable

router = APIRouter(tags=["studies"])
_COMMAND = "python -m tuner "
OF_STUDIES = ("resume", "refine", "show", "report", "export", "compare", "set", "pause", "stop", "try", "note")
Metric = Annotated[str | None, Query(max_length=200, description="of those that trials report; by default the study's")]
Most = Annotated[int, Query(ge=1, le=200, description="curves at most")]

Several = Annotated[
    list[Annotated[int, Field(ge=1, le=LARGEST_EXACT)]],
    Query(min_length=2, max_length=8, description="two studies or more"),
]


@router.get("/studies/{study}/summary")
def show_summary(study: Id, web: Shown, user: Viewer) -> summary.Summary:
    """Its best trial, failures by cause, device-hours by outcome, and what the next device-hour should bring."""
    with web.runs.looking(study) as run:
        return summary.summary(run)


@router.get("/studies/{study}/curves")
def show_curves(
    study: Id, web: Shown, user: Viewer, metric: Metric = None, most: Most = summary.MOST_CURVES
) -> summary.Curves:
    """Learning curves of the best trials and those that run; where there are more, the quantiles of all."""
    with web.runs.looking(study) as run:
        names = [run.metric, *run.record.metric_names()]
        if metric is not None and metric not in names:
            raise ServiceError(
                Code.NOT_FOUND,
                "a metric is one that a trial reported",
                repr(in_utf8(metric)),
                did_you_mean(metric, names),
            )
        return summary.curves(run, metric or run.metric, most)


@router.get("/studies/{study}/advice")
async def show_advice(study: Id, web: Shown, user: Viewer) -> Listed[Advised]:
    """What to try next, the most promising first, with the command that does it where there is one."""
    found: list[Advice] = await web.heavily(
        lambda: web.runs.computed(study, "advice", lambda run: findings_of(run).advice)
    )
    name = None if web.guests else f"@{study}"  # where the run has no number, its folder is its name
    items = [
        Advised(
            text=printable(one.text),
            command=one.command and printable(one.command if name is None else _at_service(one, name)),
            verb=one.verb,
            limits=one.limits,
        )
        for one in found
    ]
    return Listed(items=items)


def _at_service(advised: Advice, study: str) -> str:
    """The command for a study of the service: what goes on there is set.

    A call in Python, and a verb that takes no studies, name the run's folder: for the server's own machine.
    """
    told = advised.command or ""
    if not told.startswith(_COMMAND):
        return told
    verb, _, *options = shlex.split(told.removeprefix(_COMMAND))
    if advised.verb is None and verb not in OF_STUDIES:
        return told
    return _COMMAND + shlex.join(["set" if advised.verb == "extend" else verb, study, *options])


@router.post("/studies/{study}:refine")
async def refine(study: Id, body: RefineBody, caller: Asking, web: Shown) -> RefinedView:
    """The study for the good region of this one's run, shown or submitted; takes up to a minute."""
    require(caller.user, Role.SUBMITTER, "refining a study")
    found: NextStudy = await web.checking(partial(next_study, web.service, study, body.kind))
    submitted = None
    if body.submit:
        submitted = await run_in_threadpool(partial(web.service.submit, found.submission, caller.user))
    return RefinedView(summary=found.summary, diff=found.diff, study=submitted)


@router.get("/comparison")
async def show_comparison(web: Shown, user: Viewer, study: Several) -> Compared:
    """Studies of one metric side by side, at equal cost."""
    found: Compared = await web.heavily(lambda: compared([(one, web.runs.get(one)) for one in dict.fromkeys(study)]))
    return found
