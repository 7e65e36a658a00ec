"""A search on a folder with every kind of unclean file that can't begin. One that can: test_models_end_to_end.py."""

from pathlib import Path

import pytest

from tests.commands import study_file, tuner
from tests.unclean import write_unclean

pytestmark = pytest.mark.ray

STUDY = """
study = Study(
    "photos", trial=ImageClassifier("folder:my photos", "squeezenet1_1", weights=None),
    space={"lr": loguniform(1e-4, 1e-2), "image_size": 32}, metric="val_accuracy",
    budget=Budget(trials=1, max_epochs=1),
)
"""


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
