"""Trials that are tried again: after which failures, how often, alone or not, by whom, and after a killed driver."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.loop.failing import Failing, cut_after, fails_once, failures, kinds, many_ways, outcome, work
from tests.loop.simulation import build, events_of, study
from tuner import ASHA, Budget, Failures, MultiFidelityGP, Study, choice, lograndint, loguniform
from tuner.history.similar_failures import failed_alike

# After which failures, and how often


def test_an_exception_ends_its_trial_unless_the_study_says_otherwise(tmp_path: Path) -> None:
    loop = build(failures(), tmp_path)
    work(loop, fails_once("error"))
    failed = loop.record.trials["00001"]
    assert outcome(failed) == ("failed", "error", "error in epoch 3", [])
    assert failed.traceback == "traceback of epoch 3"


def test_an_exception_that_comes_once_costs_the_epochs_since_the_last_checkpoint(tmp_path: Path) -> None:
    loop = build(failures(error=1), tmp_path)
    work(loop, fails_once("error"), saves=True)
    trial = loop.record.trials["00001"]
    assert outcome(trial) == ("completed", None, None, [("error", "error", "error in epoch 3")])
    starts = [event for event in events_of(tmp_path) if event["event"] == "trial_started" and event["number"] == 1]
    assert [(start["from_epoch"], start["seed"]) for start in starts] == [(0, trial.seed), (2, trial.seed)]
    reported = [e["epoch"] for e in events_of(tmp_path) if e["event"] == "epoch_reported" and e["trial"] == "00001"]
    assert reported == [1, 2, 3, 4]
    (retried,) = [event for event in events_of(tmp_path) if event["event"] == "trial_retried"]
    assert (retried["cause"], retried["traceback"]) == ("error", "traceback of epoch 3")


@pytest.mark.parametrize("cause", ["error", "lost"])
def test_a_run_keeps_beginning_and_end_of_a_message_of_any_length(tmp_path: Path, cause: str) -> None:
    loop = build(failures(lost=0), tmp_path)
    start = loop.next_action()
    assert start is not None
    message, traceback = "ValueError: " + "a" * 2_000_000 + " the end", "Traceback" + "b" * 2_000_000 + " the end"
    {"error": loop.failed, "lost": loop.lost}[cause](start.trial, cause, message, traceback)
    trial = loop.record.trials[start.trial]
    middle = " … 1,996,120 characters are left out, see the trial's log … "
    assert trial.message == message[:1950] + middle + message[-1950:]
    assert trial.traceback is not None
    assert (len(trial.traceback) < 100_000, trial.traceback[:9], trial.traceback[-8:]) == (
        True,
        "Traceback",
        " the end",
    )
    assert all(len(str(event)) < 110_000 for event in events_of(tmp_path))


def test_a_message_of_the_usual_length_is_kept_as_it_is(tmp_path: Path) -> None:
    loop = build(failures(), tmp_path)
    start = loop.next_action()
    assert start is not None
    loop.failed(start.trial, "error", "é" * 4000, "t" * 100_000)
    trial = loop.record.trials[start.trial]
    assert (trial.message, trial.traceback) == ("é" * 4000, "t" * 100_000)


@pytest.mark.parametrize(("settings", "cause", "tries"), [({"error": 2}, "error", 3), ({"lost": 2}, "lost", 3)])
def test_a_trial_that_fails_each_time_is_tried_as_often_as_the_study_says(
    tmp_path: Path, settings: dict[str, int], cause: str, tries: int
) -> None:
    loop = build(failures(**settings), tmp_path, concurrency=2)
    work(loop, lambda number, _, epoch: cause if number == 1 and epoch == 2 else None)
    trial = loop.record.trials["00001"]
    assert (trial.status, trial.cause, trial.message) == ("failed", cause, f"{cause} in epoch 2")
    assert kinds(tmp_path, "00001").count("trial_started") == tries
    assert loop.record.counts()["completed"] == 5


def test_what_hangs_counts_as_lost(tmp_path: Path) -> None:
    loop = build(failures(lost=1), tmp_path)
    work(loop, lambda number, tries, epoch: ["lost", "hung"][tries] if number == 1 and epoch == 2 else None)
    lost = ("lost", "lost", "lost in epoch 2"), ("lost", "hung", "hung in epoch 2")
    assert outcome(loop.record.trials["00001"]) == ("failed", "hung", "hung in epoch 2", list(lost))


def test_a_trial_may_leave_drained_nodes_as_often_as_they_go(tmp_path: Path) -> None:
    loop = build(failures(lost=0), tmp_path)
    work(loop, lambda number, tries, epoch: "drained" if number == 1 and tries < 5 and epoch == 2 else None, saves=True)
    trial = loop.record.trials["00001"]
    assert (trial.status, trial.losses, len(trial.attempts.tried_again)) == ("completed", 0, 5)


def test_the_causes_are_counted_apart(tmp_path: Path) -> None:
    loop = build(failures(lost=1, error=1), tmp_path)
    work(loop, lambda number, tries, epoch: ["lost", "error", None][min(tries, 2)] if epoch == 2 else None)
    assert loop.record.counts()["completed"] == 6


def test_a_trial_that_diverged_is_never_tried_again(tmp_path: Path) -> None:
    loop = build(failures(lost=9, error=9, out_of_memory=9), tmp_path)
    work(loop, fails_once("diverged"))
    assert outcome(loop.record.trials["00001"]) == ("failed", "diverged", "loss = nan", [])


# Alone


def out_of_memory_beside_others(tries: int) -> Failing:
    return lambda number, before, epoch: "out_of_memory" if number == 1 and before < tries and epoch == 2 else None


def test_a_trial_whose_memory_ran_out_is_tried_alone_when_nothing_else_is_left(tmp_path: Path) -> None:
    loop = build(failures(), tmp_path, concurrency=3)
    together = work(loop, out_of_memory_beside_others(1))
    assert outcome(loop.record.trials["00001"])[0] == "completed"
    assert together[0] == {"00000", "00001", "00002"}
    assert [names for names in together if "00001" in names][2:] == [{"00001"}] * 4
    assert [names for names in together if names][-4:] == [{"00001"}] * 4
    assert loop.record.counts()["completed"] == 6


def test_alone_it_fails_for_good(tmp_path: Path) -> None:
    loop = build(failures(), tmp_path, concurrency=3)
    work(loop, out_of_memory_beside_others(2))
    trial = loop.record.trials["00001"]
    assert (trial.status, trial.cause, len(trial.attempts.failed)) == ("failed", "out_of_memory", 1)


@pytest.mark.parametrize(
    ("settings", "concurrency", "shared"), [({}, 1, True), ({}, 3, False), ({"out_of_memory": 0}, 3, True)]
)
def test_a_trial_that_had_its_device_to_itself_is_not_tried_again(
    tmp_path: Path, settings: dict[str, int], concurrency: int, shared: bool
) -> None:
    loop = build(failures(**settings), tmp_path, concurrency=concurrency, share_devices=shared)
    work(loop, out_of_memory_beside_others(1))
    trial = loop.record.trials["00001"]
    assert outcome(trial) == ("failed", "out_of_memory", "out_of_memory in epoch 2", [])


def test_a_trial_that_is_tried_alone_stays_alone_after_a_pause(tmp_path: Path) -> None:
    declared = study(scheduler=ASHA(2, 2), budget=Budget(trials=6, max_epochs=6))
    loop = build(declared, tmp_path, concurrency=3)
    best = min(range(6), key=lambda number: (SearchProbe(declared).x(number), number))
    together = work(
        loop, lambda number, tries, epoch: "out_of_memory" if (number, tries) == (best, 0) else None, saves=True
    )
    trial = f"{best:05d}"
    assert loop.record.trials[trial].status == "completed"
    assert kinds(tmp_path, trial).count("trial_resumed") >= 1
    assert {names for names in together[1:] if trial in names} == {frozenset({trial})}
    assert not loop.record.counts()["paused"]


class SearchProbe:
    """What `Random` will suggest, whatever becomes of the trials."""

    def __init__(self, declared: Study) -> None:
        self._searcher = declared.search.build(declared.problem)

    def x(self, number: int) -> float:
        config = self._searcher.suggest(number)
        assert config is not None
        return float(config["x"])


# Limits


def test_no_trial_is_tried_again_once_a_limit_is_reached(tmp_path: Path) -> None:
    declared = study(failures=Failures(error=1), budget=Budget(trials=6, max_epochs=4, total_epochs=2))
    loop = build(declared, tmp_path, concurrency=2)
    first, second = loop.next_action(), loop.next_action()
    assert first is not None
    assert second is not None
    loop.failed(first.trial, "error", "before the limit")
    assert loop.record.trials[first.trial].attempts.waiting
    for epoch in (1, 2):
        loop.report(second.trial, epoch, {"loss": 1.0}, saves=False)
    loop.next_action()
    loop.end()
    assert outcome(loop.record.trials[first.trial])[:3] == ("failed", "error", "before the limit")
    assert loop.record.trials[second.trial].status == "stopped"


# After a killed driver


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_driver_killed_at_any_event_neither_forgets_a_retry_nor_does_it_twice(
    tmp_path: Path, concurrency: int
) -> None:
    declared = failures(lost=2, error=1)
    whole = build(declared, tmp_path / "whole", concurrency=concurrency)
    work(whole, many_ways)
    outcomes = {name: outcome(trial) for name, trial in whole.record.trials.items() if name != "00003"}
    assert [told[0] for told in outcomes.values()] == ["completed", "failed", "failed", "failed", "completed"]
    assert [len(told[3]) for told in outcomes.values()] == [1, 3, 1, 0, 0]
    for count in range(1, len(events_of(tmp_path / "whole"))):
        folder = tmp_path / str(count)
        again = build(declared, folder, concurrency=concurrency, history=cut_after(tmp_path / "whole", count, folder))
        work(again, many_ways)
        found = {name: outcome(trial) for name, trial in again.record.trials.items() if name != "00003"}
        assert again.record.trials["00003"].status in ("completed", "failed")  # what runs beside it depends on the cut
        assert found == outcomes, f"after {count} events"


def test_a_trial_lost_too_often_has_failed_though_the_driver_was_killed_before_it_said_so(tmp_path: Path) -> None:
    declared = failures(lost=0)
    work(build(declared, tmp_path / "whole"), fails_once("lost"))
    names = [event["event"] for event in events_of(tmp_path / "whole")]
    history = cut_after(tmp_path / "whole", names.index("trial_lost") + 1, tmp_path / "cut")
    again = build(declared, tmp_path / "cut", history=history)
    assert outcome(again.record.trials["00001"])[:3] == ("failed", "lost", "lost in epoch 3")
    assert kinds(tmp_path / "cut", "00001").count("trial_started") == 1


def out_of_memory(folder: Path, cause: str) -> list[bool]:
    """Which trials need too much memory, where nearly half of the space does, in the order of suggestions."""
    space = {"lr": loguniform(1e-3, 1), "width": lograndint(4, 128), "optimizer": choice(["sgd", "adam"])}
    declared = study(space=space, search=MultiFidelityGP(), budget=Budget(trials=30, max_epochs=3))
    loop = build(declared, folder, concurrency=2)
    running: list[Any] = []
    while True:
        while (start := loop.next_action()) is not None:
            running.append(start)
        if not running:
            break
        start = running.pop(0)
        lr, width = start.config["lr"], start.config["width"]
        if width > 60 or (start.config["optimizer"] == "sgd" and lr > 0.05):
            loop.failed(start.trial, cause, "too much")
        else:
            for epoch in (1, 2, 3):
                loop.report(start.trial, epoch, {"loss": abs(math.log10(lr / 0.3)) + 1 / width + 1 / epoch}, saved=[])
    loop.end()
    loop.close()
    return [t.status == "failed" for t in loop.record.trials.values()]


def test_trials_that_wait_to_be_tried_alone_count_as_failed_until_then(fast: Path) -> None:
    diverged = out_of_memory(fast / "1", "diverged")
    waiting = out_of_memory(fast / "2", "out_of_memory")
    assert sum(waiting) == sum(diverged) < 15


def test_a_trial_that_waited_and_then_succeeds_counts_with_its_values(fast: Path) -> None:
    declared = study(search=MultiFidelityGP(), budget=Budget(trials=6, max_epochs=3))
    loop = build(declared, fast, concurrency=2)
    running, failed = [loop.next_action(), loop.next_action()], False
    while running:
        start = running.pop(0)
        assert start is not None
        if start.number == 0 and not failed:
            failed = True
            loop.failed(start.trial, "out_of_memory", "too much beside the other one")
        else:
            for epoch in (1, 2, 3):
                loop.report(start.trial, epoch, {"loss": abs(start.config["x"] - 0.3) + 1 / epoch}, saved=[])
        running += [again for _ in range(2) if (again := loop.next_action()) is not None]
    assert loop.finished
    assert [trial.status for trial in loop.record.trials.values()] == ["completed"] * 6
    assert loop._proposals._searcher._curves[0].keys() == {1, 2, 3}  # type: ignore[attr-defined]
    assert loop._proposals._searcher._failed == {}  # type: ignore[attr-defined]
    loop.close()


# Failures that may be the worker's


def failed_on_a_used_worker(folder: Path, message: str = "OSError: too many files", **options: Any) -> Any:
    loop = build(failures(**options), folder)
    start = loop.next_action()
    assert start is not None
    loop.failed(start.trial, "error", message, None, used=True)
    return loop


def test_an_error_on_a_used_worker_does_not_count_and_the_trial_is_tried_once_more_on_a_fresh_one(
    tmp_path: Path,
) -> None:
    loop = failed_on_a_used_worker(tmp_path)
    again = loop.next_action()
    assert (again.trial, again.fresh) == ("00000", True)
    (retried,) = [event for event in events_of(tmp_path) if event["event"] == "trial_retried"]
    assert (retried["cause"], retried["used"]) == ("error", True)
    loop.failed("00000", "error", "OSError: too many files", None, used=True)
    trial = loop.record.trials["00000"]
    assert outcome(trial) == (
        "failed",
        "error",
        "OSError: too many files",
        [("used", "error", "OSError: too many files")],
    )


def test_a_retry_that_the_study_allows_comes_in_addition(tmp_path: Path) -> None:
    loop = failed_on_a_used_worker(tmp_path, error=1)
    assert loop.next_action().fresh
    loop.failed("00000", "error", "OSError: too many files")
    again = loop.next_action()
    assert (again.trial, again.fresh) == ("00000", False)
    loop.failed("00000", "error", "OSError: too many files")
    assert [attempt.kind for attempt in loop.record.trials["00000"].attempts.failed] == ["used", "error"]


def test_a_driver_that_goes_on_gives_the_trial_a_fresh_worker_too(tmp_path: Path) -> None:
    failed_on_a_used_worker(tmp_path).close()
    loop = build(failures(), tmp_path, history=events_of(tmp_path))
    again = loop.next_action()
    assert (again.trial, again.fresh) == ("00000", True)


def test_an_error_that_other_trials_have_ended_with_is_known(tmp_path: Path) -> None:
    loop = failed_on_a_used_worker(tmp_path, "ValueError: 3 is wrong")
    assert not failed_alike(loop.record, "ValueError: 4 is wrong", None)
    loop.next_action()
    loop.failed("00000", "error", "ValueError: 3 is wrong")
    assert failed_alike(loop.record, "ValueError: 4 is wrong", None)
    assert not failed_alike(loop.record, "KeyError: 4 is wrong", None)
