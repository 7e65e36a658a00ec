"""The curves of a study's page are those of its report and of notebooks."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.service.web.serving import Served, a_run
from tuner.plots import curves
from tuner.service.model import State


@pytest.mark.parametrize("many", [False, True])
def test_the_page_is_given_what_reports_and_notebooks_draw(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    """Trace by trace, with the rungs: the page's script knows no curve."""
    if many:
        monkeypatch.setattr(curves, "MOST_CURVES", 5)
        monkeypatch.setattr(curves, "ON_TOP", 5)
    run = a_run(tmp_path)
    study = served.study(state=State.RUNNING, run=run)
    asked = served.client("guest").get(f"/api/v1/studies/{study}/curves", params={"most": 5} if many else {})
    live, report = asked.json()["figure"], json.loads(run.plot.curves().to_json())
    assert [_by_name(trace) for trace in live["data"]] == [_by_name(trace) for trace in report["data"]]
    assert live["layout"]["shapes"] == report["layout"]["shapes"]
    assert live["layout"]["xaxis"]["title"] == report["layout"]["xaxis"]["title"]
    assert live["layout"]["yaxis"]["title"] == report["layout"]["yaxis"]["title"]


def _by_name(trace: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(trace.items())
