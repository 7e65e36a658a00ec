"""`tuner replay`: a trial trained again, to see whether it gives the same curve."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from tuner.cli.outcome import NO_WINNER, SUCCESS
from tuner.cli.parsing import RUN, add_trust, count
from tuner.machine.installation import check_trains
from tuner.text import printable

if TYPE_CHECKING:
    from tuner.replay import Replayed, ReplayedEpoch
    from tuner.replay.stays import Way

DIFFERENT = NO_WINNER  # the exit code for a different curve


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument("trial", metavar="TRIAL", help="the trial's id; leading zeros may be left out")
    parser.add_argument(
        "--epochs",
        type=count,
        metavar="N",
        help="train N epochs in total; those after the trial's end start from its checkpoint",
    )
    parser.add_argument("--cpus", type=count, metavar="N", help="CPU threads (default: as many as the trial had)")
    parser.add_argument("--output", metavar="DIR", help="write the last checkpoint and all metrics into a new folder")
    add_trust(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    check_trains("a replay")
    from tuner.replay import ReplayDied, replay
    from tuner.results import load_run

    run = load_run(options.run)
    shown = _Shown(json=options.json)  # before the study file's output is kept off stdout
    try:
        with redirect_stdout(sys.stderr):
            found = replay(
                run,
                options.trial,
                epochs=options.epochs,
                cpus=options.cpus,
                output=options.output,
                trust=options.trust,
                follower=shown,
            )
    except ReplayDied as error:
        print(printable(f"tuner: {error}"), file=sys.stderr)
        return DIFFERENT
    if options.json:
        print(json.dumps(found.summary()))
    else:
        _print_end(found)
    return SUCCESS if found.equal else DIFFERENT


class _Shown:
    """Prints a replay while it runs: on stdout, or on stderr if stdout gets JSON."""

    def __init__(self, *, json: bool) -> None:
        self._stream = sys.stderr if json else sys.stdout

    def begins(self, differences: list[str], on: Way, metric: str) -> None:
        """Print the differences, and the table's head."""
        for difference in differences:
            self._say(f"different: {difference}")
        if not differences:
            self._say("versions, study, data and hardware are as they were")
        if on.start:
            self._say(f"training goes on from the checkpoint of epoch {on.start}")
        self._say(f"epoch  recorded  replayed  ({metric})")

    def on_epoch(self, epoch: ReplayedEpoch) -> None:
        """Print a row."""
        self._say(f"{epoch.epoch:5}  {_value(epoch.recorded)}  {_value(epoch.replayed)}  {_verdict(epoch)}".rstrip())

    def _say(self, line: str) -> None:
        print(printable(line), file=self._stream, flush=True)


def _verdict(epoch: ReplayedEpoch) -> str:
    if epoch.equal is None:
        return "new"
    if epoch.equal:
        return "equal"
    return ", ".join(f"{name} {_distance(*pair)}" for name, pair in epoch.differing.items())


def _distance(recorded: object, replayed: object) -> str:
    if isinstance(recorded, int | float) and isinstance(replayed, int | float):
        return f"differs by {replayed - recorded:+.3g}"
    return f"was {recorded}, is {replayed}"


def _value(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, int | float) else "-" if value is None else str(value)
    return text.rjust(8)


def _print_end(found: Replayed) -> None:
    for note in found.notes:
        print(printable(f"note: {note}"))
    print(printable(f"{found.sentence}."))
