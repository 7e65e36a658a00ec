"""A trial's reports to the driver, and its checkpoints, which are written to and read from the run folder."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from json import dumps  # a trial may replace json.dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ray import tune

from tuner.errors import RunFolderError, TrialError, kept
from tuner.history.checkpoints import CheckpointStore, Fill, copied
from tuner.history.events import plain, plain_metrics
from tuner.machine.temporary import OwnedFolder
from tuner.storage.locations import no_space, open_folder
from tuner.worker.assignment import REPORT, Assignment
from tuner.worker.hanging import HangWatch
from tuner.worker.messages import Message, Sender
from tuner.worker.output import NO_OUTPUT, Output
from tuner.worker.ray_inside.draining import DrainWatch
from tuner.worker.ray_inside.last_trial import CATCHES, LAST
from tuner.worker.saving import BackgroundWriter, unwritten
from tuner.worker.working_folder import Keeping

if TYPE_CHECKING:
    from tuner.history.placement import Placement
    from tuner.train.checkpoint import Checkpoint
    from tuner.worker.read_values import Reading

WRITER = BackgroundWriter()  # of this worker process
MOST_REPORTS = 100  # the last ones, that a checkpoint has
COUNTERS = ("epoch", "training_iteration")  # metrics that count epochs


class WorkerSession:
    """Carries a trial's reports to the driver and its checkpoints to the run folder.

    `notes` are sentences for the user, sent with the next report, as is what `reading` has noted; `output` takes what
    the trial prints. Epochs that take less than `quick_seconds` are reported together, while the next ones are trained.
    """

    quick_seconds = 0.2

    def __init__(self, assignment: Assignment, output: Output = NO_OUTPUT, beside: WorkerSession | None = None) -> None:
        """`beside` is the session of a trial with which this one shares its stay."""
        self._assignment, self.output = assignment, output
        self._beside = beside is not None
        self._together = self._beside or bool(assignment.others)
        folder = open_folder(assignment.run_uri)
        self._store = CheckpointStore(folder)
        if beside is None:
            self.watch = HangWatch(folder, assignment.trial, assignment.hung_seconds)
            self._drain = DrainWatch(joined=assignment.joined)
            self._sender = Sender(self._deliver, self.watch.reporting)
        else:
            self.watch, self._drain, self._sender = beside.watch, beside._drain, beside._sender
        self._reported_at = -math.inf  # when the trial went on after its last report
        self._epoch: int | None = None  # the last epoch that was reported here, or from which the trial went on
        self._restored: Path | None = None
        self._owned = OwnedFolder("trial")
        self._temporary = self._owned.path
        self._reports: dict[int, dict[str, Any]] = {}
        self.notes: list[str] = []
        self.reading: Reading | None = None
        self.keeping = Keeping()

    def report(self, metrics: dict[str, Any], checkpoint: Path | None) -> None:
        """Send one epoch of a user's function; returns when the driver wants the trial to go on.

        If the function has asked for its checkpoint, it went on from that; otherwise it started from its beginning.
        """
        if self._restored is not None and not self._reports:
            self._note_a_repeated_epoch(metrics)
        epoch = (self._epoch or 0) + 1
        self.keeping.report(may_leave=epoch in self._assignment.save_epochs or epoch >= self._assignment.last)
        fill = None if checkpoint is None else copied(checkpoint)
        self.report_epoch(epoch, metrics, fill=fill, saves=checkpoint is not None)

    def _note_a_repeated_epoch(self, metrics: Mapping[str, Any]) -> None:
        """Say so if the function counts epochs, and trains the one again from whose checkpoint it went on."""
        if self._epoch is None or not any(name in metrics for name in COUNTERS):
            return
        before = (self._store.reports(self._assignment.trial, self._epoch) or {}).get(self._epoch, {})
        for name in (name for name in COUNTERS if isinstance(metrics.get(name), int | float)):
            if isinstance(before.get(name), int | float) and metrics[name] <= before[name]:
                self.notes.append(
                    f"a trial that goes on needs to begin with the next epoch, got {name}={metrics[name]:g} after "
                    f"{name}={before[name]:g} was reported with its checkpoint, so that each pause trains an epoch "
                    f"twice; save {name} + 1 in the checkpoint, or begin one later"
                )

    def report_epoch(
        self,
        epoch: int,
        metrics: dict[str, Any],
        *,
        fill: Fill | None = None,
        behind: Checkpoint | None = None,
        replaceable: bool = False,
        saves: bool = True,
        earlier: Mapping[int, Fill] | None = None,
        later: bool = False,
    ) -> None:
        """Send one epoch with its number; returns when the driver wants the trial to go on.

        `fill` writes its checkpoint before that. Or a checkpoint is written from memory, `behind`, while training goes
        on, but not before the driver knows the epoch; a `replaceable` one is left out while another is waiting to be
        written. `saves` says whether the trial means to write checkpoints at all. Checkpoints of `earlier` epochs are
        written now, too, and this one `later`. A trial that shares its stay doesn't wait for the driver.
        """
        trial = self._assignment.trial
        told = plain_metrics(metrics)
        self._reports[epoch] = told
        self._reports.pop(epoch - MOST_REPORTS, None)
        if (fill or behind is not None) and not self._together:
            self._sender.flush()  # no checkpoint is written after an epoch at which the driver ends the trial
        written, refused = self._write({**(earlier or {}), **({epoch: fill} if fill else {})})
        saved, failures = [*WRITER.finished(trial), *written], WRITER.failures(trial)
        notes = [*self.notes, *self.output.notes, *(why for _, why in [*refused, *failures])]
        self.notes, self.output.notes = [], []
        coming = (behind is not None or later) and WRITER.announce(trial, replaceable=replaceable)
        if self._together and written:
            WRITER.withdraw(trial)
        message = {
            "epoch": epoch,
            "metrics": told,
            "notes": notes,
            "saved": saved,
            "unsaved": [failed for failed, _ in failures],
            "no_space": [failed for failed, why in [*failures, *refused] if no_space(why)],
            "saving": epoch if coming else None,
            "saves": saves,
            "leaving": self.is_leaving(),
            "reading": self.reading and self.reading.news(),
            "trial": trial,
        }
        if epoch >= self._assignment.last:
            self.output.flush()  # the search may end with this report, and the log should be complete then
        self.output.epoch(min(epoch + 1, self._assignment.last))
        if not self._together and (coming or written or not self._may_go_ahead(epoch)):
            try:
                self._sender.send(_text(message))
            finally:
                if behind is not None and coming:
                    WRITER.submit(trial, epoch, behind, self._assignment.run_uri, dict(self._reports))
        else:
            self._sender.hold(_text(message))
            self.watch.start()
        self._epoch, self._reported_at = epoch, time.monotonic()

    def _may_go_ahead(self, epoch: int) -> bool:
        """Whether the trial doesn't wait for the driver's decision: its epochs are quick, and "go on" is expected."""
        quick = time.monotonic() - self._reported_at < self.quick_seconds
        return quick and epoch < self._assignment.last and epoch not in self._assignment.save_epochs

    def is_leaving(self) -> bool:
        """Whether the trial should be saved now, because its node is drained."""
        return self._drain.draining()

    def checkpoint(self) -> Path | None:
        """A copy of the newest complete checkpoint, from which a user's function can go on."""
        if self._restored is None and self._epoch is None:
            for epoch, folder in self._whole():
                self._epoch, self._restored = epoch, self._temporary / "restored"
                self.output.epoch(epoch + 1)
                copied(folder)(self._restored)
                break
        return self._restored

    def checkpoints(self) -> list[Path]:
        """All checkpoints from which this trial may go on, the newest first, verified and on this machine."""
        found = list(self._whole())
        if found:
            self.output.epoch(found[0][0] + 1)
        return [folder for _, folder in found]

    def placed(self, placement: Placement, waited: float) -> None:
        """Tell the driver where the trial runs, and how many seconds it waited for the last trial there.

        Returns when the driver wants it to begin, which a trial beside the first one of its stay takes for granted.
        """
        tell = self._sender.hold if self._beside else self._sender.send
        tell(_text({"placed": placement.fields | {"waited": waited}, "trial": self._assignment.trial}))

    def tell_features(self, progress: dict[str, Any]) -> None:
        """Tell the driver how far the features of a frozen backbone are; returns at once, and the trial isn't hung."""
        self._sender.hold(_text({"features": progress, "trial": self._assignment.trial}))
        self.watch.start()

    def apart(self, which: Literal["all", "these"]) -> None:
        """Tell the driver that `all` trials have to be trained alone, or `these` of this stay."""
        self._sender.send(_text({"apart": which}))

    def fail(self, cause: str, message: str, trace: str | None = None) -> None:
        """Tell the driver that the trial has failed, after its output was written to the log."""
        if kept(message, trace) != (message, trace):
            with suppress(Exception):  # the trial may have closed it
                print(trace or message, file=sys.stderr)
        self.output.flush()
        failure = {"cause": cause, "message": message, "traceback": trace}
        self._sender.send(_text({"failure": failure, "trial": self._assignment.trial}))

    @property
    def stopped(self) -> bool:
        """Whether the driver has ended the trial here."""
        return self._sender.stopped

    def ignored(self) -> None:
        """The trial's code goes on though the driver has ended the trial here: this worker is of no use any more."""
        self.watch.stop()
        print(f"trial {self._assignment.trial} was ended, and its code goes on; {CATCHES}", file=sys.stderr)
        self.output.flush()
        LAST.hold()

    def flush(self) -> None:
        """Wait until the driver has answered all reports; called when the trial's code has returned."""
        self._sender.flush()

    def close(self) -> None:
        """Delete what the trial left on this machine."""
        self._sender.close()
        self.watch.close()
        self._owned.delete()

    def beside(self, assignment: Assignment) -> WorkerSession:
        """The session of another trial of this stay."""
        return WorkerSession(assignment, beside=self)

    def leave(self, unwritten: Mapping[int, Fill]) -> None:
        """A trial that shared the stay leaves it: write checkpoints that were to be written later."""
        self._write(unwritten)
        WRITER.withdraw(self._assignment.trial)
        if self._beside:
            self._owned.delete()

    def _whole(self) -> Iterator[tuple[int, Path]]:
        """Epoch and folder of the checkpoints of epochs that the driver knows, the newest first."""
        known = max(self._assignment.reported, self._epoch or 0)
        for epoch in reversed(self._store.epochs(self._assignment.trial)):
            if epoch > known:
                continue
            try:
                yield epoch, self._store.fetch(self._assignment.trial, epoch, self._temporary / f"{epoch:06d}")
            except TrialError as error:
                if self._store.has(self._assignment.trial, epoch):  # else the driver has just deleted it
                    self.notes.append(f"a checkpoint is skipped: {error}")

    def _write(self, fills: Mapping[int, Fill]) -> tuple[list[int], list[tuple[int, str]]]:
        """The epochs whose checkpoint could be written, and the others and why not; the trial goes on in any case."""
        written: list[int] = []
        refused: list[tuple[int, str]] = []
        for epoch, fill in fills.items():
            try:
                self._store.write(self._assignment.trial, epoch, fill, self._reports)
            except (OSError, RunFolderError) as error:
                refused.append((epoch, unwritten(self._assignment.trial, epoch, error)))
            else:
                written.append(epoch)
        return written, refused

    def _deliver(self, messages: Sequence[Message]) -> None:
        """Send messages to the driver; returns when it wants the trial to go on."""
        tune.report({REPORT: list(map(list, messages))})  # in a list, because Ray flattens dicts


def _text(message: dict[str, Any]) -> str:
    return dumps(message, default=plain)  # JSON, because it is stored in Ray's own snapshots
