"""Orders to a search under Ray: a thread reads the inbox, and the driver does its own part."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tuner.errors import StudyError
from tuner.history.events import Event
from tuner.history.steered import Steered
from tuner.lifecycle.interruption import Interruption
from tuner.loop.search_loop import SearchLoop
from tuner.orders.inbox import Inbox, open_inbox
from tuner.orders.order import Malformed, Order
from tuner.storage.folder import Folder, LocalFolder
from tuner.study.budget import NAMES
from tuner.study.declaration import Study

LOOK_SECONDS, REMOTE_LOOK_SECONDS = 0.5, 3.0  # between reads of an inbox on a disk, and on an object store
SECONDS_AT_ONCE = 0.1  # that many orders may delay the search at once, before it goes on for a moment
PAUSE_SECONDS = 12.0  # grace period after `pause`, so that devices are free within 15 s
_log = logging.getLogger(__name__)


class Orders:
    """The orders to one search, read in a thread for the length of a `with` block; `obey` is called by the driver.

    A storage that can't be reached doesn't delay the search: its orders come later.
    """

    def __init__(self, folder: Folder, store_answers: Callable[[], None] | None = None) -> None:
        self._inbox, self._come = Inbox(folder, store_answers=store_answers), deque[Order | Malformed]()
        self._seconds = LOOK_SECONDS if isinstance(folder, LocalFolder) else REMOTE_LOOK_SECONDS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="tuner-inbox", daemon=True)
        open_inbox(folder)

    def __enter__(self) -> Orders:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(self._seconds + 1)

    def obey_what_waits(self, loop: SearchLoop, given: Collection[str] = (), *, ended: bool) -> None:
        """Obey, before the thread runs, the orders left for this driver; `ended` if the search had ended.

        What they would set counts no more if it is one of the options that this driver was `given` after them.
        """
        self._read()
        while self._come:
            order = self._come.popleft()
            order = given_later(order, given) if isinstance(order, Order) else order
            self._answer(loop, order, late=ended or order_verb(order) == "pause")
        self._read()  # deletes the files, and may find more

    def obey(self, loop: SearchLoop) -> None:
        """Answer and carry out the orders that have arrived, for a short time at most."""
        until = time.monotonic() + SECONDS_AT_ONCE
        while self._come and time.monotonic() < until:
            self._answer(loop, self._come.popleft(), late=False)

    def obey_the_last(self, loop: SearchLoop, *, interrupted: bool) -> None:
        """After the search, before its last events: answer orders that came too late; the rest waits for `resume`.

        If it was `interrupted`, the rest is everything that `resume` can still obey.
        """
        self._ended.set()
        self._thread.join(self._seconds + 1)
        if self._thread.is_alive():  # its storage doesn't answer
            return
        self._read()
        waits = ("set", "try", "stop", "retry", "confirm") if interrupted else ("set", "try")
        late = [order for order in self._come if order_verb(order) not in waits]
        self._come.clear()
        with suppress(OSError):  # a full disk: the conclusion is done as far as possible
            for order in late:
                self._answer(loop, order, late=True)
        self._look()

    def _answer(self, loop: SearchLoop, order: Order | Malformed, *, late: bool) -> None:
        loop.obey(order, late=late)
        self._inbox.done(order)

    def _read_on(self) -> None:
        while not self._ended.wait(self._seconds):
            self._read()

    def _read(self) -> None:
        self._come.extend(self._look())

    def _look(self) -> list[Order | Malformed]:
        try:
            return self._inbox.look()
        except Exception:  # the folder is gone or can't be reached; others notice that if it matters
            _log.debug("the inbox was not read", exc_info=True)
            return []


def order_verb(order: Order | Malformed) -> str:
    """An order's verb, empty for a file that isn't an order."""
    return order.verb if isinstance(order, Order) else ""


class Obedience:
    """Listens to a search, and does what an order changes in the driver itself. `write` replaces run.json."""

    def __init__(self, info: dict[str, Any], interrupted: Interruption, write: Callable[[], None]) -> None:
        self._info, self._interrupted, self._write = info, interrupted, write

    def on_event(self, event: Event) -> None:
        """Pause the search, or record what was set."""
        if event["event"] != "order_obeyed" or event.get("late"):
            return
        if event["verb"] == "pause":
            self._interrupted.grace_seconds = min(self._interrupted.grace_seconds, PAUSE_SECONDS)
            self._interrupted.ask(f"paused by {event['by']}")
        elif event["verb"] == "set":
            limits = {name: event["arguments"][name] for name in NAMES if name in event["arguments"]}
            self._info["options"] = {**self._info["options"], **limits}
            self._info["budget"] = {**self._info["budget"], **limits}
            with suppress(OSError):  # the events have it, too
                self._write()


def with_orders(options: Mapping[str, Any], steered: Steered) -> dict[str, Any]:
    """A run's options, with the limits that its newest driver got, and those that orders set since then."""
    if steered.given is None:
        return {**options, **steered.limits}
    rest = {name: value for name, value in options.items() if name not in NAMES}
    return {**rest, **steered.given, **steered.limits}


def opening(options: Mapping[str, Any], concurrency: int | None) -> dict[str, Any]:
    """Fields of a driver's first event: which limits it got instead of those that orders had set before."""
    limits = {name: options[name] for name in NAMES if options.get(name) is not None}
    return {"limits": limits, **({"concurrency": concurrency} if concurrency else {})}


def given_later(order: Order, given: Collection[str]) -> Order:
    """The order without what options that were given after it set."""
    if order.verb != "set":
        return order
    return replace(order, arguments={name: value for name, value in order.arguments.items() if name not in given})


def extending(folder: Folder) -> list[Order]:
    """Orders in the inbox that give a run more work, even if nothing was left; none if the inbox can't be read."""
    try:
        found = Inbox(folder).look()
    except OSError:
        return []
    return [order for order in found if isinstance(order, Order) and order.verb in ("set", "try", "note")]


def foreseen_study(study: Study, waiting: list[Order]) -> Study:
    """The study with limits that orders in the inbox will set, if possible: they decide whether the search goes on."""
    for order in waiting:
        if order.verb == "set":
            try:
                study = study.with_options(**{name: order.arguments.get(name) for name in NAMES})
            except StudyError:
                continue
    return study
