"""A search on a folder with every kind of unclean file, as its user starts it."""

import json
from pathlib import Path

import pytest

from tests.commands import study_file, tuner
from tests.unclean import LEFT_OUT, write_unclean
from tuner.results import load_run

pytestmark = pytest.mark.ray

STUDY = """
study = Study(
    "photos", trial=ImageClassifier("folder:my photos", "squeezenet1_1", weights=None),
    space={"lr": loguniform(1e-4, 1e-2), "image_size": 32}, metric="val_accuracy",
    budget=Budget(trials=1, max_epochs=1),
)
"""


def test_a_search_on_unclean_images_runs_and_lists_what_it_left_out(tmp_path: Path) -> None:
    write_unclean(tmp_path / "my photos")
    path = study_file(tmp_path, STUDY)
    finished = tuner("run", path, "--storage", "runs", "--json", folder=tmp_path)
    assert finished.code == 0, finished.err
    assert finished.json["trials"] == {"total": 1, "completed": 1, "stopped": 0, "failed": 0}
    assert "starting Ray, reading 42 images of folder:" in finished.err
    run = load_run(tmp_path / "runs")
    written = json.loads((Path(run.path) / "data.json").read_text())
    assert {each["path"]: each["reason"] for each in written["left_out"]} == {
        name: f"it {reason}" for name, reason in LEFT_OUT.items()
    }
    (told,) = [line for line in finished.err.splitlines() if "were left out" in line]
    assert told.startswith("note: 9 of 46 files and folders were left out: bird/ (it is a class without images), ")
    assert sum("were left out" in notice for notice in run.record.notices) == 1
    assert "9 of 46 files and folders were left out" in tuner("show", run.path, folder=tmp_path).out
    assert "dog/photo.heic" in (Path(run.path) / "report.html").read_text()


@pytest.mark.slow
def test_a_class_of_unreadable_images_is_refused_before_anything_starts(tmp_path: Path) -> None:
    root = write_unclean(tmp_path / "my photos")
    for index in range(14):
        (root / "cat \u732b" / f"photo {index}.jpg").write_bytes(b"no image")
    finished = tuner("run", study_file(tmp_path, STUDY), "--storage", "runs", folder=tmp_path)
    assert finished.code == 2
    assert finished.err.splitlines()[-1].startswith(
        "tuner: at least half of a class's images must be readable, got 14 of 14 in "
    )
    assert "Traceback" not in finished.err
    assert not list((tmp_path / "runs").glob("photos/*"))
