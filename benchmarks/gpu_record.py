"""Rows of `gpu.py`: what each measures and should reach, how it is performed within its time, and the file of results.

A row runs in a process of its own, a copy of one that has loaded torch and never asked CUDA for anything. Its figures
are appended to a file of JSON lines at once, so whatever ends the script leaves all rows before.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tuner.machine.child_process import CrashedError, call_apart

Figures = dict[str, Any]

TRACEBACK_LINES = 20  # the last ones, which name the place and the error
LIMIT_SHARE, LIMIT_SECONDS = 2.0, 20.0  # of its estimate, and in addition, until a row counts as hanging
PRETENDED_SECONDS = 300.0  # the same of a row that is pretended, maybe on a busy machine
TOLD = "told"  # the figure that is a sentence for people


@dataclass(frozen=True)
class Sizes:
    """How much of everything is done: by default as on a GPU.

    Attributes:
        pretend: whether to run without a GPU, see `gpu_pretence.py`
        data: folder in which Fashion-MNIST's images were packed
        images: of 28 pixels, as many as Fashion-MNIST has for training
        few: images of rows that compare ways of training
        batch: images of a step
        steps: that are timed
        warm: steps before those
        large_pixels: edge of photos, of which there are `photos`; `large_batch` make a step
        processes: numbers of trials that share the GPU
        repeats: trials of one process, one after another
        trials: of a search; `epochs` of the longest
        scale: of the published search's 4 to 9 epochs; `plain_scale` and `plain_trials` of the short plain script
        checks: of the doctor; all of them without any
    """

    pretend: bool = False
    data: Path = Path(".offline")
    images: int = 60_000
    few: int = 12_800
    batch: int = 128
    steps: int = 60
    warm: int = 20
    large_pixels: int = 224
    large_batch: int = 256
    photos: int = 4096
    processes: tuple[int, ...] = (1, 2, 4, 8)
    repeats: int = 20
    trials: int = 10
    epochs: int = 8
    scale: float = 1.0
    plain_scale: float = 0.17
    plain_trials: int = 3
    real_images: int = 10_000
    checks: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """Of searches, which run in processes that can't pretend."""
        return "cpu" if self.pretend else "cuda"


PRETENDED = Sizes(
    pretend=True,
    images=160,
    few=96,
    batch=8,
    steps=2,
    warm=5,
    large_pixels=32,
    large_batch=8,
    photos=80,
    processes=(1, 2),
    repeats=3,
    trials=2,
    epochs=2,
    scale=0.17,
    plain_trials=1,
    real_images=160,
    checks=("python", "fp32"),
)


@dataclass(frozen=True)
class Goal:
    """What a figure should be.

    Attributes:
        figure: its name
        limit: that it may reach at most, or at least
        anchor: what the limit was chosen by
        most: whether smaller is better
    """

    figure: str
    limit: float
    anchor: str
    most: bool = True

    def met(self, found: float | None) -> bool:
        """Whether a figure is good enough; one that is missing never is."""
        if found is None or math.isnan(found):
            return False
        return found <= self.limit if self.most else found >= self.limit

    def __str__(self) -> str:
        return f"{self.figure.replace('_', ' ')} {'≤' if self.most else '≥'} {self.limit:,g} ({self.anchor})"


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        seconds: that it takes on one H100, estimated
        measure: adds its figures to those that it is given, so that they are kept if it fails half-way
    """

    name: str
    seconds: float
    measure: Callable[[Sizes, Figures], None]
    goals: tuple[Goal, ...] = ()

    @property
    def limit(self) -> float:
        """Seconds after which it counts as hanging."""
        return LIMIT_SHARE * self.seconds + LIMIT_SECONDS


def perform(row: Row, sizes: Sizes, limit: float) -> dict[str, Any]:
    """The row's figures, its goals and whether they were met, or why it failed; it takes at most `limit` seconds."""
    begun = time.perf_counter()
    try:
        found: dict[str, Any] = call_apart(partial(_attempt, row, sizes), limit)
    except CrashedError as error:
        found = {"figures": {}, "error": str(error)}
    figures = found["figures"]
    goals = [
        asdict(goal) | {"found": figures.get(goal.figure), "met": goal.met(figures.get(goal.figure))}
        for goal in row.goals
    ]
    return {"row": row.name, "seconds": round(time.perf_counter() - begun, 1), **found, "goals": goals}


@contextmanager
def pretended(sizes: Sizes) -> Iterator[None]:
    """Within it `cuda` works although there is no GPU, if that is asked for."""
    if not sizes.pretend:
        yield
        return
    from benchmarks.gpu_pretence import pretending_all  # only here: a GPU's own torch may lack what pretending needs

    with pretending_all():
        yield


def _attempt(row: Row, sizes: Sizes) -> dict[str, Any]:
    figures: Figures = {}
    try:
        with pretended(sizes):
            row.measure(sizes, figures)
    except (Exception, SystemExit):  # which a search's own benchmark raises
        return {"figures": figures, "error": "\n".join(traceback.format_exc().splitlines()[-TRACEBACK_LINES:])}
    return {"figures": figures}


class Results:
    """The file of results, one row's a line; the last line of a row counts."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> dict[str, dict[str, Any]]:
        """Results by the row's name; a line that was cut off is left out."""
        found: dict[str, dict[str, Any]] = {}
        for line in self.file.read_text().splitlines() if self.file.is_file() else ():
            try:
                result = json.loads(line)
            except ValueError:
                continue
            found[result["row"]] = result
        return found

    def add(self, result: dict[str, Any]) -> None:
        """Append one, on a line of its own also if the last one was cut off."""
        cut_off = self.file.is_file() and not self.file.read_text().endswith("\n")
        with self.file.open("a") as lines:
            lines.write("\n" * cut_off + json.dumps(_rounded(result)) + "\n")


def _rounded(value: Any) -> Any:
    """Numbers with five digits; those that JSON lacks as nothing."""
    if isinstance(value, dict):
        return {str(key): _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value


def run_rows(
    rows: Sequence[Row], sizes: Sizes, results: Results, seconds: float, about: dict[str, str], at_once: int = 1
) -> None:
    """Perform the rows in their order; one that doesn't fit into the time any more is left out, and said."""
    until = time.perf_counter() + seconds

    def take(row: Row) -> None:
        left = until - time.perf_counter()
        if left < row.seconds and not sizes.pretend:
            print(f"{row.name}: skipped, as it takes about {row.seconds:.0f} s and {left:.0f} s are left", flush=True)
            return
        result = perform(row, sizes, PRETENDED_SECONDS if sizes.pretend else min(row.limit, left)) | about
        results.add(result)
        print(line_of(result), flush=True)

    with ThreadPoolExecutor(at_once) as threads:
        for done in [threads.submit(take, row) for row in rows]:
            done.result()


# What people read


def line_of(result: dict[str, Any]) -> str:
    """A row's result for the terminal."""
    missed = [str(_goal(goal)) for goal in result["goals"] if not goal["met"]]
    lines = [f"{result['row']} ({result['seconds']:.0f} s): {_told(result)}", *(f"  missed: {goal}" for goal in missed)]
    return "\n".join(lines + [f"  {line}" for line in result.get("error", "").splitlines()])


def table(results: Iterable[dict[str, Any]]) -> str:
    """The results as the Markdown table of `docs/explanation/measured.md`, below the card and the versions."""
    found = list(results)
    about = sorted({f"{result['card']} (driver {result['driver']}), {result['versions']}" for result in found})
    lines = [*about, "", "| what | found | goal |", "|---|---|---|"]
    for result in found:
        goals = "; ".join(f"{_goal(goal)}: {'met' if goal['met'] else '**missed**'}" for goal in result["goals"])
        lines.append(f"| {result['row']} | {_told(result)} | {goals} |")
    return "\n".join(lines)


def _goal(recorded: dict[str, Any]) -> Goal:
    return Goal(**{name: recorded[name] for name in ("figure", "limit", "anchor", "most")})


def _told(result: dict[str, Any]) -> str:
    failed = result.get("error", "").strip().splitlines()[-1:]
    parts = [result["figures"].get(TOLD, ""), *(f"failed: {line}" for line in failed)]
    return "; ".join(part for part in parts if part).replace("|", "/")


def chosen(rows: Sequence[Row], names: Sequence[str], done: Iterable[str]) -> list[Row]:
    """The rows whose names begin with one of `names`; without any those that have no result yet."""
    known = set(done)
    if not names:
        return [row for row in rows if row.name not in known]
    return [row for row in rows if row.name.startswith(tuple(names))]
