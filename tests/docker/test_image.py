"""The images, built and run for real: `make docker-test`. It needs root, about 25 GB of disk and 20 minutes.

$TUNER_IMAGES names a folder for images, which are used again from there and not deleted. $TUNER_TORCH_INDEX is the index
with PyTorch's builds for CPUs; without it the larger ones for CUDA are installed.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT
from tests.docker.containers import HARDENED, RUN, Containers, missing
from tests.searches import epochs_reported, wait_for
from tuner import load_run

pytestmark = [pytest.mark.image, pytest.mark.timeout(7200)]
OWNER = 10001


@pytest.fixture(scope="module")
def containers(request: pytest.FixtureRequest) -> Iterator[Containers]:
    if request.config.getoption("markexpr") != "image":
        pytest.skip("images are built where they are asked for: `make docker-test`")
    if lacking := missing():
        pytest.skip(f"NO IMAGE WAS BUILT: this machine lacks {', '.join(lacking)}")
    kept = os.environ.get("TUNER_IMAGES")
    made = Containers(Path(kept or tempfile.mkdtemp(prefix="tuner-images-", dir="/var/tmp")))
    yield made
    if kept is None:
        made.delete()


@pytest.fixture(scope="module")
def base(containers: Containers) -> str:
    """An image to build on: $TUNER_BASE_IMAGE, which podman has to reach, or one that is made here."""
    return os.environ.get("TUNER_BASE_IMAGE") or containers.base()


@pytest.fixture(scope="module")
def server(containers: Containers, base: str) -> str:
    return containers.build("server", base)


@pytest.fixture(scope="module")
def cpu(containers: Containers, base: str) -> str:
    return containers.build("cpu", base)


@pytest.fixture
def runs() -> Iterator[Path]:
    """A folder that the container's user may write to."""
    folder = Path(tempfile.mkdtemp(prefix="tuner runs ", dir="/var/tmp"))
    os.chown(folder, OWNER, OWNER)
    yield folder
    shutil.rmtree(folder)


def of_image(containers: Containers, image: str) -> Any:
    return json.loads(containers.podman("image", "inspect", image).stdout)[0]


def test_the_server_answers_its_health_check_and_ends_in_order(containers: Containers, server: str, runs: Path) -> None:
    options = ("--volume", f"{runs}:/runs", "--env", "RAY_AUTH_TOKEN=none")
    serving = (server, "serve", "--storage", "/runs", "--ray-jobs", "http://127.0.0.1:9", "--cpus", "1")
    with containers.started("server", *options, *serving) as name:
        healthy = ("exec", name, "python3", "/opt/healthy.py")
        wait_for(lambda: containers.podman(*healthy, check=False).returncode == 0, 120)
        told = containers.podman("logs", name).stderr
        assert "make the first admin with this link" in told
        assert "Invalid HTTP request" not in told
        containers.podman("kill", "--signal", "TERM", name)
        assert containers.podman("wait", name).stdout.strip() == "0"
    assert of_image(containers, server)["Healthcheck"]["Test"] == ["CMD", "python3", "/opt/healthy.py"]


def test_the_server_s_image_has_neither_ray_nor_torch(containers: Containers, server: str) -> None:
    found = "import importlib.util as u; print([n for n in ('ray', 'torch') if u.find_spec(n)])"
    arguments = (*RUN, "--rm", *HARDENED, "--entrypoint", "python3", server, "-c", found)
    assert containers.podman(*arguments).stdout.strip() == "[]"


def test_the_image_says_what_it_is(containers: Containers, server: str) -> None:
    told = of_image(containers, server)["Config"]
    labels = told["Labels"]
    assert (told["User"], told["Entrypoint"]) == ("10001:10001", ["tini", "--", "tuner"])
    assert labels["org.opencontainers.image.title"] == "tuner"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_demo_s_search_is_saved_at_sigterm_and_goes_on(containers: Containers, cpu: str, runs: Path) -> None:
    mounts = ("--volume", f"{ROOT / 'search_spaces'}:/study:ro", "--volume", f"{runs}:/runs")
    with containers.started("demo", *mounts, cpu, "run", "digits.py", "--storage", "/runs") as name:
        wait_for(lambda: epochs_reported(runs) >= 3, 300)
        assert_hardened(containers, name)
        containers.podman("kill", "--signal", "TERM", name)
        assert containers.podman("wait", name).stdout.strip() == "130", containers.podman("logs", name).stderr
        told = containers.podman("logs", name).stderr.splitlines()
    run = load_run(runs)
    assert (run.info["status"], run.info["end_reason"]) == ("interrupted", "SIGTERM")
    assert told[-1] == f"python -m tuner resume /runs/{Path(run.path).relative_to(runs)}"
    before = epochs_reported(runs)
    resumed = containers.podman(*RUN, "--rm", *HARDENED, *mounts, cpu, "resume", "/runs", "--json")
    assert json.loads(resumed.stdout)["status"] == "finished", resumed.stderr
    assert epochs_reported(runs) > before
    assert (Path(run.path) / "report.html").is_file()
    assert {path.stat().st_uid for path in Path(run.path).rglob("*")} == {OWNER}


def assert_hardened(containers: Containers, name: str) -> None:
    """Uid 10001, a root that is read-only, and a first process that reaps orphans."""
    inside = ("exec", name, "sh", "-c")
    assert containers.podman(*inside, "id -u").stdout.strip() == str(OWNER)
    refused = containers.podman(*inside, "touch /opt/tuner/x", check=False)
    assert refused.returncode != 0
    assert "Read-only file system" in refused.stderr
    assert containers.podman(*inside, "cat /proc/1/comm").stdout.strip() == "tini"
    containers.podman(*inside, "(sleep 0.1 &)")
    time.sleep(1)
    states = containers.podman(*inside, "cat /proc/[0-9]*/stat 2>/dev/null || true").stdout
    assert [line for line in states.splitlines() if "(sleep) Z" in line] == []


def test_a_ray_cluster_of_this_image_takes_no_caller_without_its_token(containers: Containers, cpu: str) -> None:
    start = "ray start --head --block --port 6399 --num-cpus 1 --include-dashboard false --node-ip-address 127.0.0.1"
    options = ("--env", "RAY_AUTH_MODE=token", "--env", f"RAY_AUTH_TOKEN={'a' * 64}", "--entrypoint", "tini")
    with containers.started("head", *options, cpu, "--", *start.split()) as name:
        asked = ("exec", name, "ray", "health-check", "--address", "127.0.0.1:6399")
        wait_for(lambda: containers.podman(*asked, check=False).returncode == 0, 120)
        wrong = ("exec", "--env", f"RAY_AUTH_TOKEN={'b' * 64}", *asked[1:])
        assert containers.podman(*wrong, check=False).returncode != 0
