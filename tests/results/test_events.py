import json
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow.fs import LocalFileSystem

from tuner.results import events
from tuner.results.events import EventFollower, EventLog, finite, plain, read_events
from tuner.results.folder import LocalFolder
from tuner.results.object_folder import ObjectFolder


def messages(folder: Path) -> list[str]:
    return [event["message"] for event in read_events(LocalFolder(folder))]


def test_every_log_begins_a_segment_after_the_last_one(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "000041.jsonl").write_text('{"event": "notice", "time": 0.0, "message": "first"}\n')
    (tmp_path / "events" / "notes.txt").write_text("not a segment")
    for message in ("second", "third"):
        log = EventLog(LocalFolder(tmp_path))
        log.append("notice", message=message)
        log.close()
    assert LocalFolder(tmp_path).files("events") == ["000041.jsonl", "000042.jsonl", "000043.jsonl", "notes.txt"]
    assert messages(tmp_path) == ["first", "second", "third"]


def test_a_full_segment_is_followed_by_the_next(tmp_path: Path) -> None:
    log = EventLog(LocalFolder(tmp_path))
    for number in range(events.SEGMENT_EVENTS + 2):
        log.append("notice", message=str(number))
    log.close()
    lines = [len((tmp_path / "events" / name).read_bytes().splitlines()) for name in ("000001.jsonl", "000002.jsonl")]
    assert lines == [events.SEGMENT_EVENTS, 2]
    assert messages(tmp_path) == [str(number) for number in range(events.SEGMENT_EVENTS + 2)]


@pytest.mark.parametrize(
    "end", [b'{"event":"noti', b'{"event":"notice","message":"caf\xc3', b"\x00" * 64, b"[1]", b"\n"]
)
def test_whatever_the_end_of_a_segment_is_torn_to_the_events_before_it_are_read(tmp_path: Path, end: bytes) -> None:
    log = EventLog(LocalFolder(tmp_path))
    log.append("notice", message="whole")
    log.close()
    with (tmp_path / "events" / "000001.jsonl").open("ab") as file:
        file.write(end)
    assert messages(tmp_path) == ["whole"]


def test_a_folder_without_events_has_none(tmp_path: Path) -> None:
    assert list(read_events(LocalFolder(tmp_path / "nowhere"))) == []


def test_an_event_has_its_kind_its_time_and_its_fields(tmp_path: Path) -> None:
    before = time.time()
    event = EventLog(LocalFolder(tmp_path)).append("trial_lost", trial="00003", message="node died")
    assert list(event) == ["event", "time", "trial", "message"]
    assert (event["event"], event["trial"], event["message"]) == ("trial_lost", "00003", "node died")
    assert before <= event["time"] <= time.time()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array([0.5]), 0.5),
        (np.float32("nan"), None),
        (torch.tensor(0.25), 0.25),
        (torch.tensor(3), 3),
        (torch.tensor(float("inf")), None),
        (float("nan"), None),
        (float("-inf"), None),
        ([1.0, float("nan")], [1.0, None]),
        ((1, (2, 3)), [1, [2, 3]]),
        ({4}, [4]),
        (np.array([1, 2]), "[1 2]"),
        (Path("a/b"), "a/b"),
        (Decimal("1.5"), "1.5"),
        (None, None),
    ],
    ids=repr,
)
def test_a_reported_value_is_written_as_plain_json_and_reads_back_as_returned(
    tmp_path: Path, value: object, written: object
) -> None:
    log = EventLog(LocalFolder(tmp_path))
    event = log.append("epoch_reported", metrics={"value": value})
    log.close()
    assert event["metrics"] == {"value": written}
    assert type(event["metrics"]["value"]) is type(written)
    assert list(read_events(LocalFolder(tmp_path))) == [event]
    assert "NaN" not in (tmp_path / "events" / "000001.jsonl").read_text()


def test_text_of_any_kind_stays_on_one_line(tmp_path: Path) -> None:
    text = "line\nnext\u2028paragraph\x0c“quoted” \\ 数字"
    log = EventLog(LocalFolder(tmp_path))
    log.append("notice", message=text)
    log.append("notice", message="after")
    log.close()
    assert messages(tmp_path) == [text, "after"]


def test_an_object_store_gets_a_segment_per_log_and_what_was_held_back_when_it_is_full(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    folder = ObjectFolder("s3://bucket/run", LocalFileSystem(), str(tmp_path))
    log = EventLog(folder)
    for number in range(events.SEGMENT_EVENTS + 1):
        log.append("notice", message=str(number))
    assert folder.files("events") == ["000001.jsonl"]
    log.close()
    log.close()
    EventLog(folder).close()
    assert folder.files("events") == ["000001.jsonl", "000002.jsonl"]
    assert len(list(read_events(folder))) == events.SEGMENT_EVENTS + 1


def test_numbers_that_compare_are_finite_and_no_truth_values() -> None:
    values = [1, 0.5, float("nan"), float("inf"), True, None, "1"]
    assert [finite(value) for value in values] == [True, True, False, False, False, False, False]


def test_a_tensor_of_many_values_becomes_text_rather_than_an_error() -> None:
    assert json.dumps({"weights": torch.zeros(2)}, default=plain) == '{"weights": "tensor([0., 0.])"}'


# Following


def test_a_follower_gets_each_event_once_and_a_line_only_when_it_is_whole(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    follower = EventFollower(folder)
    assert follower.new() == []
    log = EventLog(folder)
    log.append("notice", message="one")
    assert [event["message"] for event in follower.new()] == ["one"]
    assert follower.new() == []
    with (tmp_path / "events/000001.jsonl").open("ab") as file:
        file.write(b'{"event": "notice", "time": 1, "mess')
        file.flush()
        assert follower.new() == []
        file.write(b'age": "two"}\n')
    assert [event["message"] for event in follower.new()] == ["two"]


def test_a_follower_goes_on_with_the_next_segment_past_a_torn_line(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    follower = EventFollower(folder)
    EventLog(folder).append("notice", message="one")
    with (tmp_path / "events/000001.jsonl").open("ab") as file:
        file.write(b'{"event": "notice", "ti')
    assert len(follower.new()) == 1
    later = EventLog(folder)
    later.append("notice", message="two")
    later.append("notice", message="three")
    assert [event["message"] for event in follower.new()] == ["two", "three"]
    assert [event["message"] for event in read_events(folder)] == ["one", "two", "three"]
