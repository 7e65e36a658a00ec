"""What a limit of the disk leads to in whole searches: what goes first, what never goes, when the search pauses."""

import itertools
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.history.events_of_a_run import ended, event, fold, reported, saved, started
from tests.loop.failing import work
from tests.loop.simulation import build, drive, events_of, study
from tests.mounts import needs_mounts, run_on_tmpfs
from tuner import ASHA, Budget, HyperBand, NoEarlyStopping
from tuner.history.checkpoints import CHECKPOINTS, CheckpointStore
from tuner.history.records import RunRecord
from tuner.loop.keeping import Keeper
from tuner.loop.room import Actions, Room, least_bytes, needed_free
from tuner.loop.search_loop import SearchLoop
from tuner.orders.order import Order
from tuner.storage.folder import LocalFolder
from tuner.study.budget import GB

SIZE = 100_000  # bytes of a checkpoint here
LEAST = least_bytes(1, 3)  # checkpoints that a search of three workers needs room for


def fill(folder: Path) -> None:
    (folder / "weights").write_bytes(bytes(SIZE))


def gb(checkpoints: float, *, others: int = 100_000) -> float:
    """A limit that holds so many checkpoints, their manifests included, beside what else a small search writes."""
    return (checkpoints * (SIZE + 300) + others) / GB


def limited(disk_gb: float | None, scheduler: Any = None, trials: int = 27) -> Any:
    budget = Budget(trials=trials, max_epochs=9, disk_gb=disk_gb)
    return study(scheduler=scheduler or ASHA(1, 3), budget=budget)


class Watched:
    """Drives a search and remembers the most that its folder ever held."""

    def __init__(self, folder: Path, disk_gb: float | None, scheduler: Any = None, **options: Any) -> None:
        self.folder, self.most, self.reasons = folder, 0, list[str]()
        declared = limited(disk_gb, scheduler, trials=options.pop("trials", 27))
        self.loop = build(declared, folder, pause=self.reasons.append, **options)

    def fill(self, folder: Path) -> None:
        fill(folder)
        self.most = max(self.most, LocalFolder(self.folder).held_bytes())

    def drive(self, **options: Any) -> RunRecord:
        drive(self.loop, fill=self.fill, leave=lambda: bool(self.reasons), **options)
        self.loop.end(self.reasons[0] if self.reasons else None)
        self.loop.close()
        return self.loop.record


def ends_by_disk(record: RunRecord) -> list[str]:
    return [trial.trial for trial in record.trials.values() if trial.ended_by == "disk_gb"]


# Whole searches


@pytest.mark.parametrize("scheduler", [ASHA(1, 3), HyperBand(1, 3), NoEarlyStopping()], ids=repr)
@pytest.mark.parametrize("checkpoints", [5, 6, 8])
def test_a_search_stays_below_its_limit_and_comes_to_its_end(fast: Path, scheduler: Any, checkpoints: int) -> None:
    search = Watched(fast, gb(checkpoints), scheduler)
    record = search.drive()
    assert search.reasons == []
    assert search.most < gb(checkpoints) * GB
    best = record.best_trial()
    assert best is not None
    assert len(record.trials) == 27
    assert (record.best_of(best.trial) or (0,))[0] in best.checkpoints


@pytest.mark.parametrize("repeats", [2, 3])
def test_a_race_with_the_least_disk_comes_to_its_end_with_the_winners_network(fast: Path, repeats: int) -> None:
    limit = least_bytes(SIZE + 300, 1) + 100_000
    reasons: list[str] = []
    budget = Budget(trials=30, max_epochs=3, disk_gb=limit / GB)
    loop = build(study(budget=budget, repeats=repeats), fast, pause=reasons.append)
    drive(loop, lambda config, epoch: random.Random(config["x"] + len(loop.record.trials)).random(), fill=fill)
    loop.end()
    assert (reasons, loop.end_reason) == ([], "trials")
    assert len(loop.record.repeated) > 3
    best = loop.record.best_trial()
    assert best is not None
    assert best.checkpoints


def test_without_a_limit_more_is_kept(fast: Path) -> None:
    search = Watched(fast, None)
    record = search.drive()
    assert search.most > gb(8) * GB
    assert ends_by_disk(record) == []


def test_the_least_promising_paused_trials_end_and_one_notice_says_so(fast: Path) -> None:
    search = Watched(fast / "limited", gb(6))
    record = search.drive()
    dropped = ends_by_disk(record)
    assert dropped
    assert len([notice for notice in record.notices if "holds no more paused trials" in notice]) == 1
    best = record.best_trial()
    undisturbed = Watched(fast / "without", None).drive().best_trial()
    assert best is not None
    assert undisturbed is not None
    assert best.config == undisturbed.config  # the curves don't cross: what was worse stayed worse


def test_of_paused_trials_the_worst_goes_first(fast: Path) -> None:
    Watched(fast, gb(6)).drive()
    order = [e["trial"] for e in events_of(fast) if e["event"] == "trial_ended" and e.get("by") == "disk_gb"]
    assert order
    for name in order:
        history = itertools.takewhile(
            lambda e, name=name: not (e["event"] == "trial_ended" and e["trial"] == name), events_of(fast)
        )
        then = RunRecord("loss", "min", history)
        waiting = [t for t in then.trials.values() if t.status == "paused"]
        assert then.rank(then.trials[name]) == min(map(then.rank, waiting))


def test_the_checkpoint_of_a_failed_trial_goes_first(fast: Path) -> None:
    search = Watched(fast, gb(5), ASHA(1, 3))
    first = search.loop.next_action()
    assert first is not None
    store = CheckpointStore(LocalFolder(fast))
    store.write(first.trial, 1, fill)
    search.loop.report(first.trial, 1, {"loss": 0.5}, saved=[1])
    search.loop.failed(first.trial, "error", "KeyError: 'lr'")
    assert store.epochs(first.trial) == [1]
    record = search.drive()
    assert search.reasons == []
    assert store.epochs(first.trial) == []
    went = next(e for e in events_of(fast) if e["event"] == "checkpoint_deleted" and e["trial"] == first.trial)
    ends = [e["time"] for e in events_of(fast) if e["event"] == "trial_ended" and e.get("by") == "disk_gb"]
    assert ends == sorted(ends)
    assert all(went["time"] <= end for end in ends)
    assert len(record.trials) == 27


def test_a_limit_that_holds_less_than_is_needed_pauses_the_search_and_a_higher_one_goes_on(fast: Path) -> None:
    search = Watched(fast, gb(1))
    record = search.drive()
    (reason,) = search.reasons
    assert "disk_gb needs to hold" in reason
    assert "go on with --disk " in reason
    assert search.most < gb(1) * GB
    assert events_of(fast)[-1] == events_of(fast)[-1] | {"event": "study_interrupted", "reason": reason}
    before = {t.trial: dict(t.epochs) for t in record.trials.values()}

    going_on = Watched(fast, gb(6), history=events_of(fast))
    record = going_on.drive()
    assert going_on.reasons == []
    assert len(record.trials) == 27
    assert all(set(epochs) <= set(record.trials[trial].epochs) for trial, epochs in before.items())


def test_a_lower_limit_of_a_resumed_search_is_met_before_it_goes_on(fast: Path) -> None:
    search = Watched(fast, None)
    search.drive(reports=11)
    assert LocalFolder(fast).held_bytes(CHECKPOINTS) > gb(6, others=0) * GB
    going_on = Watched(fast, gb(6), history=events_of(fast))
    assert LocalFolder(fast).held_bytes() < gb(6) * GB
    going_on.drive()
    assert going_on.reasons == []


def test_a_limit_that_changes_while_the_search_runs_is_met(fast: Path) -> None:
    search = Watched(fast, None)
    drive(search.loop, reports=11, fill=fill)
    assert LocalFolder(fast).held_bytes(CHECKPOINTS) > gb(6, others=0) * GB
    search.loop.study = limited(gb(6))
    search.loop.make_room()
    assert LocalFolder(fast).held_bytes() < gb(6) * GB
    assert search.reasons == []


def test_what_else_the_run_folder_holds_counts(fast: Path) -> None:
    (fast / "logs").mkdir()
    (fast / "logs" / "00000.log").write_bytes(bytes(5 * SIZE))
    search = Watched(fast, gb(6))
    search.drive()
    assert search.reasons != []


def test_a_driver_killed_after_an_event_goes_on_within_the_limit(fast: Path) -> None:
    """The events are cut off after every fourth line, as a kill may; checkpoints are as they were at the end of it."""
    whole = Watched(fast / "whole", gb(4), trials=9)
    whole.drive()
    assert ends_by_disk(whole.loop.record)
    events = events_of(fast / "whole")
    for count in range(1, len(events) - 1, 4):
        folder = fast / str(count)
        going_on = Watched(folder, gb(4), history=events[:count], trials=9)
        record = going_on.drive()
        assert going_on.reasons == [], count
        assert len(record.trials) == 9
        assert not [trial for trial in record.trials.values() if trial.live]
        assert going_on.most < gb(4) * GB


@pytest.mark.parametrize("seed", range(8))
def test_several_workers_stay_below_the_least_limit(fast: Path, seed: int) -> None:
    """Trials report in a random order, each writing its next checkpoint before it is told to delete the last."""
    workers, draw, reasons = 3, random.Random(seed), list[str]()
    limit = (least_bytes(SIZE + 300, workers) + 100_000) / GB
    loop = build(
        limited(limit, draw.choice([ASHA(1, 3), HyperBand(1, 3)]), 10),
        fast,
        concurrency=workers,
        pause=reasons.append,
    )
    running: dict[str, Any] = {}
    while not loop.finished:
        start = loop.next_action()
        if start is not None:
            running[start.trial] = start
            continue
        if not running:
            continue
        trial = draw.choice(sorted(running))
        epoch = loop.record.trials[trial].epoch + 1
        CheckpointStore(loop.folder).write(trial, epoch, fill)
        assert LocalFolder(fast).held_bytes() < limit * GB
        value = draw.random() + 3 / epoch
        if loop.report(trial, epoch, {"loss": value}, saved=[epoch]).value != "continue":
            del running[trial]
    loop.end()
    assert reasons == []


@pytest.mark.parametrize("checkpoints", [LEAST - 4, LEAST - 3, LEAST - 2, LEAST])
@pytest.mark.parametrize("seed", range(4))
def test_checkpoints_that_are_written_while_trials_train_on_fit_too(fast: Path, seed: int, checkpoints: float) -> None:
    """Each epoch's checkpoint comes after its report, and some epochs save a second one before theirs."""
    workers, draw, reasons = 3, random.Random(seed), list[str]()
    limit = gb(checkpoints, others=40_000)
    loop = build(
        limited(limit, draw.choice([ASHA(1, 3), HyperBand(1, 3)]), 10),
        fast,
        concurrency=workers,
        pause=reasons.append,
    )
    running, behind, written = list[str](), dict[str, int](), set[str]()
    store = CheckpointStore(loop.folder)
    loop.announced = behind.keys()
    while not loop.finished and not reasons:
        start = loop.next_action()
        if start is not None:
            running.append(start.trial)
            continue
        if not running:
            continue
        trial = draw.choice(sorted(running))
        epoch = loop.record.trials[trial].epoch + 1
        rung = epoch in (1, 3)
        if rung and trial not in written:  # its report comes later, and those of others before it
            store.write(trial, epoch, fill)
            written.add(trial)
            assert LocalFolder(fast).held_bytes() < limit * GB
            continue
        came = [epoch] * rung + ([behind.pop(trial)] if trial in behind else [])
        written.discard(trial)
        if not rung:
            behind[trial] = epoch
        if loop.report(trial, epoch, {"loss": draw.random() + 3 / epoch}, saved=came).value != "continue":
            running.remove(trial)
        if not rung:
            store.write(trial, epoch, fill)
        assert LocalFolder(fast).held_bytes() < limit * GB
        for other in [other for other in behind if other not in running]:  # found by a look into the run folder
            loop.saved(other, behind.pop(other))
    loop.end()
    assert reasons == [] or checkpoints < LEAST


# Which ones may go


def test_the_newest_of_running_trials_and_the_winners_best_never_go(fast: Path) -> None:
    record = fold(
        *(started(0), reported(0, 1, accuracy=0.9), saved(0, 1), ended(0, "completed")),
        *(started(1), reported(1, 1, accuracy=0.95), saved(1, 1), reported(1, 2, accuracy=0.5), saved(1, 2)),
        *(started(2), reported(2, 1, accuracy=0.2), saved(2, 1), event("trial_paused", trial="00002", epoch=1)),
    )  # fmt: skip
    for trial in record.trials.values():
        for epoch in trial.checkpoints:
            CheckpointStore(LocalFolder(fast)).write(trial.trial, epoch, fill)
    room, gone, reasons = room_of(record, fast, limit_gb=1e-9)
    room()
    assert gone == [("end", "00002"), ("drop", "00001", 1)]
    assert len(reasons) == 1
    assert {t.trial: t.checkpoints for t in record.trials.values()} == {"00000": {1}, "00001": {2}, "00002": set()}


def room_of(record: RunRecord, folder: Path, *, limit_gb: float) -> tuple[Callable[[], None], list[Any], list[str]]:
    """What makes room, for a record that stands alone; what it ends and drops, and why it pauses."""
    store_gone: list[Any] = []
    reasons: list[str] = []

    class Dropping(Keeper):
        def drop(self, trial: str, epoch: int) -> None:
            store_gone.append(("drop", trial, epoch))
            super().drop(trial, epoch)

    keeper = Dropping(
        record, CheckpointStore(LocalFolder(folder)), emit=lambda kind, **fields: record.apply(event(kind, **fields))
    )

    def end(trial: str, **ending: Any) -> None:
        store_gone.append(("end", trial))
        record.apply(event("trial_ended", trial=trial, **ending))
        for epoch in sorted(record.trials[trial].checkpoints):
            record.apply(event("checkpoint_deleted", trial=trial, epoch=epoch))

    actions = Actions(end, reasons.append, lambda message, code: None)
    room = Room(
        record, LocalFolder(folder), keeper, actions, limit_gb=lambda: limit_gb, workers=lambda: 1, announced=lambda: 0
    )
    return room.make, store_gone, reasons


def test_a_paused_trial_that_waits_to_be_tried_alone_is_not_ended_for_room(fast: Path) -> None:
    """Its memory ran out at one image; it was paused later, and goes on once the others are off their workers."""
    declared = study(scheduler=ASHA(1, 3), budget=Budget(trials=9, max_epochs=9), seed=1)
    loop = build(declared, fast, concurrency=3)
    waited: list[str] = []

    def failing(number: int, tries: int, epoch: int) -> str | None:
        trials = loop.record.trials.values()
        if any(trial.attempts.alone and trial.status == "paused" for trial in trials):
            loop.obey(Order("more", "set", {"trials": 40}, by="me@here", time=1.0))  # so that others run meanwhile
        waiting = [trial for trial in loop._failing.waiting if loop.record.trials[trial].status == "paused"]
        if waiting and not waited:
            waited.extend(waiting)
            before, loop.study = loop.study, limited(1e-9)
            loop.make_room()
            loop.study = before
        return "out_of_memory" if tries == 0 and number in (1, 3, 5, 7) else None

    work(loop, failing, saves=True, reports=1000)
    assert loop.finished
    assert waited == ["00007"]
    assert loop.record.trials["00007"].ended_by != "disk_gb"
    assert ends_by_disk(loop.record)


# A disk that fills up


def test_the_least_free_space_follows_the_checkpoints_and_the_disk() -> None:
    assert needed_free(134_000_000, 4, 10**12) == 4 * 134_000_000 + 16_000_000
    assert needed_free(0, 4, 8_000_000) == 400_000


FULL = """
import sys
from pathlib import Path
from tests.loop.simulation import build, drive, events_of
from tests.loop.test_room import limited

def fill(folder):
    (folder / "weights").write_bytes(bytes(1_000_000))

folder, disk_gb, reasons = Path(sys.argv[1]) / "run", float(sys.argv[2]) or None, []
taken = Path(sys.argv[1]) / "taken"
taken.write_bytes(bytes(11_000_000))
loop = build(limited(disk_gb), folder, pause=reasons.append)
drive(loop, fill=fill, leave=lambda: bool(reasons))
loop.end(reasons[0])
loop.close()
print(reasons[0])
known = {(t.trial, epoch) for t in loop.record.trials.values() for epoch in t.epochs}
again = []
build(limited(disk_gb), folder, pause=again.append, history=events_of(folder)).close()
print(len(again))
taken.unlink()
loop = build(limited(disk_gb), folder, pause=again.append, history=events_of(folder))
drive(loop, fill=fill)
loop.end()
print(len(again), len(loop.record.trials), known <= {(t.trial, e) for t in loop.record.trials.values() for e in t.epochs})
"""


@needs_mounts
@pytest.mark.parametrize("disk_gb", [0, 0.02])
def test_a_disk_that_fills_up_pauses_the_search_until_there_is_room(tmp_path: Path, disk_gb: float) -> None:
    done = run_on_tmpfs("16m", tmp_path, sys.executable, "-c", FULL, tmp_path, str(disk_gb))
    assert done.returncode == 0, done.stderr
    reason, again, end = done.stdout.splitlines()
    assert reason.startswith("a search needs room for its next checkpoints and events, 2 MB, got ")
    assert reason.endswith("; free some space")
    assert again == "1"  # a resume without more room pauses again at once
    assert end == "1 27 True"


def test_a_checkpoint_that_the_disk_refused_pauses_the_search(fast: Path) -> None:
    reasons: list[str] = []
    loop: SearchLoop = build(limited(None), fast, pause=reasons.append)
    drive(loop, reports=1, fill=fill)
    loop.not_saved("00000", 2)
    loop.not_saved("00000", 3)
    (reason,) = reasons
    assert "got none for that of epoch 2 of trial 00000" in reason


@pytest.mark.parametrize("ends", ["failed", "lost"])
def test_a_checkpoint_whose_epoch_was_never_reported_does_not_stay(fast: Path, ends: str) -> None:
    loop = build(limited(gb(9), NoEarlyStopping()), fast)
    start = loop.next_action()
    assert start is not None
    store = CheckpointStore(LocalFolder(fast))
    store.write(start.trial, 1, fill)
    loop.report(start.trial, 1, {"loss": 0.5}, saved=[1])
    store.write(start.trial, 2, fill)
    getattr(loop, ends)(start.trial, "error" if ends == "failed" else "lost", "it went away in epoch 2")
    assert store.epochs(start.trial) == [1]
