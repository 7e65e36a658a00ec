"""How long something takes that is done again and again; as a program, how long an ONNX file answers.

`python -m tuner.machine.repeated_runs` reads {"file", "threads", "shape"} from its standard input and writes
{"milliseconds", "bytes"}: a median. It has nothing loaded but onnxruntime, so that its memory is what the file takes.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

WARM_SECONDS, SECONDS = 0.2, 0.5  # before, and in which it is measured
FEWEST, MOST = 9, 2000
STEADY = 1.25  # the upper quartile by the lower one on a machine that does nothing else
ATTEMPTS = 4


def spread(times: list[float]) -> float:
    """The upper quartile by the lower one."""
    low, _, high = statistics.quantiles(times, n=4)
    return high / low


def median_of_repeated(do: Callable[[], object]) -> float:
    """The median time of at least FEWEST calls in milliseconds, after calls that aren't counted.

    They are measured again while they differ as if others used the machine; told is the lowest median.
    """
    begun = time.perf_counter()
    do()
    while time.perf_counter() - begun < WARM_SECONDS:
        do()
    attempts = [_measured(do)]
    while spread(attempts[-1]) > STEADY and len(attempts) < ATTEMPTS:
        attempts.append(_measured(do))
    return min(map(statistics.median, attempts))


def _measured(do: Callable[[], object]) -> list[float]:
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < FEWEST or (len(times) < MOST and time.perf_counter() - begun < SECONDS):
        start = time.perf_counter()
        do()
        times.append(1000 * (time.perf_counter() - start))
    return times


def main() -> None:
    """Do what standard input says."""
    import numpy as np
    import onnxruntime

    asked = json.load(sys.stdin)
    images = np.random.default_rng(0).integers(0, 256, asked["shape"], dtype=np.uint8)
    before = _peak_bytes()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # only errors
    options.intra_op_num_threads = asked["threads"]
    session = onnxruntime.InferenceSession(asked["file"], options, providers=["CPUExecutionProvider"])
    median = median_of_repeated(lambda: session.run(None, {"images": images}))
    print(json.dumps({"milliseconds": median, "bytes": _peak_bytes() - before}))


def _peak_bytes() -> int:
    """The most memory that this process has had; the number of `getrusage` is its parent's, if that had more."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


if __name__ == "__main__":
    main()
