import re

import pytest

from tests.history.events_of_a_run import ended, event, reported, started
from tuner.console import notebook
from tuner.console.live_table import Plan, Progress
from tuner.console.notebook import NotebookDisplay, in_notebook, progress_html
from tuner.results.rest_simulation import Ahead

PLAN = Plan("digits", "accuracy", "max", Ahead(trials=4, max_epochs=10))


def followed(*events: dict[str, object]) -> Progress:
    progress = Progress(PLAN)
    for one in events:
        progress.on_event(one)
    return progress


def test_python_outside_of_a_notebook_is_told_apart() -> None:
    assert not in_notebook()


def test_a_search_is_drawn_with_its_trials_totals_curve_and_notices() -> None:
    html = progress_html(
        followed(
            started(0, config={"kind": "<b>"}), reported(0, 1, accuracy=0.5), reported(0, 2, accuracy=0.75),
            ended(0, "completed"), started(1), event("notice", message="a & b", code=None),
        )
    )  # fmt: skip
    assert "2 of 4 trials: 1 running, 1 done" in html
    assert "<td style='text-align:left'>2 of 10</td>" in html
    assert "kind=&lt;b&gt;" in html
    assert "note: a &amp; b" in html
    points = re.findall(r'points="([^"]*)"', html)
    assert points == ["0.0,120.0 560.0,0.0"]


@pytest.mark.parametrize("events", [[], [started(0)], [started(0), reported(0, 1, accuracy=0.5)]])
def test_without_two_values_there_is_no_curve(events: list[dict[str, object]]) -> None:
    assert "<svg" not in progress_html(followed(*events))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a display draws, if it draws only what is rare."""
    drawn: list[str] = []

    class Handle:
        def update(self, html: object) -> None:
            drawn.append(html.data)  # type: ignore[attr-defined]

    monkeypatch.setattr("IPython.display.display", lambda html, display_id: drawn.append(html.data) or Handle())
    monkeypatch.setattr(notebook, "SECONDS", 1e9)
    return drawn


def test_it_is_drawn_where_it_stands_and_always_at_the_end(drawn: list[str]) -> None:
    shown = NotebookDisplay(PLAN)
    assert drawn == ["<p>digits: starting Ray</p>"]
    shown.on_event(event("opening", step="starting Ray, reading 9 images of folder:<b>"))
    shown.on_event(started(0))
    assert drawn[1:] == ["<p>digits: starting Ray, reading 9 images of folder:&lt;b&gt;</p>"]
    shown.on_event(event("study_ended", reason="trials"))
    assert "1 of 4 trials" in drawn[-1]


def test_orders_failures_and_what_follows_the_search_are_drawn_at_once(drawn: list[str]) -> None:
    shown = NotebookDisplay(PLAN)
    shown.on_event(started(0))
    shown.on_event(ended(0, "failed", cause="error", message="KeyError: '<lr>'"))
    note = {"order": "1", "verb": "note", "arguments": {"text": "a & b"}, "by": "ada", "message": "written down"}
    shown.on_event(event("order_obeyed", **note))
    assert "1 trial failed: KeyError: &#x27;&lt;lr&gt;&#x27;" in drawn[-1]
    assert "ada: note text=a &amp; b: written down" in drawn[-1]
    shown.on_event(event("concluding", step="writing the report"))
    assert "now: writing the report" in drawn[-1]
    shown.__exit__()
    assert "now:" not in drawn[-1]
    assert "1 of 4 trials: 1 failed" in drawn[-1]
