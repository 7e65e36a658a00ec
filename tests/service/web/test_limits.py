"""Every limit of a service by real requests, at the limit and beyond it."""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docs.blocks import ROOT
from tests.service.submissions import STUDY, furnace
from tests.service.web.serving import PATIENT, Served, serving
from tuner.errors import StudyError
from tuner.service.model import LIMIT_NAMES, Limits, limits_of

STUDIES = "/api/v1/studies"
SIZE = len(STUDY.encode())
TIGHT = Limits(
    study_file_bytes=SIZE,
    bundle_bytes=SIZE + 9,
    bundle_files=3,
    body_bytes=2_000,
    queued_per_user=4,
    queued=6,
    streams=3,
    streams_per_user=2,
    requests_per_second=0.01,
    burst=5,
    failed_logins=2,
    page=2,
)


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with the limits that every server has."""
    with serving(tmp_path_factory.mktemp("storage")) as found:
        yield found


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, limits=TIGHT) as found:
        found.access.requests.burst, found.access.requests.rate = 10**6, 1e6  # but where they are what is tested
        yield found


def body(text: str = STUDY, **files: bytes) -> dict[str, Any]:
    sent = {"parabola.py": text.encode(), **{f"{name}.py": content for name, content in files.items()}}
    return {"main": "parabola.py", "files": {name: base64.b64encode(each).decode() for name, each in sent.items()}}


def refused(answer: httpx.Response, status: int, rule: str, retry: str | None = None) -> None:
    found = answer.json()
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert rule in found["detail"]


def padded(text: str, size: int) -> str:
    return text + "#" * (size - len(text.encode()))


def test_a_study_file_of_a_million_bytes_and_one_more(patient: Served) -> None:
    anne = patient.client("anne", timeout=60)
    assert anne.post(STUDIES, json=body(padded(STUDY, 1_000_000))).status_code == 201
    refused(anne.post(STUDIES, json=body(padded(STUDY, 1_000_001))), 413, "at most 1,000,000 bytes in its study file")


def test_a_submission_of_twenty_million_bytes_and_one_more(patient: Served) -> None:
    anne = patient.client("anne", timeout=120)
    assert anne.post(STUDIES, json=body(a=bytes(20_000_000 - SIZE))).status_code == 201
    refused(anne.post(STUDIES, json=body(a=bytes(20_000_001 - SIZE))), 413, "at most 20,000,000 bytes in all")


def test_two_hundred_files_and_one_more(patient: Served) -> None:
    anne = patient.client("anne", timeout=60)
    most = {f"m{number}": b"" for number in range(199)}
    assert anne.post(STUDIES, json=body(**most)).status_code == 201
    refused(anne.post(STUDIES, json=body(**most, more=b"")), 413, "at most 200 files")


@pytest.mark.parametrize(("path", "most"), [("tokens", 1_000_000), ("studies", 27_666_668)])
def test_a_body_at_its_limit_and_a_byte_beyond(patient: Served, path: str, most: int) -> None:
    anne = patient.client("anne", timeout=120, headers={"content-type": "application/json"})
    start = json.dumps(body() if path == "studies" else {"name": ""}).encode()
    assert anne.post(f"/api/v1/{path}", content=start.ljust(most)).status_code == 201
    refused(
        anne.post(f"/api/v1/{path}", content=start.ljust(most + 1)), 413, f"a request's body has at most {most:,} bytes"
    )


def test_limits_of_submissions_are_those_of_the_server(tight: Served) -> None:
    anne = tight.client("anne")
    assert anne.post(STUDIES, json=body(a=b"12345", b=b"1234")).status_code == 201
    refused(anne.post(STUDIES, json=body(STUDY + "#")), 413, f"at most {SIZE} bytes in its study file")
    refused(anne.post(STUDIES, json=body(a=b"1234567890")), 413, f"at most {SIZE + 9} bytes in all")
    refused(anne.post(STUDIES, json=body(a=b"", b=b"", c=b"")), 413, "at most 3 files")
    as_json = {"content-type": "application/json"}
    most = b'{"name": "x"}'.ljust(2_000)
    assert anne.post("/api/v1/tokens", content=most, headers=as_json).status_code == 201
    refused(anne.post("/api/v1/tokens", content=most + b" ", headers=as_json), 413, "at most 2,000 bytes")
    large = {
        "study": furnace(name="x" * 150, space={f"x{n}": {"type": "uniform", "low": 0, "high": 1} for n in range(60)})
    }
    refused(anne.post(STUDIES, json=large), 413, "bytes")
    assert len(tight.service.studies()) == 1


def test_the_queue_takes_so_many_of_a_user_and_of_all(tight: Served) -> None:
    anne, bert = tight.client("anne"), tight.client("bert")
    assert [anne.post(STUDIES, json=body()).status_code for _ in range(4)] == [201] * 4
    refused(anne.post(STUDIES, json=body()), 429, "the queue holds at most 4 studies of 'anne'", "60")
    assert [bert.post(STUDIES, json=body()).status_code for _ in range(2)] == [201] * 2
    refused(bert.post(STUDIES, json=body()), 429, "the queue holds at most 6 studies of all users", "60")
    assert anne.post(f"{STUDIES}/1:cancel").status_code == 200
    assert anne.post(STUDIES, json=body()).status_code == 201


def test_streams_of_a_user_and_of_all(tight: Served) -> None:
    with ExitStack() as stack:

        def watch(user: str) -> httpx.Response:
            client = stack.enter_context(tight.client(user, timeout=60))
            return stack.enter_context(client.stream("GET", "/api/v1/events"))

        assert [watch("anne").status_code for _ in range(2)] == [200, 200]
        third = watch("anne")
        third.read()
        refused(third, 429, "a user has at most 2 streams", "10")
        assert watch("bert").status_code == 200
        full = watch("chief")
        full.read()
        refused(full, 429, "the server has at most 3 streams", "10")


def test_a_hundred_requests_at_once_and_one_more(tmp_path: Path) -> None:
    with serving(tmp_path, limits=Limits(requests_per_second=0.01)) as served, served.client("guest") as guest:
        assert {guest.get("/api/v1/users/me").status_code for _ in range(100)} == {200}
        answer = guest.get("/api/v1/users/me")
        refused(answer, 429, "and 100 at once", answer.headers["retry-after"])
        assert 1 <= int(answer.headers["retry-after"]) <= 100
        assert served.client("anne").get("/api/v1/users/me").status_code == 200


def test_so_many_failed_logins_a_minute(tight: Served) -> None:
    client = tight.client(headers={"Origin": tight.url})
    wrong = {"name": "anne", "password": "not the right one"}
    assert [client.post("/api/v1/login", json=wrong).status_code for _ in range(2)] == [401, 401]
    answer = client.post("/api/v1/login", json=wrong)
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    refused(answer, 429, "2 logins may fail in 60 seconds", answer.headers["retry-after"])


def test_a_page_has_so_many_entries(tight: Served, patient: Served) -> None:
    for _ in range(3):
        tight.study("anne")
    chief = tight.client("chief")
    for path in ("studies", "users"):
        page = chief.get(f"/api/v1/{path}", params={"limit": 200}).json()
        assert len(page["items"]) == 2
        rest = chief.get(f"/api/v1/{path}", params={"limit": 200, "cursor": page["cursor"]}).json()
        assert len(rest["items"]) >= 1
    assert len(chief.get("/api/v1/overview").json()["alive"]) == 2
    for most, status in ((200, 200), (201, 422)):
        assert patient.client("guest").get(STUDIES, params={"limit": most}).status_code == status


def test_the_documents_have_every_limit_and_its_default() -> None:
    text = (ROOT / "docs/how-to/service.md").read_text()
    for name in LIMIT_NAMES:
        default = getattr(Limits, name)
        assert f"| `{name}` | {default:,.0f} |" in text


def test_limits_are_told_by_their_names() -> None:
    assert limits_of([]) == Limits()
    found = limits_of(["page=50", "check_seconds=1.5", "bundle_bytes=1_000", "external_at_once=0"])
    assert found == Limits(page=50, check_seconds=1.5, bundle_bytes=1_000, external_at_once=0)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("pages=3", "--limit needs the name of a limit, got 'pages'; did you mean 'page'?"),
        ("page", "--limit page needs a whole number from 1 to 200, got ''; its default is 200"),
        ("page=201", "--limit page needs a whole number from 1 to 200, got '201'; its default is 200"),
        ("burst=0", "--limit burst needs a whole number from 1, got '0'; its default is 100"),
        ("burst=1.5", "--limit burst needs a whole number from 1, got '1.5'; its default is 100"),
        ("check_seconds=nan", "--limit check_seconds needs a number from 1, got 'nan'; its default is 60.0"),
        ("check_seconds=inf", "--limit check_seconds needs a number from 1, got 'inf'; its default is 60.0"),
    ],
)
def test_a_limit_that_is_none_is_refused(told: str, message: str) -> None:
    with pytest.raises(StudyError) as refusal:
        limits_of([told])
    assert str(refusal.value) == message


def test_the_patient_server_has_all_other_defaults() -> None:
    changed = {name for name in LIMIT_NAMES if getattr(PATIENT, name) != getattr(Limits, name)}
    assert changed == {"requests_per_second", "burst", "checks_per_user"}
