"""Which faults a search survives: faults of real processes through the command line, and what each one cost.

    python benchmarks/faults.py [--quick] [--full] [--only KIND …] [--times N] [--seed N]

Each fault hits a search of tiny trials at a moment drawn from the seed; then `tuner resume` goes on until the search is
done. A search counts as lost if it is not done then, if an epoch that was reported before is missing or changed, a
finished trial ran again, the number of trials is different, the winner or its checkpoint is missing, or it printed a
traceback. The seeded simulation of tests/loop/test_faults.py covers the moments between; this covers processes, signals
and disks. `--quick` does one of each of a few kinds, `--full` has ResNet18 on digits where an image classifier is hit,
and spot storms of 20 minutes rather than 200 seconds; "power" needs a user who may mount disks.
The last line is one JSON object: tried, survived, the kinds that lost something, and those that never came in time.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.fault_attempts import DIGITS, FUNCTION, PHOTOS, TINY, Attempt  # noqa: E402
from benchmarks.fault_kinds import FINISHED_INSIDE, KINDS  # noqa: E402
from benchmarks.fault_storms import LONG  # noqa: E402
from tuner.machine.hardware import this_machine  # noqa: E402

SCHEDULERS = (
    "ASHA(grace_epochs=2)",
    "ASHA(grace_epochs=2, rule='stop')",
    "HyperBand(grace_epochs=2)",
    "MedianStopping()",
)
SEARCHES = ("MultiFidelityGP()", "HyperOpt()", "BOHB()", "Optuna()", "Random()", "Grid()")
QUICK = ("driver killed", "driver killed in its conclusion", "worker killed past a rung", "Ctrl-C", "read-only storage")


def attempt_at(kind: str, number: int, seed: int, *, full: bool = False, quick: bool = False) -> Attempt:
    """Do it once, and go on until the search is done; its `lost` says what was lost."""
    draw = random.Random(f"{kind} {number} {seed}")
    scheduler = SCHEDULERS[number % len(SCHEDULERS)]
    search = SEARCHES[(number // len(SCHEDULERS) + seed) % len(SEARCHES)]
    if kind.endswith("past a rung"):
        scheduler = SCHEDULERS[0]
    image = PHOTOS if "cache" in kind else DIGITS if full else TINY
    program = image if kind.startswith("image") else FUNCTION.format(scheduler=scheduler, search=search)
    program = LONG if kind.startswith("spot") else program
    with tempfile.TemporaryDirectory(prefix="tuner-faults-", ignore_cleanup_errors=True) as folder:
        attempt = Attempt(Path(folder), draw, program, seconds_stopped=5 if quick else 60)
        attempt.seconds_of_storm = 1200 if full else 200
        KINDS[kind](attempt)
        if kind not in FINISHED_INSIDE:
            attempt.finish()
    return attempt


def hits(kind: str, times: int, seed: int, *, full: bool = False, quick: bool = False) -> list[Attempt]:
    """So many attempts that came in time, or lost something; at most three times as many are made."""
    found: list[Attempt] = []
    for number in range(3 * times):
        attempt = attempt_at(kind, number, seed, full=full, quick=quick)
        found += [attempt] if attempt.hit or attempt.lost else []
        if len(found) == times:
            break
    return found


def tried(kind: str, times: int, options: argparse.Namespace) -> dict[str, Any]:
    """A row of the table."""
    try:
        attempts = hits(kind, times, options.seed, full=options.full, quick=options.quick)
    except OSError as error:
        if "mounted" not in str(error):
            raise
        return {"kind": kind, "tried": 0, "survived": 0, "lost": [str(error)]}
    lost = [each for attempt in attempts for each in attempt.lost]
    survived = sum(not attempt.lost for attempt in attempts)
    figures = [attempt.figures for attempt in attempts if attempt.figures]
    return {"kind": kind, "tried": len(attempts), "survived": survived, "lost": lost, "figures": figures}


def main() -> None:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few kinds, once each")
    parser.add_argument("--full", action="store_true", help="ResNet18 on digits for image classifiers")
    parser.add_argument("--only", nargs="+", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--times", type=int, default=0, help="of each kind; 4 where left out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    machine = this_machine()
    print(f"{machine.processor}, {machine.cpus} CPUs, Python {platform.python_version()}, ray {version('ray')}")
    print(f"{'fault':40}{'tried':>6}{'survived':>10}  lost")
    rows = []
    for kind in options.only or (QUICK if options.quick else KINDS):
        row = tried(kind, options.times or (1 if options.quick or kind.startswith("spot") else 4), options)
        rows.append(row)
        told = "; ".join([*row["lost"][:3], *row.get("figures", ())])
        print(f"{kind:40}{row['tried']:6}{row['survived']:10}  {told}", flush=True)
    figures = {
        "tried": sum(row["tried"] for row in rows),
        "survived": sum(row["survived"] for row in rows),
        "losing": [row["kind"] for row in rows if row["survived"] < row["tried"]],
        "never hit": [row["kind"] for row in rows if not row["tried"]],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
