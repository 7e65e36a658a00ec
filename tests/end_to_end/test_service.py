"""A study from its submission to its report, with the real driver, which is paused and goes on."""

from pathlib import Path

import pytest

from tests.service.running import running, wait_for, wait_until
from tests.service.submissions import ANNE, BERT, STUDY, submission
from tests.service.test_sharing import CPUS, held, owners, whole
from tuner.service.executors.local import COMMAND
from tuner.service.model import State

pytestmark = pytest.mark.ray

STEPS = STUDY.replace("import tuner", "import time\nimport tuner\nfrom steps import SECONDS").replace(
    "        tuner.report", "        time.sleep(SECONDS)\n        tuner.report"
)


def test_the_real_driver_runs_is_paused_and_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_TOKEN", "geheim")
    secret = "import os\nassert 'geheim' not in os.environ.values()\n"
    sent = submission(secret + STEPS, {"steps.py": b"SECONDS = 0.2\n"}, options={"wandb": "off", "concurrency": 1})
    with running(tmp_path, command=COMMAND) as service:
        study = service.submit(sent, ANNE).id
        wait_until(service, study, State.RUNNING)

        def has_begun() -> bool:
            found = service.progress(study)
            return found is not None and found.epochs > 0

        wait_for(has_begun)
        service.pause(study, ANNE)
        paused = wait_until(service, study, State.PAUSED)
        assert (paused.devices, paused.reason) == ((), "paused by anne")
        service.resume(study, ANNE)
        found = wait_until(service, study, State.FINISHED)
        run = service.run(study)
        logs = [(service.folder.attempt(study, number) / "log").read_text() for number in (1, 2)]
    assert run is not None
    assert all(" started: x=" in log for log in logs)  # what `tuner logs` shows
    assert logs[1].startswith("parabola: reading the run, then starting Ray\n")
    assert (run.status, len(run.record.trials), found.attempt) == ("finished", 4, 2)
    assert run.info["interrupted_by"] is None
    assert Path(run.info["report"]).is_file()
    assert run.info["machine"]["cpus"] == 1  # what the driver was given


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
def test_the_real_driver_gives_a_device_back_between_trials_and_gets_it_again(tmp_path: Path) -> None:
    steps = {"steps.py": b"SECONDS = 0.4\n"}
    options = {"wandb": "off"}
    with running(tmp_path, cpus=2, command=COMMAND) as service:
        first = service.submit(submission(STEPS, steps, options={**options, "trials": 40}), ANNE).id
        wait_until(service, first, State.RUNNING)
        assert held(service, first) == 2

        def two_run() -> bool:
            followed = service.followed(first)
            return followed is not None and len(followed.running) == 2

        wait_for(two_run)
        second = service.submit(submission(STEPS, steps, options={**options, "trials": 3}), BERT).id
        wait_until(service, second, State.RUNNING)
        assert sorted(owners(service)) == [first, second]
        wait_until(service, second, State.FINISHED)
        wait_for(two_run)
        wait_until(service, first, State.FINISHED)
        assert whole(service, first)
        assert service.study(first).attempt == 1
