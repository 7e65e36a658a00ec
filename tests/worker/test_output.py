"""What a trial prints, by whatever way, and how it ends: with the real process that writes the log."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.searches import wait_for
from tests.storage.folders import store
from tests.worker.test_log_process import bare, left_out
from tuner.history.logs import log_name
from tuner.worker import output
from tuner.worker.log_process import LIMIT_BYTES
from tuner.worker.output import captured


def lines(folder: Path, trial: str = "00001") -> list[tuple[str, str]]:
    return bare((folder / log_name(trial)).read_bytes())


def test_every_way_of_printing_ends_in_the_log_with_its_epoch(tmp_path: Path) -> None:
    with captured("00001", str(tmp_path), "trial 00001 begins") as out:
        print("print")
        print("to stderr", file=sys.stderr)
        os.write(1, b"descriptor 1\n")
        subprocess.run(["sh", "-c", "echo child; echo child to stderr >&2"], check=True)
        ctypes.CDLL(None).puts(b"from C")
        out.epoch(2)
        print("lone surrogate \udcff, and no end", end="")
    found = lines(tmp_path)
    assert found[0] == ("tuner", "trial 00001 begins")
    assert [text for epoch, text in found if epoch == "epoch 1"] == [
        "print",
        "to stderr",
        "descriptor 1",
        "child",
        "child to stderr",
        "from C",
    ]
    assert found[-1] == ("epoch 2", "lone surrogate \\udcff, and no end")


def test_descriptors_and_streams_are_put_back_whatever_the_trial_did_to_them(tmp_path: Path) -> None:
    before = [os.fstat(number).st_ino for number in (1, 2)]
    streams, descriptors = (sys.stdout, sys.stderr), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with captured("00001", str(tmp_path), "begins"):
        print("one")
    gc.collect()  # what other tests left open is closed now rather than in between
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- the process's own socket stays
    for number in range(3):
        with suppress(RuntimeError), captured("00001", str(tmp_path), "begins"):
            print(number)
            sys.stdout.close()
            sys.stderr = None  # type: ignore[assignment]
            os.close(2)
            raise RuntimeError
    assert (sys.stdout, sys.stderr) == streams
    assert [os.fstat(number).st_ino for number in (1, 2)] == before
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208
    assert [text for epoch, text in lines(tmp_path) if epoch == "epoch 1"] == ["one", "0", "1", "2"]


def test_a_trial_that_prints_nothing_has_no_log(tmp_path: Path) -> None:
    with captured("00001", str(tmp_path), "begins") as out:
        out.epoch(2)
        out.flush()
    assert list(tmp_path.iterdir()) == []


def test_what_another_stay_prints_is_appended(tmp_path: Path) -> None:
    for text in ("begins", "goes on"):
        with captured("00001", str(tmp_path), text):
            print("as", text)
    assert lines(tmp_path) == [
        ("tuner", "begins"),
        ("epoch 1", "as begins"),
        ("tuner", "goes on"),
        ("epoch 1", "as goes on"),
    ]


def test_a_flood_is_bounded_and_its_end_is_there(tmp_path: Path) -> None:
    with captured("00001", str(tmp_path), "begins"):
        flood = "yes 'a line of an ordinary length, printed again and again' | head -c 60000000; echo; echo the end"
        subprocess.run(["sh", "-c", flood], check=True)
    log = (tmp_path / log_name("00001")).read_bytes()
    assert len(log) <= LIMIT_BYTES
    assert left_out(log) > 45_000_000
    assert bare(log)[-1] == ("epoch 1", "the end")


def test_binary_output_is_kept_as_it_is(tmp_path: Path) -> None:
    every = bytes(value for value in range(256) if value not in b"\r\n")
    with captured("00001", str(tmp_path), "begins"):
        os.write(1, every * 3 + b"\n")
    assert (tmp_path / log_name("00001")).read_bytes().endswith(b" | " + every * 3 + b"\n")


def test_a_child_that_lives_on_neither_holds_up_the_end_nor_reaches_a_later_trial(tmp_path: Path) -> None:
    with captured("00001", str(tmp_path), "begins"):
        print("parent")
        child = subprocess.Popen(["sh", "-c", "while sleep 0.05; do echo alive; done"])
    with captured("00002", str(tmp_path), "begins"):
        print("another trial")
        time.sleep(1.5)  # longer than a pipe of an ended trial waits for a look
    with captured("00003", str(tmp_path), "begins"):
        print("a third")
    assert child.poll() is None
    child.kill()
    child.wait()
    assert [text for _, text in lines(tmp_path, "00002")] == ["begins", "another trial"]
    assert [text for _, text in lines(tmp_path, "00003")] == ["begins", "a third"]


def test_a_child_that_never_stops_printing_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with captured("00001", str(tmp_path), "begins"):
        child = subprocess.Popen(["yes", "again"])
        time.sleep(0.1)
    assert child.poll() is None
    child.kill()
    child.wait()
    assert len((tmp_path / log_name("00001")).read_bytes()) <= LIMIT_BYTES


def test_a_line_is_there_as_it_ends_and_a_part_of_one_soon(tmp_path: Path) -> None:
    """Without a flush by the trial, as of a worker that hangs in the middle of a line."""
    with captured("00001", str(tmp_path), "begins"):
        print("one", 2, "three")
        print("half a line", end="")
        while not (tmp_path / log_name("00001")).exists() or len(lines(tmp_path)) < 3:
            time.sleep(0.01)
        assert lines(tmp_path)[1:] == [("epoch 1", "one 2 three"), ("epoch 1", "half a line")]


def test_a_part_of_a_line_is_printed_once_where_the_process_forks(tmp_path: Path) -> None:
    with captured("00001", str(tmp_path), "begins"):
        print("half", end="")
        child = os.fork()
        if child == 0:
            print(" and the child's")
            os._exit(0)
        os.waitpid(child, 0)
        print("the parent's")
    assert [text for _, text in lines(tmp_path)] == ["begins", "half and the child's", "the parent's"]


KILLED = """
import os, signal, sys, time
from tuner.worker.output import captured

with captured("00001", sys.argv[1], "begins") as out:
    print("printed", end="", flush=True)
    if sys.argv[2] == "fork" and os.fork() == 0:
        time.sleep(600)
    if sys.argv[2] == "group":  # as Ray does with what a dead worker leaves
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    if sys.argv[2] == "children":  # as Ray's worker does before it ends
        for child in open(f"/proc/self/task/{os.getpid()}/children").read().split():
            os.kill(int(child), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["alone", "fork", "group", "children"])
def test_a_worker_that_is_killed_leaves_what_it_printed_and_no_process(tmp_path: Path, how: str) -> None:
    """A forked child holds the pipe and the socket open: the process goes all the same."""
    worker = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), how], start_new_session=True)
    assert worker.wait() == -signal.SIGKILL
    log = tmp_path / log_name("00001")
    wait_for(log.exists, 60)  # while it still becomes that program, a process has no command line to be found by
    wait_for(lambda: not log_writers(worker.pid), 60)
    assert lines(tmp_path) == [("tuner", "begins"), ("epoch 1", "printed")]
    if how == "fork":
        os.killpg(worker.pid, signal.SIGKILL)


def log_writers(worker: int) -> list[int]:
    """The processes that write the logs of a worker."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes().split(b"\0")[:-1]
            if command[-1:] == [str(worker).encode()] and any(b"log_process" in part for part in command):
                found.append(int(entry.name))
    return found


def test_without_its_process_the_next_trial_gets_another(tmp_path: Path) -> None:
    with captured("00001", str(tmp_path), "begins"):
        print("one")
    kill_writer()
    with captured("00002", str(tmp_path), "begins"):
        print("two")
    assert lines(tmp_path, "00002")[-1] == ("epoch 1", "two")


def test_a_trial_runs_without_a_log_where_none_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "logs").symlink_to(tmp_path.parent)  # leads out of the run
    ran = []
    with captured("00001", str(tmp_path), "begins") as out:
        out.epoch(2)
        out.flush()
        ran.append(out.pipe("rank 0"))
    assert ran == [None]


def test_pipes_of_other_processes_carry_their_names(tmp_path: Path) -> None:
    with captured("00001", str(tmp_path), "begins") as out:
        for epoch in (1, 2):
            out.epoch(epoch)
            for rank in (0, 1):
                pipe = out.pipe(f"rank {rank}")
                subprocess.run(["echo", str(epoch)], stdout=pipe, check=True)
            out.flush()
    assert sorted(lines(tmp_path)[1:]) == [
        ("epoch 1 rank 0", "1"),
        ("epoch 1 rank 1", "1"),
        ("epoch 2 rank 0", "2"),
        ("epoch 2 rank 1", "2"),
    ]


# On an object store


def test_an_object_store_gets_whole_copies_after_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    folder = store(tmp_path)
    for text in (b"one\n", b"", b"two\n"):
        with output._log_file(folder, "logs/00001.log") as path:
            if text:
                path.write_bytes(text)
    assert folder.read("logs/00001.log") == b"one\ntwo\n"
    assert not path.exists()


def test_an_object_store_gets_a_copy_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "UPLOAD_SECONDS", 0.01)
    (tmp_path / "logs").mkdir()
    folder = store(tmp_path)
    with output._log_file(folder, "logs/00001.log") as path:
        path.write_bytes(b"one\n")
        wait_for(lambda: folder.exists("logs/00001.log") and folder.read("logs/00001.log") == b"one\n")


def test_a_log_on_an_object_store_is_bounded_over_all_stays(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    folder = store(tmp_path)
    line = b"2026-11-22T09:36:11Z epoch 1 | " + b"x" * 68 + b"\n"
    for _ in range(3):
        with output._log_file(folder, "logs/00001.log") as path:
            path.write_bytes(line * 70_000)
    content = folder.read("logs/00001.log")
    assert len(content) <= LIMIT_BYTES
    assert left_out(content) > 10_000_000


def kill_writer() -> None:
    [process] = log_writers(os.getpid())
    os.kill(process, signal.SIGKILL)
    assert output._process is not None
    while output._process.works:
        time.sleep(0.001)


def test_without_its_process_a_trial_goes_on_and_nothing_that_it_prints_then_is_lost(tmp_path: Path) -> None:
    with captured("00001", str(tmp_path), "begins") as out:
        print("one")
        out.flush()
        out.epoch(2)
        kill_writer()
        print("two")
        subprocess.run(["echo", "child"], check=True)
        wait_for(lambda: ("epoch 2", "child") in lines(tmp_path), 10)
        assert out.notes == [f"{output.ENDED}, so another one goes on with it"]
        out.epoch(3)
        out.flush()
        kill_writer()
        print("three")
    assert lines(tmp_path) == [
        ("tuner", "begins"),
        ("epoch 1", "one"),
        ("tuner", output.ENDED),
        ("epoch 2", "two"),
        ("epoch 2", "child"),
        ("tuner", output.ENDED),
        ("epoch 3", "three"),
    ]


def test_a_trial_that_prints_more_than_the_pipe_holds_only_waits_for_the_next_process(tmp_path: Path) -> None:
    with captured("00001", str(tmp_path), "begins") as out:
        print("one")
        out.flush()
        kill_writer()
        for number in range(3):
            print(f"{number} " + "x" * 1_000_000)
    assert [text[:1] for _, text in lines(tmp_path)] == ["b", "o", "t", "0", "1", "2"]
