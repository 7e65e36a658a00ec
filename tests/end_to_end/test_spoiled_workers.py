"""Trials that change their process for all that follows, in every way that is known; ordinary ones come after them."""

from pathlib import Path

import pytest

from tests.commands import study_file, tuner
from tests.spoiling import SETTINGS, STUDY, TORCH
from tuner import Run, load_run

pytestmark = pytest.mark.ray


def searched(folder: Path, body: str, **variables: str) -> Run:
    folder.mkdir()
    space = study_file(folder, body + SETTINGS)
    options = ("--storage", "out", "--concurrency", "1", "--wandb", "off", "--quiet")
    finished = tuner("run", space, *options, folder=folder, **variables)
    assert finished.code == 0, finished.err
    return load_run(folder / "out")


@pytest.mark.slow
@pytest.mark.parametrize("body", [pytest.param(STUDY, id="python"), pytest.param(STUDY + TORCH, id="torch")])
def test_an_ordinary_trial_after_each_that_misbehaves_gives_the_same_as_without(tmp_path: Path, body: str) -> None:
    with_them = searched(tmp_path / "with", body, MISBEHAVE="1").record.trials.values()
    without = searched(tmp_path / "without", body).record.trials.values()
    assert len(with_them) == len(without)
    for spoilt, clean in zip(with_them, without, strict=True):
        assert spoilt.config == clean.config
        if clean.config["x"] % 2:
            assert (spoilt.config["x"] // 2, spoilt.status, spoilt.message) == (
                clean.config["x"] // 2,
                "completed",
                None,
            )
            assert spoilt.epochs[1].metrics == clean.epochs[1].metrics, spoilt.config["x"] // 2
