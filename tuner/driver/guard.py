"""A program that ends Ray's processes and deletes their folder once the driver has ended, even by `kill -9`.

Ray by itself leaves agents that live on for a minute, all files, and processes that a trial has started. This program
reads ids of session leaders from stdin, one per line; the end of stdin means that the driver has ended. It is a script
of its own that uses only the standard library, in a few megabytes.
"""

import os
import shutil
import signal
import sys
import time

LEAVING_SECONDS = 3.0  # seconds for the processes to end by themselves


def main(folder: str) -> None:
    """Wait for the driver's end, and clean up after it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sessions = {int(line) for line in sys.stdin}
    until = time.monotonic() + LEAVING_SECONDS
    while left := members(sessions):
        if time.monotonic() > until:
            kill(left)
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


def members(sessions: set[int]) -> list[int]:
    """The live processes of some sessions."""
    return members_by_proc(sessions) if os.path.exists("/proc/self/stat") else members_by_ps(sessions)  # noqa: PTH110


def members_by_proc(sessions: set[int]) -> list[int]:
    """`members` on Linux."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 -- pathlib takes longer to import than all the rest
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    state, _, _, session = file.read().rpartition(b")")[2].split()[:4]
            except OSError:  # it has just ended
                continue
            if int(session) in sessions and state not in (b"Z", b"X"):
                found.append(int(name))
    return found


def members_by_ps(sessions: set[int]) -> list[int]:
    """`members` where there is no /proc, as on macOS."""
    from subprocess import run

    found = []
    for line in run(["ps", "-axo", "pid=,stat="], capture_output=True, text=True, check=True).stdout.splitlines():
        process, state = line.split()
        try:
            if os.getsid(int(process)) in sessions and state[0] not in "ZX":
                found.append(int(process))
        except OSError:  # it has just ended
            continue
    return found


def kill(processes: list[int]) -> None:
    """End processes now."""
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main(sys.argv[1])
