"""A process that hangs is killed, whatever it hangs in, and leaves what its threads were doing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tuner.history.stacks import hung_message, stacks_name, take_stacks
from tuner.storage.folder import LocalFolder
from tuner.worker.hanging import HangWatch

START = """
import ctypes, sys, time
from tuner.storage.folder import LocalFolder
from tuner.worker import hanging
from tuner.worker.hanging import HangWatch

watch = HangWatch(LocalFolder(sys.argv[1]), "00007", 1.5)
"""
SWALLOWS = """
def stubborn():
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            pass

watch.start()
stubborn()
"""
IN_C = """
def deep_in_c():
    ctypes.PyDLL(None).sleep(3600)  # with the lock that all Python code needs

watch.start()
deep_in_c()
"""
ELSEWHERE = """
class Remote:  # as an object store: no file of it can be open
    def __init__(self, folder):
        self.folder = folder

    def write(self, name, content):
        self.folder.write(name, content)

    def remove(self, name):
        self.folder.remove(name)

def waits():
    time.sleep(3600)

watch = HangWatch(Remote(LocalFolder(sys.argv[1])), "00007", 1.0)
watch.start()
waits()
"""
CAREFUL = """
for _ in range(5):
    watch.start()
    time.sleep(0.4)
with watch.reporting():
    time.sleep(1.7)
watch.stop()
time.sleep(1.7)
watch.close()
"""


def run(body: str, folder: Path) -> int:
    return subprocess.run([sys.executable, "-c", START + body, folder], timeout=300, check=False).returncode


@pytest.mark.parametrize(
    ("body", "function"),
    [(SWALLOWS, "stubborn"), (IN_C, "deep_in_c"), (ELSEWHERE, "waits")],
    ids=["Python", "C", "store"],
)
def test_what_hangs_is_killed_and_its_stack_is_there(tmp_path: Path, body: str, function: str) -> None:
    assert run(body, tmp_path) == 1
    stacks = take_stacks(LocalFolder(tmp_path), "00007")
    assert f" in {function}\n" in (stacks or "")
    assert take_stacks(LocalFolder(tmp_path), "00007") is None  # the file is gone


def test_the_stacks_name_files_as_their_owner_does(tmp_path: Path) -> None:
    source = tmp_path / "Prüfung_数据_🎈.py"
    source.write_text("import time\n\ndef stubborn():\n    time.sleep(3600)\n")
    assert (
        run(f"watch.start()\nsys.path.insert(0, {str(tmp_path)!r})\n__import__({source.stem!r}).stubborn()\n", tmp_path)
        == 1
    )
    assert f'File "{source}", line 4 in stubborn\n' in (take_stacks(LocalFolder(tmp_path), "00007") or "")


def test_what_is_no_letter_stays_escaped_in_the_stacks(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.write(stacks_name("00007"), rb"a\x1b[31m \udcfc \U00110000 \x41 \xfc")
    assert take_stacks(folder, "00007") == r"a\x1b[31m \udcfc \U00110000 \x41 ü"


def test_what_reports_in_time_lives_and_leaves_nothing(tmp_path: Path) -> None:
    assert run(CAREFUL, tmp_path) == 0
    assert not (tmp_path / stacks_name("00007")).exists()


def test_without_a_time_nothing_is_watched_or_written(tmp_path: Path) -> None:
    watch = HangWatch(LocalFolder(tmp_path), "00007", None)
    with watch.reporting():
        watch.start()
    watch.close()
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_died_of_something_else_left_no_stacks(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    assert take_stacks(folder, "00007") is None
    folder.write(stacks_name("00007"), b"")
    assert take_stacks(folder, "00007") is None
    assert hung_message(2.5).startswith("it reported nothing for 2.5 minutes (hung_minutes)")
