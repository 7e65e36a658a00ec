"""A pytest plugin for tests/tools/mutants.py: which tests there are, how long each takes, and which lines each runs.

`--tests-to FILE` writes, as JSON, {id: markers} for every test that was collected. `--chosen FILE` runs the tests of
which it has the ids, in its order. `--timings-to FILE` writes {id: {"outcome", "setup", "seconds", "shared"}} for every
test that ran. The lines are recorded by coverage, which runs in this process and in those that it starts where
COVERAGE_PROCESS_START names a configuration. They are distinguished by contexts: the id of the test, or the name of the
fixture that several tests share.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

CONTEXT = "TUNER_MUTANTS_CONTEXT"  # what a process that a test starts is recorded under


def pytest_addoption(parser: pytest.Parser) -> None:
    """The three files."""
    parser.addoption("--chosen", metavar="FILE", help="run these tests in this order")
    parser.addoption("--tests-to", metavar="FILE", help="write the tests that were collected")
    parser.addoption("--timings-to", metavar="FILE", help="write how long each test took, and what it shares")


def pytest_configure(config: pytest.Config) -> None:
    """The process that starts the tests gathers their times; those of pytest-xdist run them."""
    file = config.getoption("--timings-to")
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Timings(Path(file)))
    if file:
        config.pluginmanager.register(Contexts())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep those that were chosen, and put them in order.

    The id of a test with parameters may have the fault in it: a test that has another id now is known by its function.
    """
    if file := config.getoption("--chosen"):
        places = {test: place for place, test in enumerate(json.loads(Path(file).read_text()))}
        functions = {test.partition("[")[0]: place for test, place in places.items()}
        here = {item.nodeid: item for item in items}
        gone = {test.partition("[")[0] for test in places if test not in here}
        placed = {
            test: places[test] if test in places else functions[test.partition("[")[0]]
            for test in here
            if test in places or test.partition("[")[0] in gone
        }
        items[:] = [here[test] for test in sorted(placed, key=placed.__getitem__)]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the tests and their markers."""
    if file := session.config.getoption("--tests-to"):
        tests = {item.nodeid: sorted({mark.name for mark in item.iter_markers()}) for item in session.items}
        Path(file).write_text(json.dumps(tests))


class Contexts:
    """Records what runs under the test, or under the shared fixture that is being made."""

    def __init__(self) -> None:
        self._now = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """A test, with its own fixtures."""
        definitions = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009 -- pytest has no public name
        shared = [_context(each[-1]) for each in definitions if each and each[-1].scope != "function"]
        item.user_properties.append(("shared", shared))
        self._switch(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """A fixture that several tests share runs in the first of them, and belongs to all."""
        before = self._now
        if fixturedef.scope != "function":
            self._switch(_context(fixturedef))
        try:
            return (yield)
        finally:
            self._switch(before)

    def _switch(self, context: str) -> None:
        self._now = os.environ[CONTEXT] = context
        recording = coverage.Coverage.current()
        if recording is not None:
            recording.switch_context(context)


class Timings:
    """Adds up the seconds of each test."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setting up, the test, and clearing up."""
        test = self._tests.setdefault(report.nodeid, {"outcome": "passed", "setup": 0.0, "seconds": 0.0, "shared": []})
        test["seconds"] += report.duration
        if report.when == "setup":
            test["setup"] = report.duration
        if report.outcome != "passed" and test["outcome"] != "failed":
            test["outcome"] = report.outcome
        test["shared"] = dict(report.user_properties).get("shared", test["shared"])

    def pytest_sessionfinish(self) -> None:
        """Write them."""
        self._file.write_text(json.dumps(self._tests))


def _context(fixture: pytest.FixtureDef[Any]) -> str:
    return f"fixture {fixture.baseid}::{fixture.argname}"
