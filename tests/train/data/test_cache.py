import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.parametrize("damage", ["cut", "gone", "index", "no index"])
def test_a_damaged_entry_is_built_again(tmp_path: Path, damage: str) -> None:
    cache = ArrayCache(tmp_path)
    cache.get("key", build)
    numbers, index = tmp_path / "key" / "numbers.npy", tmp_path / "key" / INDEX
    if damage == "cut":
        numbers.write_bytes(numbers.read_bytes()[:-3])
    elif damage == "gone":
        numbers.unlink()
    elif damage == "index":
        index.write_text("{")
    else:
        index.unlink()
    assert cache.get("key", build).arrays["numbers"].tolist() == [[0, 1, 2], [3, 4, 5]]
    cache.get("key", never)


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


def slow_build(builder: Builder) -> None:
    with (Path(os.environ["COUNT"])).open("a") as file:
        file.write("built\n")
    time.sleep(0.5)
    build(builder)


def get_in_process(folder: str) -> None:
    assert ArrayCache(Path(folder)).get("key", slow_build).arrays["numbers"].sum() == 15


def test_processes_that_want_the_same_entry_at_once_build_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=get_in_process, args=(str(tmp_path / "cache"),)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "built\n"


KILLED = """
import sys, time
from pathlib import Path
import numpy as np
from tuner.train.data.cache import ArrayCache
def build(builder):
    builder.put("numbers", np.arange(6).reshape(2, 3))
    print("half", flush=True)
    time.sleep(60)
ArrayCache(Path(sys.argv[1])).get("key", build)
"""


def test_a_build_that_was_killed_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert any(path.name.startswith(".building-") for path in tmp_path.iterdir())
    assert ArrayCache(tmp_path).get("key", build).facts == {"classes": ["a", "b"]}


def test_without_room_or_a_writable_folder_the_cache_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(CacheUnavailable, match=r"^decoded images need 1000000000000\.0 GB, got .* set TUNER_CACHE"):
        ArrayCache(tmp_path).get("key", build, expected_bytes=10**21)
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheUnavailable, match=r"^decoded images need a folder to be kept in, got .*file/cache: Not a"):
        ArrayCache(tmp_path / "file" / "cache").get("key", build)


FULL = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from tuner.train.data.cache import ArrayCache, CacheUnavailable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    ArrayCache(Path(sys.argv[1])).get("key", lambda builder: builder.put("big", np.zeros(1_000_000)))
except CacheUnavailable as error:
    print(error)
"""


def test_a_disk_that_fills_up_is_no_crash_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"decoded images need a folder to be kept in, got {tmp_path}: File too large")
    assert [path.name for path in tmp_path.iterdir()] == ["key.lock"]


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
