"""Requests of workers to external studies: passed on to a search's process, or answered from the study's state."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool

from tuner.history.event_lines import DEEPEST, nested_deeper
from tuner.service.database import audit
from tuner.service.errors import Code, ServiceError
from tuner.service.model import OVER, State, SubmittedStudy, User
from tuner.service.service import Service
from tuner.service.web.lines import Lines

LARGEST_METRICS = 100_000  # characters of one epoch's metrics, as JSON
AGAIN_SECONDS = {State.STARTING: 2.0, State.CHECKING: 2.0}
LATER_SECONDS = 10.0  # until a worker should ask again if a study waits or is paused
MOST_KNOWN = 10_000  # workers that are remembered as recorded
_Noted = tuple[int, int, str]  # a study, a user, and the user's worker


class Workers:
    """Answers workers of one server, in its event loop."""

    def __init__(self, service: Service, lines: Lines) -> None:
        self._service, self.lines = service, lines
        self._noted: dict[_Noted, None] = {}
        self._writing: set[asyncio.Task[None]] = set()

    async def tell(self, study: int, by: User, worker: str, verb: str, **fields: Any) -> dict[str, Any]:
        """The answer of the study's search. Raises ServiceError."""
        found = await run_in_threadpool(self._service.study, study)
        _check(found)
        if found.state in (State.ENDING, *OVER):
            return {"outcome": "over", "trial": None} if verb == "ask" else {"answer": "stop"}
        if found.state is not State.RUNNING:
            raise _not_now(found)
        if verb == "ask":
            self._note(found, by, worker)
        reply = await self.lines.ask(found, {"do": verb, "worker": f"{by.name}/{worker}", **fields})
        return _answer(reply)

    async def close(self) -> None:
        """Record what isn't recorded yet, then close the lines."""
        await asyncio.gather(*self._writing, return_exceptions=True)
        await self.lines.close()

    def _note(self, study: SubmittedStudy, by: User, worker: str) -> None:
        """Record, once, who works on a study; the run's events say who had which trial.

        No request waits for it: dozens of workers that begin at once would wait for each other's writes.
        """
        key = (study.id, by.id, worker)
        if key in self._noted:
            return
        self._noted[key] = None
        while len(self._noted) > MOST_KNOWN:
            self._noted.pop(next(iter(self._noted)))
        task = asyncio.get_running_loop().create_task(self._write_down(key, by))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write_down(self, key: _Noted, by: User) -> None:
        try:
            await run_in_threadpool(self._write, key[0], by, key[2])
        except (OSError, sqlite3.Error):
            self._noted.pop(key, None)  # the worker's next request tries again

    def _write(self, study: int, by: User, worker: str) -> None:
        with self._service.database.changing() as connection:
            audit.write(connection, time.time(), by, "work", study, worker=worker)


def check_metrics(metrics: object) -> None:
    """Raise ServiceError for metrics that a run can't store."""
    if nested_deeper(metrics, DEEPEST - 2):
        raise ServiceError(
            Code.REFUSED, "metrics are numbers by name", "values nested too deeply", "flatten them", field="metrics"
        )
    size = len(json.dumps(metrics))
    if size > LARGEST_METRICS:
        rule = f"the metrics of an epoch take at most {LARGEST_METRICS:,} characters"
        raise ServiceError(Code.TOO_LARGE, rule, f"{size:,}", "leave some out", field="metrics")


def _check(study: SubmittedStudy) -> None:
    if not study.external:
        raise ServiceError(
            Code.CONFLICT,
            "workers ask a study that was submitted as JSON",
            f"study {study.id}, whose trials the service runs",
            "ask another one",
        )


def _not_now(study: SubmittedStudy) -> ServiceError:
    return ServiceError(
        Code.CONFLICT,
        "trials are asked for and reported while a study runs",
        f"study {study.id}, which is {study.state}",
        "send the request again later: trials stay with their workers",
        retry_after=AGAIN_SECONDS.get(study.state, LATER_SECONDS),
    )


def _answer(reply: Mapping[str, Any]) -> dict[str, Any]:
    refused = reply.get("refused")
    if refused is None:
        answer: dict[str, Any] = reply["answer"]
        return answer
    raise ServiceError(
        Code(refused["code"]), refused["message"], field=refused["field"], retry_after=refused["retry_after"]
    )
