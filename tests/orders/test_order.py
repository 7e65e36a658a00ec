"""What a file of the inbox may be: an order, or refused with rule, value and fix."""

import json
import math
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import StudyError
from tuner.orders.order import BY_HAND, LARGEST_BYTES, VERBS, checked, parsed, sender
from tuner.study.budget import NAMES


def refusal(content: bytes) -> str:
    with pytest.raises(StudyError) as caught:
        parsed("mine.json", content, 5.0)
    return str(caught.value)


def test_a_file_by_hand_needs_a_verb_and_arguments_alone() -> None:
    order = parsed("mine.json", b'{"verb": "set", "arguments": {"trials": 50, "hours": null}}', 5.0)
    assert (order.id, order.verb, order.arguments, order.by, order.time) == (
        "mine@5.000",
        "set",
        {"trials": 50},
        BY_HAND,
        5.0,
    )
    assert parsed("a.json", b'\xef\xbb\xbf{"verb": "pause"}', 5.0).verb == "pause"  # as some editors begin a file


def test_one_configuration_can_be_confirmed_with_one_more_seed() -> None:
    assert checked("confirm", {"top": 1, "seeds": 1}) == ("confirm", {"top": 1, "seeds": 1})
    for name in ("top", "seeds"):
        with pytest.raises(StudyError, match=f"{name} needs a whole number from 1 to"):
            checked("confirm", {name: 0})


def test_a_file_that_is_written_again_under_its_name_is_another_order() -> None:
    content = b'{"verb": "pause"}'
    assert parsed("a.json", content, 5.0).id != parsed("a.json", content, 6.0).id


def test_an_order_that_says_its_own_id_keeps_it() -> None:
    assert parsed("a.json", b'{"verb": "pause", "id": "a"}', 5.0).id == "a"
    assert parsed("copy.json", b'{"verb": "pause", "id": "a"}', 5.0).id == "copy@5.000"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an order needs to be JSON, got another file"),
        (b"trials = 50", "an order needs to be JSON, got another file"),
        (b"\xff\xfe", "an order needs to be JSON, got another file"),
        (b'{"verb": "set", "arguments": {"hours": NaN}}', "NaN is no JSON"),
        (b"[" * 20_000, "an order needs to be JSON, got another file"),
        (b"[]", "an order needs to be a JSON object, got []"),
        (b"{" + b" " * LARGEST_BYTES + b"}", "an order takes at most 65,536 bytes, got more; shorten it"),
        (b"{}", "an order needs one of the known verbs, got None; it has stop, pause, set, try, retry, confirm, note"),
        (b'{"verb": "stopp"}', "an order needs one of the known verbs, got 'stopp'; did you mean 'stop'?"),
        (b'{"verb": ["stop"]}', "an order needs one of the known verbs, got ['stop']"),
        (b'{"verb": "stop", "trial": "7"}', "an order has no 'trial'; it has id, verb, arguments, by, time"),
        (b'{"verb": "stop", "arguments": 7}', "an order needs an object as its arguments, got 7"),
        (b'{"verb": "stop", "arguments": {"trail": "7"}}', "'stop' has no 'trail'; did you mean 'trial'?"),
        (b'{"verb": "stop", "arguments": {"trial": 1.5}}', "stop trial needs a trial's id, got 1.5"),
        (b'{"verb": "pause", "arguments": {"a": 1}}', "'pause' has no 'a'; it has nothing"),
        (b'{"verb": "set"}', "'set' needs one of trials, hours"),
        (b'{"verb": "set", "arguments": {"trials": 2.5}}', "set trials needs a whole number of at least 1, got 2.5"),
        (b'{"verb": "set", "arguments": {"trials": "50"}}', "set trials needs a whole number of at least 1, got '50'"),
        (b'{"verb": "set", "arguments": {"hours": 1e999}}', "set hours needs a number above 0, got inf"),
        (
            b'{"verb": "set", "arguments": {"trials": 1' + b"0" * 30 + b"}}",
            "needs a number below 9,007,199,254,740,992",
        ),
        (b'{"verb": "set", "arguments": {"concurrency": 0}}', "set concurrency needs a whole number of at least 1"),
        (b'{"verb": "try"}', "'try' needs config, got {}; add it to its arguments"),
        (b'{"verb": "try", "arguments": {"config": {}}}', "try config needs values of hyperparameters, got {}"),
        (b'{"verb": "note", "arguments": {"text": " "}}', "note text needs words, got ' '"),
        (b'{"verb": "stop", "by": 7}', "an order needs a text as its by, got 7; leave it out"),
        (b'{"verb": "stop", "time": "now"}', "an order needs seconds since 1970 as its time, got 'now'; leave it out"),
    ],
)
def test_what_is_no_order_is_refused_by_name(content: bytes, message: str) -> None:
    assert message in refusal(content)


@pytest.mark.parametrize(("given_id", "trial"), [(7, "00007"), ("7", "00007"), ("00007", "00007"), ("a1", "a1")])
def test_a_trial_is_named_with_or_without_its_zeros(given_id: object, trial: str) -> None:
    assert checked("stop", {"trial": given_id}) == ("stop", {"trial": trial})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.sampled_from([*NAMES, "concurrency", "trial", "text", "config", "x"]), JSON, max_size=3)
TOLD = st.dictionaries(st.sampled_from(["verb", "arguments", "by", "time", "id", "more"]), JSON, max_size=5)


@given(told=TOLD | st.fixed_dictionaries({"verb": st.sampled_from(sorted(VERBS)), "arguments": ARGUMENTS}))
@settings(max_examples=100, deadline=None)
def test_any_json_is_an_order_or_refused_in_a_sentence(told: dict[str, Any]) -> None:
    try:
        order = parsed("a.json", json.dumps(told).encode(), 1.0)
    except StudyError:
        return
    assert order.verb in VERBS
    assert math.isfinite(order.time)


@given(content=st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_an_order_or_refused_in_a_sentence(content: bytes) -> None:
    assert refusal(content)


def test_users_without_a_name_are_told_apart_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)  # which /etc/passwd doesn't have
    assert sender().startswith("uid 4000000@")


def test_a_sender_is_a_user_at_a_host() -> None:
    user, at, host = sender().partition("@")
    assert user
    assert at == "@"
    assert host
