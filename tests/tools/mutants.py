"""Which faults the tests find: small changes put into copies of tuner, one at a time, each against tests that run it.

    python tests/tools/mutants.py --map FILE [--number N] [--seed N] [--packages NAME …] [--markers EXPRESSION]

The changes are drawn by the seed, evenly over the packages of tuner/, and uniformly among the places within one. A
change elsewhere in a file, or in another file, alters nothing about whether a place is drawn. First it is recorded once
which test runs which line, into the file of `--map`, and read from there later; `--record` does it again. A mutant is
then tried against the quick tests that run its line, the shortest first, until one fails. Where none does, the slow
tests (marker `slow`, left out by `make test`) follow. Tests that take longer than three times their recorded time and
20 s find it as well: it hangs.

A line that runs once in a process, such as a constant, is tried against every test that runs anything of its module. Of
a test that starts Ray, or that isn't in the map, it isn't known what its worker processes run: it is taken for every
module of the rooms that its file names. Some survivors change nothing that could be seen; read them.

The last line is one JSON object: tried, found by quick tests, only by slow ones, by none, and run by no test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.tools.mutant_kinds import Change, changes  # noqa: E402
from tests.tools.mutant_tests import Finished, Record, Tree, digest, names, record  # noqa: E402

FOUND_BY = ("quick tests", "slow tests", "none")
Tests = dict[str, list[str]]  # id -> markers


@dataclass(frozen=True)
class Mutant:
    """A change of one file; `path` is relative to the checkout."""

    path: str
    change: Change
    source: str

    @property
    def package(self) -> str:
        """Directly below tuner/; "tuner" for the modules that lie there."""
        below = Path(self.path).parts[1:]
        return below[0] if len(below) > 1 else "tuner"

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.path}:{self.change.line(self.source)}"

    @property
    def difference(self) -> tuple[str, str]:
        """The line as it was and as it is."""
        line = self.change.line(self.source) - 1
        before, after = (text.splitlines()[line] for text in (self.source, self.change.applied(self.source)))
        return before.strip(), after.strip()

    def rank(self, seed: int) -> str:
        """Its place in the order of one seed, which depends on nothing but itself."""
        change = self.change
        named = (seed, self.path, change.scope, change.kind, change.before, change.after, change.number)
        return hashlib.sha256(repr(named).encode()).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: found by which kind of tests, the first that failed, how many tests run it, seconds."""

    place: str
    kind: str
    before: str
    after: str
    found_by: str
    reason: str
    quick_tests: int
    slow_tests: int
    seconds: float

    def rows(self) -> str:
        """For a person."""
        tests = f"{self.quick_tests} quick and {self.slow_tests} slow tests"
        found = f"{self.found_by}: {self.reason}" if self.reason else f"none of {tests}"
        return f"{self.place}  {self.kind}, {self.seconds:.0f} s, {found}\n  - {self.before}\n  + {self.after}"


def mutants(root: Path, files: set[str] | None = None) -> Iterator[Mutant]:
    """All that there could be, of some files or of all."""
    for file in sorted((root / "tuner").rglob("*.py")):
        path = file.relative_to(root).as_posix()
        if files is None or path in files:
            source = file.read_text()
            yield from (Mutant(path, change, source) for change in changes(source))


def drawn(root: Path, number: int, seed: int, packages: list[str] | None = None) -> list[Mutant]:
    """So many of them: each package in turn gives one, at most one a place. A larger number only adds some."""
    if number < 1:
        return []
    queues: dict[str, dict[tuple[str, int], Mutant]] = {}
    for mutant in sorted(mutants(root), key=lambda mutant: mutant.rank(seed)):
        queues.setdefault(mutant.package, {}).setdefault((mutant.path, mutant.change.start), mutant)
    if unknown := set(packages or ()) - set(queues):
        raise SystemExit(f"--packages got {', '.join(sorted(unknown))}; tuner/ has {', '.join(sorted(queues))}")
    order = sorted(packages or queues, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).hexdigest())
    rows = zip_longest(*(queues[name].values() for name in order))
    return [mutant for row in rows for mutant in row if mutant is not None][:number]


def covering(mutant: Mutant, recorded: Record, tests: Tests, tree: Path) -> set[str]:
    """The tests that run a mutant's line, as far as it is known; those that fail without any change are left out."""
    module = recorded.of_module(mutant.path)
    if mutant.change.once or recorded.sources.get(mutant.path) != digest(mutant.source):
        known = module
    else:
        first, last = mutant.change.lines
        by_line = recorded.lines[mutant.path]
        known = set().union(*(by_line.get(line, set()) for line in range(first, last + 1)))
    files = {test.partition("::")[0] for test in module}
    found = set()
    for test, markers in tests.items():
        new = test not in recorded.tests
        if (
            test in known
            or (new and test.partition("::")[0] in files)
            or ((new or "ray" in markers) and names(tree, test, mutant.path))
        ):
            found.add(test)
    return {test for test in found if test not in recorded.tests or recorded.tests[test]["outcome"] != "failed"}


def tried(mutant: Mutant, recorded: Record, tests: Tests, tree: Tree, starting: float) -> Outcome:
    """Run the tests until one fails. `starting` is the seconds that it takes to collect every test."""
    chosen = covering(mutant, recorded, tests, tree.path)
    slow = {test for test in chosen if "slow" in tests[test]}
    found_by, reason, seconds = "none", "", 0.0
    with tree.changed(mutant.path, mutant.change.applied(mutant.source)):
        for kind, tier in zip(FOUND_BY, (chosen - slow, slow), strict=False):
            if tier:
                finished = _run(tree, recorded.shortest_first(tier), 3 * (recorded.seconds(tier) + starting) + 20)
                seconds += finished.seconds
                if finished.failed:
                    found_by, reason = kind, finished.reason
                    break
    before, after = mutant.difference
    counts = (len(chosen - slow), len(slow))
    return Outcome(mutant.place, mutant.change.kind, before, after, found_by, reason, *counts, seconds)


def _run(tree: Tree, tests: list[str], limit: float) -> Finished:
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(tests, file)
        file.flush()
        return tree.pytest(["-x", "--tb=no", "-rfE", "-p", "no:xdist", f"--chosen={file.name}", *files], limit=limit)


def collected(tree: Tree, arguments: list[str]) -> tuple[Tests, float]:
    """The tests that there are now and their markers; the seconds that it took to collect them."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        finished = tree.pytest(["--collect-only", "-p", "no:xdist", f"--tests-to={file.name}", *arguments])
        if finished.failed:
            raise SystemExit(f"the tests could not be collected: {finished.output[-2000:]}")
        return json.loads(Path(file.name).read_text()), finished.seconds


def figures(outcomes: list[Outcome]) -> dict[str, Any]:
    """The totals."""
    quick, slow, none = (sum(outcome.found_by == kind for outcome in outcomes) for kind in FOUND_BY)
    unrun = sum(not outcome.quick_tests + outcome.slow_tests for outcome in outcomes)
    return {
        "tried": len(outcomes),
        "found by quick tests": quick,
        "found only by slow tests": slow,
        "found by none": none,
        "run by no test": unrun,
    }


def _recorded(options: argparse.Namespace, tree: Tree) -> Record:
    file: Path = options.map
    if options.record or not file.is_file():
        print(f"recording which tests run which lines into {file}", flush=True)
        recording, finished = record(tree, _selected(options), options.jobs)
        if not recording.lines:
            raise SystemExit(
                "no test was seen to run a line: this environment lacks the .pth file by which coverage starts in "
                "every process; make it with `make .venv/.installed`"
            )
        recording.save(file)
        print(f"{len(recording.tests)} tests in {finished.seconds:.0f} s")
    recorded = Record.load(file)
    for test, timing in recorded.tests.items():
        if timing["outcome"] == "failed":
            print(f"left out, as it fails without any change: {test}")
    return recorded


def _selected(options: argparse.Namespace) -> list[str]:
    return [*(["-m", options.markers] if options.markers else []), *options.tests]


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    if options.at:
        files = {place.rpartition(":")[0] for place in options.at}
        chosen = [mutant for mutant in mutants(options.root, files) if mutant.place in options.at]
        if unknown := set(options.at) - {mutant.place for mutant in chosen}:
            raise SystemExit(f"--at needs FILE:LINE where something can change, got {', '.join(sorted(unknown))}")
        return chosen
    return drawn(options.root, options.number, options.seed, options.packages)


def _try_all(options: argparse.Namespace, chosen: list[Mutant], folder: Path) -> Iterator[Outcome]:
    """In their order, each once it and those before it are known."""
    trees = [Tree(options.root, folder / str(number)) for number in range(options.jobs)]
    recorded = _recorded(options, trees[0])
    tests, starting = collected(trees[0], _selected(options))
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def one(mutant: Mutant) -> Outcome:
        tree = free.get()
        try:
            return tried(mutant, recorded, tests, tree, starting)
        finally:
            free.put(tree)

    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            yield from pool.map(one, chosen)
        finally:
            for tree in trees:
                tree.end()


def main(arguments: list[str] | None = None) -> None:
    """Print a row for each mutant and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--map", type=Path, required=True, metavar="FILE", help="which tests run which lines")
    parser.add_argument("--record", action="store_true", help="record the map again")
    parser.add_argument("--number", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", nargs="+", metavar="NAME", help='"tuner" is the modules directly below it')
    parser.add_argument("--at", nargs="+", metavar="FILE:LINE", help="every change of these lines, instead of a draw")
    parser.add_argument("--markers", default="", help='only tests that have these, such as "not ray"')
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="only tests of these files and folders")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows, too")
    parser.add_argument("--list", action="store_true", help="only say what would be tried")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the tests end with this process
    chosen = _chosen(options)
    if options.list:
        for mutant in chosen:
            before, after = mutant.difference
            print(f"{mutant.place}  {mutant.change.kind}\n  - {before}\n  + {after}")
        return
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        outcomes: list[Outcome] = []
        for outcome in _try_all(options, chosen, Path(folder)):
            print(outcome.rows(), flush=True)
            outcomes.append(outcome)
            if options.json:
                options.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
    for kind in FOUND_BY[1:]:
        print(f"\nfound by {kind}:" if kind == "none" else f"\nfound only by {kind}:")
        print("\n".join(outcome.rows() for outcome in outcomes if outcome.found_by == kind) or "no mutant")
    print(json.dumps(figures(outcomes)))


if __name__ == "__main__":
    main()
