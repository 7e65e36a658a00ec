"""Searches whose images lie in an object store: copied once per node, and the same for all of a run's trials."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT, study_file, tuner
from tests.nodes import NEEDS_PLAIN_PATH, further_node
from tests.s3_proxy import Proxy, proxied
from tests.s3_server import put_objects, s3_endpoint
from tests.stored_photos import photo, photos
from tests.test_several_devices import ON_LOOPBACK, two_nodes  # noqa: F401 -- a fixture
from tuner import load_run

EACH = 20
STUDY = """
study = Study(
    "photos", trial=ImageClassifier(data="folder:s3://bucket/photos", model="resnet18", weights=None),
    space={"lr": loguniform(1e-4, 1e-1), "image_size": 16}, metric="val_accuracy",
    budget=Budget(trials=4, max_epochs=3),
)
"""


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Before a store with photos, whose endpoint the environment has, as that of all nodes started afterwards."""
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "here"))
    with s3_endpoint("bucket") as endpoint, proxied(endpoint) as standing_between:
        put_objects(endpoint, photos(EACH))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{standing_between.endpoint}")
        yield standing_between


def put(proxy: Proxy, objects: dict[str, bytes]) -> None:
    host, port = proxy.server
    put_objects(f"http://{host}:{port}", objects)


@pytest.mark.ray
@pytest.mark.slow
def test_a_search_copies_its_images_once_and_notices_that_they_changed(tmp_path: Path, proxy: Proxy) -> None:
    space = study_file(tmp_path, STUDY)
    ended = tuner("run", space, "--concurrency", "2", "--wandb", "off", folder=tmp_path)
    assert ended.code == 0, ended.err
    assert proxy.requests <= 2 * EACH + 4  # each image once; listings
    assert "fetching s3://bucket/photos into " in ended.err
    run = load_run(tmp_path / "runs")
    assert (run.status, len(run.record.trials)) == ("finished", 4)
    assert run.best_metrics["val_accuracy"] > 0.6
    told = proxy.requests
    went_on = tuner("resume", "runs", "--trials", "5", "--wandb", "off", folder=tmp_path)
    assert went_on.code == 0, went_on.err
    assert proxy.requests - told <= 4
    proxy.gone = True
    without_store = tuner("resume", "runs", "--trials", "6", "--wandb", "off", folder=tmp_path)
    proxy.gone = False
    assert without_store.code == 0, without_store.err
    assert "; the run goes on with this machine's copies of what it began with" in without_store.err
    assert len(load_run(tmp_path / "runs").record.trials) == 6
    put(proxy, {"photos/cat/000.png": photo("cat", 99)})
    refused = tuner("resume", "runs", "--trials", "7", "--wandb", "off", folder=tmp_path)
    assert refused.code == 2
    assert "a run keeps the data that it began with, got other files" in refused.err.splitlines()[-1]


@pytest.mark.ray
@pytest.mark.slow
@NEEDS_PLAIN_PATH
def test_each_node_copies_into_its_own_cache_and_one_that_cannot_is_named(
    proxy: Proxy,
    two_nodes: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    body = STUDY.replace("trials=4", "trials=6").replace("metric=", "search=Random(), metric=")
    space = study_file(tmp_path, body)
    here, there = tmp_path / "here", tmp_path / "there"
    run = ("run", space, "--address", two_nodes, "--wandb", "off")
    on_node = {"PYTHONPATH": str(ROOT), "TUNER_CACHE": str(there)}
    with further_node(two_nodes, folder=tmp_path, **on_node, AWS_ENDPOINT_URL="http://127.0.0.1:9"):
        refused = tuner(*run, folder=tmp_path, **ON_LOOPBACK)
    assert refused.code == 2
    told = refused.err.splitlines()[-1]
    assert told.startswith(
        "tuner: every node needs the study's code, data and weights, got none on 127.0.0.3 (data at "
    )
    assert "can't be reached" in told
    with further_node(two_nodes, folder=tmp_path, **on_node):
        ended = tuner(*run, folder=tmp_path, **ON_LOOPBACK)
    assert ended.code == 0, ended.err
    for cache in (here, there):
        images = list(cache.glob("objects/*/*/files/*/*.png"))
        assert len(images) == 2 * EACH
