"""How far a search has come, for a service's pages."""

from __future__ import annotations

import time
from pathlib import Path

from tests.loop.simulation import build, study
from tuner.history.run_info import FORMAT, write_info
from tuner.service.search_progress import Followed
from tuner.storage.folder import LocalFolder


def test_a_trial_that_hangs_is_named_in_place_of_a_time_left(tmp_path: Path) -> None:
    info = {"study": "simulated", "metric": "loss", "mode": "min", "status": "running", "started": "2026"}
    write_info(LocalFolder(tmp_path), {**info, "format": FORMAT, "budget": {"trials": 6, "max_epochs": 9}})
    loop = build(study(), tmp_path)
    start = loop.next_action()
    assert start is not None
    loop.report(start.trial, 1, {"loss": 0.5})
    loop.flush()
    now = time.time()
    early, late = Followed(str(tmp_path), lambda: now), Followed(str(tmp_path), lambda: now + 7 * 60)
    assert early.new()
    assert late.new()
    assert early.progress().left is not None
    assert early.progress().still is None
    assert late.progress().left is None
    assert late.progress().still == "00000 has reported nothing for 7 min (see hung_minutes)"
    loop.close()
