from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, study
from tuner import StudyError, load_run, refine
from tuner.errors import RunFolderError
from tuner.history.run_info import FORMAT, write_info
from tuner.storage.folder import LocalFolder
from tuner.study.file import load_study

FILE = """
from tuner import *
study = Study(
    "mine", trial=ImageClassifier(weights=None), metric="val_loss", mode="min",
    space={"lr": loguniform(1e-4, 1e-1), "batch_size": choice([32, 64, 128]), "image_size": 16},
    search=Random(), budget=Budget(trials=30, max_epochs=9),
)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a finished run of FILE whose loss is least at lr=0.1 and batch_size=128."""
    (tmp_path / "mine.py").write_text(FILE)
    declared = load_study(tmp_path / "mine.py")
    run = tmp_path / "runs" / "mine" / "1"
    run.mkdir(parents=True)
    (run / "study.py").write_text(FILE)
    same = study(
        space=declared.space,
        search=declared.search,
        budget=declared.budget,
        start_from=[{"lr": 0.09, "batch_size": 128}],
    )
    drive(build(same, run), lambda config, epoch: 1 / config["lr"] + 3000 / config["batch_size"] + 1 / epoch)
    info = {"study": "mine", "metric": "loss", "mode": "min", "status": "finished", "started": "2026", "options": {}}
    write_info(LocalFolder(run), {**info, "format": FORMAT, "study_file": str(tmp_path / "mine.py")})
    return run


def changed(folder: Path, **info: Any) -> Path:
    write_info(LocalFolder(folder), {**load_run(folder).info, **info})
    return folder


def test_a_grid_around_the_best_of_a_run(folder: Path) -> None:
    found = refine(load_run(folder))
    path = folder.parent / "grid.py"
    path.write_text(found.text(path))
    grid = load_study(path)
    assert grid.name == "mine-grid"
    best = load_run(folder).best
    assert best is not None
    assert grid.search_space.project(best.config) in list(grid.search_space.grid())
    assert grid.search_space.dimensions["lr"].size == 5
    assert grid.search_space.constants["image_size"] == 16
    assert grid.trials == grid.search_space.size


def test_narrower_ranges_that_go_on_where_the_best_lay_at_the_border_as_far_as_the_hyperparameter_can(
    folder: Path,
) -> None:
    found = refine(load_run(folder), "narrowed", quantile=0.2)
    assert found.region.widened == ("lr", "batch_size")
    assert "Goes beyond what was searched, as the best lay at its border: lr, batch_size." in found.summary
    assert "whose val_loss is at most" in found.summary
    lr = found.study.search_space.dimensions["lr"]
    assert lr.low > 1e-2  # type: ignore[attr-defined]
    assert 0.1 < lr.high < 1  # type: ignore[attr-defined]
    assert found.study.search_space.dimensions["batch_size"].values()[-1] == 256
    assert found.study.starting_points[0]["lr"] == pytest.approx(load_run(folder).best.config["lr"])  # type: ignore[union-attr]


def test_options_of_the_run_are_part_of_the_new_study(folder: Path) -> None:
    options = {"fixed": {"batch_size": 64}, "seed": 5, "name": "other", "trials": 12}
    found = refine(load_run(changed(folder, options=options)), "narrowed")
    assert (found.study.name, found.study.seed, found.study.budget.trials) == ("other-narrowed", 5, 12)
    assert found.study.search_space.constants["batch_size"] == 64


def test_what_cannot_be_refined_is_refused(folder: Path) -> None:
    with pytest.raises(StudyError, match="quantile needs a share above 0, 1 at most, got 0; use"):
        refine(load_run(folder), quantile=0)
    with pytest.raises(RunFolderError, match="refine needs a run of a study file, got "):
        refine(load_run(changed(folder, study_file=None)))
    events = folder / "events" / "000001.jsonl"
    events.write_text("".join(events.read_text().splitlines(keepends=True)[:5]))
    with pytest.raises(RunFolderError, match="refine needs a run with at least 4 trials that reported loss, got 1 in"):
        refine(load_run(changed(folder, study_file=str(folder / "study.py"))))
