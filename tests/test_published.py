"""What benchmarks/published.py makes and computes; its searches take minutes and are not run here."""

import gzip
import re
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from benchmarks.published import STUDY, Epoch, Outcome, Setting, figures, main, watched, write_data
from tuner.study.file import load_study


def outcome(*epochs: tuple[float, float, float], seconds: float = 100.0, test: float = 0.8) -> Outcome:
    return Outcome(seconds, tuple(Epoch(*epoch) for epoch in epochs), test)


@pytest.mark.parametrize(
    ("scale", "epochs", "grace"), [(1.0, (4, 9), 3), (0.5, (2, 4), 2), (0.34, (1, 3), 1), (0.01, (1, 1), 1)]
)
def test_a_short_form_has_fewer_epochs_and_one_at_least(scale: float, epochs: tuple[int, int], grace: int) -> None:
    setting = Setting(scale, 4000, 10, "cpu", None)
    assert setting.epochs == epochs
    assert setting.scaled(3) == grace


@pytest.mark.parametrize(
    ("search", "scheduler"),
    [("HyperOpt()", "ASHA(grace_epochs=1, reduction_factor=2, rule='stop')"), ("MultiFidelityGP()", "ASHA()")],
)
@pytest.mark.parametrize("most", [2, 9])
def test_the_study_file_is_a_study(tmp_path: Path, search: str, scheduler: str, most: int) -> None:
    file = tmp_path / "published.py"
    values = {"weights": None, "trials": 10, "fewest": 1, "most": most}
    file.write_text(STUDY.format(search=search, scheduler=scheduler, **values))
    study = load_study(file)
    assert (study.budget.trials, study.budget.max_epochs) == (10, most)
    assert [domain.describe() for domain in study.search_space.dimensions.values()] == [
        f"randint(1, {most + 1})",
        "loguniform(0.0001, 0.001)",
        "choice([32, 64, 128])",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs-scale", "0.1"], "needs 0.17 or more, for trials of two epochs, got 0.1; raise it"),
        (["--images", "60001"], "--images needs 100 to 60000, .*, got 60001, 10 and 1; correct them"),
        (["--seeds", "0"], "--seeds 1 or more, got 60000, 10 and 0; correct them"),
    ],
)
def test_sizes_that_cannot_work_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    monkeypatch.setattr("sys.argv", ["published.py", *options])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert re.search(message, capsys.readouterr().err)


def test_an_outcome_says_when_an_accuracy_was_reached_and_how_many_trials_ran_at_once() -> None:
    found = outcome((14.0, 4.0, 0.5), (15.0, 5.0, 0.7), (20.0, 6.0, 0.6))
    assert (found.began, found.best) == (10.0, 0.7)
    assert [found.reached(accuracy) for accuracy in (0.4, 0.5, 0.6, 0.7, 0.71)] == [14.0, 14.0, 15.0, 15.0, None]
    assert found.at_once == 15.0 / 10.0


def test_each_seed_is_compared_with_the_plain_search_of_that_seed() -> None:
    plain = [outcome((50.0, 5.0, 0.7), seconds=100.0), outcome((60.0, 5.0, 0.9), seconds=200.0, test=0.9)]
    ours = [outcome((20.0, 5.0, 0.7), (30.0, 5.0, 0.8), seconds=40.0), outcome((30.0, 5.0, 0.8), seconds=60.0)]
    found = figures({"plain Ray Tune": plain, "tuner": ours})
    assert found["tuner"]["reached_plains_best"] == 1
    assert found["tuner"]["seconds_to_plains_best"] == 20.0
    assert found["tuner"]["share_of_plains_seconds"] == 0.2
    assert (found["plain Ray Tune"]["test_accuracy"], found["plain Ray Tune"]["best_test_accuracy"]) == (0.85, 0.9)
    assert found["tuner"]["gpu_utilisation"] is None


@pytest.mark.parametrize("packed", [True, False])
def test_a_smaller_fashion_mnist_has_the_first_images_and_labels(tmp_path: Path, packed: bool) -> None:
    raw = tmp_path / "source" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (20, 28, 28), dtype=np.uint8)
    for part in ("train", "t10k"):
        for name, values in (("images-idx3", images), ("labels-idx1", images[:, 0, 0])):
            content = struct.pack(f">{1 + values.ndim}I", 0x800 + values.ndim, *values.shape) + values.tobytes()
            file = raw / f"{part}-{name}-ubyte"
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(content)) if packed else file.write_bytes(
                content
            )
    write_data(tmp_path / "source", tmp_path / "smaller", 5)
    written = tmp_path / "smaller" / "FashionMNIST" / "raw"
    assert (written / "train-images-idx3-ubyte").read_bytes() == (
        struct.pack(">4I", 0x803, 5, 28, 28) + images[:5].tobytes()
    )
    assert (written / "train-labels-idx1-ubyte").read_bytes() == struct.pack(">2I", 0x801, 5) + images[
        :5, 0, 0
    ].tobytes()
    assert (written / "t10k-images-idx3-ubyte").read_bytes()[:8] == struct.pack(">2I", 0x803, 20)


def test_a_gpu_is_watched_and_samples_that_fail_are_left_out() -> None:
    read = iter([0.5, OSError("lost"), 1.0])
    enough = threading.Event()

    def utilisation() -> float:
        value = next(read, None)
        if value is None:
            enough.set()
        if not isinstance(value, float):
            raise OSError("NVML lost the GPU")
        return value

    with watched(utilisation, every=0.001) as samples:
        assert enough.wait(timeout=300)
    assert samples == [0.5, 1.0]
    with watched(None) as none:
        pass
    assert none == []


def test_the_same_share_of_images_is_as_good_however_it_was_rounded() -> None:
    found = outcome((10.0, 5.0, 0.83790517))
    assert found.reached(336 / 401) == 10.0
    assert found.reached(337 / 401) is None
