import json
import os
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow.fs import LocalFileSystem

from tests.loop.power import SyncedFiles
from tuner.errors import RunFolderError
from tuner.history import events
from tuner.history.events import EventFollower, EventLog, finite, plain, plain_metrics, read_all, read_events
from tuner.storage.folder import LocalFolder
from tuner.storage.object_folder import ObjectFolder


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
    event = log.append("notice", message="", metrics={"value": value})
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


# Damaged files


def segment(folder: Path, number: int = 1) -> Path:
    return folder / "events" / f"{number:06d}.jsonl"


def of_three_trials(folder: Path) -> None:
    log = EventLog(LocalFolder(folder))
    for number in range(3):
        log.append("trial_started", trial=f"{number:05d}", number=number, config={"x": number}, seed=number)
    for number in range(3):
        log.append("trial_ended", trial=f"{number:05d}", status="completed")
    log.close()


def test_what_a_damaged_line_says_is_set_aside_and_named_once_and_all_else_is_used(tmp_path: Path) -> None:
    of_three_trials(tmp_path)
    lines = segment(tmp_path).read_bytes().splitlines(keepends=True)
    segment(tmp_path).write_bytes(b"".join([*lines[:1], lines[1].replace(b'"x":1', b'"x":7'), *lines[2:]]))
    reading = read_all(LocalFolder(tmp_path))
    assert [(e["event"], e["trial"]) for e in reading.events] == [
        ("trial_started", "00000"), ("trial_started", "00002"), ("trial_ended", "00000"), ("trial_ended", "00002"),
    ]  # fmt: skip
    assert reading.damages == [
        "events/000001.jsonl, line 2: its checksum doesn't fit; it is left out",
        "events/000001.jsonl, line 5: trial_ended is about trial 00001, which was never started; it is left out",
    ]
    follower = EventFollower(LocalFolder(tmp_path))
    assert (follower.new(), follower.damages) == (reading.events, reading.damages)
    assert (follower.new(), follower.damages) == ([], reading.damages)


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    for _ in range(6):
        log = EventLog(LocalFolder(tmp_path))
        log.append("notice", message="kept")
        log.close()
    for number in (1, 3, 4):
        segment(tmp_path, number).unlink()
    reading = read_all(LocalFolder(tmp_path))
    assert len(reading.events) == 3
    assert reading.damages == [
        "events/000001.jsonl is missing; what happened there is unknown",
        "events/000003.jsonl to 000004.jsonl are missing; what happened there is unknown",
    ]


def test_a_copied_segment_is_read_once(tmp_path: Path) -> None:
    of_three_trials(tmp_path)
    segment(tmp_path, 2).write_bytes(segment(tmp_path).read_bytes())
    reading = read_all(LocalFolder(tmp_path))
    assert len(reading.events) == 6
    assert reading.damages == ["events/000002.jsonl is a copy of 000001.jsonl; it is left out"]


def test_a_segment_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    of_three_trials(tmp_path)
    segment(tmp_path).rename(segment(tmp_path, 2))
    segment(tmp_path).symlink_to("nowhere")
    assert [event["event"] for event in read_all(LocalFolder(tmp_path)).events] == ["trial_started"] * 3 + [
        "trial_ended"
    ] * 3


def test_the_torn_end_of_the_newest_segment_may_be_in_the_writing_and_that_of_an_earlier_one_is_damage(
    tmp_path: Path,
) -> None:
    of_three_trials(tmp_path)
    segment(tmp_path).write_bytes(segment(tmp_path).read_bytes()[:-9])
    reading = read_all(LocalFolder(tmp_path))
    torn = "events/000001.jsonl, line 6: it is cut off; it is left out"
    assert (len(reading.events), reading.damages, reading.torn) == (5, [], torn)
    log = EventLog(LocalFolder(tmp_path))
    log.append("notice", message="more")
    log.close()
    reading = read_all(LocalFolder(tmp_path))
    assert (len(reading.events), reading.damages, reading.torn) == (6, [torn], None)


def test_a_last_line_that_lacks_nothing_but_its_end_is_read(tmp_path: Path) -> None:
    of_three_trials(tmp_path)
    segment(tmp_path).write_bytes(segment(tmp_path).read_bytes()[:-1])
    reading = read_all(LocalFolder(tmp_path))
    assert (len(reading.events), reading.damages, reading.torn) == (6, [], None)


def test_text_that_is_not_utf_8_is_kept_as_it_is_and_followers_get_it_as_utf_8(tmp_path: Path) -> None:
    log = EventLog(LocalFolder(tmp_path))
    log.append("notice", message="file \udcff.png", names={"\ud800": ["\udcfe"]})
    log.close()
    reading = read_all(LocalFolder(tmp_path))
    assert (reading.events[0]["message"], reading.surrogates) == ("file \udcff.png", True)
    event = EventFollower(LocalFolder(tmp_path)).new()[0]
    assert (event["message"], event["names"]) == ("file \\udcff.png", {"\\ud800": ["\\udcfe"]})


# Clocks, deleted folders, object stores


def test_times_never_go_back_in_a_log_whose_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(LocalFolder(tmp_path))
    first = log.append("notice", message="one")["time"]
    monkeypatch.setattr(events.time, "time", lambda: first - 3600)
    second = log.append("notice", message="two")["time"]
    assert 0 <= second - first < 600


def test_a_log_whose_folder_was_deleted_says_so_and_makes_no_new_one(tmp_path: Path) -> None:
    log = EventLog(LocalFolder(tmp_path / "run"))
    log.append("notice", message="one")
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunFolderError) as caught:
        log.append("notice", message="two")
    assert str(caught.value) == (
        f"the run's folder must stay while the search runs, got '{tmp_path}/run' without events/000001.jsonl; "
        "start the search again"
    )
    log.close()
    assert not (tmp_path / "run").exists()


# Power cuts, and segments that others damage


def test_the_disk_has_events_after_a_second_and_at_once_those_after_which_something_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, synced = [0.0], SyncedFiles(tmp_path)
    monkeypatch.setattr(events.time, "monotonic", lambda: now[0])
    with synced.watching():
        log = EventLog(LocalFolder(tmp_path))
        told = [(0.9, "notice"), (1.0, "notice"), (1.9, "checkpoint_saved"), (1.9, "checkpoint_deleted")]
        told += [(2.0, "notice"), (2.1, "trial_ended"), (2.2, "study_interrupted"), (2.3, "study_ended")]
        found = []
        for now[0], kind in told:
            log.append(kind)
            found.append(synced.has(segment(tmp_path)))
        assert found == [False, True, False, True, False, True, True, True]
        for write in (log.tend, log.flush, log.close):
            log.append("notice", message="more")
            assert not synced.has(segment(tmp_path))
            write()
            assert synced.has(segment(tmp_path))
    synced.cut()
    assert len(segment(tmp_path).read_bytes().splitlines()) == len(told) + 3


def test_the_next_log_syncs_what_a_killed_driver_has_written(tmp_path: Path) -> None:
    synced = SyncedFiles(tmp_path)
    with synced.watching():
        EventLog(LocalFolder(tmp_path)).append("notice", message="written")
        EventLog(LocalFolder(tmp_path))
    synced.cut()
    assert messages(tmp_path) == ["written"]


def replace(path: Path) -> None:
    path.with_name("other").write_bytes(path.read_bytes()[:-1])
    path.with_name("other").rename(path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "replaced": replace,
    "moved": lambda path: path.rename(path.with_name("other")),
    "deleted": Path.unlink,
    "deleted with its folder": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("then", [True, False], ids=["more", "no more"])
def test_a_segment_that_somebody_damages_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object], then: bool
) -> None:
    """Of the one that is being written, of a full one of the same driver, and of an earlier driver's."""
    monkeypatch.setattr(events, "SEGMENT_EVENTS", 3)
    of_three_trials(tmp_path)
    log, told = EventLog(LocalFolder(tmp_path)), ["0", "1", "2", "3", "4"]
    for message in told:
        log.append("notice", message=message)
    assert log.tend() == []
    for number in (1, 2, 3, 4):
        damage(segment(tmp_path, number))
        if then:
            told.append(f"after {number}")
            log.append("notice", message=told[-1])
        assert f"events/{number:06d}.jsonl" in log.tend()
        reading = read_all(LocalFolder(tmp_path))
        assert [event["message"] for event in reading.events if event["event"] == "notice"] == told
        assert (len(reading.events), reading.damages, reading.torn) == (6 + len(told), [], None)
        assert log.tend() == []
    log.append("notice", message="last")
    log.close()
    assert read_all(LocalFolder(tmp_path)).events[-1]["message"] == "last"


def test_the_segment_that_is_written_may_be_replaced_by_a_longer_one(tmp_path: Path) -> None:
    log = EventLog(LocalFolder(tmp_path))
    log.append("notice", message="one")
    (tmp_path / "other").write_bytes(segment(tmp_path).read_bytes() * 2)
    (tmp_path / "other").rename(segment(tmp_path))
    log.append("notice", message="two")
    assert (log.tend(), messages(tmp_path)) == (["events/000001.jsonl"], ["one", "two"])


def test_a_line_that_the_disk_had_no_room_for_is_no_damage(tmp_path: Path) -> None:
    log = EventLog(LocalFolder(tmp_path))
    log.append("notice", message="one")
    kept = segment(tmp_path).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(kept) + 20, hard))
        with pytest.raises(OSError, match="File too large"):
            log.append("notice", message="two")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert (log.tend(), segment(tmp_path).read_bytes()[: len(kept)]) == ([], kept)
    log.append("notice", message="three")
    assert (log.tend(), messages(tmp_path)[0], messages(tmp_path)[-1]) == ([], "one", "three")


def arrived(path: Path, lines: int) -> bool:
    """Whether so many lines come to lie there within a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and len(path.read_bytes().splitlines()) >= lines:
            return True
        time.sleep(0.005)
    return False


def test_on_an_object_store_no_event_waits_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "OBJECT_STORE_SECONDS", 0.05)
    (tmp_path / "events").mkdir()
    log = EventLog(ObjectFolder("s3://bucket/run", LocalFileSystem(), str(tmp_path)))
    log.append("notice", message="one")
    assert arrived(segment(tmp_path), 1)
    log.append("notice", message="two")
    assert arrived(segment(tmp_path), 2)
    log.close()
    assert messages(tmp_path) == ["one", "two"]


def test_on_an_object_store_answers_to_orders_hurry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "OBJECT_STORE_SECONDS", 3600)
    monkeypatch.setattr(events, "ANSWER_SECONDS", 0.05)
    (tmp_path / "events").mkdir()
    log = EventLog(ObjectFolder("s3://bucket/run", LocalFileSystem(), str(tmp_path)))
    log.append("notice", message="one")
    log.append("order_obeyed", message="two")
    assert arrived(segment(tmp_path), 2)
    log.close()
    assert messages(tmp_path) == ["one"]  # the other is no notice


def test_an_object_store_that_fails_is_tried_again_and_raises_with_the_next_event_while_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "OBJECT_STORE_SECONDS", 0.05)
    log = EventLog(ObjectFolder("s3://bucket/run", LocalFileSystem(), str(tmp_path)))  # it has no folder `events` yet

    def tell() -> None:
        for _ in range(12_000):
            log.append("notice", message="told")
            time.sleep(0.005)

    with pytest.raises(FileNotFoundError):
        tell()
    (tmp_path / "events").mkdir()
    assert arrived(segment(tmp_path), 2)
    log.close()
    assert set(messages(tmp_path)) == {"told"}


def cyclic() -> list[Any]:
    value: list[Any] = [1]
    value.append({"again": value})
    return value


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Unwilling:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        (cyclic(), "a list or dict that contains itself"),
        ({(1, 2): 3}, "a dict whose names aren't text"),
        (deep(51), "one that is nested too deep"),
        (deep(100_000), "one that is nested too deep"),
        pytest.param(
            10**5000,
            "one that can't be written (ValueError: Exceeds the limit (4300 digits) for integer string",
            id="digits",
        ),
        (Unwilling(), "one that can't be written (RuntimeError: no)"),
    ],
)
def test_a_metric_that_json_cannot_express_is_named(value: Any, flaw: str) -> None:
    with pytest.raises(ValueError, match=rf"^metrics need plain values, got {re.escape(flaw)}.* for 'side'; report"):
        plain_metrics({"loss": 0.5, "side": value})


def test_metrics_are_stored_as_they_are_read(tmp_path: Path) -> None:
    given = {"loss": np.float32(0.5), "counts": (1, 2), "names": {"a": {3}}, "deep": deep(50), "none": None}
    plain = plain_metrics(given)
    assert plain == {"loss": 0.5, "counts": [1, 2], "names": {"a": [3]}, "deep": deep(50), "none": None}
    log = EventLog(LocalFolder(tmp_path))
    log.append("trial_started", trial="00000", number=0, config={}, seed=0)
    log.append("epoch_reported", trial="00000", epoch=1, metrics=plain, decision="continue")
    log.close()
    assert list(read_events(LocalFolder(tmp_path)))[1]["metrics"] == plain
