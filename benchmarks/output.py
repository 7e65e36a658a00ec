"""What it costs a trial that its output is kept: seconds with the log, relative to seconds without.

    python benchmarks/output.py [--quick]

Without Ray, in one process: a trial of short steps that prints nothing or a line per step, one that prints 1 GB, and a
child process that prints 1 GB as fast as it can. With "log", what is printed goes to the log; without, it goes to
/dev/null. Each pair is run in turn, RUNS times, and the median of the ratios is told. The last line is one JSON object:
ratio_silent, ratio_line_per_step, ratio_1_gb, ratio_child_1_gb (with --quick: 50 MB), seconds of each with the log, the
log's largest size in bytes, and milliseconds_per_trial: what opening and closing the log of a trial takes.
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
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np

from tuner.worker import output

RUNS, STEPS, TRIALS = 5, 1000, 200
LINE = "step loss 0.123456 accuracy 0.9876 of a line that is about as long as most of them are"
Trial = Callable[[], None]
Where = Callable[[], AbstractContextManager[object]]


def steps(*, line: bool) -> Trial:
    """A trial of STEPS steps of about two milliseconds."""
    matrix = np.random.default_rng(0).random((160, 160))

    def trial() -> None:
        for step in range(STEPS):
            for _ in range(8):
                matrix @ matrix
            if line:
                print(LINE, step)

    return trial


def printing(size: int) -> Trial:
    """A trial that prints so many bytes, line by line."""

    def trial() -> None:
        for number in range(size // (len(LINE) + 9)):
            print(LINE, f"{number:07d}")

    return trial


def child(size: int) -> Trial:
    """A trial whose child process prints so many bytes, as fast as it can."""

    def trial() -> None:
        subprocess.run(["sh", "-c", f"yes '{LINE}' | head -c {size}"], check=True)

    return trial


@contextmanager
def to_nowhere() -> Iterator[None]:
    """What is printed within the block goes to /dev/null, through the same streams as a trial's."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with output._redirected(nowhere):
        yield
    os.close(nowhere)


def seconds(trial: Trial, where: AbstractContextManager[object]) -> float:
    """Of a trial, the opening and closing of its log included."""
    begun = time.perf_counter()
    with where:
        trial()
    return time.perf_counter() - begun


def compared(trial: Trial, folder: Path, runs: int) -> tuple[float, float]:
    """The median ratio of log to nowhere, and the median seconds with the log."""
    with_log, ratios = [], []
    for number in range(runs):
        without = seconds(trial, to_nowhere())
        with_log.append(seconds(trial, output.captured(f"{number:05d}", str(folder), "begins")))
        ratios.append(with_log[-1] / without)
    return statistics.median(ratios), statistics.median(with_log)


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="50 MB in place of 1 GB, and each pair once")
    quick = parser.parse_args().quick
    size, runs = (50_000_000, 1) if quick else (1_000_000_000, RUNS)
    found: dict[str, float] = {"cpus": os.cpu_count() or 0, "bytes": size, "runs": runs}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        seconds(lambda: None, output.captured("first", str(folder), "begins"))  # which starts the process
        begun = time.perf_counter()
        for number in range(TRIALS):
            seconds(lambda: None, output.captured(f"{number:05d}", str(folder), "begins"))
        found["milliseconds_per_trial"] = 1000 * (time.perf_counter() - begun) / TRIALS
        trials = {
            "silent": steps(line=False),
            "line_per_step": steps(line=True),
            "1_gb": printing(size),
            "child_1_gb": child(size),
        }
        for name, trial in trials.items():
            ratio, median = compared(trial, folder, runs)
            found |= {f"ratio_{name}": round(ratio, 4), f"seconds_{name}": round(median, 3)}
            print(f"{name}: {median:.2f} s with the log, {ratio:.3f} of what it takes without", file=sys.stderr)
        found["largest_log_bytes"] = max(log.stat().st_size for log in folder.glob("logs/*.log"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
