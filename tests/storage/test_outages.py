"""Object stores that are gone for a while, slow, or refuse: a real server behind a proxy."""

import time
from collections.abc import Iterator

import pytest

from tests.s3_proxy import Proxy, proxied
from tests.s3_server import s3_endpoint
from tuner.storage import outages
from tuner.storage.locations import open_folder


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with s3_endpoint("bucket") as endpoint, proxied(endpoint) as standing_between:
        yield standing_between


def test_a_store_that_is_gone_for_a_while_is_waited_for(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(f"s3://bucket/a run?endpoint_override={proxy.endpoint}&scheme=http")
    folder.write("one", b"1")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        proxy.gone = False

    monkeypatch.setattr(outages, "sleep", wait)
    proxy.gone = True
    folder.write("two", b"2")  # after the six seconds that pyarrow tries by itself
    assert waited == [outages.SHORTEST_WAIT]
    assert [folder.read("one"), folder.read("two")] == [b"1", b"2"]
    assert folder.files() == ["one", "two"]


def test_a_store_that_refuses_is_told_at_once(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(f"s3://bucket/refused?endpoint_override={proxy.endpoint}&scheme=http")
    folder.write("one", b"1")
    monkeypatch.setattr(outages, "sleep", lambda seconds: pytest.fail("waited"))
    proxy.refuses = True
    try:
        with pytest.raises(OSError, match="ACCESS_DENIED") as refused:
            folder.write("two", b"2")
    finally:
        proxy.refuses = False
    assert not outages.is_passing(refused.value)


@pytest.mark.slow
def test_an_address_where_nothing_ever_answered_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder("s3://a:b@bucket/x?endpoint_override=127.0.0.1:9&scheme=http")
    monkeypatch.setattr(outages, "sleep", lambda seconds: pytest.fail("waited"))
    with pytest.raises(OSError, match="NETWORK_CONNECTION") as refused:
        folder.write("one", b"1")
    assert outages.is_passing(refused.value)


@pytest.mark.slow
def test_an_outage_that_lasts_is_told_in_the_end(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(f"s3://bucket/lasting?endpoint_override={proxy.endpoint}&scheme=http")
    folder.write("one", b"1")
    monkeypatch.setattr(outages, "LONGEST_SECONDS", 1.0)
    proxy.gone = True
    begun = time.monotonic()
    try:
        with pytest.raises(OSError, match="AWS Error"):
            folder.read("one")
    finally:
        proxy.gone = False
    assert time.monotonic() - begun < 120
