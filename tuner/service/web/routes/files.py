"""What a study's run has written: files, logs, report, figures."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from tuner.errors import did_you_mean
from tuner.history.logs import decoded, log_name
from tuner.plots import Numbers, Plots
from tuner.results.run import RecordedRun
from tuner.service.errors import Code, ServiceError
from tuner.service.service import LOG_BYTES
from tuner.service.web import files
from tuner.service.web.context import Shown, Viewer, Web
from tuner.service.web.routes.bodies import Id, TableView
from tuner.service.web.viewed_runs import trial_of
from tuner.text import in_utf8

router = APIRouter(tags=["files"])
REPORT = "report.html"
_REPORT_BYTES = 100_000_000
TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
BINARY: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}
TAR: dict[int | str, dict[str, Any]] = {200: {"content": {"application/x-tar": {"schema": {"type": "string"}}}}}
HTML: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {"schema": {"type": "string"}}}}}
JSON: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}}}}
Trial = Annotated[str | None, Query(max_length=64, pattern="^[A-Za-z0-9_.-]+$", description="of this trial")]
Kind = Annotated[str, Path(max_length=64, description="a figure's name, such as history")]
Start = Annotated[int, Query(ge=0, le=2**40, description="bytes to pass over")]


@router.get("/studies/{study}/logs", response_class=Response, responses=TEXT)
def logs(study: Id, web: Shown, user: Viewer, trial: Trial = None, start: Start = 0) -> Response:
    """What its driver printed, or one of its trials; the header Log-End is where to go on."""
    if trial is None:
        content = web.service.driver_log(study, start, LOG_BYTES)
    else:
        with web.runs.looking(study) as run:
            name, folder = log_name(trial_of(run, trial).trial), run.folder
        content = files.part_of(folder, name, start, LOG_BYTES)
    headers = {"log-end": str(start + len(content)), "content-security-policy": files.SANDBOX}
    return Response(decoded(content).encode(), headers=headers, media_type="text/plain; charset=utf-8")


@router.get("/studies/{study}/files/{path:path}", response_class=Response, responses=BINARY)
def file(study: Id, path: Annotated[str, Path(max_length=4096)], web: Shown, user: Viewer) -> Response:
    """A file of its run, as an attachment."""
    return files.file_response(web.runs.get(study).folder, path)


@router.get("/studies/{study}/archive", response_class=Response, responses=TAR)
def archive(study: Id, web: Shown, user: Viewer) -> Response:
    """All files of its run as a tar archive, without links."""
    run = web.runs.get(study)
    return files.archive(run.folder, f"study-{study}")


@router.get("/studies/{study}/report", response_class=Response, responses=HTML)
async def report(study: Id, web: Shown, user: Viewer) -> Response:
    """Its report, in its own sandbox; of a search that runs, as it is now."""
    page = await web.heavily(partial(_report, web, study))
    headers = {
        "content-security-policy": files.OF_REPORTS,
        "x-frame-options": "SAMEORIGIN",
        "cross-origin-opener-policy": "unsafe-none",  # an opaque origin has none
    }
    return Response(page, headers=headers, media_type="text/html; charset=utf-8")


@router.get("/studies/{study}/figures/{kind}", response_class=Response, responses=JSON)
async def figure(study: Id, kind: Kind, web: Shown, user: Viewer) -> Response:
    """One figure of its report, as plotly's JSON."""
    _check_kind(kind)
    content = await web.heavily(lambda: web.runs.computed(study, kind, lambda run: _drawn(run, kind)))
    return Response(content, media_type="application/json")


@router.get("/studies/{study}/figures/{kind}/table")
async def figure_table(study: Id, kind: Kind, web: Shown, user: Viewer) -> TableView:
    """The numbers of a figure, for those who prefer to read; of long tables the first rows."""
    _check_kind(kind)
    found: TableView = await web.heavily(
        lambda: web.runs.computed(study, f"{kind} as a table", lambda run: _table(run, kind))
    )
    return found


def _check_kind(kind: str) -> None:
    if kind not in Plots.names():
        raise ServiceError(
            Code.NOT_FOUND, "a figure is one of a run's plots", repr(kind), did_you_mean(kind, Plots.names())
        )


def _table(run: RecordedRun, kind: str) -> TableView:
    from tuner.html_report.elements import table_of

    numbers = getattr(Numbers(run), kind)()
    found = TableView(columns=(), rows=(), left_out=0)
    return found if numbers is None else TableView.model_validate(table_of(numbers), from_attributes=True)


def _drawn(run: RecordedRun, kind: str) -> str:
    found: str = in_utf8(getattr(Plots(run), kind)().to_json())
    return found


def _report(web: Web, study: int) -> bytes:
    from tuner.html_report.page import report_html

    run = web.runs.get(study)
    written = b"" if run.alive else files.part_of(run.folder, REPORT, 0, _REPORT_BYTES)
    return written or in_utf8(report_html(run)).encode()
