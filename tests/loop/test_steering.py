"""Orders to a search: what each does, at any moment, and what is left of it when the driver is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, events_of, study
from tests.loop.steered import answers, record_of
from tuner import ASHA, Budget, HyperBand, NoEarlyStopping, choice, randint, uniform
from tuner.history.events import Event
from tuner.loop.search_loop import SearchLoop
from tuner.orders.order import Malformed, Order
from tuner.schedule import Decision, Scheduler

numbers = iter(range(10**9))


def order(verb: str, **arguments: Any) -> Order:
    return Order(f"order-{next(numbers)}", verb, arguments, by="me@here", time=1.0)


def obeyed(loop: SearchLoop, verb: str, **arguments: Any) -> str:
    """The answer, which is that the order is obeyed."""
    return answered(loop, "order_obeyed", order(verb, **arguments))


def refused(loop: SearchLoop, verb: str, **arguments: Any) -> str:
    return answered(loop, "order_refused", order(verb, **arguments))


def answered(loop: SearchLoop, kind: str, one: Order | Malformed) -> str:
    loop.obey(one)
    found: list[Event] = [e for e in answers(events_of(loop.folder.path)) if e["order"] == one.id]  # type: ignore[attr-defined]
    assert [e["event"] for e in found] == [kind], found
    return str(found[0]["message"])


def begun(loop: SearchLoop, count: int) -> list[str]:
    """So many trials, started."""
    starts = [loop.next_action() for _ in range(count)]
    return [start.trial for start in starts if start is not None]


def complete(loop: SearchLoop, *, saves: bool = True) -> None:
    """Search to the end; what ran goes on on another worker."""
    for trial in sorted(loop.running):
        loop.lost(trial, "lost", "its worker died")
    drive(loop, saves=saves)


def finish(loop: SearchLoop, *, saves: bool = True) -> None:
    complete(loop, saves=saves)
    loop.end()


# stop


def test_stop_ends_the_search_with_what_its_trials_had(tmp_path: Path) -> None:
    loop = build(study(), tmp_path, concurrency=3)
    first, second, _ = begun(loop, 3)
    loop.report(first, 1, {"loss": 0.5})
    loop.lost(second, "lost", "its node went away")
    assert "ends now" in obeyed(loop, "stop")
    assert (loop.finished, loop.stopped, loop.end_reason) == (True, True, "stop")
    assert [(t.status, t.ended_by) for t in loop.record.trials.values()] == [("stopped", "stop")] * 3
    assert loop.next_action() is None
    assert loop.report(first, 2, {"loss": 0.1}) is Decision.STOP
    loop.end()
    assert loop.record.ended == "stop"
    assert loop.record.best_value == 0.5


def test_a_search_that_was_stopped_and_cut_off_is_only_concluded(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    drive(loop, reports=3)
    obeyed(loop, "stop")
    loop.close()
    again = build(study(), tmp_path, history=events_of(tmp_path))
    assert (again.finished, again.stopped, again.next_action()) == (True, True, None)
    again.end()
    assert again.record.ended == "stop"


def test_a_user_goes_on_with_a_search_that_was_stopped(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    drive(loop, reports=3)
    obeyed(loop, "stop")
    loop.end()
    loop.close()
    again = build(study(), tmp_path, history=events_of(tmp_path), opening={"anew": True})
    assert not again.stopped
    finish(again)
    assert len(again.record.trials) == 6
    assert again.record.ended == "trials"


@pytest.mark.parametrize("scheduler", [ASHA(grace_epochs=3), ASHA(grace_epochs=3, rule="stop"), HyperBand(3, 3)])
def test_stop_trial_ends_one_trial_whether_it_runs_waits_or_lost_its_worker(
    tmp_path: Path, scheduler: Scheduler
) -> None:
    loop = build(study(scheduler=scheduler, budget=Budget(trials=9, max_epochs=9)), tmp_path, concurrency=3)
    runs, lost, _ = begun(loop, 3)
    loop.report(runs, 1, {"loss": 0.5})
    loop.lost(lost, "lost", "its node went away")
    for trial in (runs, lost):
        assert obeyed(loop, "stop", trial=trial).startswith(f"trial {trial} ends now")
        assert (loop.record.trials[trial].status, loop.record.trials[trial].ended_by) == ("stopped", "stop")
        assert "only a trial that has not ended can be stopped" in refused(loop, "stop", trial=trial)
    finish(loop)
    assert len(loop.record.trials) == 9
    assert not any(trial.live for trial in loop.record.trials.values())


def test_a_paused_trial_that_is_stopped_never_goes_on(tmp_path: Path) -> None:
    loop = build(study(scheduler=ASHA(grace_epochs=3), budget=Budget(trials=9, max_epochs=9)), tmp_path)
    drive(loop, reports=3)
    assert loop.record.trials["00000"].status == "paused"
    obeyed(loop, "stop", trial="00000")
    finish(loop)
    assert (loop.record.trials["00000"].epoch, loop.record.trials["00000"].ended_by) == (3, "stop")


def test_a_trial_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    assert refused(loop, "stop", trial="00000") == "a trial is named by its id, got '00000'; this run has none yet"
    begun(loop, 1)
    assert (
        refused(loop, "note", text="?", trial="9") == "a trial is named by its id, got '9'; this run has 00000 to 00000"
    )


# set


def test_more_trials_go_on_with_a_search_that_was_about_to_end(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    complete(loop)
    assert loop.finished
    assert obeyed(loop, "set", trials=9) == "trials is 9 now, was 6"
    assert not loop.finished
    finish(loop)
    assert (len(loop.record.trials), loop.record.ended) == (9, "trials")


@pytest.mark.parametrize("scheduler", [ASHA(grace_epochs=3), HyperBand(3, 3), NoEarlyStopping()])
def test_fewer_trials_than_were_begun_are_refused_and_as_many_end_it(tmp_path: Path, scheduler: Scheduler) -> None:
    loop = build(study(scheduler=scheduler), tmp_path)
    drive(loop, reports=10)
    begun_so_far = len(loop.record.trials)
    assert refused(loop, "set", trials=begun_so_far - 1) == (
        f"trials counts the whole run and needs at least the {begun_so_far} that were begun or ordered, "
        f"got {begun_so_far - 1}; the order `stop` ends the search now"
    )
    assert "no further trial is suggested" in obeyed(loop, "set", trials=begun_so_far)
    loop.close()
    again = build(study(scheduler=scheduler, budget=loop.study.budget), tmp_path, history=events_of(tmp_path))
    finish(again)
    assert len(again.record.trials) == begun_so_far


def test_a_limit_that_is_reached_already_is_said_to_end_the_search(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    drive(loop, reports=5)
    assert obeyed(loop, "set", total_epochs=5) == (
        "total_epochs is 5 now, was not limited; the search ends, as the run has reached this limit of total_epochs already"
    )
    assert loop.next_action() is None
    obeyed(loop, "set", total_epochs=12)
    assert not loop.finished


def test_limits_that_were_set_are_those_of_the_next_driver_too(tmp_path: Path) -> None:
    loop = build(study(), tmp_path, opening={"limits": {"trials": 6}})
    obeyed(loop, "set", trials=8, hours=3.0, concurrency=2)
    obeyed(loop, "set", trials=7)
    steered = record_of(tmp_path, study()).steered
    assert (steered.given, steered.limits, steered.concurrency) == ({"trials": 6}, {"trials": 7, "hours": 3.0}, 2)
    build(study(), tmp_path, history=events_of(tmp_path), opening={"limits": {"trials": 9}, "concurrency": 1})
    steered = record_of(tmp_path, study()).steered
    assert (steered.given, steered.limits, steered.concurrency) == ({"trials": 9}, {}, None)


def test_hours_that_cut_more_trials_short_are_said(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=6, max_epochs=9, hours=1e9)), tmp_path)
    drive(loop, reports=20)
    record = loop.record
    assert obeyed(loop, "set", trials=50) == "trials is 50 now, was 6"
    soon = (record.wall_seconds + 0.5) / 3600
    assert "and at the pace so far the 999998 trials that are left take about" in obeyed(
        loop, "set", trials=10**6, hours=soon
    )


def test_fewer_at_once_only_start_fewer_and_more_are_what_the_devices_hold(tmp_path: Path) -> None:
    loop = build(study(), tmp_path, concurrency=2, most_at_once=3)
    assert len(begun(loop, 4)) == 2
    assert obeyed(loop, "set", concurrency=1) == (
        "1 trial runs at once now; the 2 that run go on, and no other starts before"
    )
    assert len(loop.running) == 2
    assert obeyed(loop, "set", concurrency=8) == (
        "3 trials run at once now, which is all that the devices hold (asked for 8)"
    )
    assert len(begun(loop, 4)) == 1


def test_limits_that_the_study_cannot_have_are_refused(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    assert "needs a search with a model of the metric" in refused(loop, "set", min_improvement=0.1)


# try


def test_a_configuration_that_is_ordered_is_the_next_trial(tmp_path: Path) -> None:
    declared = study(space={"x": uniform(0, 1), "y": randint(0, 100)})
    loop = build(declared, tmp_path)
    drive(loop, reports=2)
    message = obeyed(loop, "try", config={"x": 0.25})
    assert message.startswith("the next free worker tries {'x': 0.25, 'y': ")
    assert message.endswith("; sampled: y")
    finish(loop)
    assert [trial.config["x"] == 0.25 for trial in loop.record.trials.values()] == [False, True, *[False] * 4]
    started = [e for e in events_of(tmp_path) if e["event"] == "trial_started" and "order" in e]
    assert [e["trial"] for e in started] == ["00001"]


def test_an_ordered_configuration_goes_before_paused_trials_and_into_their_brackets(tmp_path: Path) -> None:
    loop = build(study(scheduler=HyperBand(3, 3), budget=Budget(trials=9, max_epochs=9)), tmp_path)
    drive(loop, reports=9)
    obeyed(loop, "try", config={"x": 0.3})
    finish(loop)
    assert loop.record.trials["00003"].config == {"x": 0.3}
    best = loop.record.best_trial()
    assert best is not None
    assert best.trial == "00003"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"x": 7}, "try needs values inside the space, got x=7 outside of uniform(0, 1); change the value or widen"),
        ({"z": 1}, "try: 'z' is not in the space; it has x"),
        ({"x": "a"}, "try needs values inside the space, got x='a'"),
    ],
)
def test_a_configuration_outside_of_the_space_is_refused_by_name(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    assert message in refused(build(study(), tmp_path), "try", config=config)


def test_a_configuration_needs_room_in_the_budget_and_must_be_new(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    obeyed(loop, "try", config={"x": 0.5})
    assert "which is ordered already" in refused(loop, "try", config={"x": 0.5})
    complete(loop)
    assert loop.record.trials["00000"].config == {"x": 0.5}
    assert refused(loop, "try", config={"x": 0.25}) == (
        "a trial needs room in the budget, got 6 of 6 trials that were begun or ordered; "
        f"raise it with: python -m tuner set {tmp_path} --trials 7"
    )
    obeyed(loop, "set", trials=7)
    assert refused(loop, "try", config={"x": 0.5}).endswith("which trial 00000 has; change a value")
    obeyed(loop, "try", config={"x": 0.25})
    complete(loop)
    assert loop.record.trials["00006"].config == {"x": 0.25}


def test_a_space_that_is_used_up_has_no_room_for_an_order(tmp_path: Path) -> None:
    loop = build(study(space={"x": choice([1, 2])}), tmp_path)
    complete(loop)
    assert "whose 2 were all tried" in refused(loop, "try", config={"x": 1})


def test_the_constraint_holds_for_orders(tmp_path: Path) -> None:
    declared = study(constraint=lambda config: config["x"] < 0.5)
    assert "constraint needs to allow the configuration" in refused(build(declared, tmp_path), "try", config={"x": 0.7})


# note


def test_a_note_stands_with_its_trial(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    begun(loop, 1)
    obeyed(loop, "note", text="the fan is loud", trial="00000")
    obeyed(loop, "note", text="on Monday")
    (of_trial,) = loop.record.steered.notes_of("00000")
    (of_run,) = loop.record.steered.notes_of(None)
    assert (of_trial.text, of_trial.by, of_run.text) == ("the fan is loud", "me@here", "on Monday")


# Answers


def test_failed_trials_run_again_while_the_search_goes_on(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=3, max_epochs=4)), tmp_path, concurrency=2)
    assert "without any" in refused(loop, "retry")
    failed, going = begun(loop, 2)
    assert f"trial {going}, which is running" in refused(loop, "retry", trials=[going])
    loop.report(failed, 1, {"loss": 1.0}, saves=True)
    loop.failed(failed, "error", "KeyError: 'lr'")
    assert obeyed(loop, "retry", trials=[failed]) == f"the next free workers run {failed} again"
    assert begun(loop, 1) == [failed]
    finish(loop)
    record = record_of(tmp_path, loop.study)
    assert {trial.status for trial in record.trials.values()} == {"completed"}
    assert len(record.trials) == 3


def test_a_search_that_pauses_cant_be_stopped_before_it_is_resumed(tmp_path: Path) -> None:
    loop = build(study(), tmp_path, concurrency=2)
    begun(loop, 2)
    obeyed(loop, "pause")
    assert "resume it first" in refused(loop, "stop")
    assert not loop.stopped
    loop.end("paused by me@here")
    again = build(study(), tmp_path, history=events_of(tmp_path))
    assert "ends now" in obeyed(again, "stop")


def test_a_retry_that_is_read_after_the_end_is_refused_with_the_command_that_does_it(tmp_path: Path) -> None:
    loop = build(study(budget=Budget(trials=1, max_epochs=4)), tmp_path)
    loop.failed(*begun(loop, 1), "error", "KeyError: 'lr'")
    loop.obey(order("retry"), late=True)
    (found,) = answers(events_of(tmp_path))
    assert (found["event"], "tuner retry" in found["message"]) == ("order_refused", True)
    assert record_of(tmp_path, loop.study).trials["00000"].status == "failed"


def test_an_order_is_answered_once_and_a_malformed_one_refused(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    one = order("note", text="once")
    for _ in range(3):
        loop.obey(one)
    loop.obey(Malformed("odd", "an order needs to be JSON, got another file", file="odd.json"))
    found = answers(events_of(tmp_path))
    assert [(e["event"], e["verb"]) for e in found] == [("order_obeyed", "note"), ("order_refused", "unknown")]


def test_stop_and_pause_that_are_read_after_the_end_do_nothing(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    for verb in ("stop", "pause"):
        loop.obey(order(verb), late=True)
    assert not loop.stopped
    assert {e["message"] for e in answers(events_of(tmp_path))} == {
        "the search had already ended when the order was read"
    }


def test_orders_after_a_stop_are_told_that_the_search_ends(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    obeyed(loop, "stop")
    assert obeyed(loop, "set", trials=9).endswith(
        "the search ends all the same, as it was stopped; `resume` goes on within these limits"
    )
    assert refused(loop, "try", config={"x": 0.5}) == (
        "a trial needs a search that goes on, got one that ends by stop; resume the run first"
    )


@pytest.mark.parametrize(
    ("ordered", "arguments", "named", "command"),
    [
        ("stop", {}, ["00001", "00002"], "retry '{}/a run' --trial 00001 --trial 00002"),
        ("stop", {}, [], "retry '{}/a run'"),
        ("set", {"total_epochs": 5}, ["00001"], "retry '{}/a run' --trial 00001 --total-epochs N"),
    ],
)
def test_a_retry_that_comes_while_the_search_ends_is_refused_with_the_command_that_will_work_then(
    tmp_path: Path, ordered: str, arguments: dict[str, Any], named: list[str], command: str
) -> None:
    loop = build(study(), tmp_path / "a run")
    for _ in range(3):
        start = loop.next_action()
        assert start is not None
        loop.failed(start.trial, "error", "KeyError: 'x'")
    drive(loop, reports=5)
    obeyed(loop, ordered, **arguments)
    told = refused(loop, "retry", **({"trials": named} if named else {}))
    assert told.endswith(f"; once it has ended, run: python -m tuner {command.format(tmp_path)}")


def test_a_limit_that_leaves_no_room_for_an_ordered_trial_is_raised_by_the_command_that_is_told(tmp_path: Path) -> None:
    loop = build(study(), tmp_path / "a run")
    drive(loop, reports=5)
    obeyed(loop, "set", total_epochs=5)
    assert refused(loop, "try", config={"x": 0.5}).endswith(
        f"one that ends by total_epochs; set a new one first: python -m tuner set '{tmp_path}/a run' --total-epochs N"
    )


def test_a_function_of_the_study_that_fails_refuses_the_order_and_ends_nothing(tmp_path: Path) -> None:
    def strict(config: dict[str, Any]) -> bool:
        if config["x"] == 0.5:
            raise ValueError("not this one")
        return True

    loop = build(study(constraint=strict), tmp_path)
    assert "got ValueError: not this one" in refused(loop, "try", config={"x": 0.5})
    finish(loop)
    assert len(loop.record.trials) == 6
