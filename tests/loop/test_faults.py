"""Thousands of small searches, each with its own accidents: nothing is lost."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner.storage.folder
from tests.loop.disturbed import BrokenPromiseError, DisturbedSearch, Saving, Scene, diverges, loss_of
from tests.loop.faults import Clock, Faults
from tests.loop.invariants import faults_of_a_run, unlike, wrongly_promoted
from tests.schedule.each import each_with
from tuner import (
    ASHA,
    BOHB,
    Budget,
    Failures,
    Grid,
    HyperBand,
    HyperOpt,
    MultiFidelityGP,
    NoEarlyStopping,
    Optuna,
    Random,
    Study,
    choice,
    randint,
    uniform,
)
from tuner.history import events
from tuner.history.events import read_events
from tuner.history.records import RunRecord
from tuner.schedule import Scheduler
from tuner.search import Learned, SearchAlgorithm
from tuner.storage.folder import LocalFolder

CHEAP: list[SearchAlgorithm] = [Random(), Random(sobol=False), Grid()]
DEAR: list[SearchAlgorithm] = [
    MultiFidelityGP(startup_trials=2, candidates=20),
    HyperOpt(startup_trials=2),
    BOHB(),
    Optuna("TPESampler", {"n_startup_trials": 2}),
]
SAME_IN_THE_END = frozenset({"kill", "power", "lost worker", "full disk", "damage", "clock"})
KINDS = SAME_IN_THE_END | {"unwritten"}


def scheduler(draw: random.Random) -> Scheduler:
    grace, factor = draw.choice([1, 2, 3]), draw.choice([2, 3])
    return draw.choice(each_with(grace, factor))


def space(draw: random.Random, search: SearchAlgorithm) -> dict[str, Any]:
    small = draw.choice([3, 5, 8])
    if isinstance(search, Grid):
        return {"x": randint(0, small)}
    return draw.choice([{"x": uniform(0, 1)}] * 3 + [{"x": choice([n / 8.5 for n in range(small)])}])


def scene(seed: int, searches: list[SearchAlgorithm]) -> Scene:
    """A small search, drawn from the seed."""
    draw = random.Random(f"scene {seed}")
    search = draw.choice(searches)
    study = Study(
        "disturbed",
        trial=lambda config: None,
        space=space(draw, search),
        metric="loss",
        mode="min",
        search=search,
        scheduler=scheduler(draw),
        budget=Budget(
            trials=draw.randint(4, 9),
            max_epochs=draw.randint(4, 9),
            total_epochs=draw.choice([None, None, None, 17]),
            target=draw.choice([None, None, None, 0.1]),
        ),
        failures=Failures(error=seed % 3, lost=1 + seed % 4),
        seed=seed,
        warm_start=None,
    )
    learned = Learned(configs=({"x": 0.25},), studies=("before",)) if "uniform" in repr(study.space) else None
    return Scene(
        seed,
        study,
        workers=draw.choice([1, 1, 2, 4]),
        saving=draw.choice(["each", "each", "never", "some", "behind"]),
        learned=learned if draw.random() < 0.2 else None,
    )


def search_through(scene: Scene, folder: Path, faults: Faults) -> DisturbedSearch:
    search = DisturbedSearch(scene, folder, faults)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "time", Clock(faults, step=0.3 if "power" in faults.kinds else 1))
        search.run()
    return search


def record_of(folder: Path, study: Study) -> RunRecord:
    return RunRecord(study.metric, study.mode, read_events(LocalFolder(folder)))


def what_is_wrong(search: DisturbedSearch, undisturbed: RunRecord | None = None) -> Iterator[str]:
    """All that must hold of a disturbed search, as sentences where it doesn't; `undisturbed` is searched if need be."""
    scene, folder = search.scene, search.folder
    record = record_of(folder, scene.study)
    yield from faults_of_a_run(folder, scene.study, scene.workers)
    if scene.saving in ("each", "behind") and "unwritten" not in search.faults.happened:
        yield from wrongly_promoted(list(read_events(LocalFolder(folder))), scene.study)
    for (trial, epoch), value in search.reported.items():
        known = record.trials[trial].epochs.get(epoch)
        if known is None:
            yield f"epoch {epoch} of {trial} is lost"
        elif known.metrics != {"loss": value}:
            yield f"epoch {epoch} of {trial} is {known.metrics}, reported was {value}"
    for trial in record.trials.values():
        for epoch, known in trial.epochs.items():
            wanted = None if diverges(trial.config, epoch) else loss_of(trial.config, epoch)
            if known.metrics != {"loss": wanted}:
                yield f"epoch {epoch} of {trial.trial} is another configuration's or epoch's"
    if search.loop is not None and search.loop.record.trials != record.trials:
        yield "the events tell another story than the driver's record"
    yield from of_the_winner(search, record)
    yield from of_repetitions(search)
    if scene.workers == 1 and set(search.faults.happened) <= SAME_IN_THE_END:
        lost = any(trial.cause == "lost" for trial in record.trials.values())
        if scene.saving != "behind" and not lost:
            yield from unlike(record, undisturbed or search_undisturbed(scene, folder))


def of_the_winner(search: DisturbedSearch, record: RunRecord) -> Iterator[str]:
    best = record.best_trial()
    if best is None:
        return
    place = (best.trial, (record.best_of(best.trial) or (0, 0))[0])
    if place in search.secured - search.damaged and not search.store.has(*place):
        yield f"the winner's checkpoint {place} was written and is gone"


def of_repetitions(search: DisturbedSearch) -> Iterator[str]:
    """No epoch is trained again but what comes after the checkpoint that its trial went on from."""
    times: dict[tuple[str, int], int] = {}
    for event in read_events(LocalFolder(search.folder)):
        if event["event"] == "epoch_reported":
            place = (event["trial"], event["epoch"])
            times[place] = times.get(place, 0) + 1
    for place, count in times.items():
        if count > 1 + search.repeated.get(place, 0):
            yield f"{place} was reported {count} times"


def search_undisturbed(scene: Scene, beside: Path) -> RunRecord:
    folder = beside.with_name(beside.name + "-undisturbed")
    search_through(scene, folder, Faults(scene.seed))
    record = record_of(folder, scene.study)
    shutil.rmtree(folder)
    return record


def disturbed(seed: int, searches: list[SearchAlgorithm], folder: Path) -> list[str]:
    """What is wrong after a search with faults of all kinds, or of one, drawn from the seed."""
    draw = random.Random(f"kinds {seed}")
    kinds = draw.choice([KINDS, SAME_IN_THE_END, *(frozenset({kind}) for kind in ("kill", "kill", *sorted(KINDS)))])
    faults = Faults(seed, kinds, likely=draw.choice([0.003, 0.01, 0.05]))
    search = search_through(scene(seed, searches), folder, faults)
    wrong = list(what_is_wrong(search))
    return [f"seed {seed}, {faults.happened}: {each}" for each in wrong]


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(50, 400, 50))])
def test_nothing_is_lost_whatever_happens_in_a_search(fast: Path, first: int) -> None:
    for seed in range(first, first + 50):
        assert disturbed(seed, CHEAP, fast / str(seed)) == []
        shutil.rmtree(fast / str(seed))


@pytest.mark.parametrize(
    "first", [10_000, *(pytest.param(n, marks=pytest.mark.slow) for n in range(10_020, 10_080, 20))]
)
def test_nothing_is_lost_with_search_algorithms_that_learn(fast: Path, first: int) -> None:
    for seed in range(first, first + 20):
        assert disturbed(seed, DEAR, fast / str(seed)) == []
        shutil.rmtree(fast / str(seed))


def small(
    search: SearchAlgorithm,
    scheduler: Scheduler,
    *,
    learned: Learned | None = None,
    saving: Saving = "each",
    **budget: Any,
) -> Scene:
    study = Study(
        "disturbed",
        trial=lambda config: None,
        space={"x": randint(0, 9) if isinstance(search, Grid) else uniform(0, 0.9)},
        metric="loss",
        mode="min",
        search=search,
        scheduler=scheduler,
        budget=Budget(**{"trials": 4, "max_epochs": 4, **budget}),
        warm_start=None,
    )
    return Scene(0, study, workers=1, saving=saving, learned=learned)


SMALL = {
    "promotion": small(Random(), ASHA(1, 2)),
    "learned": small(
        *(Random(sobol=False), NoEarlyStopping()),
        learned=Learned(({"x": 0.25},), ("before",)),
        **{"trials": 3, "max_epochs": 3},
    ),
    "brackets": small(Grid(), HyperBand(1, 2)),
    "limit": small(Random(), ASHA(1, 2), total_epochs=7),
    "never saved": small(Random(), NoEarlyStopping(), saving="never", total_epochs=7),
    "cannot pause": small(Random(), ASHA(1, 2), saving="never"),
}


@pytest.mark.parametrize("kind", ["kill", "power", "full disk", "lost worker"])
@pytest.mark.parametrize("scene", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("apart", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_it_may_happen_at_any_step(fast: Path, scene: Scene, kind: str, apart: int) -> None:
    """The quick form takes every third step, and another third in each scene: what a step does, another one does too."""
    undisturbed = search_undisturbed(scene, fast / "search")
    for at in range(list(SMALL.values()).index(scene) % apart, 1000, apart):
        faults = Faults(0, frozenset({kind}), at=at)
        search = search_through(scene, fast / "search", faults)
        assert list(what_is_wrong(search, undisturbed)) == [], f"at step {at}"
        shutil.rmtree(fast / "search")
        if not faults.happened:
            break
    assert 10 < at < 1000


def found_with(monkeypatch: pytest.MonkeyPatch, folder: Path, place: Any, name: str, value: Any) -> set[str]:
    """What searches that lose power find wrong, numbers left out, where something of tuner is replaced by a fault."""
    monkeypatch.setattr(place, name, value)
    found: set[str] = set()
    for seed in range(20):
        try:
            search = search_through(scene(seed, CHEAP), folder / str(seed), Faults(seed, frozenset({"power"})))
            found.update(what_is_wrong(search))
        except BrokenPromiseError as error:
            found.add(re.sub(r"[0-9.]+", "N", str(error)))
    return found


def test_a_power_cut_finds_events_that_are_never_synced(fast: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_with(monkeypatch, fast, events._Files, "flush", lambda self: None)
    assert {"epoch N of N is deleted before the disk has the event", "a power cut took the events of N s"} <= found


def test_a_power_cut_finds_checkpoints_that_are_renamed_unsynced(fast: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_with(monkeypatch, fast, tuner.storage.folder, "sync_all", lambda folder: None)
    assert "N begins again although epoch N was saved" in found


def test_a_power_cut_finds_a_checkpoint_that_is_deleted_before_its_event(
    fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = found_with(monkeypatch, fast, events, "SYNCED_AT_ONCE", events.SYNCED_AT_ONCE - {"checkpoint_deleted"})
    assert "epoch N of N is deleted before the disk has the event" in found
