import json
from typing import Any

import pytest

from tests.history.damage import ODD
from tests.history.events_of_a_run import ended, event, reported, saved, started
from tuner.history.event_lines import DamagedLineError, finite, flaw, parsed, written
from tuner.history.records import RunRecord

KINDS = ["order_obeyed", "order_refused", "study_started", "study_resumed", "trial_started", "epoch_reported", "checkpoint_saved", "checkpoint_deleted",
         "trial_paused", "trial_resumed", "trial_lost", "trial_ended", "notice", "study_interrupted", "study_ended", "new"]  # fmt: skip
FIELDS = [
    "time",
    "trial",
    "number",
    "config",
    "seed",
    "epoch",
    "metrics",
    "decision",
    "path",
    "status",
    "cause",
    "message",
    "reason",
]


def test_a_line_is_json_that_ends_with_its_checksum() -> None:
    line = written(event("notice", 1.5, message="a"))
    assert line == b'{"event":"notice","time":1.5,"message":"a","sum":"2af57f50"}'
    assert parsed(line) == event("notice", 1.5, message="a")
    assert json.loads(line)["message"] == "a"


def test_lines_of_format_1_have_no_checksum() -> None:
    assert parsed(b'{"event": "notice", "time": 1, "message": "a"}') == event("notice", 1, message="a")


def test_no_flipped_bit_changes_what_is_read() -> None:
    sound = reported(3, 2, 1.5, loss=0.25, path="a/b")
    line, refused = written(sound), 0
    for place in range(8 * len(line)):
        flipped = bytearray(line)
        flipped[place // 8] ^= 1 << place % 8
        try:
            found = parsed(bytes(flipped))
        except DamagedLineError:
            refused += 1
        else:  # in the name of the checksum itself
            assert {name: found[name] for name in sound} == sound
    assert refused > 8 * len(line) - 50


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"event":"notice"', "it isn't JSON"),
        (b"\0" * 99, "it isn't JSON"),
        (b'"\xff"', "it isn't UTF-8"),
        (b"[" * 1000 + b"]" * 1000, "it is nested more than 100 deep"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "it is nested more than 100 deep"),
        (b"[" * 10**6, "it is nested more than 100 deep"),
        (b"[1]", "it is no event"),
        (b'{"event":3}', "it is no event"),
        (b'{"event":"notice","message":"a"}', "its time is missing"),
        (b'{"event":"notice","time":"1","message":"a"}', "its time is '1'"),
        (b'{"event":"notice","time":1e12,"message":"a"}', "its time is 1000000000000.0"),
        (b'{"event":"notice","time":1,"message":"a","sum":"00000000"}', "its checksum doesn't fit"),
        (b'{"event":"notice","time":1,"message":"a", "sum": "2af57f50"}', "its checksum is cut off or not at its end"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_used_says_why(line: bytes, why: str) -> None:
    with pytest.raises(DamagedLineError) as caught:
        parsed(line)
    assert str(caught.value) == why


def test_brackets_in_a_text_nest_nothing() -> None:
    text = "[{" * 200
    assert parsed(written(event("notice", message=text)))["message"] == text


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"trial": 3}, "trial_started has trial 3"),
        ({"trial": "../etc"}, "trial_started has trial '../etc'"),
        ({"number": -1}, "trial_started has number -1"),
        ({"number": True}, "trial_started has number True"),
        ({"config": []}, "trial_started has config []"),
        ({"seed": 10**400}, "trial_started has seed a number out of range"),
        ({"from_epoch": "1"}, "trial_started has from_epoch '1'"),
        ({"from_epoch": 2**52}, "trial_started has from_epoch 4503599627370496"),
        ({"event": "epoch_reported", "epoch": 1_000_001}, "epoch_reported has epoch 1000001"),
        ({"event": "checkpoint_saved", "epoch": 2**52}, "checkpoint_saved has epoch 4503599627370496"),
        ({"event": "study_resumed", "max_epochs": 2**52}, "study_resumed has max_epochs 4503599627370496"),
        ({"device": 0}, "trial_started has device 0"),
        ({"alike": None}, "trial_started has alike None"),
        ({"predicted_bytes": "1 GB"}, "trial_started has predicted_bytes '1 GB'"),
    ],
)
def test_a_field_of_another_type_is_named(changed: dict[str, Any], why: str) -> None:
    assert flaw({**started(0), **changed}) == why


def test_kinds_and_fields_of_newer_versions_are_sound() -> None:
    assert flaw(event("trial_moved", trial=[], epoch="x")) is None
    assert flaw({**ended(0, "completed"), "energy": "1 kWh"}) is None


def test_numbers_beyond_all_floats_are_none() -> None:
    line = (
        json.dumps(reported(0, 1, loss=10**400, accuracy=10**300))
        .encode()
        .replace(b'"continue"', b'"a", "x": [1e999, -1E+0999, 1e100]')
    )
    found = parsed(line)
    assert found["x"] == [None, None, 1e100]
    assert [finite(found["metrics"][name]) for name in ("loss", "accuracy")] == [False, True]


@pytest.mark.parametrize("kind", KINDS)
def test_no_event_makes_a_record_raise(kind: str) -> None:
    record = RunRecord("loss", "min", [started(0), reported(0, 1, loss=0.5)])
    sound = {
        "event": kind,
        **started(0),
        **reported(0, 1, 2.0, loss=1),
        **saved(0, 2),
        **ended(0, "failed"),
        **{"order": "a", "verb": "stop", "by": "me", "arguments": {}},
        "message": "",
        "reason": None,
    }
    assert record.apply({**sound, "event": kind, "time": 1.0}) is None
    for field in FIELDS:
        for odd in ODD:
            record.apply({**sound, "event": kind, field: odd})
        record.apply({name: value for name, value in {**sound, "event": kind}.items() if name != field})
    record.close()
    assert record.epochs() >= 1
    assert record.wall_seconds >= 0


@pytest.mark.parametrize("odd", [None, 3, "event", [], {}, {"event": []}, {"time": 1}])
def test_what_is_no_event_changes_nothing(odd: Any) -> None:
    assert RunRecord("loss", "min").apply(odd) == "it is no event"


def test_an_event_of_a_trial_that_never_started_changes_nothing() -> None:
    record = RunRecord("loss", "min", [started(0)])
    assert record.apply(reported(1, 1, loss=0.5)) == "epoch_reported names trial 00001, which was never started"
    assert (list(record.trials), record.epochs()) == (["00000"], 0)


def test_a_clock_that_was_set_back_gives_no_negative_time() -> None:
    record = RunRecord("loss", "min")
    for one in (
        event("study_started", 5000.0), started(0, 5000.0), reported(0, 1, 1400.0, loss=0.5), ended(0, "completed", 1400.0),
        event("study_ended", 1400.0, reason="trials"),
    ):  # fmt: skip
        assert record.apply(one) is None
        assert record.wall_seconds >= 0
    assert (record.trials["00000"].running_seconds, record.active_seconds) == (0.0, 0.0)
