"""Answers the requests of workers, which are plain data and come through a search service.

A request has `do` and `worker`, USER/NAME; all except `ask` have `trial`. The reply is `answer`, or `refused` with
`code`, `message`, and if known `field` and `retry_after` (seconds).
"""

from __future__ import annotations

import json
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.ask_tell.leases import Lease, Leases
from tuner.ask_tell.report_checks import CAUSES, checked_cause, checked_epoch, checked_metrics
from tuner.ask_tell.search import Search
from tuner.ask_tell.trial import Answer, AskedTrial
from tuner.errors import ReportError, describe_error, shown
from tuner.machine.temporary import OwnedFolder
from tuner.space.values import recorded

Request = Mapping[str, Any]
Reply = dict[str, Any]
LOST = "lost"  # a cause that a worker may name in addition to those of failures
LOOK_SECONDS = 0.05  # between checks whether the search has ended, while a request is handled
WAIT_SECONDS = 2.0  # until a worker should ask again if there is nothing for it now
PAUSED_SECONDS = 10.0  # until it should ask again if the search is interrupted
CHECKPOINT_FILE = "elsewhere.json"
LONGEST_PLACE = 1_000  # characters


class Desk:
    """Answers requests one after the other; may be called from several threads. Once a search has ended, the answer
    comes at once, even while its report is being written.
    """

    def __init__(self, search: Search, leases: Leases | None = None) -> None:
        self._search, self._leases = search, leases or Leases()
        self._ready: deque[AskedTrial] = deque()  # handed out again, but no worker has it yet
        self._order = ThreadPoolExecutor(1, "tuner-desk")
        self._verbs: Mapping[str, Callable[[Request], Reply]] = {
            "ask": self._ask,
            "report": self._report,
            "heartbeat": self._heartbeat,
            "complete": self._complete,
            "fail": self._fail,
        }

    def take_back(self, holders: Mapping[str, str], most: int) -> None:
        """After a resume, return trials to the workers that still have them; at most `most` trials."""
        left = {trial: worker for trial, worker in holders.items() if self._waits(trial)}
        for _ in range(most):
            trial = self._search.poll() if left else None
            if trial is None:
                return
            worker = left.pop(trial.id, None)
            if worker is None:
                self._ready.append(trial)
            else:
                self._search.hand(trial, worker, keeps=True)
                self._leases.give(worker, trial, reported=bool(trial.metrics))

    def answer(self, request: Request) -> Reply:
        """The answer to one request."""
        done = self._do(lambda: self._answered(request))
        while not self._search.over:
            if wait([done], LOOK_SECONDS).done:
                break
        return done.result() if done.done() else self._after_the_end(request)

    def watch(self, watched: bool) -> None:
        """Whether workers can reach this desk; see `Leases.watch`."""
        self._do(lambda: self._leases.watch(watched))

    def look(self) -> None:
        """Do what is due: handle expired leases and an order to pause; to be called a few times a second."""
        self._do(self._lose_expired)
        if self._search.interrupted_by is not None and not self._search.over:
            self._search.close()  # doesn't wait for reports: workers keep their trials until the search goes on

    def close(self) -> None:
        """Answer nothing more."""
        self._order.shutdown(wait=False, cancel_futures=True)

    # Inside

    def _do(self, work: Callable[[], Any]) -> Future[Any]:
        return self._order.submit(work)

    def _answered(self, request: Request) -> Reply:
        try:
            if self._search.over or self._search.interrupted_by is not None:
                return self._after_the_end(request)
            return self._verbs[request["do"]](request)
        except _RefusedError as refused:
            return _refusal(refused.code, str(refused), field=refused.field)
        except ReportError as error:
            return _refusal("conflict", str(error))
        except Exception as error:
            traceback.print_exc()
            return _refusal("unavailable", f"the search has failed at this: {describe_error(error)}", retry_after=5.0)

    def _after_the_end(self, request: Request) -> Reply:
        """The answer when the search accepts nothing more."""
        interrupted = self._search.interrupted_by
        if interrupted is not None:
            message = f"the search was interrupted ({interrupted}); trials stay with their workers until it goes on"
            return _refusal("conflict", message, retry_after=PAUSED_SECONDS)
        return {"answer": {"outcome": "over", "trial": None} if request["do"] == "ask" else {"answer": "stop"}}

    def _ask(self, request: Request) -> Reply:
        worker = request["worker"]
        trial = self._pending(worker)
        if trial is None:
            trial = self._next()
            if trial is not None:
                self._search.hand(trial, worker)
                self._leases.give(worker, trial)
        if trial is not None:
            return {"answer": {"outcome": "trial", "trial": _view(trial), "lease_seconds": self._leases.seconds}}
        if self._search.over:
            return self._after_the_end(request)
        return {"answer": {"outcome": "wait", "trial": None, "retry_after": WAIT_SECONDS}}

    def _pending(self, worker: str) -> AskedTrial | None:
        """The trial that the worker already has; if epochs were reported, the trial begins again, like the worker."""
        lease = self._leases.of(worker)
        if lease is None:
            return None
        if self._search.standing(lease.trial) == "continue" and not lease.reported:
            self._leases.renew(lease)
            return lease.trial
        self._lose(lease, f"its worker {worker} has asked for a trial though it had this one: it was started again")
        return None

    def _next(self) -> AskedTrial | None:
        while self._ready:
            trial = self._ready.popleft()
            if self._search.standing(trial) == "continue":  # no order has ended it since
                return trial
        return self._search.poll()

    def _report(self, request: Request) -> Reply:
        lease, trial = self._told_of(request)
        epoch = _checked("epoch", lambda: checked_epoch(request.get("epoch")))
        metrics = self._metrics(request)
        answer = self._recorded(trial, epoch, metrics, request.get("checkpoint"))
        if lease is not None:
            lease.reported = True
            if answer != "continue":
                self._leases.end(lease)
        return {"answer": {"answer": answer}}

    def _recorded(self, trial: AskedTrial, epoch: int, metrics: dict[str, Any], place: object) -> Answer:
        """The answer to a report; records where the worker has kept the trial's state, if it has."""
        if place is None:
            return self._search.report(trial, epoch, metrics)
        with as_folder(_checked("checkpoint", lambda: checked_place(place))) as folder:
            return self._search.report(trial, epoch, metrics, checkpoint=folder)

    def _heartbeat(self, request: Request) -> Reply:
        lease, trial = self._told_of(request)
        answer = self._search.standing(trial)
        if lease is not None and answer != "continue":
            self._leases.end(lease)
        return {"answer": {"answer": answer}}

    def _complete(self, request: Request) -> Reply:
        lease, trial = self._told_of(request)
        value = None if request.get("metrics") is None else self._metrics(request)
        if lease is not None:
            self._search.tell(trial, value)
            self._leases.end(lease)
        return {"answer": {"answer": "stop"}}

    def _fail(self, request: Request) -> Reply:
        lease, trial = self._told_of(request)
        cause, error = request.get("cause", CAUSES[0]), str(request.get("error"))
        if cause != LOST:
            _checked("cause", lambda: checked_cause(cause))
        if lease is not None and cause == LOST:
            self._lose(lease, error)
        elif lease is not None:
            self._search.tell(trial, error=error, cause=cause)
            self._leases.end(lease)
        return {"answer": {"answer": self._search.standing(_stranger(trial.id))}}

    def _told_of(self, request: Request) -> tuple[Lease | None, AskedTrial]:
        """The worker's lease of the trial, after renewal, and the trial as it was given to the worker."""
        name = str(request["trial"]).zfill(5)
        _checked("trial", lambda: self._search.standing(_stranger(name)), code="not_found")
        lease = self._leases.held(request["worker"], name)
        if lease is None:
            return None, _stranger(name)
        self._leases.renew(lease)
        return lease, lease.trial

    def _metrics(self, request: Request) -> dict[str, Any]:
        metrics: dict[str, Any]
        metrics = _checked("metrics", lambda: checked_metrics(request.get("metrics"), self._search.metrics))
        return metrics

    def _waits(self, trial: str) -> bool:
        return self._search.standing(_stranger(trial)) == "pause"

    def _lose_expired(self) -> None:
        if not self._search.over:
            for lease in self._leases.expired():
                self._lose(lease, f"its worker {lease.worker} sent nothing for {self._leases.seconds:g} s")

    def _lose(self, lease: Lease, why: str) -> None:
        self._leases.end(lease)
        self._search.lost(lease.trial, why)


class _RefusedError(Exception):
    """An impossible request, with the field that is wrong."""

    def __init__(self, message: str, code: str, field: str) -> None:
        super().__init__(message)
        self.code, self.field = code, field


def _checked(field: str, check: Callable[[], Any], code: str = "refused") -> Any:
    try:
        return check()
    except ReportError as error:
        raise _RefusedError(str(error), code, field) from error


def _stranger(trial: str) -> AskedTrial:
    """The trial as seen by a worker that no longer has it, or never had it."""
    return AskedTrial(trial, 0, {}, 0, 0, attempt=0)


def _view(trial: AskedTrial) -> dict[str, Any]:
    shown: Iterable[str] = ("id", "number", "config", "seed", "epochs", "from_epoch", "rungs", "attempt")
    told = {name: getattr(trial, name) for name in shown}
    return told | {"config": recorded(trial.config), "checkpoint": place_of(trial.checkpoint)}


def _refusal(code: str, message: str, *, field: str | None = None, retry_after: float | None = None) -> Reply:
    return {"refused": {"code": code, "message": message, "field": field, "retry_after": retry_after}}


def checked_place(place: object) -> str:
    """The place of a checkpoint in the worker's words: a path, an address, a key. Raises ReportError."""
    if not isinstance(place, str) or not place.isprintable() or not 0 < len(place) <= LONGEST_PLACE:
        raise ReportError(
            f"a checkpoint elsewhere is named by its path or address, a text of 1 to {LONGEST_PLACE:,} "
            f"printable characters, got {shown(place)}; name its path or address"
        )
    return place


@contextmanager
def as_folder(place: str) -> Iterator[Path]:
    """For the length of the block, a checkpoint's folder that only says where its files are: they stay there.

    So pausing, going on after a loss, and deleting work in the same way as for checkpoints in the run folder.
    """
    with OwnedFolder("elsewhere") as temporary:
        folder = temporary / "checkpoint"
        folder.mkdir()
        (folder / CHECKPOINT_FILE).write_text(json.dumps({"checkpoint": place}), encoding="utf-8")
        yield folder


def place_of(checkpoint: Path | None) -> str | None:
    """The place of a checkpoint's files; None if there is no checkpoint, or its own folder has the files."""
    if checkpoint is None:
        return None
    try:
        place = json.loads((checkpoint / CHECKPOINT_FILE).read_text(encoding="utf-8"))["checkpoint"]
        return checked_place(place)
    except (OSError, ValueError, KeyError, TypeError, ReportError):
        return None
