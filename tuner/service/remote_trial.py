"""A trial of a service's study, run by this program: `tuner.connect(url).study(17).ask(worker="w1")`."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from typing import Any, Literal

from tuner.errors import StudyError
from tuner.service.http_client import RequestError
from tuner.space.values import value_of

Answer = Literal["continue", "stop", "pause"]
Value = float | Mapping[str, Any]
Send = Callable[[str, str, Any], Any]  # from a method, a path below the study's address, and a body to the answer;
# it waits for a server that is away


class RemoteTrial:
    """A trial to run now. A thread renews its lease until it is over or no longer referenced.

    Attributes:
        id: its name in the run
        number: counted from 0
        config: the hyperparameters
        seed: of its random numbers
        epochs: up to which it is trained, unless an answer says otherwise before
        from_epoch: the last epoch that is done
        checkpoint: the reported place of the state after that epoch; None if none was reported
        rungs: epochs after which early stopping compares it
        attempt: how often it was handed out
    """

    def __init__(self, send: Send, worker: str, found: Mapping[str, Any], lease_seconds: float) -> None:
        self.id, self.number, self.config = str(found["id"]), int(found["number"]), value_of(dict(found["config"]))
        self.seed, self.epochs, self.from_epoch = found["seed"], int(found["epochs"]), int(found["from_epoch"])
        self.checkpoint: str | None = found.get("checkpoint")
        self.rungs, self.attempt = tuple(found["rungs"]), int(found["attempt"])
        self._send, self._worker = send, worker
        self._over = threading.Event()
        me = weakref.ref(self)
        told = (me, self._over, lease_seconds / 3)
        threading.Thread(target=_keep, args=told, name=f"tuner-trial-{self.id}", daemon=True).start()

    def __repr__(self) -> str:
        return f"<trial {self.id} of worker {self._worker}>"

    @property
    def epochs_left(self) -> range:
        """The epochs to train and report, in order."""
        return range(self.from_epoch + 1, self.epochs + 1)

    def report(self, epoch: int, value: Value, *, checkpoint: str | PathLike[str] | None = None) -> Answer:
        """Record an epoch; returns "continue", or to leave the trial "stop" or "pause". Raises RequestError.

        `value` is that of the study's metric, or several metrics by name. It is sent again if the answer is lost.
        `checkpoint` says where the state after this epoch is, for the worker that goes on with the trial: its files are
        not sent. Trials that never report one are not paused.
        """
        metrics = value if isinstance(value, Mapping) else float(value)
        place = {} if checkpoint is None else {"checkpoint": fspath(checkpoint)}
        return self._tell("report", epoch=epoch, metrics=metrics, **place)

    def heartbeat(self) -> Answer:
        """Keep the trial; the thread does so by itself. Raises RequestError."""
        return self._tell("heartbeat")

    def complete(self, value: Value | None = None) -> None:
        """Say that it is complete, with the `value` of a last epoch if that wasn't reported. Raises RequestError."""
        self._tell("complete", **({} if value is None else {"metrics": value}))

    def fail(self, error: str | BaseException, cause: str = "error") -> None:
        """Say what it failed with: cause "error", "out_of_memory", "diverged" or "lost". Raises RequestError."""
        told = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self._tell("fail", error=told or "unknown", cause=cause)
        self._over.set()

    def _tell(self, verb: str, **told: Any) -> Answer:
        body = {"worker": self._worker, **told}
        found = _once_taken(lambda: self._send("POST", f"/trials/{self.number}:{verb}", body))
        answer: Answer = found["answer"]
        if answer != "continue":
            self._over.set()
        return answer


def ask(send: Send, worker: str) -> RemoteTrial | None:
    """The next trial for a worker; waits for one, and is None once the search is over. Raises RequestError."""
    while True:
        found = _once_taken(lambda: send("POST", ":ask", {"worker": worker}))
        if found["outcome"] == "trial":
            return RemoteTrial(send, worker, found["trial"], found["lease_seconds"])
        if found["outcome"] == "over":
            return None
        time.sleep(found["retry_after"])


def _once_taken(send: Callable[[], Any]) -> Any:
    """The answer; the request is repeated as long as the server says when: it is busy, or the study is paused."""
    while True:
        try:
            return send()
        except RequestError as error:
            if error.away or error.retry_after is None:
                raise
            time.sleep(error.retry_after)


def _keep(trial: weakref.ref[RemoteTrial], over: threading.Event, seconds: float) -> None:
    """Renew a trial's lease while its program has it."""
    while not over.wait(seconds):
        kept = trial()
        if kept is None:
            return
        try:
            kept.heartbeat()
        except StudyError:  # the program's own next request will show why
            return
        del kept
