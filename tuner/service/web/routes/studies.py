"""Studies: submitted, looked at, changed, ended."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

from tuner.service.access import Caller
from tuner.service.bundles import of_json
from tuner.service.database.audit import AuditEntry
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Progress, Role, State, Submission, SubmittedStudy, place_of
from tuner.service.resubmitting import StudyFile, again, study_file
from tuner.service.rights import require
from tuner.service.web.context import Asking, Shown, Submitter, Viewer, Web
from tuner.service.web.overview import StudyRow, rows
from tuner.service.web.routes.bodies import (
    AgainBody,
    Answered,
    ChangeBody,
    Cursor,
    ExternalBody,
    FoundFacts,
    Id,
    Listed,
    Name,
    NoteBody,
    Size,
    StudyBody,
    SubmissionBody,
    Submitted,
    Words,
    page_of,
)

router = APIRouter(tags=["studies"])


def _schema(body: type[BaseModel]) -> dict[str, Any]:
    """Of a body, in one piece."""
    found = body.model_json_schema(ref_template="{model}")
    parts = found.pop("$defs", {})

    def whole(value: Any) -> Any:
        if isinstance(value, dict) and "$ref" in value:
            return whole(parts[value["$ref"]])
        if isinstance(value, dict):
            return {name: whole(each) for name, each in value.items()}
        return [whole(each) for each in value] if isinstance(value, list) else value

    return dict(whole(found))


_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"oneOf": [_schema(SubmissionBody), _schema(ExternalBody)]}}},
    }
}
Key = Annotated[
    str | None, Header(alias="Idempotency-Key", max_length=200, description="the same submission is taken once")
]


async def submission_of(request: Request, caller: Caller, web: Web) -> Submission:
    """The submission that a body holds, which is read only once its sender is known to be somebody who may send it."""
    require(caller.user, Role.SUBMITTER, "submitting a study")
    async with web.uploads:
        try:
            body = Submitted.validate_json(await request.body())
        except ValidationError as error:
            found = [{**one, "loc": ("body", *one["loc"][1:])} for one in error.errors(include_url=False)]
            raise RequestValidationError(found) from error
    if isinstance(body, ExternalBody):
        return _of_json(body)
    fields = {**body.__dict__, "files": dict(body.files), "after": tuple(body.after)}
    return Submission(**fields)


def _of_json(body: ExternalBody) -> Submission:
    fields = {name: value for name, value in body.__dict__.items() if name != "study"}
    return of_json(_written(body.study), **{**fields, "after": tuple(body.after)})


def _written(study: StudyBody) -> bytes:
    try:
        return json.dumps(study.model_dump(exclude_unset=True), indent=2, allow_nan=False).encode()
    except ValueError as error:
        raise ServiceError(
            Code.REFUSED, "a study has numbers that JSON has", str(error), "leave out NaN and infinities", field="study"
        ) from error


@router.post("/studies", status_code=201, openapi_extra=_BODY)
async def submit(request: Request, response: Response, caller: Asking, web: Shown, key: Key = None) -> SubmittedStudy:
    """Submit a study; it is checked next, and then waits for devices."""
    submission = await submission_of(request, caller, web)
    study: SubmittedStudy = await run_in_threadpool(partial(web.service.submit, submission, caller.user, key))
    response.headers["location"] = f"/api/v1/studies/{study.id}"
    return study


@router.post("/studies:check", openapi_extra=_BODY)
async def check(request: Request, caller: Asking, web: Shown) -> FoundFacts:
    """What the check finds of a study, which isn't submitted; takes up to a minute."""
    submission = await submission_of(request, caller, web)
    facts = await web.checking(partial(web.service.check, submission, caller.user))
    return FoundFacts(facts=dict(facts))


@router.get("/studies")
def list_studies(
    web: Shown,
    user: Viewer,
    limit: Size,
    state: Annotated[list[State] | None, Query(max_length=20, description="only these")] = None,
    owner: Annotated[Name | None, Query(description="only this user's")] = None,
    text: Words = "",
    cursor: Cursor = None,
) -> Listed[SubmittedStudy]:
    """Studies, the newest first."""
    before = place_of(cursor) or None
    found = web.service.studies(state=state, user=owner, before=before, limit=limit + 1, text=text)
    return page_of(found, limit)


@router.get("/studies/{study}")
def show(study: Id, web: Shown, user: Viewer) -> SubmittedStudy:
    """One study."""
    return web.service.study(study)


@router.patch("/studies/{study}")
def change(study: Id, body: ChangeBody, web: Shown, user: Submitter) -> SubmittedStudy:
    """Change its priority, limits of its budget (a finished one goes on with a higher one), or trials at once."""
    return web.service.change(study, user, priority=body.priority, limits=body.limits, concurrency=body.concurrency)


@router.delete("/studies/{study}", status_code=204)
def delete(study: Id, web: Shown, user: Submitter) -> None:
    """Forget a study that is over; its run folder stays."""
    web.service.delete(study, user)


@router.post("/studies/{study}:pause")
def pause(study: Id, web: Shown, user: Submitter) -> SubmittedStudy:
    """Free its devices; it goes on after `resume`."""
    return web.service.pause(study, user)


@router.post("/studies/{study}:resume")
def resume(study: Id, web: Shown, user: Submitter) -> SubmittedStudy:
    """Let a paused or failed study wait for devices again."""
    return web.service.resume(study, user)


@router.post("/studies/{study}:finish")
def finish(study: Id, web: Shown, user: Submitter) -> SubmittedStudy:
    """End its search now, with a winner and a report."""
    return web.service.finish(study, user)


@router.post("/studies/{study}:cancel")
def cancel(study: Id, web: Shown, user: Submitter) -> SubmittedStudy:
    """End it at once without a winner; its files stay."""
    return web.service.cancel(study, user)


@router.get("/studies/{study}/progress")
def progress(study: Id, web: Shown, user: Viewer) -> Progress | None:
    """How far its search has come; null while it doesn't run."""
    return web.service.progress(study)


@router.get("/studies/{study}/row")
def show_row(study: Id, web: Shown, user: Viewer) -> StudyRow:
    """One study as a line of the overview: with its progress, and whether who asks may steer it."""
    places = {place.study: place for place in web.service.queue()}
    return rows(web.service, [web.service.study(study)], user, places)[0]


@router.get("/studies/{study}/history")
def history(study: Id, web: Shown, user: Viewer, limit: Size, cursor: Cursor = None) -> Listed[AuditEntry]:
    """Who changed what of it, the newest first."""
    web.service.study(study)
    return page_of(web.service.history(study, before=place_of(cursor) or None, limit=limit + 1), limit)


@router.get("/studies/{study}/file")
def show_file(study: Id, web: Shown, user: Viewer) -> StudyFile:
    """Its study file, as it was submitted."""
    return study_file(web.service, study)


@router.post("/studies/{study}:again", status_code=201)
def submit_again(
    study: Id, body: AgainBody, response: Response, web: Shown, user: Submitter, key: Key = None
) -> SubmittedStudy:
    """Submit it again with this text as its study file; a priority above 0 becomes 0, all else is as it is now."""
    content = body.text.encode()
    if web.service.study(study).external:
        try:
            content = _written(StudyBody.model_validate_json(body.text))
        except ValidationError as error:
            found = [{**one, "loc": ("body", "text", *one["loc"])} for one in error.errors(include_url=False)]
            raise RequestValidationError(found) from error
    made = web.service.submit(again(web.service, study, content), user, key)
    response.headers["location"] = f"/api/v1/studies/{made.id}"
    return made


@router.post("/studies/{study}/notes", status_code=202)
def note(study: Id, body: NoteBody, web: Shown, user: Submitter) -> Answered:
    """Write something down about its run, or about one of its trials."""
    answer = web.service.note(study, user, body.text, body.trial)
    return Answered(id=answer.order, outcome=answer.outcome, message=answer.message)
