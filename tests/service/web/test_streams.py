"""Streams of events over real sockets."""

import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.searches import wait_for
from tests.service.web.serving import Served, a_run, serving
from tuner.history.events import EventLog, read_all
from tuner.service.database import studies
from tuner.service.model import State
from tuner.service.web.event_reader import EventReader, Passage, Position
from tuner.service.web.feeds import Feeds
from tuner.storage.folder import LocalFolder

SECONDS = 60.0  # to wait for what is to come: the pings of a stream end no wait


class Watch:
    """One stream, as a browser reads it."""

    def __init__(self, served: Served, path: str, last: str | None = None, user: str = "guest") -> None:
        self._client = served.client(user, timeout=60)
        headers = {"Last-Event-ID": last} if last else {}
        request = self._client.build_request("GET", f"/api/v1/{path}", headers=headers)
        self.response = self._client.send(request, stream=True)
        self._until = math.inf
        self.events = self._events() if self.response.status_code == 200 else iter(())

    def _events(self) -> Iterator[tuple[str | None, dict[str, Any]]]:
        place, kind = None, None
        for line in self.response.iter_lines():
            assert time.monotonic() < self._until, "only pings have come for a while"
            name, _, value = line.partition(": ")
            if name == "id":
                place = value
            elif name == "event":
                kind = value
            elif name == "data":
                event = json.loads(value)
                assert event["event"] == kind
                if place is not None:
                    yield place, event
                place = None

    def take(self, count: int) -> list[tuple[str | None, dict[str, Any]]]:
        self._until = time.monotonic() + SECONDS
        return [next(self.events) for _ in range(count)]

    def close(self) -> None:
        self.response.close()
        self._client.close()


def test_a_viewer_gets_what_was_and_then_what_happens(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    study = served.study(state=State.RUNNING, run=run)
    watch = Watch(served, f"studies/{study}/events")
    assert watch.response.headers["content-type"].startswith("text/event-stream")
    before = read_all(run.folder).events
    seen = watch.take(len(before))
    log = EventLog(LocalFolder(run.path))  # a further driver begins another segment
    for number in range(3):
        log.append("notice", message=str(number))
    assert [event for _, event in seen + watch.take(3)] == read_all(run.folder).events
    last = seen[-2][0]
    watch.close()
    later = Watch(served, f"studies/{study}/events", last)
    assert [event for _, event in later.take(4)] == read_all(run.folder).events[-4:]
    log.close()
    later.close()


def test_any_cut_is_gone_on_from_without_gap_or_repeat(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path, reports=60)
    study = served.study(state=State.RUNNING, run=run)
    whole = read_all(run.folder).events
    seen: list[dict[str, Any]] = []
    last = None
    while len(seen) < len(whole):
        watch = Watch(served, f"studies/{study}/events", last)
        taken = watch.take(min(17, len(whole) - len(seen)))
        seen += [event for _, event in taken]
        last = taken[-1][0]
        watch.close()
    assert seen == whole


def test_a_study_that_has_not_begun_is_watched_until_it_does(served: Served, tmp_path: Path) -> None:
    study = served.study()
    watch = Watch(served, f"studies/{study}/events")
    run = a_run(tmp_path)
    with served.service.database.changing() as connection:
        studies.update(connection, study, run=run.path)
    assert watch.take(1)[0][1] == read_all(run.folder).events[0]
    watch.close()


def test_many_viewers_share_one_reader(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path, reports=5)
    study = served.study(state=State.RUNNING, run=run)
    count = len(read_all(run.folder).events)
    users = [user for user in ("guest", "anne") for _ in range(20)]
    watches = [Watch(served, f"studies/{study}/events", user=user) for user in users]
    assert {len(watch.take(count)) for watch in watches} == {count}
    refused = Watch(served, f"studies/{study}/events")
    assert refused.response.status_code == 429
    assert refused.response.headers["retry-after"] == "10"
    feeds = feeds_of(served)
    assert len(feeds._runs) == 1
    assert feeds._runs[study].viewers == 40
    for watch in watches:
        watch.close()
    until(lambda: not feeds._runs and served.access.streams.open == {})
    Watch(served, f"studies/{study}/events").close()


def feeds_of(served: Served) -> Feeds:
    found: Feeds = served.app.state.web.feeds
    return found


def until(condition: Any) -> None:
    """Wait for what comes soon."""
    for _ in range(500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def test_changes_of_all_studies_come_on_one_stream(served: Served) -> None:
    watch = Watch(served, "events")
    assert watch.take(1)[0][1] == {"event": "reset"}
    first = served.study()
    place, event = watch.take(1)[0]
    assert event == {"event": "state", "study": first, "state": "checking"}
    watch.close()
    served.service.cancel(first, served.users["anne"])
    again = Watch(served, "events", place)
    assert again.take(1)[0][1] == {"event": "state", "study": first, "state": "cancelled"}
    again.close()
    for unknown in ("deadbeef-3", "999999"):  # of no server, and of one whose database was newer
        foreign = Watch(served, "events", unknown)
        assert foreign.take(1)[0][1] == {"event": "reset"}
        foreign.close()


def test_changes_go_on_behind_a_new_server_without_gap_or_repeat(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        watch = Watch(served, "events")
        watch.take(1)
        first = served.study()
        place, _ = watch.take(1)[0]
        second = served.study()
        watch.close()
        served.service.cancel(first, served.users["anne"])
    with serving(tmp_path, before=served) as again:
        again.service.change(second, again.users["anne"], priority=-1)
        later = Watch(again, "events", place)
        seen = later.take(3)
        third = again.study()
        seen += later.take(1)
        assert [event for _, event in seen] == [
            {"event": "state", "study": second, "state": "checking"},
            {"event": "state", "study": first, "state": "cancelled"},
            {"event": "priority", "study": second, "state": "checking"},
            {"event": "state", "study": third, "state": "checking"},
        ]
        later.close()
        last = Watch(again, "events", seen[1][0])
        assert last.take(2) == seen[2:]
        last.close()


def test_a_stream_goes_on_after_a_log_that_could_not_be_read_for_a_moment(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log is read for all viewers by one task: if it died, all of them would get pings for ever."""
    run = a_run(tmp_path, reports=1)
    study = served.study(state=State.RUNNING, run=run)
    watch = Watch(served, f"studies/{study}/events")
    watch.take(len(read_all(run.folder).events))
    failures = [OSError("the disk doesn't answer"), RuntimeError("something else"), RuntimeError("something else")]
    whole = EventReader.after

    def after(reader: EventReader, *positions: Position) -> Passage:
        if failures:
            raise failures.pop(0)
        return whole(reader, *positions)

    monkeypatch.setattr(EventReader, "after", after)
    wait_for(lambda: not failures, SECONDS)
    log = EventLog(LocalFolder(run.path))
    log.append("notice", message="after it", code=None)
    log.close()
    ((_, event),) = watch.take(1)
    assert event["message"] == "after it"
    watch.close()
    said = [record.message for record in caplog.records if record.name == "tuner.service.web.feeds"]
    assert said == [
        "a run's events can't be read now, which is tried again: OSError: the disk doesn't answer",
        "a run's events can't be read now, which is tried again: RuntimeError: something else",
    ]


def test_a_slow_viewer_is_cut_off_and_catches_up(served: Served, tmp_path: Path) -> None:
    feeds = feeds_of(served)
    feeds._kept_bytes = 100_000
    run = a_run(tmp_path, reports=1)
    study = served.study(state=State.RUNNING, run=run)
    slow = Slow(served, f"/api/v1/studies/{study}/events")
    quick = Watch(served, f"studies/{study}/events", user="anne")
    before = len(read_all(run.folder).events)
    quick.take(before)
    log = EventLog(LocalFolder(run.path))
    text = "x" * 100_000
    for number in range(80):  # 8 MB, more than sockets hold
        log.append("notice", message=f"{number} {text}")
        if number % 8 == 7:
            quick.take(8)
    assert feeds._runs[study]._bytes <= 1_000_000
    content = slow.rest()
    assert content.endswith(b": you are behind, connect again\n\n")
    seen = [line for line in content.split(b"\n") if line.startswith(b"id: ")]
    assert before < len(seen) < before + 80
    last = seen[-1].removeprefix(b"id: ").decode()
    later = Watch(served, f"studies/{study}/events", last)
    rest = [event for _, event in later.take(before + 80 - len(seen))]
    assert rest == read_all(run.folder).events[len(seen) :]
    for watch in (quick, later):
        watch.close()
    log.close()


class Slow:
    """A viewer that reads nothing until it is asked to."""

    def __init__(self, served: Served, path: str) -> None:
        host, port = served.url.removeprefix("http://").split(":")
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(20)
        self._socket.connect((host, int(port)))
        token = served.tokens["bert"]
        self._socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode()
        )

    def rest(self) -> bytes:
        """The body, to its end, without the marks of its chunks."""
        received, until = b"", time.monotonic() + SECONDS
        with self._socket as connection:
            while part := connection.recv(65_536):
                received += part
                assert time.monotonic() < until, (
                    f"not cut off after {len(received)} bytes, which end with {part[-99:]!r}"
                )
        body, content = received.partition(b"\r\n\r\n")[2], b""
        while True:
            size, _, body = body.partition(b"\r\n")
            if int(size, 16) == 0:
                return content
            content += body[: int(size, 16)]
            body = body[int(size, 16) + 2 :]


def test_streams_end_in_order_when_the_server_does(tmp_path: Path) -> None:
    run = a_run(tmp_path, reports=5)
    with serving(tmp_path) as served:
        study = served.study(state=State.RUNNING, run=run)
        watches = [Watch(served, f"studies/{study}/events"), Watch(served, "events")]
        watches[0].take(3)
        ended: list[int] = []
        threads = [threading.Thread(target=lambda one=watch: ended.append(len(list(one.events)))) for watch in watches]
        for thread in threads:
            thread.start()
    for thread in threads:  # an answer that is cut off would raise in it
        thread.join(300)
    assert len(ended) == 2
    for watch in watches:
        watch.close()


def test_a_stream_ends_with_its_right(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path, reports=2)
    study = served.study(state=State.RUNNING, run=run)
    watch = Watch(served, f"studies/{study}/events", user="hand")
    count = len(watch.take(2))
    served.access.change_user(served.users["chief"], "hand", disabled=True)
    log = EventLog(LocalFolder(run.path))
    log.append("notice", message="what they must not see")
    log.close()
    assert [event for _, event in watch.events] == read_all(run.folder).events[count:-1]
    assert Watch(served, f"studies/{study}/events", user="hand").response.status_code == 401
    watch.close()


def test_a_place_that_is_none_is_refused(served: Served) -> None:
    study = served.study()
    assert Watch(served, f"studies/{study}/events", "yesterday").response.status_code == 422
    assert Watch(served, "studies/99/events").response.status_code == 404
