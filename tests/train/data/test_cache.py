import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from tests.forked import copies
from tests.mounts import needs_mounts, run_mounted, run_on_tmpfs
from tuner.train.data import cache as module
from tuner.train.data.cache import INDEX, ArrayCache, Builder, CacheUnavailable, cache_key, default_folder


def build(builder: Builder) -> None:
    builder.put("numbers", np.arange(6).reshape(2, 3))
    builder.array("zeros", (4,), np.uint8)[1] = 7
    builder.facts["classes"] = ["a", "b"]


def never(builder: Builder) -> None:
    raise AssertionError("it was there")


def test_an_entry_is_built_once_and_then_mapped(tmp_path: Path) -> None:
    cache = ArrayCache(tmp_path)
    first, again = cache.get("key", build), ArrayCache(tmp_path).get("key", never)
    for entry in (first, again):
        assert entry.arrays["numbers"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert entry.arrays["zeros"].tolist() == [0, 7, 0, 0]
        assert entry.facts == {"classes": ["a", "b"]}


def test_writing_to_an_array_reaches_neither_the_file_nor_others(tmp_path: Path) -> None:
    cache = ArrayCache(tmp_path)
    cache.get("key", build).arrays["numbers"][0, 0] = 99
    assert cache.get("key", never).arrays["numbers"][0, 0] == 0


def flip(path: Path, *, keep_time: bool = False) -> None:
    """Every third byte turned round, in place."""
    before, content = path.stat(), np.frombuffer(path.read_bytes(), np.uint8).copy()
    content[::3] ^= 0xFF
    path.write_bytes(content.tobytes())
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (lambda entry: os.truncate(entry / "numbers.npy", 100), "numbers.npy has 100 bytes, not 176"),
    "flipped": (lambda entry: flip(entry / "numbers.npy"), "numbers.npy isn't what was written"),
    "flipped in silence": (lambda entry: flip(entry / "zeros.npy", keep_time=True), "zeros.npy isn't what was written"),
    "gone": (lambda entry: (entry / "numbers.npy").unlink(), "numbers.npy is missing"),
    "index cut": (lambda entry: (entry / INDEX).write_text("{"), "it has no whole entry.json"),
    "index no object": (lambda entry: (entry / INDEX).write_text("[]"), "it has no checksums"),
    "no index": (lambda entry: (entry / INDEX).unlink(), "it has no whole entry.json"),
    "no arrays": (lambda entry: (entry / INDEX).write_text('{"bytes": {}, "facts": {}}'), "it has no checksums"),
    "other facts": (
        lambda entry: (entry / INDEX).write_text((entry / INDEX).read_text().replace('["a", "b"]', '["b", "a"]')),
        "entry.json isn't what was written",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_built_again_with_a_sentence(tmp_path: Path, damage: str) -> None:
    cache, (spoil, reason) = ArrayCache(tmp_path), DAMAGES[damage]
    assert cache.get("key", build).notes == ()
    spoil(tmp_path / "key")
    again = cache.get("key", build)
    assert again.notes == (f"{tmp_path / 'key'} in the cache is damaged and is built again: {reason}",)
    for entry in (again, cache.get("key", never)):
        assert entry.arrays["numbers"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert entry.facts == {"classes": ["a", "b"]}
    assert cache.get("key", never).notes == ()


def test_an_entry_is_read_whole_once_per_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boots = [tmp_path / "first", tmp_path / "second"]
    for boot in boots:
        boot.write_text(f"{boot.name}\n")
    monkeypatch.setattr(module, "BOOT", boots[0])
    cache = ArrayCache(tmp_path / "cache")
    cache.get("key", build)
    zeros, marker = tmp_path / "cache" / "key" / "zeros.npy", tmp_path / "cache" / "key" / "verified-first"
    module._FITTED.clear()  # as in another process
    assert json.loads(marker.read_text())["zeros"][:2] == [zeros.stat().st_ino, zeros.stat().st_size]

    zeros.write_bytes(zeros.read_bytes()[:-4] + bytes([9, 9, 9, 9]))
    stat = zeros.stat()
    known = json.loads(marker.read_text())
    known["zeros"] = [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    marker.write_text(json.dumps(known))
    assert cache.get("key", never).arrays["zeros"].tolist() == [9, 9, 9, 9]  # what the marker names isn't read again

    module._FITTED.clear()
    monkeypatch.setattr(module, "BOOT", boots[1])
    assert cache.get("key", build).arrays["zeros"].tolist() == [0, 7, 0, 0]
    assert (tmp_path / "cache" / "key" / "verified-second").is_file()


def test_machines_that_share_a_cache_leave_each_others_word_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ArrayCache(tmp_path / "cache")
    for name in ("first", "second", "first"):
        (tmp_path / name).write_text(name)
        monkeypatch.setattr(module, "BOOT", tmp_path / name)
        module._FITTED.clear()
        cache.get("key", build if name == "first" else never)
    assert sorted(path.name for path in (tmp_path / "cache" / "key").glob("verified-*")) == [
        "verified-first",
        "verified-second",
    ]


def test_without_a_boot_id_each_process_looks_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOOT", tmp_path / "no such file")
    cache = ArrayCache(tmp_path / "cache")
    cache.get("key", build)
    assert cache.get("key", never).facts == {"classes": ["a", "b"]}
    assert not list((tmp_path / "cache" / "key").glob("verified-*"))


def test_what_a_builder_raises_passes_through_and_leaves_nothing(tmp_path: Path) -> None:
    def fail(builder: Builder) -> None:
        build(builder)
        raise ValueError("broken image")

    with pytest.raises(ValueError, match="broken image"):
        ArrayCache(tmp_path).get("key", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["key.lock"]


def test_the_datas_own_missing_file_is_no_fault_of_the_cache(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ArrayCache(tmp_path / "cache").get("key", lambda builder: (tmp_path / "image.png").read_bytes() and None)


def get_slowly(folder: Path, count: Path) -> None:
    def slow_build(builder: Builder) -> None:
        with count.open("a") as file:
            file.write("built\n")
        time.sleep(0.5)
        build(builder)

    assert ArrayCache(folder).get("key", slow_build).arrays["numbers"].sum() == 15


def test_processes_that_want_the_same_entry_at_once_build_it_once(tmp_path: Path) -> None:
    started = [copies().Process(target=get_slowly, args=(tmp_path / "cache", tmp_path / "count")) for _ in range(3)]
    for process in started:
        process.start()
    for process in started:
        process.join(300)
    assert [process.exitcode for process in started] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "built\n"


def build_half(folder: Path, half: Connection) -> None:
    def build_and_wait(builder: Builder) -> None:
        builder.put("numbers", np.arange(6).reshape(2, 3))
        half.send("half")
        time.sleep(60)

    ArrayCache(folder).get("key", build_and_wait)


def test_a_build_that_was_killed_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    said, says = copies().Pipe(duplex=False)
    process = copies().Process(target=build_half, args=(tmp_path, says))
    process.start()
    assert said.poll(60)
    process.kill()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert any(path.name.startswith(".building-") for path in tmp_path.iterdir())
    assert ArrayCache(tmp_path).get("key", build).facts == {"classes": ["a", "b"]}


def test_without_room_or_a_writable_folder_the_cache_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(CacheUnavailable, match=r"^decoded images need 1000000000000\.0 GB, got .* set TUNER_CACHE"):
        ArrayCache(tmp_path).get("key", build, expected_bytes=10**21)
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheUnavailable, match=r"^decoded images need a folder to be kept in, got .*file/cache: Not a"):
        ArrayCache(tmp_path / "file" / "cache").get("key", build)


def fill(folder: Path) -> str:
    """What is said of an entry that doesn't fit."""
    with pytest.raises(CacheUnavailable) as caught:
        ArrayCache(folder).get("key", lambda builder: builder.put("big", np.zeros(1_000_000)))
    return str(caught.value)


def fill_what_is_limited(folder: Path, says: Connection) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    says.send(fill(folder))


def test_a_disk_that_fills_up_is_no_crash_and_leaves_nothing(tmp_path: Path) -> None:
    said, says = copies().Pipe(duplex=False)
    process = copies().Process(target=fill_what_is_limited, args=(tmp_path, says))
    process.start()
    process.join(300)
    assert process.exitcode == 0
    assert said.recv().startswith(f"decoded images need a folder to be kept in, got {tmp_path}: File too large")
    assert [path.name for path in tmp_path.iterdir()] == ["key.lock"]


FULL = """
import sys
from pathlib import Path
from tests.train.data.test_cache import fill
print(fill(Path(sys.argv[1])))
"""


@needs_mounts
def test_a_disk_that_is_too_small_for_an_array_ends_no_process(tmp_path: Path) -> None:
    done = run_on_tmpfs("1m", tmp_path, sys.executable, "-c", FULL, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        f"decoded images need a folder to be kept in, got {tmp_path}: No space left on device"
    )


READ_ONLY = """
import sys
from pathlib import Path
from tuner.train.data import cache
entry = cache.ArrayCache(Path(sys.argv[1])).get("key", None)
print(entry.arrays["numbers"].sum(), entry.facts, entry.notes, len(cache._FITTED), flush=True)
cache.ArrayCache(Path(sys.argv[1])).get("damaged", None)
"""


@needs_mounts
@pytest.mark.parametrize("marked", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_cache_that_is_read_only_is_verified_and_read(tmp_path: Path, marked: bool) -> None:
    for key in ("key", "damaged"):
        ArrayCache(tmp_path).get(key, build)
    if not marked:
        for marker in tmp_path.glob("*/verified-*"):
            marker.unlink()
    flip(tmp_path / "damaged" / "numbers.npy")
    mount = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"'
    done = run_mounted(mount, tmp_path, sys.executable, "-c", READ_ONLY, tmp_path)
    assert done.stdout == "15 {'classes': ['a', 'b']} () 1\n", done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"tuner.train.data.cache.CacheUnavailable: a cache entry must be what was built, got {tmp_path}/damaged: "
        "numbers.npy isn't what was written; set TUNER_CACHE to a folder that can be written to"
    )


def age(path: Path, days: float) -> None:
    then = time.time() - days * 86_400
    os.utime(path, (then, then))


def test_what_nobody_uses_is_deleted_when_something_is_built(tmp_path: Path) -> None:
    cache = ArrayCache(tmp_path)
    for key in ("old", "used", "new"):
        cache.get(key, build)
    age(tmp_path / "old" / INDEX, 31)
    age(tmp_path / "used" / INDEX, 31)
    (tmp_path / ".building-dead").mkdir()
    age(tmp_path / ".building-dead", 2)
    mapped = cache.get("used", never).arrays["numbers"]
    old = np.load(tmp_path / "old" / "numbers.npy", mmap_mode="r")
    cache.get("another", build)
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == {"used", "new", "another"}
    assert mapped.sum() == old.sum() == 15


def test_the_key_tells_parts_apart_and_their_order() -> None:
    keys = {cache_key("a", "b"), cache_key("b", "a"), cache_key("ab"), cache_key("a", ["b"]), cache_key("a", None)}
    assert len(keys) == 5
    assert all(len(key) == 32 for key in keys)


def test_the_folder_is_the_users_cache_unless_a_variable_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", "/somewhere")
    assert default_folder() == Path("/somewhere")
    monkeypatch.delenv("TUNER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_folder() == Path("/caches/tuner")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_folder() == Path.home() / ".cache" / "tuner"


def test_the_index_is_plain_json(tmp_path: Path) -> None:
    ArrayCache(tmp_path).get("key", build)
    index = json.loads((tmp_path / "key" / INDEX).read_text())
    assert index["facts"] == {"classes": ["a", "b"]}
    assert index["bytes"]["zeros"] == (tmp_path / "key" / "zeros.npy").stat().st_size
