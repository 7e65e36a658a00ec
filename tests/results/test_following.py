"""A log that is followed while its search goes on."""

from pathlib import Path

import pytest

from tests.history.events_of_a_run import started
from tuner import Run, load_run
from tuner.history.events import EventLog
from tuner.history.run_info import write_info
from tuner.results import follow_log
from tuner.results import run_folders as module
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import held


def a_run(folder: Path, log: EventLog) -> Run:
    """One that runs, with a trial that has printed 30 lines."""
    begin = started(0)
    log.append(begin.pop("event"), **{name: value for name, value in begin.items() if name != "time"})
    (folder / "logs").mkdir()
    (folder / "logs" / "00000.log").write_text("".join(f"{number}\n" for number in range(30)))
    return load_run(folder)


@pytest.mark.parametrize("end", ["trial", "driver"])
def test_a_log_is_followed_until_the_trial_or_its_driver_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    folder = LocalFolder(tmp_path)
    log = EventLog(folder)
    write_info(folder, {"study": "s", "metric": "loss", "mode": "min", "status": "running", "started": "2026"})
    with held(folder):
        followed = follow_log(a_run(tmp_path, log), "00000")
        assert next(followed) == "".join(f"{number}\n" for number in range(10, 30))
        assert next(followed) == ""
        with (tmp_path / "logs" / "00000.log").open("a") as file:
            file.write("more\n")
        assert next(followed) == "more\n"
        if end == "trial":
            log.append("trial_ended", trial="00000", status="completed")
            assert list(followed) == ["", ""]
    assert list(followed) == ([] if end == "trial" else ["", ""])
    log.close()


def test_a_log_of_a_run_that_nobody_drives_is_shown_once(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    log = EventLog(folder)
    write_info(folder, {"study": "s", "metric": "loss", "mode": "min", "status": "running", "started": "2026"})
    with held(folder):
        pass
    run = a_run(tmp_path, log)
    assert "".join(follow_log(run, "00000")).splitlines() == [str(number) for number in range(10, 30)]
    assert run.log("0").splitlines() == [str(number) for number in range(30)]
    log.close()
