"""Searches on tables of one label: cross-validated with groups, replayed, and refused once the table was edited."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import tuner
from tests.s3_server import put_objects, s3_endpoint
from tests.stored_photos import COLOURS, photo
from tuner import load_model, load_run

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # tables, their cuts and their copies have quick tests
EACH = 24
STUDY = """
from torch import nn
from tuner import *

def small(config):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))

study = Study(
    "tabled", trial=ImageClassifier("DATA", small, None, validation=Folds(3)),
    space={"lr": loguniform(1e-3, 1e-1), "image_size": 8, "batch_size": 16}, metric="val_accuracy",
    scheduler=NoEarlyStopping(), budget=Budget(trials=2, max_epochs=3),
)
"""


def objects() -> dict[str, bytes]:
    """A table whose third column says that four photos in a row belong together, with the photos."""
    rows = [f"scans/{kind}{number}.png,{kind},{kind}-{number // 4}" for kind in COLOURS for number in range(EACH)]
    table = {"photos/labels.csv": "\n".join(["file,kind,group", *rows, ""]).encode()}
    return table | {
        f"photos/scans/{kind}{number}.png": photo(kind, number, 12) for kind in COLOURS for number in range(EACH)
    }


@pytest.fixture(params=["on a disk", "in a store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The folder or the bucket that has them."""
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    if request.param == "on a disk":
        put(str(tmp_path), objects())
        yield str(tmp_path)
        return
    with s3_endpoint("bucket") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        put("s3://bucket", objects())
        yield "s3://bucket"


def put(place: str, files: dict[str, bytes]) -> None:
    if place.startswith("s3:"):
        put_objects(os.environ["AWS_ENDPOINT_URL"], files)
        return
    for name, content in files.items():
        (Path(place) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(place) / name).write_bytes(content)


def test_a_cross_validated_table_is_searched_replayed_and_refused_once_it_was_edited(
    place: str, tmp_path: Path
) -> None:
    data = f"table:{place}/photos/labels.csv?image=file&label=kind"
    (tmp_path / "study.py").write_text(STUDY.replace("DATA", data))
    ended = tuner("run", "study.py", "--wandb", "off", folder=tmp_path)
    assert ended.code == 0, ended.err
    run = load_run(tmp_path / "runs")
    assert (run.status, len(run.record.trials)) == ("finished", 2)
    assert run.best_metrics["val_accuracy"] > 0.6
    assert load_model(run).card.networks == 3

    replayed = tuner("replay", "runs", "0", folder=tmp_path)
    assert replayed.code == 0, replayed.err
    assert "the curve is the same in 3 epochs" in replayed.out

    table = objects()["photos/labels.csv"]
    put(place, {"photos/labels.csv": table.replace(b"cat0.png,cat,cat-0", b"cat0.png,dog,cat-0")})
    refused = tuner("resume", "runs", "--trials", "3", "--wandb", "off", folder=tmp_path)
    assert refused.code == 2
    last = refused.err.splitlines()[-1]
    assert f"a run keeps the data that it began with, got other files of {data} for {tmp_path}/runs/" in last
    assert ("labels.csv): trials could not be compared" in last) is (place == str(tmp_path))

    put(place, {"photos/labels.csv": table})
    resumed = tuner("resume", "runs", "--trials", "3", "--wandb", "off", folder=tmp_path)
    assert resumed.code == 0, resumed.err
    assert len(load_run(tmp_path / "runs").record.trials) == 3
