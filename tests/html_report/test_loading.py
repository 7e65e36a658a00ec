"""What a report needs is loaded while the search still waits for something else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.history.events_of_a_run import ended, started
from tests.results.kinds_of_runs import scored, sixty_conditional
from tuner.lifecycle import report_loading
from tuner.lifecycle.report_loading import ReportLoading

WRITE_AFTER_LOADING = """
import json
import sys
from tuner import load_run
from tuner.html_report import write_report
from tuner.html_report.elements import load

load(60)
before = set(sys.modules)
write_report(load_run(sys.argv[1]))
late = {name for name in set(sys.modules) - before if name.split(".")[0] in ("jinja2", "sklearn", "scipy")}
late |= {name for name in set(sys.modules) - before if name.startswith("plotly.graph_objs._")}
print(json.dumps(sorted(late)))
"""


def test_the_report_of_a_run_loads_no_library_anew(tmp_path: Path) -> None:
    run = scored(sixty_conditional(tmp_path))
    command = [sys.executable, "-c", WRITE_AFTER_LOADING, run.path]
    late = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert late == []


@pytest.mark.parametrize(("trials", "begun", "loads"), [(3, 3, True), (3, 2, False), (None, 3, False)])
def test_loading_begins_when_a_trial_ends_and_no_more_will_start(
    monkeypatch: pytest.MonkeyPatch, trials: int | None, begun: int, loads: bool
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(report_loading, "begin_loading", asked.append)
    listener = ReportLoading(trials, lambda: begun)
    listener.on_event(started(0, 0.0))
    assert not asked
    listener.on_event(ended(0, "completed", 1.0))
    assert asked == ([begun] if loads else [])
