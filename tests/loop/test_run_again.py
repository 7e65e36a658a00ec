"""Failed trials that the user has run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.loop.failing import Failing, Stay, cut_after, fails_once, failures, kinds, train, work
from tests.loop.simulation import build, drive, events_of, study
from tuner import ASHA, BOHB, Budget, HyperBand, HyperOpt, MultiFidelityGP, Optuna, Random, Study
from tuner.errors import RunFolderError
from tuner.history.checkpoints import CheckpointStore
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.orders.order import Order
from tuner.schedule import Decision
from tuner.storage.folder import LocalFolder

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
        (["7"], "a trial is named by its id, got '7', which the run doesn't have; `show` lists them"),
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


def test_a_trial_that_runs_again_waits_for_its_bracket_at_the_next_rung_as_any_other(tmp_path: Path) -> None:
    declared = study(search=Random(), scheduler=HyperBand(2, 2), budget=Budget(trials=8, max_epochs=6))
    loop = build(declared, tmp_path, concurrency=1)
    work(loop, fails_once("error", number=0, epoch=1), reports=1, saves=True)
    loop.retry(["0"])
    work(loop, never, saves=True)
    paused = {(event["trial"], event["epoch"]) for event in events_of(tmp_path) if event["event"] == "trial_paused"}
    assert ("00000", 2) in paused


def test_a_search_that_has_reached_a_limit_runs_no_trial_again(tmp_path: Path) -> None:
    declared = study(budget=Budget(trials=6, max_epochs=4, total_epochs=3))
    loop = build(declared, tmp_path)
    work(loop, fails_once("error", number=0, epoch=2))
    assert loop.end_reason == "total_epochs"
    with pytest.raises(
        RunFolderError, match=r"must be above the 3 that it has already used, got 3; use --total-epochs"
    ):
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
