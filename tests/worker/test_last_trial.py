"""A worker's last trial is told that it has ended, and may clean up; one that goes on holds the worker no longer."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.test_saving import ASSIGNMENT
from tuner.errors import WorkerSpent
from tuner.trial import session
from tuner.worker import reporting
from tuner.worker.ray_inside import last_trial
from tuner.worker.ray_inside.last_trial import LastTrial
from tuner.worker.reporting import WorkerSession


class RaySession(SimpleNamespace):
    """The part of Ray's session that ends a trial, which runs `code` in a thread."""

    def __init__(self, code: Callable[[], None]) -> None:
        self.stop_event, self.continue_lock = threading.Event(), threading.Semaphore(0)

        def run() -> None:
            with suppress(SystemExit):
                code()

        self.training_thread = threading.Thread(target=run, daemon=True)

    def start(self) -> "RaySession":
        self.training_thread.start()
        return self

    def wait(self, *_: Any) -> None:
        """As a report to Ray: until the trial is to end."""
        self.continue_lock.acquire()
        if self.stop_event.is_set():
            self.stop_event.clear()
            raise SystemExit(0)


@pytest.fixture
def last() -> LastTrial:
    found = LastTrial()
    found.begin("00003")
    return found


def test_a_trial_has_time_to_clean_up(last: LastTrial) -> None:
    cleaned = threading.Event()

    def code() -> None:
        try:
            ray.wait()
        finally:
            threading.Event().wait(0.5)
            cleaned.set()

    ray = RaySession(code)
    last.end(ray.start())  # type: ignore[arg-type]
    assert cleaned.is_set()
    assert last.begin("00004") == pytest.approx(0.5, abs=0.4)  # which the next trial waited
    assert last.begin("00005") == 0.0


def test_a_clean_up_that_takes_too_long_is_not_waited_for(last: LastTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_trial, "SECONDS_TO_END", 0.3)
    goes_on = threading.Event()
    ray = RaySession(goes_on.wait)  # type: ignore[arg-type]
    with pytest.raises(WorkerSpent) as busy:
        last.end(ray.start())  # type: ignore[arg-type]
    goes_on.set()
    assert str(busy.value) == (
        "the code of trial 00003 went on for 0.3 seconds after the trial was ended, so its worker was replaced; "
        "it catches SystemExit, or its clean-up takes longer"
    )


def test_code_that_ignores_its_end_is_held_at_its_next_report_and_the_worker_waits_no_longer(
    last: LastTrial, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reporting, "LAST", last)
    monkeypatch.setattr(session, "_active", [])  # its thread is held for as long as this process lives
    monkeypatch.setattr(WorkerSession, "_deliver", lambda worker, messages: ray.wait())
    monkeypatch.setattr(WorkerSession, "quick_seconds", 0.0)
    ignored: list[str] = []

    def code() -> None:
        with session.activate(WorkerSession(replace(ASSIGNMENT, run_uri=str(tmp_path)))):
            while True:
                try:
                    session.report(loss=1.0)
                except:  # noqa: E722
                    ignored.append("once")

    ray = RaySession(code)
    with pytest.raises(WorkerSpent) as busy:
        last.end(ray.start())  # type: ignore[arg-type]
    assert ignored == ["once"]
    assert str(busy.value) == (
        "the code of trial 00003 went on after the trial was ended, so its worker was replaced; "
        "it catches SystemExit: write `except Exception:` in place of `except:`"
    )
    assert "was ended, and its code goes on; it catches SystemExit" in capsys.readouterr().err
