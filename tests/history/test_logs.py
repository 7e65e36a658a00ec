from pathlib import Path

import pytest

from tuner.errors import RunFolderError
from tuner.history.logs import LIMIT_BYTES, LONGEST_LINE, LogFollower, add_to_log, end_of_log, log_name, log_text
from tuner.storage.folder import LocalFolder
from tuner.worker import log_process


def written(folder: Path, text: bytes) -> LocalFolder:
    (folder / "logs").mkdir(exist_ok=True)
    (folder / log_name("00001")).write_bytes(text)
    return LocalFolder(folder)


def test_the_end_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    folder = written(tmp_path, b"".join(b"line %d\n" % number for number in range(1000)))
    assert end_of_log(folder, "00001", 3) == "line 997\nline 998\nline 999"
    assert end_of_log(written(tmp_path, b"one\n\nlast"), "00001", 3) == "one\n\nlast"
    assert end_of_log(written(tmp_path, b"x" * 10_000_000), "00001") == "x" * LONGEST_LINE + "…"
    assert end_of_log(folder, "00002") == ""


def test_what_tuner_adds_is_a_line_each_and_not_of_what_the_trial_printed(tmp_path: Path) -> None:
    folder = written(tmp_path, b"printed")
    add_to_log(folder, "00001", "Thread 1:\n  File x, line 3 in hang")
    lines = log_text(folder, "00001").splitlines()
    assert [line.partition(" tuner | ")[2] or line for line in lines] == [
        "printed",
        "Thread 1:",
        "  File x, line 3 in hang",
    ]
    assert end_of_log(folder, "00001") == "printed"
    add_to_log(folder, "00002", "of one that printed nothing")
    assert log_text(folder, "00002").endswith(" tuner | of one that printed nothing\n")
    assert end_of_log(folder, "00002") == ""
    add_to_log(written(tmp_path, b"x" * LIMIT_BYTES), "00001", "no room")
    assert log_text(folder, "00001") == "x" * LIMIT_BYTES
    assert LIMIT_BYTES == log_process.LIMIT_BYTES  # which is a program by itself


def test_a_log_that_leads_out_of_its_run_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    run = tmp_path / "run"
    folder = written_in_a_run(run)
    (run / log_name("00001")).unlink()
    (run / log_name("00001")).symlink_to(tmp_path / "secret")
    assert end_of_log(folder, "00001") == ""
    with pytest.raises(RunFolderError, match="which is outside of it"):
        log_text(folder, "00001")


def written_in_a_run(run: Path) -> LocalFolder:
    run.mkdir()
    (run / "run.json").write_text("{}")
    return written(run, b"text")


def test_a_log_is_read_whatever_is_in_it(tmp_path: Path) -> None:
    folder = written(tmp_path, b"gr\xc3\xbcn \xff\x00\n")
    assert log_text(folder, "00001") == "grün \\xff\0\n"
    assert log_text(folder, "00002") == ""
    (tmp_path / log_name("00003")).mkdir()
    with pytest.raises(RunFolderError, match=r"needs to be a file that can be read, got logs/00003\.log"):
        log_text(folder, "00003")


def test_a_follower_begins_with_the_last_lines_and_gives_each_line_once(tmp_path: Path) -> None:
    folder = written(tmp_path, b"".join(b"%d\n" % number for number in range(10)))
    follower = LogFollower(folder, "00001", 3)
    assert follower.new() == "7\n8\n9\n"
    assert follower.new() == ""
    with (tmp_path / log_name("00001")).open("ab") as log:
        log.write(b"10\nhal")
        log.flush()
        assert follower.new() == "10\n"
        log.write(b"f")
        log.flush()
        assert follower.new() == ""
        log.write(b"\n12")
    assert follower.rest() == "half\n12\n"


def test_a_follower_of_a_log_that_is_not_there_yet_waits_for_it(tmp_path: Path) -> None:
    follower = LogFollower(LocalFolder(tmp_path), "00001")
    assert follower.new() == ""
    written(tmp_path, b"first\n")
    assert follower.new() == "first\n"


def test_a_follower_goes_on_where_the_log_was_shortened_meanwhile(tmp_path: Path) -> None:
    folder = written(tmp_path, b"".join(b"line %d\n" % number for number in range(100)))
    follower = LogFollower(folder, "00001", 2)
    assert follower.new() == "line 98\nline 99\n"
    written(tmp_path, b"".join(b"line %d\n" % number for number in [*range(10), *range(400, 600)]))
    assert follower.new() == "line 598\nline 599\n"
    assert follower.new() == ""
