"""Copies of objects on this machine: from a real server, by real processes, through a proxy that may be gone."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import environment
from tests.mounts import needs_mounts, run_on_tmpfs
from tests.s3_proxy import Proxy, proxied
from tests.s3_server import put_objects, s3_endpoint
from tests.searches import wait_for
from tuner.storage import bucket, copies
from tuner.storage.bucket import Stored, StoreProblem
from tuner.storage.copies import Copy, Listing, fetch, listed, listed_alone

FETCH = """
import sys
from tuner.storage.copies import fetch, listed
listing = listed(sys.argv[1], lambda name: True)
print("listed", flush=True)
print(fetch(listing).files)
"""
MIB = 2**20


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with s3_endpoint("bucket") as endpoint, proxied(endpoint) as standing_between:
        yield standing_between


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(proxy: Proxy, **objects: bytes) -> None:
    """Write objects, past the proxy; `__` in a name stands for a slash."""
    host, port = proxy.server
    put_objects(f"http://{host}:{port}", {name.replace("__", "/"): content for name, content in objects.items()})


def uri_of(proxy: Proxy, prefix: str) -> str:
    return f"s3://bucket/{prefix}?endpoint_override={proxy.endpoint}&scheme=http&region=us-east-1"


def everything(proxy: Proxy, prefix: str) -> Listing:
    return listed(uri_of(proxy, prefix), lambda name: True)


def process(uri: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, uri], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_two_processes_at_once_copy_each_object_once(proxy: Proxy) -> None:
    put(proxy, **{f"once__{number}": b"%d" % number for number in range(40)})
    before = proxy.requests
    both = [process(uri_of(proxy, "once")) for _ in range(2)]
    told = [each.communicate(timeout=100) for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert proxy.requests - before <= 40 + 4  # two listings
    (files,) = {Path(out.splitlines()[-1]) for out, _ in told}
    assert {path.name: path.read_bytes() for path in files.iterdir()} == {str(n): b"%d" % n for n in range(40)}


def test_a_copy_that_was_killed_goes_on_and_is_absent_until_it_is_whole(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(24 * MIB)
    put(proxy, killed__big=content, killed__small=b"small")
    listing = everything(proxy, "killed")
    parts = Copy(listing.uri).base / f"{copies.PARTIAL}{listing.version}" / copies.PARTS
    proxy.delay = 0.3
    killed = process(listing.uri)
    try:
        wait_for(lambda: parts.is_dir() and any(path.stat().st_size >= 8 * MIB for path in parts.iterdir()), 60)
        killed.send_signal(signal.SIGKILL)  # it holds the lock
        killed.communicate()
    finally:
        killed.kill()
        proxy.delay = 0.0
    copy = Copy(listing.uri, listing.version)
    assert not copy.is_present
    read: list[tuple[str, int]] = []
    real = bucket.Bucket.read

    def watched(self: bucket.Bucket, one: Stored, start: int, end: int, *, alone: bool) -> bytes:
        read.append((one.name, start))
        return real(self, one, start, end, alone=alone)

    monkeypatch.setattr(bucket.Bucket, "read", watched)
    fetch(listing)
    assert copy.is_whole
    assert (copy.files / "big").read_bytes() == content
    assert (copy.files / "small").read_bytes() == b"small"
    assert min(start for _, start in read) >= 8 * MIB  # neither the first pieces nor the small object again
    assert list(copy.base.glob(f"{copies.PARTIAL}*")) == []


def test_a_store_that_is_gone_for_seconds_is_waited_for(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "RETRY_SECONDS", 0.5)  # of obstore itself
    put(proxy, **{f"gone__{number}": b"x" * 100 for number in range(30)})
    listing = everything(proxy, "gone")
    proxy.delay, proxy.gone = 0.05, True
    threading.Timer(3.0, setattr, (proxy, "gone", False)).start()
    begun = time.monotonic()
    try:
        assert fetch(listing).is_whole
    finally:
        proxy.delay, proxy.gone = 0.0, False
    assert time.monotonic() - begun > 2.5


def test_of_a_changed_prefix_the_changed_object_alone_is_copied(proxy: Proxy) -> None:
    put(proxy, **{f"changed__{number}": b"%d" % number for number in range(20)})
    first = everything(proxy, "changed")
    old = fetch(first)
    put(proxy, changed__3=b"other")
    second = everything(proxy, "changed")
    assert second.version != first.version
    before = proxy.requests
    new = fetch(second)
    assert proxy.requests - before == 1
    assert ((old.files / "3").read_bytes(), (new.files / "3").read_bytes()) == (b"3", b"other")
    assert (old.files / "4").samefile(new.files / "4")
    assert Copy(first.uri).settled == new  # what a study without a running search finds
    with pytest.raises(StoreProblem, match="changed while it was read"):
        fetch_anew(first)


def fetch_anew(listing: Listing) -> Copy:
    """Of a listing that holds no more, into an empty cache."""
    os.environ["TUNER_CACHE"] += "-new"
    return fetch(listing)


def test_what_was_cleaned_up_or_spoilt_by_a_crash_is_copied_again(proxy: Proxy) -> None:
    put(proxy, spoilt__a=b"right", spoilt__b=b"other", spoilt__c=b"third")
    listing = everything(proxy, "spoilt")
    copy = fetch(listing)
    (copy.files / "a").unlink()
    (copy.files / "b").write_bytes(b"wrong")  # of the same size, as blocks of a file that never came to the disk
    assert copy.is_present
    assert not copy.is_whole
    before = proxy.requests
    fetch(listing)
    assert proxy.requests - before == 2
    assert [(copy.files / name).read_bytes() for name in "abc"] == [b"right", b"other", b"third"]


def test_etags_that_are_no_checksums_are_believed_in_the_end(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    put(proxy, sums__a=b"one", sums__b=b"two")
    listing = everything(proxy, "sums")
    monkeypatch.setattr(copies, "_md5", lambda path: f"{len(path.read_bytes()):032x}")  # as of encrypted objects
    assert fetch(listing).is_whole


def test_one_object_is_copied_under_its_own_name(proxy: Proxy) -> None:
    put(proxy, **{"net.pth": b"weights", "net.pth.old": b"older"})
    copy = fetch(listed_alone(uri_of(proxy, "net.pth")))
    assert (copy.file.name, copy.file.read_bytes()) == ("net.pth", b"weights")
    with pytest.raises(StoreProblem, match=r"^there is no such object; correct the URI$"):
        listed_alone(uri_of(proxy, "ne"))


def test_what_a_store_refuses_or_lacks_is_said_with_a_fix(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreProblem, match=r"^there is no bucket 'nobody'; correct the URI, or its endpoint$"):
        listed(uri_of(proxy, "x").replace("bucket", "nobody"), lambda name: True)
    proxy.refuses = True
    try:
        with pytest.raises(
            StoreProblem, match=r"refuses this account \(status code: 403, AccessDenied\); check the cre"
        ):
            everything(proxy, "x")
    finally:
        proxy.refuses = False
    monkeypatch.setattr(bucket, "RETRY_SECONDS", 0.5)
    begun = time.monotonic()
    with pytest.raises(StoreProblem, match=r"can't be reached \(.*\); check endpoint and network$"):
        listed("s3://bucket/x?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1", lambda name: True)
    assert time.monotonic() - begun < 10  # it never answered, so nobody waits for it
    with pytest.raises(StoreProblem, match=r"can be none|isn't read|aren't read|check the URI"):
        listed("ftp://bucket/x", lambda name: True)


@pytest.mark.parametrize("name", ["../out", "a/../../out", "a\\b", "x" * 300])
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(StoreProblem, match=r"must be one that a file can have, got .*; rename the object"):
        copies._check_name(name)


@needs_mounts
def test_a_full_disk_is_said_with_a_fix(proxy: Proxy, cache: Path) -> None:
    put(proxy, full__a=b"x" * 100_000)
    cache.mkdir()
    for reserve, said in ((10**9, "GB stays free, where 0.0 GB are free"), (-(10**9), "where the disk is full")):
        program = f"import tuner.storage.copies as c; c.RESERVE_BYTES = {reserve}\n{FETCH}"
        command = [sys.executable, "-c", program, uri_of(proxy, "full")]
        ended = run_on_tmpfs("40k", cache, *command, env=environment())
        last = ended.stderr.strip().splitlines()[-1]
        assert said in last, ended.stderr
        assert last.endswith("; make room, or set TUNER_CACHE to a folder that has it")
