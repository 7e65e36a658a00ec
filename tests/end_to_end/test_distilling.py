"""A network that learns from the average of the best trials: cut off, concluded, undone."""

from pathlib import Path

import pytest

from tests.commands import start, tuner
from tests.searches import wait_for
from tests.train.conftest import write_colours
from tuner import load_run

pytestmark = pytest.mark.ray

SPACE = """
import time
from pathlib import Path

import torch

from tuner import Budget, ImageClassifier, NoEarlyStopping, Random, Study, loguniform


class Slow(torch.nn.Sequential):
    def forward(self, images):
        if self.training and Path({folder!r}, "slow").exists():
            Path({folder!r}, "learning").touch()
            time.sleep(600)
        return super().forward(images)


def small(config):
    return Slow(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(3 * 4 * 4, 3))


study = Study(
    "functions", trial=ImageClassifier("folder:photos", small, None), space={{"lr": loguniform(1e-3, 1e-1)}},
    search=Random(), scheduler=NoEarlyStopping(), budget=Budget(trials=3, max_epochs=2), combine="ensemble",
)
"""


def test_a_network_learns_from_the_average_and_begins_again_where_it_was_cut_off(tmp_path: Path) -> None:
    write_colours(tmp_path / "photos")
    (tmp_path / "space.py").write_text(SPACE.format(folder=str(tmp_path)))
    done = tuner("run", "space.py", "--storage", "out", "--no-history", folder=tmp_path)
    assert done.code == 0, done.err
    (tmp_path / "slow").touch()
    driver = start("combine", "out", "--as", "distilled", folder=tmp_path)
    wait_for((tmp_path / "learning").exists)
    driver.kill()
    _, err = driver.communicate()
    assert "a network that learns from the average of their answers" in " ".join(err.split())
    assert "training a network that learns from the average of the best trials" in err
    (tmp_path / "slow").unlink()

    resumed = tuner("resume", "out", "--take-over", folder=tmp_path)
    assert resumed.code == 0, resumed.err
    run = load_run(tmp_path / "out")
    assert run.average is not None
    told = run.average
    assert (told["asked"], told["way"], told["in"], told["epochs"]) == ("distilled", "distilled", True, 6)
    assert len(run.record.trials) == 3
    shown = " ".join(tuner("show", "out", folder=tmp_path).out.split())
    assert (
        "has the winner's layers, so it takes no more time than one, and learned for 6 epochs from labels and" in shown
    )
    photo, best = next((tmp_path / "photos").rglob("*.png")), Path(run.path) / "best"
    assert (best / "model.safetensors").read_bytes() != (best / "single" / "model.safetensors").read_bytes()
    predicted = tuner("predict", "out", str(photo), folder=tmp_path)
    assert predicted.code == 0, predicted.err

    undone = tuner("combine", "out", "--undo", folder=tmp_path)
    assert undone.code == 0, undone.err
    assert not (best / "single").exists()
    assert load_run(tmp_path / "out").average is None
