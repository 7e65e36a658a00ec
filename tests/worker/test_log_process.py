"""The log's bound, and what a mark in the pipe does; without the process itself."""

import os
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tuner.worker import log_process
from tuner.worker.log_process import BATCH_SECONDS, HEAD_BYTES, LIMIT_BYTES, Log, Source, mark_of, pause, shortened

STAMP = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z ([a-z0-9 ]+) \| ")
TOKEN = b"\0" + b"f" * 16 + b":"


@dataclass(frozen=True)
class Bounds:
    """Of a log."""

    limit: int
    head: int
    tail: int


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Bounds:
    """A hundredth of what a user gets."""
    for name in ("LIMIT_BYTES", "HEAD_BYTES", "TAIL_BYTES", "AT_ONCE_BYTES", "LINE_BYTES"):
        monkeypatch.setattr(log_process, name, getattr(log_process, name) // 100)
    return Bounds(log_process.LIMIT_BYTES, log_process.HEAD_BYTES, log_process.TAIL_BYTES)


def bare(log: bytes) -> list[tuple[str, str]]:
    """Each line's epoch and text."""
    lines = []
    for line in log.splitlines():
        found = STAMP.match(line)
        assert found is not None, line
        lines.append((found[1].decode(), line[found.end() :].decode()))
    return lines


def left_out(log: bytes) -> int:
    found = re.findall(rb"tuner \| ([0-9,]+) bytes of output are left out here\n", log)
    assert len(found) == 1
    return int(found[0].replace(b",", b""))


def numbers(log: bytes) -> list[int]:
    return [int(text) for epoch, text in bare(log) if epoch.startswith("epoch")]


@pytest.mark.parametrize(("chunk", "flushed"), [(1, 200), (1, 40_000), (50, 50), (50, 40_000)])
def test_a_long_log_keeps_its_first_and_its_last_lines(tmp_path: Path, small: Bounds, chunk: int, flushed: int) -> None:
    """Whether lines come one by one or thousands at once, with much time between them or with none."""
    lines, length = 40_000, 57
    log = Log(str(tmp_path / "log"), "begins")
    for start in range(0, lines, chunk):
        log.add("", 1, b"".join(b"%025d\n" % number for number in range(start, min(lines, start + chunk))))
        if start % flushed == 0:
            log.flush()
    log.flush()
    content = (tmp_path / "log").read_bytes()
    assert small.head < len(content) <= small.limit
    kept = numbers(content)
    gap = next(place for place, (one, two) in enumerate(pairwise(kept)) if two != one + 1)
    assert kept == [*range(gap + 1), *range(kept[gap + 1], lines)]
    assert small.head - 3 * length < gap * length < small.head
    assert (len(kept) - gap) * length > 0.6 * small.tail  # a burst is counted with longer stamps
    assert left_out(content) >= 26 * (lines - len(kept))


def test_of_a_full_log_the_last_part_is_as_long_as_it_may_be_whatever_the_length_of_its_lines(
    tmp_path: Path, small: Bounds
) -> None:
    for name, line in (("long", b"x" * 200 + b"\n"), ("short", b"x\n")):
        log = Log(str(tmp_path / name), "")
        for _ in range(3):
            for _ in range(200):
                log.add("", 1, line * 10)
            log.flush()
        content = (tmp_path / name).read_bytes()
        tail = content.partition(b" bytes of output are left out here\n")[2]
        assert 0.8 * small.tail < len(tail) <= small.tail
        assert (len(bare(content)) - 1) * len(line) + left_out(content) >= 6_000 * len(line)


def test_a_log_that_was_shortened_is_shortened_again_at_the_same_place(tmp_path: Path, small: Bounds) -> None:
    """On another worker, which knows nothing but the file."""
    before = 0
    for stay in range(4):
        log = Log(str(tmp_path / "log"), f"stay {stay}")
        for number in range(1_000):
            log.add("", stay, b"%025d\n" % number)
        log.flush()
        content = (tmp_path / "log").read_bytes()
        assert len(content) <= small.limit
        if stay > 1:
            assert left_out(content) > before
            before = left_out(content)
    assert bare(content)[0] == ("tuner", "stay 0")
    assert bare(content)[-1] == ("epoch 3", f"{999:025d}")


def test_one_endless_line_and_a_flood_of_line_ends_are_bounded(tmp_path: Path) -> None:
    for name, text in (("line", bytes(200_000)), ("ends", b"\n" * 200_000)):
        log = Log(str(tmp_path / name), "begins")
        for _ in range(200):
            log.add("", 1, text)
        log.flush()
        content = (tmp_path / name).read_bytes()
        assert HEAD_BYTES < len(content) <= LIMIT_BYTES
        assert left_out(content) > 20_000_000


def test_a_trial_can_not_forge_the_line_that_says_what_is_left_out() -> None:
    forged = b"2026-11-22T09:36:11Z tuner | 7 bytes of output are left out here\n"
    log = b"2026-11-22T09:36:11Z epoch 1 | " + forged
    assert shortened(log) == log
    assert shortened(log + bytes(LIMIT_BYTES)).startswith(log)


def test_another_worker_begins_a_line_of_its_own(tmp_path: Path) -> None:
    """Where the one before was killed in the middle of a line."""
    (tmp_path / "log").write_bytes(b"2026-11-22T09:36:11Z epoch 1 | cut o")
    log = Log(str(tmp_path / "log"), "goes on")
    log.add("", 2, b"here\n")
    log.flush()
    expected = [("epoch 1", "cut o"), ("tuner", "goes on"), ("epoch 2", "here")]
    assert bare((tmp_path / "log").read_bytes()) == expected


def test_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), "")
    for source, text in (("rank 0", b"one "), ("rank 1", b"two\n"), ("rank 0", b"three"), ("rank 0", b" four\nfive\n")):
        log.add(source, 1, text)
    log.flush()
    assert bare((tmp_path / "log").read_bytes()) == [
        ("epoch 1 rank 0", "one "),
        ("epoch 1 rank 1", "two"),
        ("epoch 1 rank 0", "three four"),
        ("epoch 1 rank 0", "five"),
    ]


def test_what_a_full_disk_did_not_take_is_said(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    log = Log(str(tmp_path / "logs" / "log"), "begins")
    for number in range(3):
        log.add("", 1, b"%d\n" % number)
        log.flush()
    (tmp_path / "logs").unlink()
    log.add("", 1, b"3\n")
    log.flush()
    (said, text), *rest = bare((tmp_path / "logs" / "log").read_bytes())
    assert said == "tuner"
    assert re.fullmatch(r"\d+ bytes of output could not be written", text)
    assert rest == [("epoch 1", "3")]


def test_a_log_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "log").symlink_to(tmp_path / "precious")
    log = Log(str(tmp_path / "log"), "begins")
    log.add("", 1, b"text\n")
    log.flush()
    assert (tmp_path / "precious").read_text() == "mine"


# The pipe


@pytest.mark.parametrize("piece", [1, 2, 5, 26, 27, 28, 1000])
def test_a_mark_ends_an_epoch_wherever_reading_cuts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(log_process, "READ_BYTES", piece)
    reading, writing = os.pipe()
    text = mark_of(TOKEN, 3) + b"a\0b\n" + mark_of(TOKEN, 4) + b"c\n\0\n" + mark_of(TOKEN, 12) + b"d\n"
    os.write(writing, text)
    os.close(writing)
    log = Log(str(tmp_path / "log"), "")
    source = Source(reading, "", TOKEN, 0)
    while source.read(log) > 0:
        pass
    os.close(reading)
    log.flush()
    expected = [("epoch 3", "a\0b"), ("epoch 4", "c"), ("epoch 4", "\0"), ("epoch 12", "d")]
    assert bare((tmp_path / "log").read_bytes()) == expected


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_each_state_of_a_progress_bar_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(log_process, "READ_BYTES", piece)
    reading, writing = os.pipe()
    os.write(writing, b"10%\r20%\r\n30%\rdone\n")
    os.close(writing)
    log = Log(str(tmp_path / "log"), "")
    source = Source(reading, "", TOKEN, 0)
    while source.read(log) > 0:
        pass
    os.close(reading)
    log.flush()
    assert [text for _, text in bare((tmp_path / "log").read_bytes())] == ["10%", "20%", "30%", "done"]


@pytest.mark.parametrize(
    ("come", "passed", "seconds"),
    [
        (0, 5.0, BATCH_SECONDS),
        (-1, 5.0, BATCH_SECONDS),  # the end of a pipe
        (300, 0.5, BATCH_SECONDS),
        (2**20, 0.01, 0.0025),  # a pipe filled up while the last pause lasted
        (2**28, 0.25, 0.25 / 2**10),
    ],
)
def test_the_more_comes_the_shorter_it_waits_for_more(come: int, passed: float, seconds: float) -> None:
    assert pause(come, passed) == pytest.approx(seconds)
