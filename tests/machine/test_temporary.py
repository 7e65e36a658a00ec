import os
import signal
import subprocess
import sys
from pathlib import Path

from tuner.machine.temporary import OwnedFolder, sweep

OWNER = """
import sys, time
from pathlib import Path
from tuner.machine.temporary import OwnedFolder

folder = OwnedFolder("trial", within=Path(sys.argv[1]))
print(folder.path, flush=True)
time.sleep(600)
"""


def owner(within: Path) -> tuple["subprocess.Popen[str]", Path]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(within)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_only_its_user_can_enter_it_and_it_goes_when_it_is_deleted(tmp_path: Path) -> None:
    with OwnedFolder("trial", within=tmp_path) as path:
        assert path.parent == tmp_path
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "inside").mkdir()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_swept_once_its_owner_is_dead_and_not_before(tmp_path: Path) -> None:
    process, path = owner(tmp_path)
    (path / "inside").mkdir()
    assert sweep(tmp_path) == []
    assert path.is_dir()
    process.send_signal(signal.SIGSTOP)
    assert sweep(tmp_path) == []
    process.kill()
    process.communicate()
    assert sweep(tmp_path) == [path]
    assert list(tmp_path.iterdir()) == []


def test_a_process_sweeps_none_of_its_own(tmp_path: Path) -> None:
    with OwnedFolder("ray", within=tmp_path) as path:
        assert sweep(tmp_path) == []
        assert path.is_dir()


def test_a_child_that_outlives_its_owner_keeps_no_folder(tmp_path: Path) -> None:
    code = OWNER.replace(
        "time.sleep(600)", "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    path, child = process.stdout.readline().strip(), int(process.stdout.readline())
    process.wait()
    swept = sweep(tmp_path)
    os.kill(child, signal.SIGKILL)
    process.stdout.close()
    assert swept == [Path(path)]


def test_what_others_put_there_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".owner").touch()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    (temporary / "tuner-link").symlink_to(elsewhere)  # to a folder that looks abandoned
    (temporary / "tuner-1000-weights.lock").touch()
    (temporary / "tuner-plain").mkdir()  # no owned folder
    (temporary / "other").mkdir()
    (temporary / "other" / ".owner").touch()
    linked = temporary / "tuner-owner-is-a-link"
    linked.mkdir()
    (linked / ".owner").symlink_to(elsewhere / ".owner")
    before = sorted(path.name for path in temporary.iterdir())
    assert sweep(temporary) == []
    assert sorted(path.name for path in temporary.iterdir()) == before
    assert (elsewhere / ".owner").is_file()


def test_folders_of_other_users_are_left_alone(tmp_path: Path) -> None:
    process, path = owner(tmp_path)
    process.kill()
    process.communicate()
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
        assert sweep(tmp_path) == []
        os.chown(path, 0, 0)
    assert sweep(tmp_path) == [path]


def test_a_folder_to_sweep_that_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert sweep(tmp_path / "nowhere") == []
