"""A record that was stored and had back is the same, down to what comes of later events."""

import gc
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history.events_of_a_run import ended, event, fold, reported, saved, started
from tests.results.kinds_of_runs import KINDS, QUICK
from tuner.history.attempts import Attempts
from tuner.history.events import Event, EventFollower, EventLog
from tuner.history.placement import Placement
from tuner.history.records import RunRecord
from tuner.history.stored_record import NoRecordError, lines_of, record_of
from tuner.storage.folder import LocalFolder

TRIALS = st.integers(0, 3)
EPOCHS = st.integers(1, 6)
VALUES = st.one_of(st.none(), st.floats(0, 1), st.integers(0, 2), st.just("text"))
NAMES = [f"{number:05d}" for number in range(4)]


def order(verb: str, arguments: dict[str, Any], **more: Any) -> Event:
    told = {"order": f"o{verb}", "verb": verb, "arguments": arguments, "by": "anne", "message": ""}
    return event("order_obeyed", **told, **more)


def repeated(number: int, first: int, *, confirms: bool) -> Event:
    return {**started(number), "repeats": f"{first:05d}", "confirms": confirms}


EVENTS = st.one_of(
    st.builds(started, TRIALS),
    st.builds(repeated, st.integers(1, 3), st.just(0), confirms=st.booleans()),
    st.builds(
        lambda number, epoch, decision, value, more: reported(number, epoch, 0.0, decision, accuracy=value, **more),
        TRIALS,
        EPOCHS,
        st.sampled_from(["continue", "stop", "pause"]),
        VALUES,
        st.sampled_from([{}, {"loss": 0.5}, {"nested": {"a": [1]}}]),
    ),
    st.builds(ended, TRIALS, st.sampled_from(["completed", "stopped", "failed"]), message=st.just("it broke")),
    st.builds(saved, TRIALS, EPOCHS),
    st.builds(lambda n, e: event("checkpoint_deleted", trial=NAMES[n], epoch=e), TRIALS, EPOCHS),
    st.builds(lambda n: event("trial_paused", trial=NAMES[n], epoch=1), TRIALS),
    st.builds(lambda n: event("trial_resumed", trial=NAMES[n], epoch=1, from_epoch=1), TRIALS),
    st.builds(lambda n: event("trial_lost", trial=NAMES[n], message="gone", cause="out_of_memory"), TRIALS),
    st.builds(lambda n: event("trial_retried", trial=NAMES[n], message="m", cause="error", alone=True), TRIALS),
    st.builds(lambda n: event("trial_placed", trial=NAMES[n], host="h", pid=3, devices=["2 CPUs"]), TRIALS),
    st.builds(lambda n: event("trial_handed", trial=NAMES[n], worker="w"), TRIALS),
    st.builds(lambda: event("retry_requested", trials=NAMES)),
    st.builds(lambda n: event("confirmation_requested", trials=[NAMES[n]], seeds=2, alone=True), TRIALS),
    st.builds(lambda n: order("note", {"text": "so so", "trial": NAMES[n]}), TRIALS),
    st.sampled_from(
        [
            order("set", {"trials": 30, "concurrency": 3}),
            order("try", {}, config={"x": 1}),
            order("stop", {}),
            order("stop", {"trial": "00001"}),
            event("study_started", trials=None, orders=True, limits={"trials": 9}),
            event("study_resumed", trials=None, study_version=2),
            event("study_interrupted", reason=None),
            event("study_ended", reason="trials"),
            event("notice", message="seen"),
        ]
    ),
)


def state(record: RunRecord) -> dict[str, Any]:
    """Everything that a record knows, as values that compare; who leads is asked for, as it is looked for lazily."""
    inner = vars(record)
    standings = inner["_standings"]
    told = {name: value for name, value in inner.items() if name not in ("_standings", "confirming", "on_workers")}
    told["ended_trials"] = [trial.trial for trial in record.ended_trials]
    told["on_workers"] = list(inner["on_workers"])
    told["confirming"] = vars(record.confirming)
    told["standings"] = standings.state()
    told["leaders"] = [
        one and one.trial
        for one in (
            record.best_trial(),
            record.best_ended_trial,
            record.best_reporter,
        )
    ]
    told["completed"] = [(one.trial.trial, one.worth) for one in record.completed(1)]
    told["seeds"] = [(first.trial, record.seeds_of(first)) for first in record.repeated]
    told["rows"] = [trial.trial for trial in record.rows()]
    return told


def stored(record: RunRecord) -> RunRecord:
    return record_of(list(lines_of(record)))


@given(st.lists(EVENTS, max_size=40), st.lists(EVENTS, max_size=10), st.booleans())
def test_any_record_is_had_back_as_it_was_and_goes_on_as_it_would_have(
    events: list[Event], more: list[Event], closed: bool
) -> None:
    record = fold(started(0), *(each | {"time": float(at)} for at, each in enumerate(events)))
    if closed:
        record.close()
    again = stored(record)
    assert state(again) == state(record)
    assert all(trial.due is None or trial.due is trial.epochs[trial.due.epoch] for trial in again.trials.values())
    for at, each in enumerate(more):
        told = each | {"time": 50.0 + at}
        assert again.apply(told) == record.apply(told)
    assert state(again) == state(record)


@pytest.mark.parametrize("kind", QUICK)
def test_the_record_of_each_kind_of_run_is_had_back_as_it_was(tmp_path: Path, kind: str) -> None:
    run = KINDS[kind](tmp_path)
    again = stored(run.record)
    assert state(again) == state(run.record)
    assert list(again.trials) == list(run.record.trials)


def test_a_trial_is_had_back_with_everything_that_it_can_have() -> None:
    record = fold(started(0), reported(0, 1, 1.0, accuracy=0.5), saved(0, 1))
    trial = record.trials["00000"]
    trial.attempts = Attempts(forgiven=1, followed=2, alone=True)
    trial.attempts.add({"message": "m", "cause": "error"}, time=3.0, epoch=1, kind="error")
    trial.stays.append(Placement("host", 7, ["cuda:0"], ["A100"]))
    trial.worker, trial.losses, trial.memory_losses = "w1", 2, 1
    assert stored(record).trials["00000"] == trial


def lines() -> list[bytes]:
    return list(lines_of(fold(started(0), reported(0, 1, accuracy=0.5), started(1))))


@pytest.mark.parametrize(
    "spoilt",
    [
        [],
        [b"{}\n"],
        [b"[]\n"],
        [b"\xff\n"],
        [b"[" * 100_000],
        lines()[:-1],
        [*lines(), lines()[1]],
        [lines()[0].replace(b'"format":4', b'"format":0'), *lines()[1:]],
        [lines()[0], b"[]\n", lines()[2]],
        [lines()[0], lines()[1].replace(b"[0.5]", b"[]"), lines()[2]],
    ],
)
def test_what_is_no_record_is_refused(spoilt: list[bytes]) -> None:
    with pytest.raises(NoRecordError):
        record_of(spoilt)
    assert gc.isenabled()


def test_a_records_first_line_names_its_format() -> None:
    assert json.loads(lines()[0])["format"] == 4


def test_a_log_is_known_by_its_lines_and_the_segments_they_stand_in(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    log = EventLog(folder)
    log.append("trial_started", **{k: v for k, v in started(0).items() if k not in ("event", "time")})
    log.append("notice", message="one")
    follower, passing = EventFollower(folder), EventFollower(folder)
    assert len(follower.new()) == 2
    passing.skip()
    assert passing.digest == follower.digest
    assert passing.new() == []
    before = follower.digest
    passing.know(["00000"])
    log.append("epoch_reported", trial="00000", epoch=1, metrics={"x": 1}, decision="continue")
    log.close()
    assert [one["event"] for one in passing.new()] == ["epoch_reported"]
    assert passing.damages == []
    follower.new()
    assert before != follower.digest == passing.digest
    segment = tmp_path / "events/000001.jsonl"
    segment.rename(tmp_path / "events/000002.jsonl")
    moved = EventFollower(folder)
    moved.skip()
    assert moved.digest != follower.digest
    content = (tmp_path / "events/000002.jsonl").read_bytes()
    (tmp_path / "events/000002.jsonl").write_bytes(content.replace(b'"one"', b'"two"'))
    changed = EventFollower(folder)
    changed.skip()
    assert changed.digest != moved.digest


def test_the_number_of_a_damaged_line_counts_those_that_were_passed_over(tmp_path: Path) -> None:
    log = EventLog(LocalFolder(tmp_path))
    log.append("notice", message="one")
    follower = EventFollower(LocalFolder(tmp_path))
    follower.skip()
    with (tmp_path / "events/000001.jsonl").open("ab") as file:
        file.write(b"no event\n")
    log.close()
    assert follower.new() == []
    assert "line 2" in follower.damages[0]
