"""The next study for the good region of one that has run, through the service."""

from pathlib import Path

import pytest

from tests.service.running import running, wait_until
from tests.service.submissions import ANNE, STUDY, submission
from tuner.service.errors import ServiceError
from tuner.service.model import State
from tuner.service.refining import next_study

MANY = STUDY.replace("trials=4", "trials=12").replace("max_epochs=3", "max_epochs=3")


def test_the_good_region_is_shown_and_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCH_SECONDS", "0.005")
    with running(tmp_path) as service:
        study = service.submit(submission(MANY, options={"concurrency": 1}), ANNE).id
        assert service.study(study).name == "parabola.py"  # until it is known what it calls itself
        with pytest.raises(ServiceError, match="needs a study that has begun"):
            next_study(service, study, "grid")
        wait_until(service, study, State.FINISHED)
        found = next_study(service, study, "narrowed")
        assert "The region of the best" in found.summary
        changed = [line for line in found.diff if line[:1] in "+-"]
        assert any(line.startswith("-") and "uniform(0, 1)" in line for line in changed), changed
        assert any(line.startswith("+") and "parabola-narrowed" in line for line in changed)
        assert not any("def train" in line for line in changed)  # the user's code stays where it is
        assert sorted(found.submission.files) == ["parabola.py", "parabola_narrowed.py"]
        assert found.submission.options == {"concurrency": 1}
        again = service.submit(found.submission, ANNE).id
        done = wait_until(service, again, State.FINISHED)
        assert done.name == "parabola-narrowed"
        third = next_study(service, again, "narrowed")  # of a study whose code lies in a third file
        assert sorted(third.submission.files)[-1] == "parabola_narrowed_narrowed.py"
