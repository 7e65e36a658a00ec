"""Trials that are tried again: after which failures, how often, alone or not, by whom, and after a killed driver."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, events_of, study
from tuner import ASHA, BOHB, Budget, Failures, HyperBand, HyperOpt, MultiFidelityGP, Optuna, Random, Study
from tuner.errors import RunFolderError
from tuner.history.checkpoints import CheckpointStore
from tuner.history.event_lines import written
from tuner.history.events import Event
from tuner.history.records import TrialRecord
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.orders.order import Order
from tuner.schedule import Decision
from tuner.storage.folder import LocalFolder

Failing = Callable[[int, int, int], str | None]  # of number, tries that failed before, and epoch: the cause


@dataclass
class Stay:
    """A trial on a worker."""

    start: Start
    epoch: int


def work(loop: SearchLoop, failing: Failing, *, saves: bool = False, reports: int = 10_000) -> list[frozenset[str]]:
    """Workers that train an epoch each in turn, until the search ends or after so many reports; what ran together."""
    stays: list[Stay] = []
    together = []
    while not loop.finished and reports > 0:
        while (start := loop.next_action()) is not None:
            stays.append(Stay(start, loop.record.trials[start.trial].last_checkpoint))
        together.append(loop.running)
        for stay in list(stays):
            reports -= 1
            if train(loop, stay, failing, saves=saves) is not Decision.CONTINUE:
                stays.remove(stay)
    return together


def train(loop: SearchLoop, stay: Stay, failing: Failing, *, saves: bool) -> Decision:
    trial = stay.start.trial
    stay.epoch += 1
    record = loop.record.trials[trial]
    cause = failing(record.number, len(record.attempts.failed), stay.epoch)
    if cause in ("lost", "hung"):
        loop.lost(trial, cause, f"{cause} in epoch {stay.epoch}")
    elif cause is not None and cause != "diverged":
        loop.failed(trial, cause, f"{cause} in epoch {stay.epoch}", f"traceback of epoch {stay.epoch}")
    else:
        if saves:
            CheckpointStore(loop.folder).write(trial, stay.epoch, lambda _: None)
        value = math.nan if cause else stay.start.config["x"] + 1 / stay.epoch
        saved = [stay.epoch] if saves else []
        return loop.report(trial, stay.epoch, {"loss": value}, saved=saved, saves=saves)
    return Decision.STOP


def failures(**settings: int | None) -> Study:
    return study(failures=Failures(**settings), budget=Budget(trials=6, max_epochs=4))  # type: ignore[arg-type]


def fails_once(cause: str, number: int = 1, epoch: int = 3) -> Failing:
    return lambda trial, tries, at: cause if (trial, tries, at) == (number, 0, epoch) else None


def kinds(folder: Path, trial: str) -> list[str]:
    return [event["event"] for event in events_of(folder) if event.get("trial") == trial]


def outcome(trial: TrialRecord) -> tuple[Any, ...]:
    return trial.status, trial.cause, trial.message, [(a.kind, a.cause, a.message) for a in trial.attempts.failed]


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


def cut_after(folder: Path, count: int, target: Path) -> list[Event]:
    """The run as a driver leaves it that is killed after so many events."""
    (target / "events").mkdir(parents=True)
    lines = [written(event) + b"\n" for event in events_of(folder)[:count]]
    (target / "events" / "000001.jsonl").write_bytes(b"".join(lines))
    return events_of(target)


def many_ways(number: int, tries: int, epoch: int) -> str | None:
    """Trial 0 raises once, 1 is lost thrice, 2 raises twice, 3 runs out of memory, 4 diverges, 5 goes well."""
    ways = [["error"], ["lost"] * 3, ["error"] * 2, ["out_of_memory"], ["diverged"], []][number]
    return ways[tries] if tries < len(ways) and epoch == 2 else None


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


# By the user


RAISES = fails_once("error")


def searched(folder: Path, declared: Study | None = None, failing: Failing = RAISES) -> SearchLoop:
    loop = build(declared or failures(), folder)
    work(loop, failing, saves=True)
    loop.end()
    return loop


def never(number: int, tries: int, epoch: int) -> None:
    return None


def test_a_failed_trial_that_the_user_has_run_again_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    declared = failures(error=1)
    before = searched(tmp_path, declared, lambda number, _, epoch: "error" if number == 1 and epoch == 3 else None)
    assert before.record.trials["00001"].status == "failed"
    again = build(declared, tmp_path, history=events_of(tmp_path))
    assert again.retry() == ["00001"]
    assert again.record.trials["00001"].status == "running"
    work(again, lambda number, tries, epoch: "error" if tries == 2 and epoch == 4 else None, saves=True)
    again.end()
    trial = again.record.trials["00001"]
    assert trial.status == "completed"  # it has as many tries as a new one
    assert [(a.kind, a.epoch) for a in trial.attempts.failed] == [("error", 2), ("", 2), ("error", 3)]
    starts = [e for e in events_of(tmp_path) if e["event"] == "trial_started" and e["trial"] == "00001"]
    assert [(start["from_epoch"], start["seed"]) for start in starts] == [
        (from_epoch, trial.seed) for from_epoch in (0, 2, 2, 3)
    ]
    assert (again.end_reason, len(again.record.trials)) == ("trials", 6)


def test_a_failed_trial_keeps_its_last_checkpoint_and_one_that_diverged_none(tmp_path: Path) -> None:
    searched(tmp_path, failing=lambda number, _, epoch: {1: "error", 2: "diverged"}.get(number) if epoch == 3 else None)
    store = CheckpointStore(LocalFolder(tmp_path))
    assert {trial: store.epochs(trial) for trial in ("00001", "00002")} == {"00001": [2], "00002": []}
    again = build(failures(), tmp_path, history=events_of(tmp_path))
    again.retry(["1", "00002"])
    work(again, never, saves=True)
    again.end()
    best = again.record.best_trial()
    assert best is not None
    assert again.record.counts()["completed"] == 6
    assert [trial for trial in store.trials() if store.epochs(trial)] == [best.trial]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (["7"], "a trial is named by its id, got '7', which the run doesn't have; see `tuner show`"),
        (["1", "0"], "only failed trials can run again, got trial 00000, which is completed; leave it out"),
        (
            [],
            "failed trials can run again, got a run without any but 1 that diverged; "
            "name one with --trial to run it all the same",
        ),
    ],
)
def test_what_can_not_run_again_is_refused_and_nothing_is_written(
    tmp_path: Path, named: list[str], message: str
) -> None:
    loop = searched(tmp_path, failing=fails_once("diverged"))
    written_before = events_of(tmp_path)
    with pytest.raises(RunFolderError) as refused:
        loop.retry(named)
    assert str(refused.value) == message
    assert events_of(tmp_path) == written_before


def test_a_run_without_failed_trials_has_nothing_to_retry(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"^failed trials can run again, got a run without any; there is nothing"):
        searched(tmp_path, failing=never).retry()


def test_a_failed_trial_runs_again_while_the_search_goes_on(tmp_path: Path) -> None:
    loop = build(failures(), tmp_path, concurrency=2)
    work(loop, fails_once("error", number=0, epoch=1), reports=4)
    assert loop.record.trials["00000"].status == "failed"
    stays = [
        Stay(Start(t.trial, t.number, t.config, t.seed, 4), t.epoch)
        for t in map(loop.record.trials.get, loop.running)
        if t
    ]
    assert loop.retry(["0"]) == ["00000"]
    for stay in stays:
        while train(loop, stay, never, saves=False) is Decision.CONTINUE:
            pass
    start = loop.next_action()
    assert start is not None
    assert (start.trial, loop.record.trials["00000"].status) == ("00000", "running")


def test_a_search_that_is_ending_runs_no_trial_again(tmp_path: Path) -> None:
    declared = study(budget=Budget(trials=6, max_epochs=4, total_epochs=3))
    loop = build(declared, tmp_path)
    work(loop, fails_once("error", number=0, epoch=2))
    assert loop.end_reason == "total_epochs"
    with pytest.raises(RunFolderError, match=r"got one that ends \(total_epochs\); wait until it has ended"):
        loop.retry(["0"])


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_driver_killed_after_the_user_asked_runs_all_these_trials_once(tmp_path: Path, concurrency: int) -> None:
    def failing(number: int, tries: int, epoch: int) -> str | None:
        return "error" if number in (1, 4) and not tries and epoch == 2 else None

    searched(tmp_path / "whole", failing=failing)
    again = build(failures(), tmp_path / "whole", history=events_of(tmp_path / "whole"))
    again.retry()
    work(again, failing)
    again.end()
    names = [event["event"] for event in events_of(tmp_path / "whole")]
    for count in range(names.index("retry_requested") + 1, len(names)):
        folder = tmp_path / f"{count}"
        third = build(failures(), folder, concurrency=concurrency, history=cut_after(tmp_path / "whole", count, folder))
        work(third, failing)
        assert {t.status for t in third.record.trials.values()} == {"completed"}, f"after {count} events"
        tries = {trial.trial: len(trial.attempts.failed) for trial in third.record.trials.values()}
        assert tries == {f"{number:05d}": int(number in (1, 4)) for number in range(6)}


@pytest.mark.parametrize("scheduler", [ASHA(2, 2), ASHA(2, 2, rule="stop"), HyperBand(2, 2)], ids=repr)
@pytest.mark.parametrize(
    "search",
    [
        Random(),
        MultiFidelityGP(startup_trials=2, candidates=20),
        HyperOpt(startup_trials=2),
        BOHB(),
        Optuna("TPESampler", {"n_startup_trials": 2}),
    ],
    ids=lambda search: search.name,
)
def test_a_trial_that_runs_again_competes_as_any_other_and_a_further_driver_knows_it(
    tmp_path: Path, search: Any, scheduler: Any
) -> None:
    def failing(number: int, tries: int, epoch: int) -> str | None:
        ends = [("error", 1), ("error", 2), ("diverged", 2)]  # 2 is the first rung
        return ends[number][0] if number < len(ends) and not tries and epoch == ends[number][1] else None

    declared = study(search=search, scheduler=scheduler, budget=Budget(trials=8, max_epochs=6))
    searched(tmp_path / "run", declared, failing)
    longer = study(search=search, scheduler=scheduler, budget=Budget(trials=12, max_epochs=6))
    again = build(longer, tmp_path / "run", history=events_of(tmp_path / "run"))
    again.retry(["0", "1", "2"])
    work(again, failing, saves=True)
    again.end()
    assert {trial.status for trial in again.record.trials.values()} <= {"completed", "stopped"}
    assert again.record.counts()["completed"] >= 1
    third = build(longer, tmp_path / "run", history=events_of(tmp_path / "run"))
    for number in (12, 13):
        assert third._proposals._searcher.suggest(number) == again._proposals._searcher.suggest(number)


def test_an_older_version_reads_a_run_in_which_trials_were_tried_again(tmp_path: Path) -> None:
    """It passes over kinds of events that it doesn't know: the trials are there, and how they ended."""
    searched(tmp_path, failures(error=1), fails_once("error"))
    again = build(failures(error=1), tmp_path / "old")
    known = [event for event in events_of(tmp_path) if event["event"] not in ("trial_retried", "retry_requested")]
    assert [again.record.apply(event) for event in known[1:]] == [None] * (len(known) - 1)
    assert {trial.status for trial in again.record.trials.values()} == {"completed"}


def test_the_first_driver_of_a_study_is_not_asked_to_retry(tmp_path: Path) -> None:
    loop = build(failures(), tmp_path)
    drive(loop, reports=1)
    with pytest.raises(RunFolderError, match="got a run without any; there is nothing to do"):
        loop.retry()


def test_a_trial_that_waits_to_be_tried_alone_and_is_stopped_by_an_order_runs_no_more(tmp_path: Path) -> None:
    loop = build(failures(), tmp_path, concurrency=2)
    first, other = (loop.next_action() for _ in range(2))
    assert first is not None
    assert other is not None
    loop.failed(first.trial, "out_of_memory", "not even one image fits")
    assert loop.next_action() is not None  # the trial steps aside for it
    loop.obey(Order("order", "stop", {"trial": first.trial}, by="me@here", time=1.0))
    for trial in sorted(loop.running):
        loop.failed(trial, "error", "KeyError: 'lr'")
    drive(loop)
    assert kinds(tmp_path, first.trial) == ["trial_started", "trial_retried", "trial_ended"]
    assert loop.record.trials[first.trial].ended_by == "stop"
