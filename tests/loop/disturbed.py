"""A search without Ray, disturbed: simulated workers, the real loop, events and checkpoints, driver after driver."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.loop.faults import Disk, Faults, Killed
from tests.loop.power import SyncedFiles
from tuner import Study
from tuner.errors import TrialError
from tuner.history.checkpoints import CheckpointStore
from tuner.history.events import read_events
from tuner.history.records import RunRecord
from tuner.loop.keeping import not_needed
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.schedule import Decision
from tuner.search import Learned
from tuner.storage.durable import make
from tuner.storage.folder import LocalFolder

Saving = Literal["each", "never", "some", "behind"]
Place = tuple[str, int]  # a trial and an epoch
MOST_STEPS = 20_000
MOST_DRIVERS = 40
MOST_IDLE = 50
MOST_LOST_SECONDS = 2.0  # of reports that a power cut may take
RAISES_ABOVE, DIVERGES_ABOVE = 0.97, 0.94  # of x


class BrokenPromiseError(AssertionError):
    """Something is lost, or wrong."""


def loss_of(config: dict[str, Any], epoch: int) -> float:
    """The metric, by configuration and epoch alone: curves that cross, and now and then get worse."""
    x = float(config["x"]) % 1 if isinstance(config["x"], float) else config["x"] / 37 % 1
    return (x - 0.3) ** 2 + (0.2 + x) / epoch + 0.05 * ((epoch * 7 + int(x * 1000)) % 5)


def diverges(config: dict[str, Any], epoch: int) -> bool:
    """Whether the metric is NaN there."""
    return epoch >= 2 and isinstance(config["x"], float) and DIVERGES_ABOVE < config["x"] <= RAISES_ABOVE


@dataclass(frozen=True)
class Scene:
    """What is searched, by how many workers, with functions that save in which way."""

    seed: int
    study: Study
    workers: int
    saving: Saving
    learned: Learned | None = None

    def saves(self, config: dict[str, Any], epoch: int) -> bool:
        """Whether the function saves there; by configuration and epoch alone."""
        if self.saving == "some":
            return (epoch * 31 + int(float(config["x"]) * 1e4)) % 3 != 0
        return self.saving != "never"

    def saves_behind(self, epoch: int) -> bool:
        """Whether training goes on meanwhile."""
        budget = self.study.budget.max_epochs
        return self.saving == "behind" and epoch not in self.study.scheduler.rungs(budget) and epoch < budget


@dataclass(eq=False)
class Stay:
    """A trial's stay on a worker: epochs trained, a report on its way, checkpoints that were written since the last."""

    start: Start
    epoch: int
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)  # of this stay
    message: dict[str, Any] | None = None
    finished: list[int] = field(default_factory=list)
    failures: int = 0


class DisturbedSearch:
    """Runs one scene to its end, with a new driver after each that dies."""

    padding = 0  # bytes of a checkpoint beside what it needs

    def __init__(self, scene: Scene, folder: Path, faults: Faults) -> None:
        self.scene, self.folder, self.faults = scene, folder, faults
        self.random = random.Random(f"order {scene.seed}")
        self.store = CheckpointStore(LocalFolder(folder))
        self.reported: dict[Place, float | None] = {}  # what a driver has taken, in any of the drivers
        self.secured: set[Place] = set()  # were once whole on disk while their epoch was known
        self.newest: dict[str, int] = {}  # of these, by trial
        self.damaged: set[Place] = set()
        self.repeated: dict[Place, int] = {}  # how often an epoch may be reported again
        self.synced, self.loses_power = SyncedFiles(folder), "power" in faults.kinds
        self.drivers = self.steps = 0
        self.loop: SearchLoop | None = None
        self._forget_workers()

    def run(self) -> None:
        """Search until a driver comes to the end. Raises BrokenPromiseError."""
        with self.synced.watching() if self.loses_power else nullcontext():
            while not self._drive():
                if self.drivers > MOST_DRIVERS:
                    raise BrokenPromiseError("one driver after another and no end")

    def _forget_workers(self) -> None:
        self.stays: list[Stay] = []
        self.late: list[Stay] = []  # given up, with a report that still comes
        self.current: dict[str, Stay] = {}
        self.saving: dict[str, list[tuple[Stay, int]]] = {}  # the one being written, and one that waits
        self.coming: dict[str, int] = {}  # what the driver waits for

    # One driver

    def _drive(self) -> bool:
        """Whether it came to the end."""
        self.drivers += 1
        self._forget_workers()
        self._damage_checkpoints()
        disk = Disk(self.folder, self.faults, self._watch_deletion)
        self.loop = None
        try:
            history = list(read_events(LocalFolder(self.folder)))
            self.loop = SearchLoop(
                self.scene.study,
                disk,
                concurrency=self.scene.workers,
                history=history,
                learned=self.scene.learned,
                opening=self.opening(),
                pause=self.pause,
            )
            self._search(self.loop)
            self._await_saves(self.loop)
            self.loop.end()
            self.loop.close()
        except Killed:
            disk.abandon()
            if self.faults.happened[-1] == "power":
                self._cut_power()
            else:
                self._outlive_the_driver()
            return False
        except OSError as error:
            ended = self._conclude_interrupted(error)
            disk.abandon()
            self._outlive_the_driver()
            return ended
        return True

    def opening(self) -> dict[str, Any]:
        """Further fields of the driver's first event."""
        return {"driver": self.drivers}

    def pause(self, reason: str) -> None:
        """The search asks to be paused."""

    def _conclude_interrupted(self, error: OSError) -> bool:
        """As the driver does: each step for itself."""
        if self.loop is None:
            return False
        for step in (lambda loop: loop.end(str(error)), SearchLoop.close):
            try:
                step(self.loop)
            except OSError:
                continue
            except Killed:
                break
        return False

    def _search(self, loop: SearchLoop) -> None:
        idle = 0
        while not loop.finished:
            self.steps += 1
            if self.steps > MOST_STEPS or idle > MOST_IDLE:
                raise BrokenPromiseError(f"no end: {self.steps} steps, {idle} of them idle, {loop.record.counts()}")
            self.faults.may_kill()
            start = loop.next_action()
            self.faults.may_kill()
            idle = 0 if start is not None or self.stays else idle + 1
            if start is not None:
                self._enter(start)
            elif self.stays:
                self._advance(loop, self.random.choice(self.stays))
            self._meanwhile(loop)

    def _meanwhile(self, loop: SearchLoop) -> None:
        if not self.loses_power or self.faults.random.random() < 0.3:  # else less than a second has passed
            loop.tend_events()
        self._look_at(loop.record)
        for trial in list(self.saving):
            if self.random.random() < 0.3:
                self._land(trial)
        if self.random.random() < 0.2:
            self._note_saves(loop)
        if self.late and self.random.random() < 0.3:
            stay = self.late.pop(0)
            self._deliver(loop, stay)

    def _look_at(self, record: RunRecord) -> None:
        """What the record keeps up to date is what one would count, and no checkpoint is kept for nothing."""
        told = [trial for trial in record.trials.values() if record.best_of(trial.trial) and trial.status != "failed"]
        ended = [trial for trial in told if trial.status in ("completed", "stopped")]
        best, best_ended = (max(trials, key=record.rank, default=None) for trials in (told, ended))
        if (record.best_trial(), record.best_ended_trial) != (best, best_ended):
            raise BrokenPromiseError("the record's best trial is another one")
        if record.epochs() != sum(len(trial.epochs) for trial in record.trials.values()):
            raise BrokenPromiseError("the record has miscounted its epochs")
        needless = [place for place in not_needed(record) if not record.trials[place[0]].live]
        if needless:  # of a live trial until its next one is saved
            raise BrokenPromiseError(f"kept for nothing: {needless}")

    # Workers

    def _enter(self, start: Start) -> None:
        if any(stay.start.trial == start.trial for stay in self.stays):
            raise BrokenPromiseError(f"{start.trial} runs twice at once")
        stay = Stay(start, self._restored(start))
        self.stays.append(stay)
        self.current[start.trial] = stay
        for epoch in range(stay.epoch + 1, start.reported + 1):
            self.repeated[start.trial, epoch] = self.repeated.get((start.trial, epoch), 0) + 1

    def _restored(self, start: Start) -> int:
        """The epoch that the trial goes on from: that of its newest whole checkpoint of a known epoch."""
        for epoch in reversed(self.store.epochs(start.trial)):
            if epoch > start.reported:
                continue
            try:
                files = self.store.fetch(start.trial, epoch, self.folder / "unused")
            except TrialError:
                continue
            if json.loads((files / "state").read_text()) != {"config": start.config, "epoch": epoch}:
                raise BrokenPromiseError(f"{start.trial} goes on from another trial's or epoch's checkpoint at {epoch}")
            return epoch
        if start.trial in self.newest and not any(trial == start.trial for trial, _ in self.damaged):
            raise BrokenPromiseError(f"{start.trial} begins again although epoch {self.newest[start.trial]} was saved")
        return 0

    def _advance(self, loop: SearchLoop, stay: Stay) -> None:
        if self.faults.strikes("lost worker"):
            self._lose(loop, stay)
        elif stay.message is not None:
            self._deliver(loop, stay)
        else:
            self._train(loop, stay)

    def _train(self, loop: SearchLoop, stay: Stay) -> None:
        trial, config = stay.start.trial, stay.start.config
        if stay.epoch >= stay.start.epochs:
            self._leave(stay)
            if self.current[trial] is stay:
                loop.returned(trial)
            return
        if isinstance(config["x"], float) and config["x"] > RAISES_ABOVE and stay.epoch >= 1:
            self._leave(stay)
            loop.failed(trial, "error", "it raised")
            return
        stay.epoch += 1
        value = None if diverges(config, stay.epoch) else loss_of(config, stay.epoch)
        stay.reports[stay.epoch] = {"loss": float("nan") if value is None else value}
        saves = self.scene.saves(config, stay.epoch)
        behind = saves and self.scene.saves_behind(stay.epoch)
        if saves and not behind and self._write(stay, stay.epoch):
            stay.finished.append(stay.epoch)
        stay.message = {
            "epoch": stay.epoch,
            "metrics": stay.reports[stay.epoch],
            "saved": stay.finished,
            "saving": stay.epoch if behind else None,
            "saves": saves or self.scene.saving == "behind",
        }
        stay.finished = []

    def _write(self, stay: Stay, epoch: int) -> bool:
        """Whether the checkpoint could be written; it may be whole, unfinished or not there at all."""
        if self.faults.strikes("unwritten"):
            return False

        def fill(folder: Path) -> None:
            (folder / "state").write_text(json.dumps({"config": stay.start.config, "epoch": epoch}))
            if self.padding:
                (folder / "weights").write_bytes(bytes(self.padding))

        told = {each: metrics for each, metrics in stay.reports.items() if each <= epoch}
        self.store.write(stay.start.trial, epoch, fill, told)
        self.damaged.discard((stay.start.trial, epoch))
        self._note_secured(stay.start.trial)
        return True

    def _deliver(self, loop: SearchLoop, stay: Stay) -> None:
        trial, message = stay.start.trial, stay.message
        if message is None or self.current.get(trial) is not stay:
            return
        stay.message = None
        if self.coming.get(trial) in message["saved"]:
            del self.coming[trial]
        if message["saving"] is not None:
            self.coming[trial] = message["saving"]
        decision = loop.report(
            trial, message["epoch"], message["metrics"], saved=message["saved"], saves=message["saves"]
        )
        if message["epoch"] in loop.record.trials[trial].epochs:
            value = message["metrics"]["loss"]
            self.reported[trial, message["epoch"]] = None if value != value else value
        self._note_secured(trial)
        if message["saving"] is not None:
            waiting = self.saving.setdefault(trial, [])
            self.saving[trial] = [*waiting[:1], (stay, message["saving"])]
        if decision is not Decision.CONTINUE:
            self._leave(stay)

    def _leave(self, stay: Stay) -> None:
        if stay in self.stays:
            self.stays.remove(stay)

    def _lose(self, loop: SearchLoop, stay: Stay) -> None:
        """The worker dies; its report may still come, its save be whole, unfinished or not there."""
        trial = stay.start.trial
        self._leave(stay)
        if stay.message is not None and self.faults.random.random() < 0.5:
            self.late.append(stay)
        self._end_saves(trial, stay)
        self._note_saves(loop)
        self.coming.pop(trial, None)
        if self.current.get(trial) is stay:
            loop.lost(trial, "lost", "its worker died")

    # Checkpoints

    def _land(self, trial: str) -> None:
        """What was being written behind a trial's back is there."""
        stay, epoch = self.saving[trial].pop(0)
        if not self.saving[trial]:
            del self.saving[trial]
        if self._write(stay, epoch):
            stay.finished.append(epoch)

    def _end_saves(self, trial: str, stay: Stay) -> None:
        """The worker that writes is dying: each is written, left unfinished, or not begun."""
        for each, epoch in self.saving.pop(trial, []):
            chance = self.faults.random.random()
            if each is stay and chance < 0.3:
                self._write(stay, epoch)
            elif chance < 0.6:
                unfinished = self.folder / "checkpoints" / trial / f".unfinished-{epoch}" / "files"
                make(unfinished)

    def _note_saves(self, loop: SearchLoop) -> None:
        for trial, epoch in list(self.coming.items()):
            if self.store.has(trial, epoch):
                del self.coming[trial]
                loop.saved(trial, epoch)

    def _await_saves(self, loop: SearchLoop) -> None:
        """After the search some still come."""
        for trial in list(self.saving):
            while trial in self.saving and self.random.random() < 0.8:
                self._land(trial)
        self.saving.clear()
        self._note_saves(loop)

    def _outlive_the_driver(self) -> None:
        """Workers live a moment longer than their driver."""
        for trial, waiting in list(self.saving.items()):
            self._end_saves(trial, waiting[0][0])

    def _cut_power(self) -> None:
        """What was not synced is gone: events of the last moments at most, and of no deleted checkpoint."""
        before = list(read_events(LocalFolder(self.folder)))
        self.synced.cut()
        after = list(read_events(LocalFolder(self.folder)))
        if after != before[: len(after)]:
            raise BrokenPromiseError("a power cut took events before others")
        if before[len(after) :] and (ago := before[-1]["time"] - before[len(after)]["time"]) > MOST_LOST_SECONDS:
            raise BrokenPromiseError(f"a power cut took the events of {ago:.1f} s")
        known = RunRecord("loss", "min", after).trials
        self.reported = {p: v for p, v in self.reported.items() if p[0] in known and p[1] in known[p[0]].epochs}
        self.secured = {place for place in self.secured if place[0] in known}
        self.newest = {trial: epoch for trial, epoch in self.newest.items() if trial in known}

    def _damage_checkpoints(self) -> None:
        for trial in self.store.trials():
            for epoch in self.store.epochs(trial):
                if self.faults.strikes("damage", 0.1):
                    self.damaged.add((trial, epoch))
                    self._damage(self.folder / "checkpoints" / trial / f"{epoch:06d}")

    def _damage(self, folder: Path) -> None:
        ways: list[Callable[[], object]] = [
            lambda: (folder / "files" / "state").write_text("{}"),
            (folder / "files" / "state").unlink,
            lambda: (folder / "manifest.json").write_text('{"files"'),
            lambda: LocalFolder(folder.parent).delete(folder.name),
        ]
        if (folder / "files" / "state").is_file():
            self.faults.random.choice(ways)()

    def _note_secured(self, trial: str) -> None:
        """Which checkpoints of known epochs are there, now that something has changed."""
        known = self.loop.record.trials[trial].epochs if self.loop and trial in self.loop.record.trials else {}
        here = {e for e in self.store.epochs(trial) if e in known and (trial, e) not in self.damaged}
        self.secured |= {(trial, epoch) for epoch in here}
        if here:
            self.newest[trial] = max(here)

    def _watch_deletion(self, path: str) -> None:
        """Nothing that a trial goes on from is deleted."""
        trial, name = path.split("/")[-2:]
        if self.loop is None or not name.isdigit() or trial not in self.loop.record.trials:
            return
        record, epoch = self.loop.record.trials[trial], int(name)
        segments = sorted((self.folder / "events").iterdir())
        if self.loses_power and epoch in record.epochs and not all(map(self.synced.has, segments)):
            raise BrokenPromiseError(f"epoch {epoch} of {trial} is deleted before the disk has the event")
        whole = [e for e in self.store.epochs(trial) if e in record.epochs]
        if record.live and whole and epoch == max(whole):
            raise BrokenPromiseError(
                f"the newest checkpoint of {trial}, which is {record.status}, is deleted: epoch {epoch}"
            )
