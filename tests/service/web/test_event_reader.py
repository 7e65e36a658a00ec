import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.history.event_lines import Event
from tuner.history.events import EventLog, read_all
from tuner.service.web import event_reader
from tuner.service.web.event_reader import EventReader, Position
from tuner.storage.folder import LocalFolder


def a_log(folder: Path, *sizes: int) -> LocalFolder:
    """A run's log of as many notices in each of its segments."""
    found = LocalFolder(folder)
    count = 0
    for size in sizes:
        log = EventLog(found)
        for _ in range(size):
            log.append("notice", message=f"{count} \r\n\u2028 of many", code=None)
            count += 1
        log.close()
    return found


def read_on(reader: EventReader, position: Position, until: Position | None = None) -> list[tuple[Position, Event]]:
    found = []
    while True:
        passage = reader.after(position, until)
        found += passage.events
        if passage.end == position:
            return found
        position = passage.end


def test_all_events_are_read_in_order(tmp_path: Path) -> None:
    folder = a_log(tmp_path, 3, 0, 2)
    found = read_on(EventReader(folder), Position())
    assert [event for _, event in found] == read_all(folder).events
    assert EventReader(folder).end() == found[-1][0]


@settings(max_examples=10, deadline=None)
@given(sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4), data=st.data())
def test_going_on_from_any_event_gives_the_rest(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    reader = EventReader(a_log(tmp_path_factory.mktemp("run"), *sizes))
    found = read_on(reader, Position())
    number = data.draw(st.integers(0, len(found)))
    place = found[number - 1][0] if number else Position()
    assert read_on(reader, place) == found[number:]
    assert read_on(reader, Position(), place) == found[:number]


def test_long_logs_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_log(tmp_path, 50)
    monkeypatch.setattr(event_reader, "READ_BYTES", 300)
    reader = EventReader(folder)
    assert len(reader.after(Position()).events) == 2
    assert [event for _, event in read_on(reader, Position())] == read_all(folder).events
    monkeypatch.setattr(event_reader, "READ_BYTES", 10)  # less than a line
    assert len(read_on(reader, Position())) == 50


def test_a_line_that_is_being_written_comes_once_it_is_whole(tmp_path: Path) -> None:
    folder = a_log(tmp_path, 2)
    segment = tmp_path / "events/000001.jsonl"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-10])
    reader = EventReader(folder)
    first = reader.after(Position())
    assert len(first.events) == 1
    assert reader.end() == first.end
    segment.write_bytes(whole)
    assert len(reader.after(first.end).events) == 1


@pytest.mark.parametrize("place", [Position(1, 5), Position(1, 10**14), Position(7, 0), Position(0, 99)])
def test_a_place_that_never_was_costs_a_line_at_most(tmp_path: Path, place: Position) -> None:
    folder = a_log(tmp_path, 2, 2)
    found = read_on(EventReader(folder), place)
    assert [event for _, event in found] == read_all(folder).events[4 - len(found) :]


def test_an_event_cannot_forge_another(tmp_path: Path) -> None:
    passage = EventReader(a_log(tmp_path, 1)).after(Position())
    text = passage.written().decode()
    assert text.count("\n") == 4
    assert text.splitlines()[0] == f"id: {passage.end}"
    assert "\r" not in text
    assert event_reader.sent(None, {"event": "a\ndata: b"}).splitlines()[0] == b"event: a_data__b"


def test_pipes_and_links_in_the_log_are_passed_over(tmp_path: Path) -> None:
    folder = a_log(tmp_path / "run", 2)
    secret = tmp_path / "secret"
    secret.write_bytes((tmp_path / "run/events/000001.jsonl").read_bytes())
    os.mkfifo(tmp_path / "run/events/000002.jsonl")
    (tmp_path / "run/events/000003.jsonl").symlink_to(secret)
    reader = EventReader(folder)
    assert len(read_on(reader, Position())) == 2
    assert reader.end() == Position(3, 0)


@pytest.mark.parametrize("text", ["", "1", "1:", ":1", "1:2:3", "-1:2", "1:²", "x:y", "1" * 20 + ":1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="SEGMENT:BYTES"):
        Position.parse(text)
