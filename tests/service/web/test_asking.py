"""Workers of external studies by HTTP: what they get, what is refused, and who may."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.service.submissions import furnace
from tests.service.web.serving import Served, serving
from tuner.service.model import State

API = "/api/v1"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("a storage")) as found:
        yield found


@pytest.fixture(scope="module")
def study(served: Served) -> int:
    return served.external(budget={"trials": 1000, "max_epochs": 3})


@pytest.fixture(scope="module")
def owned(served: Served) -> dict[str, int]:
    """A study of each of two owners."""
    return {owner: served.external(owner, budget={"trials": 100, "max_epochs": 3}) for owner in ("anne", "bert")}


def post(served: Served, path: str, user: str | None = "hand", **body: Any) -> httpx.Response:
    with served.client(user, timeout=60) as client:
        return client.post(f"{API}/studies/{path}", json=body)


def asked(served: Served, study: int, worker: str, user: str = "hand") -> dict[str, Any]:
    answer = post(served, f"{study}:ask", user, worker=worker)
    assert (answer.status_code, answer.json()["outcome"]) == (200, "trial"), answer.text
    return dict(answer.json()["trial"])


def test_a_trial_by_http(served: Served, study: int) -> None:
    trial = asked(served, study, "w1")
    names = {"id", "number", "config", "seed", "epochs", "from_epoch", "checkpoint", "rungs", "attempt"}
    assert trial.keys() == names
    assert 0 <= trial["config"]["x"] <= 1
    assert asked(served, study, "w1") == trial
    path = f"{study}/trials/{trial['number']}"
    for epoch, answer in ((1, "continue"), (1, "continue"), (2, "continue"), (3, "stop"), (3, "stop")):
        told = post(served, f"{path}:report", worker="w1", epoch=epoch, metrics={"loss": 1 / epoch})
        assert (told.status_code, told.json()) == (200, {"answer": answer})
    with served.client("guest") as guest:
        shown = guest.get(f"{API}/studies/{study}/trials/{trial['id']}").json()
    assert (shown["status"], [each["loss"] for each in shown["epochs"]]) == ("completed", [1.0, 0.5, 1 / 3])
    assert shown["worker"] == "hand/w1"


def test_a_trial_fails_completes_and_is_kept(served: Served, study: int) -> None:
    first, second = asked(served, study, "w2"), asked(served, study, "w3")
    assert post(served, f"{study}/trials/{first['id']}:heartbeat", worker="w2").json() == {"answer": "continue"}
    assert post(served, f"{study}/trials/{first['id']}:fail", worker="w2", error="no gas").json() == {"answer": "stop"}
    assert post(served, f"{study}/trials/{second['id']}:complete", worker="w3", metrics=0.5).status_code == 200
    assert post(served, f"{study}/trials/{second['id']}:heartbeat", worker="w3").json() == {"answer": "stop"}


def test_users_have_workers_of_their_own(served: Served, study: int) -> None:
    assert asked(served, study, "same")["id"] != asked(served, study, "same", "anne")["id"]


@pytest.mark.parametrize(
    ("verb", "body", "status", "field"),
    [
        ("ask", {}, 422, "worker"),
        ("ask", {"worker": "a b"}, 422, "worker"),
        ("ask", {"worker": "w4", "more": 1}, 422, "more"),
        ("report", {"worker": "w4", "epoch": 0, "metrics": 1.0}, 422, "epoch"),
        ("report", {"worker": "w4", "epoch": 1}, 422, "metrics"),
        ("report", {"worker": "w4", "epoch": 1, "metrics": {"gain": 1.0}}, 422, "metrics"),
        ("report", {"worker": "w4", "epoch": 1, "metrics": {"loss": {"a": 1}}}, 422, "metrics"),
        ("report", {"worker": "w4", "epoch": 1, "metrics": {"loss": 1.0, "text": "x" * 100_000}}, 413, "metrics"),
        ("report", {"worker": "w4", "epoch": 3, "metrics": 1.0}, 409, None),
        ("complete", {"worker": "w4"}, 409, None),
        ("fail", {"worker": "w4", "error": "x", "cause": "luck"}, 422, "cause"),
        ("fail", {"worker": "w4", "error": ""}, 422, "error"),
    ],
)
def test_what_cant_be_is_refused_with_its_field(
    served: Served, study: int, verb: str, body: dict[str, Any], status: int, field: str | None
) -> None:
    trial = asked(served, study, "w4")
    path = f"{study}:ask" if verb == "ask" else f"{study}/trials/{trial['id']}:{verb}"
    refused = post(served, path, **body)
    assert (refused.status_code, refused.json().get("field")) == (status, field), refused.text
    assert "Traceback" not in refused.text
    assert asked(served, study, "w4") == trial  # nothing was recorded


@pytest.mark.parametrize("verb", ["report", "heartbeat", "complete", "fail"])
def test_a_trial_or_study_that_there_isnt(served: Served, study: int, verb: str) -> None:
    body = {"report": {"epoch": 1, "metrics": 1.0}, "fail": {"error": "x"}}.get(verb, {})
    for path in (f"{study}/trials/99999:{verb}", f"{10**9}/trials/0:{verb}"):
        assert post(served, path, worker="w1", **body).status_code == 404
    assert post(served, f"{10**9}:ask", worker="w1").status_code == 404


@pytest.mark.parametrize(
    ("state", "status", "again"),
    [
        (None, 409, "2"),
        (State.QUEUED, 409, "10"),
        (State.PAUSED, 409, "10"),
        (State.CANCELLED, 200, None),
    ],
)
def test_the_state_says_whether_there_are_trials(
    served: Served, state: State | None, status: int, again: str | None
) -> None:
    with served.client("anne") as anne:
        study = anne.post(f"{API}/studies", json={"study": furnace()}).json()["id"]
        if state in (State.QUEUED, State.PAUSED):
            served.state(study, State.QUEUED)
        if state in (State.PAUSED, State.CANCELLED):
            anne.post(f"{API}/studies/{study}:{'pause' if state is State.PAUSED else 'cancel'}")
    answer = post(served, f"{study}:ask", worker="w1")
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, again)
    assert answer.json().get("outcome", "none") == ("over" if status == 200 else "none")
    told = post(served, f"{study}/trials/0:heartbeat", worker="w1")
    assert (told.status_code, told.json().get("answer")) == ((200, "stop") if status == 200 else (409, None))


def test_a_study_that_the_service_runs_has_no_workers(served: Served) -> None:
    answer = post(served, f"{served.study(state=State.RUNNING)}:ask", worker="w1")
    assert answer.status_code == 409
    assert answer.json()["detail"].startswith("workers ask a study that was submitted as JSON, got study ")


def test_with_nothing_now_it_says_when_to_ask_again_and_at_the_end_that_it_is_over(served: Served) -> None:
    study = served.external(name="short", budget={"trials": 1, "max_epochs": 1})
    trial = asked(served, study, "w1")
    waits = post(served, f"{study}:ask", worker="w2")
    assert (waits.status_code, waits.headers["retry-after"]) == (200, "2")
    assert waits.json() == {"outcome": "wait", "trial": None, "lease_seconds": None, "retry_after": 2.0}
    assert post(served, f"{study}/trials/{trial['id']}:report", worker="w1", epoch=1, metrics=1.0).json() == {
        "answer": "stop"
    }
    over = post(served, f"{study}:ask", worker="w2")
    assert (over.status_code, over.json()["outcome"]) == (200, "over")


VERBS: dict[str, dict[str, Any]] = {
    "ask": {},
    "report": {"epoch": 1, "metrics": 1.0},
    "heartbeat": {},
    "complete": {"metrics": 1.0},
    "fail": {"error": "x"},
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("owner", ["anne", "bert"])
def test_workers_and_above_work_for_everybodys_studies(
    served: Served, owned: dict[str, int], verb: str, owner: str
) -> None:
    study = owned[owner]
    for caller in ("hand", "anne", "bert", "chief"):
        trial = asked(served, study, "w1", caller)
        path = f"{study}:ask" if verb == "ask" else f"{study}/trials/{trial['id']}:{verb}"
        for refused in (None, "guest"):
            answer = post(served, path, refused, worker="w1", **VERBS[verb])
            assert answer.status_code == (401 if refused is None else 403)
        assert asked(served, study, "w1", caller) == trial
        assert post(served, path, caller, worker="w1", **VERBS[verb]).status_code == 200
    with served.client("hand") as hand:  # and a worker does nothing beyond
        for forbidden in (
            hand.post(f"{API}/studies", json={"study": furnace()}),
            hand.post(f"{API}/studies/{study}:cancel"),
            hand.patch(f"{API}/studies/{study}", json={"priority": -1}),
            hand.post(f"{API}/studies/{study}/trials", json={"config": {}}),
        ):
            assert forbidden.status_code == 403


def test_a_token_of_the_role_viewer_asks_for_nothing(served: Served, study: int) -> None:
    from tuner.service.model import Role

    secret = served.access.create_token(served.users["chief"], "low", Role.VIEWER)[1]
    with served.client(headers={"Authorization": f"Bearer {secret}"}) as client:
        assert client.post(f"{API}/studies/{study}:ask", json={"worker": "w1"}).status_code == 403


def test_who_works_is_audited_once(served: Served, study: int) -> None:
    asked(served, study, "audited")
    asked(served, study, "audited")
    notes = [
        (entry.user, entry.detail)
        for entry in served.service.history(study, limit=200)
        if entry.action == "work" and "audited" in str(entry.detail)
    ]
    assert notes == [("hand", {"worker": "audited"})]


def test_a_burst_of_one_token_is_told_to_wait(served: Served, study: int) -> None:
    rate, burst = served.access.requests.rate, served.access.requests.burst
    served.access.requests.rate, served.access.requests.burst = 0.001, 2
    try:
        secret = served.access.create_token(served.users["hand"], "burst")[1]
        with served.client(headers={"Authorization": f"Bearer {secret}"}) as client:
            answers = [client.post(f"{API}/studies/{study}:ask", json={"worker": "burst"}) for _ in range(3)]
    finally:
        served.access.requests.rate, served.access.requests.burst = rate, burst
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_a_process_that_is_gone_is_said_to_answer_later(served: Served) -> None:
    from tuner.service.executors import LocalProcesses

    study = served.external(name="gone")
    asked(served, study, "w1")
    LocalProcesses().kill(served.service.folder.attempt(study, 1))
    answer = post(served, f"{study}:ask", worker="w1")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["detail"].startswith("the search of a study answers within a moment, got ")


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"study": {"name": "x"}}, "study.space", "field required"),
        ({"study": furnace(mode="least")}, "study.mode", "'min' or 'max'"),
        ({"study": furnace(metrc="loss")}, "study.metrc", "extra inputs"),
        (furnace(), "study", "field required"),
        (
            {"study": furnace(), "devices": 2},
            None,
            "holds no devices, as its trials run elsewhere, got 2; leave it out",
        ),
        ({"study": furnace(), "priority": 3}, None, "a priority above 0 needs the role admin"),
        ({"study": furnace(), "options": {"wandb": "off"}}, None, "an option needs to be one of"),
    ],
)
def test_a_bad_submission_is_refused_at_once(
    served: Served, body: dict[str, Any], field: str | None, words: str
) -> None:
    with served.client("anne") as anne:
        refused = anne.post(f"{API}/studies", json=body)
    assert refused.status_code == (403 if "priority" in words else 422)
    assert refused.json().get("field") == field
    assert words in refused.json()["detail"]


def test_a_study_in_json_is_checked_without_executing_anything(served: Served) -> None:
    with served.client("anne", timeout=120) as anne:
        found = anne.post(f"{API}/studies:check", json={"study": furnace()}).json()["facts"]
        assert (found["name"], found["trial"], found["kind"], found["demand"]["count"]) == (
            *("furnace", "the external trial 'furnace'", "external", 1),
        )
        space = {"x": {"type": "sample_from", "function": "__import__('os')"}}
        refused = anne.post(f"{API}/studies:check", json={"study": furnace(space=space)})
        unknown = anne.post(f"{API}/studies:check", json={"study": furnace(space={"x": {"type": "unifrm"}})})
    assert refused.status_code == unknown.status_code == 422
    assert "functions have no form in JSON" in refused.json()["detail"]
    assert "did you mean 'uniform'?" in unknown.json()["detail"]
