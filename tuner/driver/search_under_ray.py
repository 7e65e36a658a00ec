"""One driver's work on one run folder: the search under Ray Tune, then its conclusion."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from tuner.driver import shared_devices
from tuner.driver.cluster import Connected
from tuner.driver.cluster import concurrency as cluster_concurrency
from tuner.driver.grouping import Together, key_of, most_together
from tuner.driver.winner import write_winner
from tuner.history.combination import learns
from tuner.history.events import CONCLUDING, Event, Listener, tell
from tuner.history.records import Status
from tuner.history.run_info import write_info
from tuner.history.stacks import STACKS
from tuner.lifecycle.allotment import Allotment
from tuner.lifecycle.conclusion import Conclusion, Outcome, outcome_of
from tuner.lifecycle.description import InfoWriter
from tuner.lifecycle.interruption import RAY_IS_GONE, Interruption, SearchLeft
from tuner.lifecycle.obedience import Obedience, Orders
from tuner.lifecycle.report_loading import ReportLoading
from tuner.loop.search_loop import SearchLoop
from tuner.mirrors.process import END_SECONDS, INTERRUPTED_SECONDS, Mirrors
from tuner.results.run import RecordedRun
from tuner.search import Learned
from tuner.storage.azure import SCHEMES
from tuner.storage.folder import Folder
from tuner.storage.lease import Lease
from tuner.storage.object_folder import ObjectFolder
from tuner.study.declaration import Study
from tuner.worker.implementation import implementation_of

_log = logging.getLogger(__name__)  # unless set up, it goes to stderr
TUNE = "tune"
NO_LIMIT = 1_000_000  # on trials that wait for nodes: the loop never starts more than are wanted at once
SECONDS_FOR_SAVES_OF_STOPPED = 3.0  # that a search ended by a user waits for checkpoints


class Search:
    """A study that is ready, a run folder, and Ray's resources for its trials."""

    def __init__(
        self,
        study: Study,
        folder: Folder,
        info: dict[str, Any],
        connected: Connected,
        limit: int | None,
        listeners: Iterable[Listener],
        interrupted: Interruption,
        history: Sequence[Event] = (),
        start_from: Learned | None = None,
        opening: Mapping[str, Any] | None = None,
        *,
        lease: Lease,
        mirrors: Mirrors,
        allotment: Allotment | None = None,
    ) -> None:
        resources, devices = connected.resources, connected.devices
        self.study, self.folder, self.info, self.resources = study, folder, info, resources
        self.interrupted, self.lease, self._listeners = interrupted, lease, list(listeners)
        self._mirrors, self._allotment = mirrors, allotment
        self.workers = workers_of(connected, limit)
        all_workers = workers_of(connected, None) if allotment is None else allotment.most_at_once
        self.most_workers = None if connected.grows else all_workers
        gpus = len(devices) if study.resources.packed == "gpus" else None
        self.info |= {"concurrency": self.workers, "status": "running", "shared_gpus": gpus}
        write_info(folder, self.info)
        self.together = self._together()
        self.loop = SearchLoop(
            study,
            folder,
            concurrency=self.workers,
            devices=resources.devices,
            history=history,
            learned=start_from,
            most_at_once=self.most_workers if allotment is None else allotment.at_once,
            listeners=[
                *self._listeners,
                InfoWriter(folder, self.info, self._counts),
                ReportLoading(study.trials, lambda: len(self.loop.record.trials)),
                Obedience(self.info, interrupted, lambda: write_info(folder, self.info)),
            ],
            opening={**(opening or {}), **({"devices": [each.record() for each in devices]} if devices else {})},
            admission=shared_devices.admission(study, devices),
            before_writing=self.lease.check,
            pause=self.interrupted.ask,
            share_devices=resources.gpu_count < 1,
            together=self.together.most,
        )
        self.orders = Orders(folder, store_answers=self.loop.flush)

    def perform(self, *, conclude_only: bool = False) -> RecordedRun:
        """Search until the end or an interruption, then conclude; returns the run. An error of the search itself is not
        raised: the run is then interrupted, and names the error. Raises RunFolderError if another driver took the run
        over: the run goes on there, and nothing more is written here.
        """
        self._start_mirrors()
        with self.orders:
            outcome = Outcome() if conclude_only or self.loop.stopped else self._search()
            self.lease.look()
            self.lease.check()
            self.orders.obey_the_last(self.loop, interrupted=not (outcome.finished or self.loop.stopped))
        outcome = self._conclusion().perform(outcome)
        self.lease.check()
        if self._mirrors.started:
            self._concludes(f"waiting for {' and '.join(self._mirrors.started)}")
            seconds = END_SECONDS if outcome.finished else INTERRUPTED_SECONDS
            seconds = 0.0 if self.interrupted.hurried else min(seconds, self.interrupted.seconds_left())
            for problem in self._mirrors.finish(seconds):
                _log.warning(problem)  # the run's last event is already written
        return RecordedRun(self.folder)

    def tell(self, notices: Iterable[str]) -> None:
        """Show messages that the user should see before the first trial."""
        for notice in notices:
            self.loop.notice(notice)

    def _together(self) -> Together:
        return Together(key_of(self.study), most_together(self.study, self.workers))

    def _counts(self) -> dict[Status, int]:
        return self.loop.record.counts()

    def _conclusion(self) -> Conclusion:
        scores = implementation_of(self.study.declared_trial).scores
        trained = "training a network that learns from the average of the best trials"
        step = trained if learns(self.loop.record) else "scoring the winner on the test split"
        write = partial(write_winner, self.study, self.folder, self.loop.record, self.resources, self.workers)
        how = {"winner_step": step} if scores else {}
        return Conclusion(self.loop, self.info, self.interrupted, self.lease, write, **how, tell=self._concludes)

    def _concludes(self, step: str) -> None:
        tell(self._listeners, CONCLUDING, step=step)

    def _leave(self) -> bool:
        return self.interrupted.is_set() or self.lease.lost

    def _search(self) -> Outcome:
        try:
            self._tune()
        except SearchLeft as left:
            if self.interrupted.is_set():
                return Outcome(self.interrupted.reason)
            return outcome_of(left.__cause__, self.folder) if left.__cause__ is not None else Outcome()
        except KeyboardInterrupt:
            return Outcome(self.interrupted.reason or "Ctrl-C")
        except Exception as error:
            return outcome_of(error, self.folder)
        return Outcome()

    def _tune(self) -> None:
        from ray import tune

        from tuner.driver.adapters import (
            SECONDS_FOR_SAVES,
            Bridge,
            RayCallback,
            RayScheduler,
            RaySearch,
            SilentProgress,
            SilentReporter,
            leaves_on_error,
        )
        from tuner.driver.gpu_pins import GpuPins
        from tuner.driver.ray_inside.names import present
        from tuner.driver.ray_inside.tune import memory_kills_survived
        from tuner.worker.trainable import make_trainable

        if self._allotment is not None and self._allotment.kind == "gpu":
            self._allotment.pins = GpuPins(self._allotment.devices)
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(self.most_workers or NO_LIMIT)
        bridge = Bridge(
            self.loop,
            self.resources,
            self.folder.uri,
            save_epochs=self.study.scheduler.rungs(self.study.budget.max_epochs),
            leave=self._leave,
            session=self.info["sessions"] - 1,
            joined=self.info["address"] is not None,
            orders=self.orders,
            together=self.together,
            allotment=self._allotment,
        )
        try:
            with memory_kills_survived(), self.interrupted.breakable():
                tune.run(
                    make_trainable(self.study.declared_trial),
                    name=TUNE,
                    **ray_storage(self.folder),
                    search_alg=RaySearch(bridge),
                    scheduler=RayScheduler(bridge),
                    callbacks=[RayCallback(bridge), SilentProgress()],
                    reuse_actors=present("reused_workers"),
                    progress_reporter=SilentReporter(),
                    verbose=0,
                    raise_on_failed_trial=False,
                )
        finally:
            if self._allotment is not None:
                self._allotment.close()
            if self.loop.stopped or self.interrupted.reason is not None:
                leaves_on_error(bridge.expect_nothing_of_stays)()
            seconds = SECONDS_FOR_SAVES_OF_STOPPED if self.loop.stopped else SECONDS_FOR_SAVES
            leaves_on_error(bridge.await_saves)(min(seconds, self.interrupted.seconds_left() / 2))
            if self.loop.stopped or self.interrupted.reason not in (None, RAY_IS_GONE):
                bridge.end_workers()  # they would go on training during the conclusion
            if self.study.failures.hung_minutes is not None:
                with suppress(OSError):
                    self.folder.delete(STACKS)

    def _start_mirrors(self) -> None:
        """A search goes on without what can't be started."""
        try:
            self._mirrors.start(self.folder)
        except OSError as error:
            self.loop.notice(f"W&B or MLflow is left out: {error}")


def ray_storage(folder: Folder) -> dict[str, Any]:
    """Where Ray keeps its own state: in the run's folder; in Azure through a file system that has the account's key."""
    if isinstance(folder, ObjectFolder) and folder.uri.startswith(SCHEMES):
        return {"storage_path": folder.key, "storage_filesystem": folder.filesystem}
    return {"storage_path": folder.uri}


def workers_of(connected: Connected, limit: int | None) -> int:
    """How many trials the connected cluster runs at once."""
    resources, devices = connected.resources, connected.devices
    fits = cluster_concurrency(replace(resources, gpus=0) if devices else resources, limit, grows=connected.grows)
    fits = fits if connected.most is None else min(fits, connected.most)
    return min(fits, sum(device.most for device in devices)) if devices else fits
