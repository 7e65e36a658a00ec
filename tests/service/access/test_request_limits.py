import pytest

from tuner.service.access.request_limits import RequestLimit, StreamLimit
from tuner.service.errors import ServiceError


def test_a_hundred_requests_at_once_and_then_twenty_a_second() -> None:
    now = [0.0]
    limit = RequestLimit(20.0, 100, clock=lambda: now[0])
    for _ in range(100):
        limit.take("a")
    with pytest.raises(ServiceError) as refused:
        limit.take("a")
    assert refused.value.retry_after == 1
    limit.take("b")  # others aren't held up
    now[0] = 1.01
    for _ in range(20):
        limit.take("a")
    with pytest.raises(ServiceError):
        limit.take("a")


def test_a_flood_of_addresses_takes_bounded_memory() -> None:
    limit = RequestLimit(20.0, 100, clock=lambda: 0.0)
    for number in range(20_000):
        limit.take(f"address {number}")
    assert len(limit._left) == 10_000


def test_streams_of_a_user_and_in_all() -> None:
    limit = StreamLimit(most=3, of_a_user=2)
    with limit.one(1), limit.one(1):
        with pytest.raises(ServiceError, match="a user has at most 2 streams"):
            limit.one(1).__enter__()
        with limit.one(2), pytest.raises(ServiceError, match="the server has at most 3 streams"):
            limit.one(3).__enter__()
    assert limit.open == {}
