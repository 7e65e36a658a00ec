"""What a search's checkpoints will take: told before the start, and refused where a limit can't hold the least."""

from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, study
from tuner import ASHA, Budget, ImageClassifier, Study, choice, loguniform
from tuner.driver.disk_need import DiskNeed, disk_need, largest_checkpoint, measured_checkpoint, room_checked
from tuner.errors import StudyError
from tuner.storage.folder import LocalFolder
from tuner.storage.sizes import Disk


def classifier(**budget: Any) -> Study:
    return Study(
        "classifier",
        trial=ImageClassifier(data="digits", model="resnet18", weights=None),
        space={"lr": loguniform(1e-4, 1e-2), "optimizer": choice(["sgd", "adam"])},
        scheduler=ASHA(),
        budget=Budget(**{"trials": 9, "max_epochs": 9, **budget}),
    )


def test_the_need_of_a_classifier_is_that_of_its_largest_optimizer() -> None:
    size, settings = largest_checkpoint(classifier())
    assert settings["optimizer"] == "adam"
    assert size == pytest.approx(134_000_000, rel=0.05)  # 11.2 million weights, three times 4 bytes


def test_a_function_saves_what_it_likes() -> None:
    need = disk_need(study(), 2, largest_checkpoint(study()))
    assert need.checkpoint_bytes is None
    assert "unknown until the first one is saved" in need.sentence()
    need.check(1e-6)
    assert need.notices(1e-6, Disk(1, 1)) == []


def test_of_a_run_the_largest_checkpoint_is_measured(tmp_path: Path) -> None:
    loop = build(study(), tmp_path)
    assert measured_checkpoint(LocalFolder(tmp_path), loop.record) is None
    drive(loop, reports=5, fill=lambda folder: (folder / "weights").write_bytes(bytes(4000)) and None)
    found = measured_checkpoint(LocalFolder(tmp_path), loop.record)
    assert found is not None
    assert 4000 < found[0] < 4300  # type: ignore[operator]


NEED = DiskNeed(100_000_000, {}, workers=4, waiting=6)


def test_the_least_is_three_checkpoints_for_each_worker_and_three() -> None:
    assert NEED.least_bytes == 1_500_000_000
    assert NEED.most_bytes == 2_100_000_000
    assert NEED.sentence() == (
        "a checkpoint takes up to about 100 MB; for 4 trials at once, and 6 that wait the search keeps up to 2.1 GB, and "
        "needs at least 1.5 GB"
    )
    assert "up to about 8.68 kB; for 1 trial at once the search" in DiskNeed(8_680, {}, 1, 0).sentence()


def test_a_limit_below_the_least_is_refused_with_a_limit_that_works() -> None:
    with pytest.raises(
        StudyError, match="disk_gb needs to hold three checkpoints of about 100 MB for each of 4 trials"
    ) as e:
        NEED.check(1.0)
    assert str(e.value).endswith("got 1; use --disk 1.7, or fewer trials at once (--concurrency)")
    NEED.check(1.7)
    NEED.check(None)


def test_a_limit_or_a_disk_that_holds_less_than_would_be_kept_is_said() -> None:
    (tight,) = NEED.notices(1.7, Disk(10**12, 10**12))
    assert "the least promising of the paused trials may end early" in tight
    (full,) = NEED.notices(None, Disk(1_500_000_000, 10**12))
    assert "the disk has 1.5 GB free" in full
    assert NEED.notices(1.7, Disk(1_900_000_000, 10**12)) == [tight]
    assert NEED.notices(2.1, Disk(10**12, 10**12)) == []


def test_a_start_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="disk_gb needs to hold"):
        room_checked(classifier(disk_gb=0.1), LocalFolder(tmp_path / "runs"), 1, (134_000_000, {}))
    assert list(tmp_path.iterdir()) == []
