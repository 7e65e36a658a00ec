import sys
from pathlib import Path

from tests.mounts import needs_mounts, run_on_tmpfs
from tests.service import filling, filling_beside


@needs_mounts
def test_a_full_disk_refuses_studies_leaves_none_by_half_and_takes_more_once_there_is_room(tmp_path: Path) -> None:
    done = run_on_tmpfs("3m", tmp_path, sys.executable, filling.__file__, tmp_path)
    assert done.stdout.splitlines() == ["True {'full'} True", "True", "True True", "True"], done.stderr


@needs_mounts
def test_a_full_disk_refuses_studies_and_leaves_the_one_that_runs_alone(tmp_path: Path) -> None:
    done = run_on_tmpfs("12m", tmp_path, sys.executable, filling_beside.__file__, tmp_path)
    assert done.stdout.splitlines() == ["full 1", "running 1", "finished finished"], done.stderr
