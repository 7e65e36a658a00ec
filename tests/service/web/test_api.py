"""The API as a client sees it: what comes back, and what is said where something is wrong."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.submissions import STUDY
from tests.service.web.serving import PASSWORD, Served, a_run, serving
from tuner import Run
from tuner.history.events import read_all
from tuner.service.database import studies
from tuner.service.model import State


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("storage")) as found:
        yield found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return a_run(tmp_path_factory.mktemp("runs"))


def body(**changes: Any) -> dict[str, Any]:
    return {"main": "parabola.py", "files": {"parabola.py": base64.b64encode(STUDY.encode()).decode()}, **changes}


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """What a refusal says."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["type"].startswith("urn:tuner:problem:")
    assert "Traceback" not in answer.text
    return found


def test_a_study_is_submitted_looked_at_changed_and_cancelled(served: Served) -> None:
    client = served.client("anne")
    answer = client.post("/api/v1/studies", json=body(priority=-2, options={"trials": 3}))
    assert answer.status_code == 201
    study = answer.json()
    assert answer.headers["location"] == f"/api/v1/studies/{study['id']}"
    assert (study["user"], study["state"], study["priority"], study["options"]) == (
        "anne",
        "checking",
        -2,
        {"trials": 3},
    )
    path = f"/api/v1/studies/{study['id']}"
    assert client.get(path).json() == study
    assert client.patch(path, json={"priority": -3}).json()["priority"] == -3
    assert client.patch(path, json={"limits": {"trials": 5, "hours": 0.5}}).json()["limits"] == {
        "trials": 5,
        "hours": 0.5,
    }
    assert client.post(f"{path}:cancel").json()["state"] == "cancelled"
    actions = [(one["user"], one["action"]) for one in client.get(f"{path}/history").json()["items"]]
    assert actions == [("anne", "cancel"), ("anne", "set"), ("anne", "priority"), ("anne", "submit")]
    assert client.delete(path).status_code == 204
    assert problem(client.get(path), 404)["got"] == str(study["id"])


def test_a_submission_that_is_sent_again_is_taken_once(served: Served) -> None:
    client = served.client("anne", headers={"Idempotency-Key": "one of its own"})
    first, again = (client.post("/api/v1/studies", json=body()).json()["id"] for _ in range(2))
    assert first == again
    problem(client.post("/api/v1/studies", json=body(priority=-1)), 409)


def test_lists_come_in_pages(served: Served) -> None:
    made = [served.study("bert") for _ in range(5)]
    seen, cursor = [], None
    while True:
        query = {"limit": 2, "owner": "bert"} | ({"cursor": cursor} if cursor else {})
        page = served.client("guest").get("/api/v1/studies", params=query).json()
        seen += [study["id"] for study in page["items"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == made[::-1]


@pytest.mark.parametrize(
    ("changes", "status", "rule"),
    [
        ({"priority": False}, 422, "priority: a number is not true or false"),
        ({"devices": True}, 422, "devices: a number is not true or false"),
        ({"after": [True]}, 422, "after.0: a number is not true or false"),
        ({"priority": 11}, 422, "a priority is a whole number from -10 to 10"),
        ({"priority": 1}, 403, "a priority above 0 needs the role admin"),
        ({"priorty": 1}, 422, "priorty: extra inputs are not permitted"),
        ({"files": {"parabola.py": "not base64!"}}, 422, "files.parabola.py: a file is written in base64"),
        ({"main": "other.py"}, 422, "a submission needs its study file, a .py file at the top of its files"),
        ({"files": {"../x.py": ""}}, 422, "the files of a submission lie in the study file's folder or below it"),
        ({"files": {"parabola.py": "****"}}, 422, "files.parabola.py: a file is written in base64"),
        ({"files": {"parabola.py": "eA="}}, 422, "files.parabola.py: a file is written in base64"),
        ({"options": {"trails": 1}}, 422, "an option needs to be one of `tuner run`'s"),
        ({"after": [999999]}, 404, "a study is named by its number"),
        ({"files": {"parabola.py": base64.b64encode(bytes(1_000_001)).decode()}}, 413, "a submission takes at most"),
        ({"files": {f"m{number}.py": "" for number in range(201)}}, 413, "a submission takes at most 200 files"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_submission_is_refused_with_its_rule(
    served: Served, changes: dict[str, Any], status: int, rule: str
) -> None:
    found = problem(served.client("anne").post("/api/v1/studies", json=body(**changes)), status)
    assert found["rule"].startswith(rule)
    assert found["detail"].startswith(found["rule"])


@pytest.mark.parametrize("name", ["weight", "most_devices", "most_hours", "days"])
@pytest.mark.parametrize("value", [True, False])
def test_a_number_of_users_and_tokens_is_not_true_or_false(served: Served, name: str, value: bool) -> None:
    chief = served.client("chief")
    send = chief.post("/api/v1/tokens", json={name: value}) if name == "days" else None
    found = problem(send or chief.patch("/api/v1/users/bert", json={name: value}), 422)
    assert found["rule"].endswith("a number is not true or false")


@pytest.mark.parametrize("content", [b"{", b"[" * 100_000, b"\xff\xfe", b"nul", b"", b'{"main": NaN}', b"[]", b"3"])
def test_what_is_no_body_is_refused(served: Served, content: bytes) -> None:
    for path in ("studies", "tokens"):
        answer = served.client("anne").post(
            f"/api/v1/{path}", content=content, headers={"content-type": "application/json"}
        )
        found = problem(answer, 422)
        assert found["field"]


def test_bodies_are_limited_while_they_are_read(served: Served) -> None:
    client = served.client("anne", timeout=60)
    problem(client.post("/api/v1/tokens", content=b" " * 1_000_001), 413)
    unknown_length = (b" " * 100_000 for _ in range(300))  # 30 MB in chunks
    problem(client.post("/api/v1/studies", content=unknown_length), 413)
    problem(client.post("/api/v1/tokens", content=(b" " * 100_000 for _ in range(11))), 413)
    as_json = {"content-type": "application/json"}
    within = client.post("/api/v1/tokens", content=b'{"name": ""}' + b" " * 900_000, headers=as_json)
    assert within.status_code == 201


def test_what_is_nowhere_is_a_problem_too(served: Served) -> None:
    client = served.client("anne")
    problem(client.get("/api/v1/nothing"), 404)
    problem(client.put("/api/v1/studies"), 405)
    problem(client.get("/api/v1/studies/x"), 422)
    problem(client.get(f"/api/v1/studies/{2**63}"), 422)
    problem(client.get("/api/v1/studies?limit=201"), 422)
    problem(client.get("/api/v1/studies?cursor=x"), 422)


@pytest.mark.parametrize("path", ["studies", "tokens", "webhooks"])
def test_all_lists_take_the_same_cursors(served: Served, path: str) -> None:
    client = served.client("anne")
    assert client.get(f"/api/v1/{path}?cursor={2**53}").json()["cursor"] is None
    problem(client.get(f"/api/v1/{path}?cursor={2**53 + 1}"), 422)


@pytest.mark.parametrize("address", ["/nothing", "/studies/x", "/assets/x/y"])
def test_who_opens_an_address_of_no_page_is_led_to_the_first_one(served: Served, address: str) -> None:
    answer = served.client("anne").get(address, headers={"accept": "text/html,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert '<a href="/">' in answer.text
    problem(served.client("anne").get("/api/v1/studies?limit=201", headers={"accept": "text/html"}), 422)


def test_a_runs_trials_figures_report_and_log(served: Served, run: Run) -> None:
    client = served.client("guest", timeout=60)
    path = f"/api/v1/studies/{served.study(state=State.RUNNING, run=run)}"
    trials = client.get(f"{path}/trials", params={"limit": 200}).json()["items"]
    assert [trial["trial"] for trial in trials] == list(run.record.trials)
    assert min(trial["best"] for trial in trials if trial["status"] == "completed") == run.record.winning_value
    one = client.get(f"{path}/trials/3").json()
    assert one.pop("told")["said"].startswith("failed: diverged, 2 of ")
    assert one == json.loads(json.dumps(run.trial_summary("3")))
    problem(client.get(f"{path}/trials/999"), 404)
    problem(client.get(f"{path}/figures/curvs"), 404)
    assert client.get(f"{path}/logs").headers["log-end"] == "0"
    problem(client.get(f"/api/v1/studies/{served.study()}/trials"), 404)


@pytest.mark.slow
def test_every_figure_and_the_report_of_a_run(served: Served, run: Run) -> None:
    client = served.client("guest", timeout=300)
    path = f"/api/v1/studies/{served.study(state=State.RUNNING, run=run)}"
    for kind in run.plot.names():
        assert set(client.get(f"{path}/figures/{kind}").json()) >= {"data", "layout"}
    report = client.get(f"{path}/report")
    assert "simulated" in report.text
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts; ")


def test_the_trials_of_a_run_that_goes_on_are_those_of_now(served: Served, tmp_path: Path) -> None:
    found = a_run(tmp_path)
    events = found.folder.path / "events/000001.jsonl"  # type: ignore[attr-defined]
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join(lines[: len(lines) // 2]))
    path = f"/api/v1/studies/{served.study(state=State.RUNNING, run=found)}/trials"
    before = len(served.client("guest").get(path).json()["items"])
    with events.open("ab") as file:
        file.writelines(lines[len(lines) // 2 :])
    assert len(served.client("guest").get(path, params={"limit": 200}).json()["items"]) == 24 > before > 0
    assert read_all(found.folder).events


def test_health_and_numbers(served: Served) -> None:
    nobody = served.client()
    assert nobody.get("/healthz").json() == nobody.get("/readyz").json() == {"status": "ok"}
    text = nobody.get("/metrics").text
    assert 'tuner_studies{state="queued"} ' in text
    assert "tuner_streams 0.0" in text


def test_the_description_of_the_api_names_what_the_issue_does(served: Served) -> None:
    described = served.client().get("/api/v1/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    study = "/api/v1/studies/{study}"
    for path, methods in {
        "/api/v1/studies": {"get", "post"},
        "/api/v1/studies:check": {"post"},
        study: {"get", "patch", "delete"},
        **{f"{study}:{verb}": {"post"} for verb in ("pause", "resume", "finish", "cancel")},
        f"{study}/trials": {"get", "post"},
        f"{study}/trials/{{trial}}": {"get"},
        f"{study}/trials/{{trial}}:stop": {"post"},
        **{f"{study}/{name}": {"get"} for name in ("logs", "files/{path}", "archive", "report", "figures/{kind}")},
        f"{study}/events": {"get"},
        **{f"/api/v1/{name}": {"get"} for name in ("events", "queue", "devices", "usage")},
        **{f"/api/v1/{name}": {"get", "post"} for name in ("users", "tokens")},
    }.items():
        assert methods <= described["paths"][path].keys(), path


def test_a_browser_logs_in_and_out(served: Served) -> None:
    chief = served.client("chief")
    link = chief.post("/api/v1/users", json={"name": "dora"}).json()["link"]
    address, _, secret = link.partition("#")
    assert address == f"{served.url}/welcome"
    browser = served.client(headers={"Origin": served.url})
    assert browser.post("/api/v1/welcome", json={"secret": secret, "password": PASSWORD}).json()["name"] == "dora"
    answer = browser.post("/api/v1/login", json={"name": "dora", "password": PASSWORD})
    cookie = answer.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/"))
    assert browser.get("/api/v1/users/me").json()["name"] == "dora"
    assert browser.post("/api/v1/tokens", json={"name": "x"}).status_code == 201
    assert browser.post("/api/v1/logout").status_code == 204
    name = f"tuner_session_{served.port}"
    browser.cookies.set(name, answer.cookies[name])
    problem(browser.get("/api/v1/users/me"), 401)


def test_a_caller_that_asks_too_often_waits(served: Served) -> None:
    before = served.access.requests.rate, served.access.requests.burst
    token = served.client("hand").post("/api/v1/tokens", json={"name": "greedy"}).json()["secret"]
    greedy = served.client(headers={"Authorization": f"Bearer {token}"})
    served.access.requests.rate, served.access.requests.burst = 0.001, 3
    try:
        answers = [greedy.get("/api/v1/queue") for _ in range(4)]
    finally:
        served.access.requests.rate, served.access.requests.burst = before
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert int(answers[3].headers["retry-after"]) >= 1


def test_who_asks_for_trials_of_a_refused_study_is_told_why(served: Served) -> None:
    study = served.study("anne")
    served.state(study, State.REFUSED)
    with served.service.database.changing() as connection:
        studies.update(connection, study, reason="lr needs low > 0")
    told = problem(served.client("anne").get(f"/api/v1/studies/{study}/summary"), 404)
    assert "which is refused; it was refused: lr needs low > 0" in told["detail"]


def test_base64_may_have_lines(served: Served) -> None:
    """As `base64` writes it where nobody asks for one line."""
    text = base64.encodebytes(b"study = None  # " + b"x" * 200).decode()
    assert text.count("\n") > 2
    study = served.client("anne").post("/api/v1/studies", json=body(files={"parabola.py": text})).json()["id"]
    assert (served.service.folder.bundle(study) / "parabola.py").read_bytes().startswith(b"study = None  # xxx")
