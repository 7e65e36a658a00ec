"""The cost of keeping a trial's output: seconds with the log, relative to seconds with other destinations.

    python benchmarks/output.py [--quick]

Without Ray, in one process: a trial of short steps that prints nothing or a line per step, one that prints 1 GB, and a
child process that prints 1 GB as fast as it can. What is printed goes to /dev/null, to a plain file, and to the log,
through the same streams; the three are run in turn, and the median of the ratios is printed. The last line is one JSON
object: ratio_silent, ratio_line_per_step, ratio_1_gb, ratio_child_1_gb (with --quick: 50 MB) relative to /dev/null, and
the same as file_ratio_… relative to a file; cpu_ratio_… and cpu_file_ratio_… for the CPU time of all processes
together, the log's included, which other work on the machine changes less; seconds_… of each with the log, the log's
largest size in bytes, and milliseconds_per_trial: what opening and closing a log takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path

from tuner.worker import output

RUNS, STEPS, TRIALS = 15, 200, 200
LARGE_RUNS = 3
LINE = "step loss 0.123456 accuracy 0.9876 of a line that is about as long as most of them are"
Trial = Callable[[], None]


def steps(*, line: bool) -> Trial:
    """A trial of STEPS steps of about two milliseconds."""

    def trial() -> None:
        for step in range(STEPS):
            sum(range(100_000))
            if line:
                print(LINE, step)

    return trial


def printing(size: int) -> Trial:
    """A trial that prints this many bytes, line by line."""

    def trial() -> None:
        for number in range(size // (len(LINE) + 9)):
            print(LINE, f"{number:07d}")

    return trial


def child(size: int) -> Trial:
    """A trial whose child process prints this many bytes, as fast as it can."""

    def trial() -> None:
        subprocess.run(["sh", "-c", f"yes '{LINE}' | head -c {size}"], check=True)

    return trial


@contextmanager
def to(path: str) -> Iterator[None]:
    """What is printed within the block goes to this file, through the same streams as a trial's."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with output._redirected(file, lambda: None):
        yield
    os.close(file)


def cost(trial: Trial, where: AbstractContextManager[object]) -> tuple[float, float]:
    """Seconds and CPU seconds of a trial, the opening and closing of its log included."""
    begun, cpu_before = time.perf_counter(), cpu_seconds()
    with where:
        trial()
    return time.perf_counter() - begun, cpu_seconds() - cpu_before


def cpu_seconds() -> float:
    """Of this process, its children that have ended, and the process that writes the log."""
    fields = Path(f"/proc/{writing_pid(os.getpid())}/stat").read_text().rpartition(")")[2].split()
    writing = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return writing + sum(os.times()[:4])


@cache
def writing_pid(worker: int) -> int:
    """The process that writes this worker's logs, which is no child of it: found by its command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"log_process.py" in b" ".join(words) and str(worker).encode() in words:
                return int(folder.name)
    raise RuntimeError(f"no process writes the logs of process {worker}")


def compared(name: str, trial: Trial, folder: Path, runs: int) -> dict[str, float]:
    """The median ratios of the log to nowhere and to a file, and the median seconds with the log."""
    turns = []
    for number in range(runs):
        nowhere, file = cost(trial, to(os.devnull)), cost(trial, to(str(folder / "plain")))
        turns.append((nowhere, file, cost(trial, output.captured(f"{number:05d}", str(folder), "begins"))))
    return {
        f"ratio_{name}": statistics.median(log[0] / nowhere[0] for nowhere, _, log in turns),
        f"file_ratio_{name}": statistics.median(log[0] / file[0] for _, file, log in turns),
        f"cpu_ratio_{name}": statistics.median(log[1] / nowhere[1] for nowhere, _, log in turns),
        f"cpu_file_ratio_{name}": statistics.median(log[1] / file[1] for _, file, log in turns),
        f"seconds_{name}": statistics.median(log[0] for _, _, log in turns),
    }


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="50 MB in place of 1 GB, each pair once")
    quick = parser.parse_args().quick
    size = 50_000_000 if quick else 1_000_000_000
    found: dict[str, float] = {"cpus": os.cpu_count() or 0, "bytes": size}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with output.captured("first", str(folder), "begins"):  # which starts the process
            pass
        begun = time.perf_counter()
        for number in range(TRIALS):
            with output.captured(f"{number:05d}", str(folder), "begins"):
                pass
        found["milliseconds_per_trial"] = 1000 * (time.perf_counter() - begun) / TRIALS
        trials = {
            "silent": steps(line=False),
            "line_per_step": steps(line=True),
            "1_gb": printing(size),
            "child_1_gb": child(size),
        }
        for name, trial in trials.items():
            measured = compared(name, trial, folder, 1 if quick else LARGE_RUNS if "gb" in name else RUNS)
            found |= {key: round(value, 4) for key, value in measured.items()}
            print({key: round(value, 3) for key, value in measured.items()}, file=sys.stderr)
        found["largest_log_bytes"] = max(log.stat().st_size for log in folder.glob("logs/*.log"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
