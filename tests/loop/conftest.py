import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: these searches write a lot."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="tuner-faults-") as folder:
        yield Path(folder)
