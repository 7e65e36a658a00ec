"""Where leases lie, and who takes them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.s3_server import s3_endpoint
from tests.storage.leases import Driver


@pytest.fixture(scope="module")
def store() -> Iterator[Callable[[str], str]]:
    """Name of a run -> its URI on an object store."""
    with s3_endpoint("bucket") as endpoint:
        yield lambda name: f"s3://bucket/runs/{name}?endpoint_override={endpoint}&scheme=http&region=us-east-1"


@pytest.fixture(params=["disk", "object store"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path / "run")
    return str(request.getfixturevalue("store")(tmp_path.name))


@pytest.fixture
def driver() -> Iterator[Callable[..., Driver]]:
    """Starts drivers; none outlives the test."""
    started: list[Driver] = []

    def start(uri: str, *, go: bool = True, **options: object) -> Driver:
        started.append(Driver(uri, **options))  # type: ignore[arg-type]
        assert started[-1].says() == "ready"
        if go:
            started[-1].go()
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()
