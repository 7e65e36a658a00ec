"""The lease in a run's folder: only one process at a time holds and renews it, and drives the run.

The lease is the file of the highest number in `lease/`. A process takes it by creating the next number, which the
storage allows only one process to do (a hard link on a disk and on NFS, a conditional PUT on an object store). It then
deletes the previous file, whose holder notices that at its next renewal. Only its holder writes to a file, and numbers
are never used again, so that a process that was suspended for any time can't take the lease back.
"""

from __future__ import annotations

import json
import logging
import platform
import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from tuner.errors import RunFolderError
from tuner.storage.folder import Folder
from tuner.storage.identity import ProcessIdentity
from tuner.text import command

LEASE = "lease"
_log = logging.getLogger(__name__)  # unless set up, it goes to stderr
_held_here: set[str] = set()  # ids of the leases that this process holds


@dataclass(frozen=True)
class Pace:
    """How often a lease is renewed, and how long after the last renewal it expires, in seconds."""

    renew_seconds: float = 5.0
    expire_seconds: float = 45.0


@dataclass(frozen=True)
class Holder:
    """The process that drives a run; `host` is for people to read and decides nothing."""

    id: str
    host: str
    process: ProcessIdentity
    since: str
    released: bool = False

    @property
    def pid(self) -> int:
        """The process's number, on its host and in its container."""
        return self.process.pid

    def lives(self) -> bool | None:
        """Whether it still drives the run; None if that can't be known from here."""
        if self.released:
            return False
        if self.process == ProcessIdentity.current() and self.process.start is not None:
            return self.id in _held_here
        return self.process.lives()


@dataclass(frozen=True)
class _Entry:
    """The newest lease as it was read; without a holder if it can't be parsed."""

    number: int
    content: bytes
    modified: float
    holder: Holder | None

    def lives(self) -> bool | None:
        return None if self.holder is None else self.holder.lives()

    def __str__(self) -> str:
        if self.holder is None:
            return "another process"
        return f"process {self.holder.pid} on {self.holder.host!r}"


class Lease:
    """A lease that this process holds; `held` makes one."""

    def __init__(self, folder: Folder, number: int, holder: Holder, pace: Pace) -> None:
        self.holder = holder
        self._folder, self._number, self._pace = folder, number, pace
        self._content = _written(holder)
        self._lost, self._looked = False, _clock()
        self._released = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_on, name="tuner-lease", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """Whether another process took the lease over, or the run's folder is gone: its holder must stop writing.

        Costs nothing, except after the process was suspended or got no CPU: then it reads the storage first. If the
        storage can't be reached, the lease isn't lost, because presumably others can't write there either. After
        `release` the value no longer changes.
        """
        if _clock() - self._looked > 2 * self._pace.renew_seconds:
            self.look()
        return self._lost

    def look(self) -> None:
        """Read the storage now rather than at the next renewal: what is lost since then is known after that."""
        if not self._lost and not self._released:
            self._renew()

    def check(self) -> None:
        """Raise RunFolderError if the lease is lost: with what has happened to the run, and what to do."""
        if not self.lost:
            return
        if ever_held(self._folder):
            raise RunFolderError(
                f"another process has taken over the run {self._folder.uri!r}, so this one stops; "
                f"follow the search with: {command('show', self._folder.uri, '--watch')}"
            )
        raise RunFolderError(
            f"a run's folder must stay where it is while the search runs, got {self._folder.uri!r}, which was renamed "
            f"or deleted; if you find it elsewhere, go on with: {command('resume', 'FOLDER')}"
        )

    def release(self) -> None:
        """Stop renewing, and let others take it at once."""
        self._ended.set()
        self._thread.join(self._pace.renew_seconds)
        try:
            self._lost = self._lost or self._superseded()
            if not self._lost:
                self._folder.write(_name(self._number), _written(self.holder, released=True))
        except FileNotFoundError:
            self._lost = True
        except Exception:  # the folder is gone or not writable: others don't wait for long
            _log.debug("the lease of %s was not released", self._folder.uri, exc_info=True)
        finally:
            self._released = True
            _held_here.discard(self.holder.id)

    def _renew_on(self) -> None:
        while not self._lost and not self._ended.wait(self._pace.renew_seconds):
            self._renew()

    def _renew(self) -> None:
        self._looked = _clock()
        try:
            if self._superseded():
                self._lost = True
            else:
                self._folder.touch(_name(self._number))
        except FileNotFoundError:
            self._lost = True
        except Exception:
            _log.debug("the lease of %s was not renewed", self._folder.uri, exc_info=True)

    def _superseded(self) -> bool:
        """Whether there is a newer lease, or none, or (without conditional writes) another's of the same number."""
        if max(_numbers(self._folder), default=0) != self._number:
            return True
        return self._folder.read(_name(self._number)) != self._content


@contextmanager
def held(folder: Folder, *, take_over: bool = False, pace: Pace | None = None) -> Iterator[Lease]:
    """Hold the lease of the run in a folder, which may be new, for the length of a `with`; a thread renews it.

    If the present holder is a process of this machine, it is known (by boot, PID namespace and start) whether it lives:
    then this call is refused at once; if it is dead, it is replaced at once. Any other holder may be renewing from
    elsewhere: its lease expires when it wasn't renewed for 45 s. The age is measured by the storage's clock, with a
    file written now, and from then on by this machine's monotonic clock; so clocks may differ. Only if a file server's
    clock is set forward between two renewals could a living holder seem dead; it then finds its lease lost. `take_over`
    takes the lease from a living holder, and waits until that one has noticed.

    A process that is suspended right after it asked `lost` can still write when it wakes up; only the storage could
    prevent that.

    Raises RunFolderError if another process holds it, or the folder can't be written to.
    """
    lease, ousted = _take(folder, take_over, pace or Pace())
    try:
        if ousted is not None:
            _let_stop(folder, ousted, pace or Pace())
        yield lease
    finally:
        lease.release()


def holder(folder: Folder) -> Holder | None:
    """The process that drives the run now; None if there is none, or it is dead. Only reads, and doesn't wait.

    For a process elsewhere the last renewal is compared with this machine's clock: if that differs from the storage's
    by more than 45 s, the answer can be wrong, unlike that of `held`.
    """
    try:
        entry = _newest(folder)
    except (OSError, RunFolderError):  # nothing is known about a folder that can't be read
        return None
    if entry is None or entry.holder is None:
        return None
    lives = entry.lives()
    if lives is None:
        lives = time.time() - entry.modified < Pace().expire_seconds
    return entry.holder if lives else None


def ever_held(folder: Folder) -> bool:
    """Whether the run has ever had a lease."""
    try:
        return bool(_numbers(folder))
    except (OSError, RunFolderError):  # something is there
        return True


def _take(folder: Folder, take_over: bool, pace: Pace) -> tuple[Lease, _Entry | None]:
    """The lease, and the previous entry if its holder may still live."""
    try:
        return _taken(folder, take_over, pace)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RunFolderError(
            f"a run's folder needs to be one that can be written to, got {folder.uri!r} ({reason}); choose another"
        ) from error


def _taken(folder: Folder, take_over: bool, pace: Pace) -> tuple[Lease, _Entry | None]:
    """Try until this process has the lease, or sees that another one has it."""
    entry = _newest(folder)
    to_oust = entry if take_over and entry is not None and entry.lives() is not False else None
    while True:
        ousting = to_oust is not None and entry is not None and entry.number == to_oust.number
        if entry is not None and not ousting:
            _await_end(folder, entry, pace)
        lease = _created(folder, 1 if entry is None else entry.number + 1, pace)
        if lease is not None:
            return lease, to_oust if ousting else None
        entry = _newest(folder)


def _created(folder: Folder, number: int, pace: Pace) -> Lease | None:
    """The lease of that number, unless another process was first; it shows earlier holders that they lost theirs."""
    mine = _mine()
    _held_here.add(mine.id)
    try:
        if not folder.create(_name(number), _written(mine)):
            _held_here.discard(mine.id)
            return None
        numbers = _numbers(folder)
        if max(numbers, default=number) > number:  # the number was free because its holder was superseded long ago
            _held_here.discard(mine.id)
            folder.remove(_name(number))
            return None
        for earlier in numbers:
            if earlier < number:
                folder.remove(_name(earlier))
        return Lease(folder, number, mine, pace)
    except BaseException:
        _held_here.discard(mine.id)
        raise


def _await_end(folder: Folder, entry: _Entry, pace: Pace) -> None:
    """Return once the holder is dead or its lease has expired; raises RunFolderError if it lives."""
    lives = entry.lives()
    if lives is None:
        left = pace.expire_seconds - _age(folder, entry)
        if left > 0:
            _log.warning("%s: waiting up to %.0f s to see whether %s still drives the run", folder.uri, left, entry)
        lives = _renewed_within(folder, entry, left)
    if lives:
        raise _refusal(folder, _newest(folder) or entry)


def _renewed_within(folder: Folder, entry: _Entry, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1.0))
        latest = _newest(folder)
        if latest is None or latest.lives() is False:
            return False
        if latest != entry:
            return True
    return False


def _age(folder: Folder, entry: _Entry) -> float:
    """Seconds since the last renewal, by the storage's clock."""
    probe = f"{LEASE}/.now-{uuid.uuid4().hex}"
    folder.write(probe, b"now")
    try:
        return max(0.0, folder.modified(probe) - entry.modified)
    finally:
        folder.remove(probe)


def _let_stop(folder: Folder, ousted: _Entry, pace: Pace) -> None:
    """Wait until the former holder, if it lives, has seen that it lost its lease: one renewal at most."""
    seconds = pace.renew_seconds + 1
    _log.warning("%s: took the run over from %s; waiting %.0f s so that it stops", folder.uri, ousted, seconds)
    end = time.monotonic() + seconds
    while time.monotonic() < end and ousted.lives() is not False:
        time.sleep(0.1)


def _refusal(folder: Folder, entry: _Entry) -> RunFolderError:
    which = str(entry)
    end = "end it"
    if entry.holder is not None:
        here = entry.holder.process.lives() is not None
        end = f"end it{'' if here else ' there'} with `kill {entry.holder.pid}`"
        which += f" drives since {entry.holder.since}"
        if entry.holder.id in _held_here:
            which, end = "this very process drives", "wait for its end"
    else:
        which += " drives"
    return RunFolderError(
        f"a run has one driver at a time, got {folder.uri!r}, which {which}; "
        f"{end}, or take the run over with --take-over (in Python take_over=True)"
    )


def _newest(folder: Folder) -> _Entry | None:
    while True:
        number = max(_numbers(folder), default=0)
        if not number:
            return None
        with suppress(FileNotFoundError):  # taken over in between
            modified, content = folder.modified(_name(number)), folder.read(_name(number))
            return _Entry(number, content, modified, _read(content))
        time.sleep(0.05)  # NFS may list a deleted file for a while


def _numbers(folder: Folder) -> list[int]:
    return [int(name.removesuffix(".json")) for name in folder.files(LEASE) if re.fullmatch(r"[0-9]{6,}\.json", name)]


def _name(number: int) -> str:
    return f"{LEASE}/{number:06d}.json"


def _mine() -> Holder:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Holder(uuid.uuid4().hex, platform.node(), ProcessIdentity.current(), since)


def _written(holder: Holder, *, released: bool = False) -> bytes:
    text = json.dumps({**asdict(holder), "released": released}, indent=2)
    return (text + " " * released + "\n").encode()  # the same length in both cases, for readers at that moment


def _read(content: bytes) -> Holder | None:
    try:
        told: dict[str, Any] = json.loads(content)
        process = told["process"]
        return Holder(
            id=_kept(told["id"], str),
            host=_kept(told["host"], str),
            process=ProcessIdentity(
                _kept(process["pid"], int),
                _kept(process["boot"], str | None),
                _kept(process["namespace"], str | None),
                _kept(process["start"], int | None),
            ),
            since=datetime.fromisoformat(told["since"]).isoformat(timespec="seconds"),
            released=_kept(told["released"], bool),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _kept(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _clock() -> float:
    """Seconds, including those in which the process or the machine slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
