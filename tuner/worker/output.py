"""A trial's output while it runs here: it goes into the trial's log, from all its processes and libraries.

During the trial the file descriptors 1 and 2 lead into a pipe, so that the output of child processes and C libraries is
included. The process `log_process` reads the pipe and writes the log; without it a trial prints to where the worker
does. If it dies during the trial, another one goes on: the worker holds the pipe's other end, too, so that printing
never fails.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tuner.errors import RunFolderError
from tuner.history.logs import log_name
from tuner.machine.temporary import OwnedFolder
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.locations import open_folder
from tuner.worker import log_process

ANSWER_SECONDS = 5.0  # the longest that a trial waits for the process
UPLOAD_SECONDS = 20.0  # between two copies on an object store
PIPE_BYTES = 2**20  # the most that a user may request; the kernel's default is a sixteenth
UNFINISHED_SECONDS = 0.3  # after which an incomplete line is written
ENDED = "the process that writes a trial's log had ended"
STDERR = 2
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ of Linux
_LINE_BUFFERED = 1  # _IOLBF


class Output:
    """The output of one stay of a trial on this worker; `epoch` is the epoch that it trains."""

    def __init__(self, process: LogProcess | None, begin: dict[str, str]) -> None:
        self._process, self._begin, self._epoch = process, begin, 1
        self._token = begin.get("token", "").encode()
        self._pipes: list[int] = []
        self._sources: list[tuple[str, int]] = []  # names, and the ends of the pipes that the process reads
        self._lock = threading.Lock()
        self.notes: list[str] = []  # for the user
        if process is not None:
            process.tell(begin)

    def pipe(self, name: str) -> int | None:
        """The pipe for a child process whose lines are to have the name; None if nothing is kept."""
        if self._process is None:
            return None
        reading, writing = os.pipe()
        with suppress(OSError):
            _enlarge(writing)
        self._pipes.append(writing)
        self._sources.append((name, reading))
        with suppress(OSError):  # `mend` tells the next process
            self._tell_of(name, reading)
        return writing

    def epoch(self, number: int) -> None:
        """The trial trains this epoch from now on."""
        self._epoch = number
        if self._process is not None:
            flush_streams()
            for pipe in self._pipes:
                _write(pipe, log_process.mark_of(self._token, number))

    def flush(self) -> None:
        """Write what was printed so far to the log's file."""
        if self._process is not None:
            flush_streams()
            self._ask("sync")

    def mend(self) -> None:
        """If the process has ended, start another one, or try that again the next time."""
        if self._process is None or self._process.owner != os.getpid():
            return
        with self._lock, suppress(OSError, subprocess.SubprocessError):
            if self._process.works:
                return
            self._process = _log_process()
            self._process.tell({**self._begin, "opening": ENDED})
            for source in self._sources:
                self._tell_of(*source)
            self.notes.append(f"{ENDED}, so another one goes on with it")

    def close(self) -> None:
        """The trial prints nothing more; the output of children that live on is left out."""
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = []
        if self._process is not None:
            self._ask("end")
        while self._sources:
            os.close(self._sources.pop()[1])

    def _tell_of(self, name: str, reading: int) -> None:
        assert self._process is not None
        self._process.tell({"source": name, "epoch": self._epoch}, [reading])

    def _ask(self, what: str) -> None:
        """Ask the process, or the one that follows it if it has ended."""
        assert self._process is not None
        if not self._process.ask(what) and not self._process.works:
            self.mend()
            self._process.ask(what)


NO_OUTPUT = Output(None, {})


class LogProcess:
    """The process that writes the logs of this worker's trials, one after another."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._asked = 0
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(ANSWER_SECONDS)
        with theirs:
            program = [sys.executable, "-I", "-S", log_process.__file__, str(theirs.fileno()), str(self.owner)]
            subprocess.run(  # neither child nor in the group of the worker, which kills both when it ends
                ["/bin/sh", "-c", '"$@" &', "sh", *program],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
                start_new_session=True,
            )

    @property
    def works(self) -> bool:
        """Whether it runs, and belongs to this process, not to the one that this process was forked from."""
        return self.owner == os.getpid() and not self._hung_up()

    def _hung_up(self) -> bool:
        control = select.poll()
        control.register(self._control, 0)
        return bool(control.poll(0))

    def tell(self, message: dict[str, Any], pipes: list[int] | None = None) -> None:
        """Send a message; raises OSError if the process is gone, or doesn't read within seconds."""
        socket.send_fds(self._control, [json.dumps(message).encode()], pipes or [])

    def ask(self, what: str) -> bool:
        """Send a question and wait for its answer; False if none comes within seconds."""
        self._asked += 1
        with suppress(OSError):
            self.tell({what: self._asked})
            while answer := self._control.recv(64):
                if int(answer) == self._asked:  # an earlier one may have come too late
                    return True
        return False


_process: LogProcess | None = None


def _log_process() -> LogProcess:
    global _process  # noqa: PLW0603 -- one for each worker process
    if _process is None:
        _buffer_by_line()
        os.register_at_fork(before=flush_streams)  # or the child would print the incomplete line, too
    if _process is None or not _process.works:
        _process = LogProcess()
    return _process


@contextmanager
def captured(trial: str, run_uri: str, opening: str) -> Iterator[Output]:
    """Within the block what this process and its children print goes into the trial's log in the run folder.

    Streams and descriptors are restored at the end. `opening` is the line before the first printed one.
    """
    with ExitStack() as stack:
        try:
            path = stack.enter_context(_log_file(open_folder(run_uri), log_name(trial)))
            token = f"\0{secrets.token_hex(8)}:"
            output = Output(_log_process(), {"begin": str(path), "opening": opening, "token": token})
            stack.callback(output.close)
            pipe = output.pipe("")
            if pipe is not None:
                stack.enter_context(_redirected(pipe, output.mend))
        except (OSError, subprocess.SubprocessError, RunFolderError):  # a trial is more important than its log
            stack.close()
            output = NO_OUTPUT
        yield output


@contextmanager
def _redirected(pipe: int, mend: Callable[[], None]) -> Iterator[None]:
    """Within the block descriptors 1 and 2, and Python's streams over them, lead into the pipe, which `mend` mends."""
    flush_streams()
    kept = [os.dup(1), os.dup(2)]
    streams = sys.stdout, sys.stderr
    try:
        os.dup2(pipe, 1)
        os.dup2(pipe, 2)
        sys.stdout, sys.stderr = stdout, _ = _stream(1), _stream(STDERR)
        with _unfinished_lines(stdout, mend):
            yield
    finally:
        flush_streams()
        sys.stdout, sys.stderr = streams
        for number, each in enumerate(kept, start=1):
            os.dup2(each, number)
            os.close(each)


def _stream(number: int) -> io.TextIOWrapper:
    """A stream that writes each line at its end, so that a killed worker loses none; what isn't UTF-8 is escaped.

    Standard error also writes incomplete lines. For standard output that would be a system call for each argument of
    each `print`; `_unfinished_lines` writes them instead.
    """
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(
        raw, encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=number == STDERR
    )


@contextmanager
def _unfinished_lines(stream: io.TextIOWrapper, mend: Callable[[], None]) -> Iterator[None]:
    """Mend the output, and write the stream's incomplete line to the descriptor, every UNFINISHED_SECONDS."""
    closed = threading.Event()

    def work() -> None:
        while not closed.wait(UNFINISHED_SECONDS):
            mend()
            with suppress(Exception):  # the trial may have closed it
                stream.flush()

    thread = threading.Thread(target=work, name="tuner-unfinished-lines", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closed.set()
        thread.join()


def flush_streams() -> None:
    """Write what Python and the C library have buffered to the descriptors."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with suppress(Exception):  # the trial may have replaced it by anything, or closed it
            stream.flush()  # type: ignore[union-attr]
    with _c_stdout() as (library, stdout):
        library.fflush(stdout)  # only this file: a thread may hold the lock of another one for ever


def _buffer_by_line() -> None:
    """Let the C library write each line of its standard output at once, as it does on a terminal."""
    with _c_stdout() as (library, stdout):
        library.setvbuf(stdout, None, _LINE_BUFFERED, 0)


@contextmanager
def _c_stdout() -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p]]:
    """The C library and its standard output; nothing if there is none of that name."""
    library = ctypes.CDLL(None)
    with suppress(AttributeError, ValueError):
        yield library, ctypes.c_void_p.in_dll(library, "stdout")


def _enlarge(pipe: int) -> None:
    import fcntl

    fcntl.fcntl(pipe, _SET_PIPE_SIZE, PIPE_BYTES)


def _write(pipe: int, mark: bytes) -> None:
    with suppress(OSError):  # the process is gone
        os.write(pipe, mark)


# Where the log lies


@contextmanager
def _log_file(folder: Folder, name: str) -> Iterator[Path]:
    """The log as a file of this machine; for an object store it is copied there from time to time, and at the end."""
    if isinstance(folder, LocalFolder):
        yield folder.inside(name)
        return
    with OwnedFolder("log") as temporary:
        copies = _Copies(folder, name, temporary / "log")
        try:
            yield copies.path
        finally:
            copies.close()


class _Copies:
    """Copies a file to an object store, after what an earlier worker wrote there."""

    def __init__(self, folder: Folder, name: str, path: Path) -> None:
        self.path = path
        self._folder, self._name = folder, name
        self._earlier: bytes | None = None
        self._copied = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tuner-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Copy for the last time."""
        self._closed.set()
        self._thread.join(UPLOAD_SECONDS)

    def _work(self) -> None:
        closed = False
        while not closed:
            closed = self._closed.wait(UPLOAD_SECONDS)
            with suppress(OSError):  # tried again the next time
                self._copy()

    def _copy(self) -> None:
        if not self.path.exists():  # nothing was printed
            return
        changed = self.path.stat().st_mtime
        if changed == self._copied:
            return
        if self._earlier is None:
            self._earlier = self._read()
        content = self._earlier + self.path.read_bytes()
        if len(content) > log_process.LIMIT_BYTES:
            content = log_process.shortened(content)
        self._folder.write(self._name, content)
        self._copied = changed

    def _read(self) -> bytes:
        try:
            return self._folder.read(self._name)
        except FileNotFoundError:
            return b""
