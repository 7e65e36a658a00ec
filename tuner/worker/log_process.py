"""A program that writes a trial's output into its log; it runs next to the trial's worker.

It reads pipes that stand for the trial's standard output and error, so that a worker which is killed, hangs, or never
lets another thread run still leaves what it printed. It runs by itself, with the standard library alone, in a few
megabytes: `python -I -S log_process.py FD PID`, where PID is the worker and FD a socket that `tuner.worker.output`
sends messages by:

    {"begin": PATH, "opening": TEXT, "token": TEXT}   of a trial's stay on the worker
    {"source": NAME, "epoch": NUMBER}   with a pipe to read from; "" for the trial's own process
    {"sync": NUMBER}, {"end": NUMBER}   answered by the number once all that was printed before is in the file

Each line gets the time in UTC and the epoch. A mark in the pipe says that another epoch begins (see `mark_of`): so it
stands between what was printed before and after, whenever that is read.
A log has at most LIMIT_BYTES: its first HEAD_BYTES stay, and of the rest the last TAIL_BYTES or more.
"""

import json
import os
import re
import select
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress

LIMIT_BYTES, HEAD_BYTES, TAIL_BYTES = 10_000_000, 5_000_000, 2_500_000
FLUSH_SECONDS = 0.5  # after which text that was read is in the file
BATCH_SECONDS = 0.01  # that a few lines wait for others, at most: waking for each line would cost the trial time
READ_BYTES, FEW_BYTES = 2**18, 2**14
LINE_BYTES = 100_000  # a line up to this length isn't cut in two where text is left out
DRAINED_READS = 16  # before an answer, so that a child that never stops printing can't delay it
AT_ONCE_BYTES = 8_000_000  # that wait in memory
TOKEN_BYTES, DIGITS, MARK_BYTES = 18, 9, 27
LEFT_OUT = b" bytes of output are left out here\n"
_GAP = re.compile(rb"[0-9T:Z-]{20} tuner \| ([0-9,]+)" + LEFT_OUT)


def stamp(what: str) -> bytes:
    """The beginning of a line: the time, and an epoch or "tuner"."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {what} | ".encode()


def mark_of(token: bytes, epoch: int) -> bytes:
    """The mark in the pipe for the beginning of an epoch."""
    return token + b"%0*d" % (DIGITS, min(epoch, 10**DIGITS - 1))


def shortened(content: bytes) -> bytes:
    """A log of the allowed length: its first part, how much is left out, and the last part."""
    gap = _gap(content)
    end = gap.start() if gap else content.rfind(b"\n", HEAD_BYTES - LINE_BYTES, HEAD_BYTES) + 1 or HEAD_BYTES
    head, rest = content[:end], content[gap.end() if gap else end :]
    missing = int(gap[1].replace(b",", b"")) if gap else 0
    kept = rest[-TAIL_BYTES:]
    if len(kept) < len(rest):
        kept = kept[kept.find(b"\n", 0, LINE_BYTES) + 1 :]
    missing += len(rest) - len(kept)
    if not missing:
        return head + rest
    line_end = b"" if head.endswith(b"\n") else b"\n"
    return head + line_end + stamp("tuner") + f"{missing:,}".encode() + LEFT_OUT + kept


def _gap(content: bytes) -> re.Match[bytes] | None:
    """The line that says how much is left out: no other line of a log begins as it does."""
    at = content.find(LEFT_OUT)
    while at >= 0:
        found = _GAP.match(content, content.rfind(b"\n", 0, at) + 1)
        if found is not None:
            return found
        at = content.find(LEFT_OUT, at + 1)
    return None


class Log:
    """A trial's log, to which lines are added; if the file can't be written to, only these lines are lost."""

    def __init__(self, path: str, opening: str) -> None:
        self._path, self._opening = path, opening
        self._pending: deque[tuple[str, bytes, bytes]] = deque()  # source, stamp, text
        self._size = 0  # about the pending bytes, as they will be written
        self._unwritten = 0
        self._unfinished: str | None = None  # the source whose line has no end yet
        self.flushed = time.monotonic()

    @property
    def dirty(self) -> bool:
        """Whether something isn't written to the file yet."""
        return bool(self._pending)

    def add(self, source: str, epoch: int, text: bytes) -> None:
        """Take what a source printed in an epoch."""
        if self._opening:
            self._put("tuner", stamp("tuner"), self._opening.encode() + b"\n")
            self._opening = ""
        self._put(source, stamp(f"epoch {epoch} {source}".rstrip()), text)
        if self._size > AT_ONCE_BYTES:
            self.flush()

    def _put(self, source: str, begin: bytes, text: bytes) -> None:
        self._pending.append((source, begin, text))
        self._size += len(text) + len(begin) * text.count(b"\n")

    def flush(self) -> None:
        """Write the waiting lines."""
        self.flushed = time.monotonic()
        if not self._pending:
            return
        if self._unwritten:
            self._unfinished = None
        begins_line, lines = self._unfinished is None, self._lines()
        if self._unwritten:
            lines = stamp("tuner") + f"{self._unwritten:,} bytes of output could not be written\n".encode() + lines
        self._pending.clear()
        self._size = 0
        try:
            self._write(lines, begins_line)
            self._unwritten = 0
        except OSError:
            self._unwritten += len(lines)

    def _lines(self) -> bytes:
        """The waiting lines, each with its beginning."""
        parts = []
        for source, begin, text in self._pending:
            if self._unfinished != source:
                parts += [b"" if self._unfinished is None else b"\n", begin]
            ends = text.endswith(b"\n")
            parts += [text[: len(text) - ends].replace(b"\n", b"\n" + begin), b"\n" if ends else b""]
            self._unfinished = None if ends else source
        return b"".join(parts)

    def _write(self, lines: bytes, begins_line: bool) -> None:
        file = _opened(self._path)
        try:
            size = os.fstat(file).st_size
            if begins_line and size and os.pread(file, 1, size - 1) != b"\n":
                lines = b"\n" + lines  # after an incomplete line of a worker that was killed
            if size + len(lines) <= LIMIT_BYTES:
                _write_all(file, lines)
                return
            content = os.pread(file, size, 0)
        finally:
            os.close(file)
        self._replace(shortened(content + lines))

    def _replace(self, content: bytes) -> None:
        beside = f"{self._path}.part"
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            _write_all(file, content)
            os.replace(beside, self._path)  # noqa: PTH105 -- pathlib takes longer to import than all the rest
        except OSError:
            os.unlink(beside)  # noqa: PTH108
            raise
        finally:
            os.close(file)


def _opened(path: str) -> int:
    """The file for appending, at the start of a line; its folder is created, but no folder above that."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # it may be a pipe
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another trial was first
            os.mkdir(os.path.dirname(path))  # noqa: PTH102, PTH120
        return os.open(path, flags, 0o666)


def _write_all(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]


class Source:
    """A pipe that a process of the trial prints into."""

    def __init__(self, pipe: int, name: str, token: bytes, epoch: int) -> None:
        os.set_blocking(pipe, False)
        self.pipe, self.name, self.epoch = pipe, name, epoch
        self._token, self._held = token, b""
        self._after_return = False

    def read(self, log: Log) -> int:
        """Pass available text to the log; returns its bytes, -1 at the end of the pipe."""
        try:
            found = os.read(self.pipe, READ_BYTES)
        except BlockingIOError:
            return 0
        if not found:
            self._give(log, self._held)
            self._held = b""
            return -1
        text = self._held + found
        while (start := self._mark(text)) >= 0:
            self._give(log, text[:start])
            if len(text) - start < MARK_BYTES:
                text = text[start:]
                break
            self.epoch = int(text[start + TOKEN_BYTES : start + MARK_BYTES])
            text = text[start + MARK_BYTES :]
        else:
            self._give(log, text)
            text = b""
        self._held = text
        return len(found)

    def _mark(self, text: bytes) -> int:
        """Where a mark begins, which may be cut off at the end; -1 if there is none."""
        if b"\0" not in text:
            return -1
        start = text.find(self._token)
        if start < 0:
            start = text.rfind(b"\0", -TOKEN_BYTES)
            if start >= 0 and not self._token.startswith(text[start:]):
                start = -1
        return start

    def _give(self, log: Log, text: bytes) -> None:
        """A carriage return ends a line: each state of a progress bar becomes a line."""
        if b"\r" in text or self._after_return:
            whole = text
            text = text[1:] if self._after_return and text.startswith(b"\n") else text
            self._after_return = whole.endswith(b"\r")
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if text:
            log.add(self.name, self.epoch, text)


class Worker:
    """The worker process, for which this process writes; it isn't this process's parent."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.descriptors: list[int] = []  # they become readable once it has ended
        with suppress(OSError, AttributeError):  # it has ended already, or the kernel is older than 5.3
            self.descriptors = [os.pidfd_open(pid)]

    def lives(self) -> bool:
        """Whether it has not ended."""
        if self.descriptors:
            return not select.select(self.descriptors, [], [], 0)[0]
        with suppress(ProcessLookupError):
            os.kill(self._pid, 0)
            return True
        return False


def pause(come: int, passed: float) -> float:
    """Seconds until about READ_BYTES come, at the rate so far: a full pipe would delay the trial."""
    return min(BATCH_SECONDS, passed * READ_BYTES / come) if come > 0 else BATCH_SECONDS


class Recorder:
    """Does what the messages say until the worker is gone."""

    def __init__(self, control: socket.socket, worker: Worker) -> None:
        self._control, self._worker = control, worker
        self._log: Log | None = None
        self._token, self._discarded = b"", 0.0
        self._come, self._paused = 0, 0.0  # bytes since the last pause, and when that began
        self._sources: dict[int, Source] = {}
        self._left: set[int] = set()  # pipes of ended trials that their children still hold

    def serve(self) -> None:
        """Return once the worker has ended, and what it printed is written."""
        while self._worker.lives():
            self._wait()
            read = [self._read(source) for source in list(self._sources.values())]
            self._come += sum(read)  # a pipe's end counts as -1
            if not self._answer():
                break
            if self._log is not None and time.monotonic() - self._log.flushed >= FLUSH_SECONDS:
                self._log.flush()
            self._discard()
            if max(read, default=0) < FEW_BYTES:
                seconds = pause(self._come, time.monotonic() - self._paused)
                self._come, self._paused = 0, time.monotonic()
                select.select([self._control], [], [], seconds)
        self._answer()  # the worker may have been killed before this program began
        self._drain()
        if self._log is not None:
            self._log.flush()

    def _wait(self) -> None:
        poll = select.poll()
        for each in (self._control.fileno(), *self._worker.descriptors, *self._sources):
            poll.register(each, select.POLLIN)
        waits = self._left or (self._log is not None and self._log.dirty)
        poll.poll(1000 * (FLUSH_SECONDS if waits else 2 * FLUSH_SECONDS))

    def _read(self, source: Source) -> int:
        assert self._log is not None
        read = source.read(self._log)
        if read < 0:
            os.close(source.pipe)
            del self._sources[source.pipe]
        return read

    def _drain(self) -> None:
        """Read what was printed so far."""
        for source in list(self._sources.values()):
            for _ in range(DRAINED_READS):
                if self._read(source) <= 0:
                    break

    def _answer(self) -> bool:
        """Act on the messages that have come; False if no more will come."""
        while select.select([self._control], [], [], 0)[0]:
            try:
                text, pipes, _, _ = socket.recv_fds(self._control, 2**16, 1)
            except OSError:
                return False
            if not text:
                return False
            self._do(json.loads(text), pipes)
        return True

    def _do(self, message: dict[str, str | int], pipes: list[int]) -> None:
        if "begin" in message:
            self._log = Log(str(message["begin"]), str(message["opening"]))
            self._token = str(message["token"]).encode()
        elif "source" in message:
            source = Source(pipes[0], str(message["source"]), self._token, int(message["epoch"]))
            self._sources[source.pipe] = source
        else:
            self._drain()
            if self._log is not None:
                self._log.flush()
            if "end" in message:
                self._left |= self._sources.keys()
                self._sources, self._log = {}, None
            self._control.send(str(message.get("end", message.get("sync"))).encode())

    def _discard(self) -> None:
        """Read some output of earlier trials' children that still run: without a reader they would end."""
        if time.monotonic() - self._discarded < FLUSH_SECONDS:
            return
        self._discarded = time.monotonic()
        for pipe in list(self._left):
            try:
                if not os.read(pipe, READ_BYTES):
                    os.close(pipe)
                    self._left.discard(pipe)
            except BlockingIOError:
                continue


def main(control: int, worker: int) -> None:
    """Serve one worker."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Recorder(socket.socket(fileno=control), Worker(worker)).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
