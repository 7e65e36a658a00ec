"""Nodes of a joined cluster that can't run a study's trials are named before the first one: three real nodes."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from tests.commands import ROOT, environment, study_file, tuner
from tests.mounts import _APART, needs_mounts
from tests.searches import CURVE, study, wait_for
from tests.test_several_devices import ON_LOOPBACK, two_nodes  # noqa: F401 -- a fixture
from tuner import __version__

pytestmark = pytest.mark.ray

PHOTOS = """
study = Study(
    "photos", trial=ImageClassifier(data="folder:photos", model="resnet18", weights=None), space={"lr": loguniform(1e-4, 1e-1)},
    metric="val_accuracy", budget=Budget(trials=1, max_epochs=1),
)
"""
RAY = Path(sys.executable).parent / "ray"


@contextmanager
def third_node(address: str, *before: str | Path, **variables: str) -> Iterator[str]:
    """A further node for the length of the block, which is started after the words `before`; yields its address."""
    here = "127.0.0.3"
    node = [RAY, "start", "--block", f"--address={address}", f"--node-ip-address={here}", "--num-cpus=1"]
    process = subprocess.Popen(
        [*before, *node, "--object-store-memory=80000000"],
        env=environment(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="1", RAY_USAGE_STATS_ENABLED="0", **variables),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    count = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False); print(len(ray.nodes()))"
    asked = [sys.executable, "-c", count, address]
    settings = environment(**ON_LOOPBACK)
    try:
        wait_for(
            lambda: subprocess.run(asked, env=settings, capture_output=True, text=True, check=False).stdout == "3\n",
            120,
        )
        yield here
    finally:
        process.terminate()
        process.wait(60)


def test_a_node_with_another_tuner_is_named(two_nodes: str, tmp_path: Path) -> None:  # noqa: F811
    other = tmp_path / "other"
    shutil.copytree(ROOT / "tuner", other / "tuner", ignore=shutil.ignore_patterns("__pycache__"))
    opening = other / "tuner" / "__init__.py"
    opening.write_text(opening.read_text().replace(f'__version__ = "{__version__}"', '__version__ = "9.9.0"'))
    space = study_file(tmp_path, study(CURVE))
    with third_node(two_nodes, PYTHONPATH=str(other)) as address:
        refused = tuner("run", space, "--address", two_nodes, folder=tmp_path, **ON_LOOPBACK)
    assert refused.code == 2
    assert refused.err.splitlines()[-1] == (
        f"tuner: all nodes need the same tuner, got 9.9.0 on {address} and {__version__} here; "
        "install one version everywhere, or use one image"
    )
    assert not (tmp_path / "runs").exists()


@needs_mounts
def test_a_node_without_the_data_is_named(two_nodes: str, tmp_path: Path) -> None:  # noqa: F811
    for kind in ("cat", "dog"):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (32, 32)).save(tmp_path / "photos" / kind / f"{number}.jpg")
    space = study_file(tmp_path, PHOTOS)
    hidden = (*_APART, 'mount -t tmpfs none "$1"; shift; exec "$@"', "sh", tmp_path / "photos")
    with third_node(two_nodes, *hidden, PYTHONPATH=str(ROOT)) as address:
        refused = tuner("run", space, "--address", two_nodes, folder=tmp_path, **ON_LOOPBACK)
    assert refused.code == 2
    told = refused.err.splitlines()[-1]
    assert told.startswith(f"tuner: every node needs the study's data and weights, got none on {address} (")
    assert told.endswith("); put them there under the same path, or into a folder that all nodes see")
    assert str(tmp_path / "photos") in told
    assert "Traceback" not in refused.err
    assert not (tmp_path / "runs").exists()
