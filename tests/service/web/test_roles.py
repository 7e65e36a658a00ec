"""Every operation of the API by every role, on your own study and on another's."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.web.serving import Served, serving
from tuner.service.model import Role

# who may: anybody; a viewer and above; a worker and above, for everybody's studies; a submitter for their own studies and an admin for all; an admin
OPEN, LOOK, WORK, SUBMIT, OWN, ADMIN = "open", "look", "work", "submit", "own", "admin"
STUDY = "/api/v1/studies/{study}"
TABLE: dict[tuple[str, str], str] = {
    ("post", "/api/v1/login"): OPEN,
    ("post", "/api/v1/welcome"): OPEN,
    ("post", "/api/v1/logout"): LOOK,
    ("put", "/api/v1/users/me/password"): LOOK,
    ("post", "/api/v1/studies"): SUBMIT,
    ("post", "/api/v1/studies:check"): SUBMIT,
    ("get", "/api/v1/studies"): LOOK,
    ("get", STUDY): LOOK,
    ("patch", STUDY): OWN,
    ("delete", STUDY): OWN,
    **{("post", f"{STUDY}:{verb}"): OWN for verb in ("pause", "resume", "finish", "cancel")},
    **{("get", f"{STUDY}/{name}"): LOOK for name in ("progress", "history", "trials", "trials/{trial}", "logs")},
    **{
        ("get", f"{STUDY}/{name}"): LOOK
        for name in ("files/{path}", "archive", "report", "figures/{kind}", "figures/{kind}/table", "events")
    },
    **{("get", f"{STUDY}/{name}"): LOOK for name in ("row", "summary", "table", "curves", "advice", "file")},
    ("post", f"{STUDY}:refine"): SUBMIT,
    ("post", f"{STUDY}:again"): SUBMIT,
    ("get", "/api/v1/overview"): LOOK,
    ("get", "/api/v1/comparison"): LOOK,
    ("post", f"{STUDY}/notes"): OWN,
    ("post", f"{STUDY}/trials"): OWN,
    ("post", f"{STUDY}/trials/{{trial}}:stop"): OWN,
    ("post", f"{STUDY}:ask"): WORK,
    **{("post", f"{STUDY}/trials/{{trial}}:{verb}"): WORK for verb in ("report", "heartbeat", "complete", "fail")},
    **{("get", f"/api/v1/{name}"): LOOK for name in ("events", "queue", "devices", "usage", "users/me", "tokens")},
    ("get", "/api/v1/users"): ADMIN,
    ("post", "/api/v1/users"): ADMIN,
    ("post", "/api/v1/users/{name}:link"): ADMIN,
    ("patch", "/api/v1/users/{name}"): ADMIN,
    ("delete", "/api/v1/users/{name}"): ADMIN,
    ("post", "/api/v1/tokens"): LOOK,
    ("delete", "/api/v1/tokens/{token}"): LOOK,
    ("get", "/api/v1/webhooks"): SUBMIT,
    ("post", "/api/v1/webhooks"): SUBMIT,
    **{(method, "/api/v1/webhooks/{webhook}"): OWN for method in ("get", "delete")},
    ("post", "/api/v1/webhooks/{webhook}:test"): OWN,
    ("get", "/api/v1/webhooks/{webhook}/deliveries"): OWN,
    ("get", "/healthz"): OPEN,
    ("get", "/readyz"): OPEN,
    ("get", "/metrics"): OPEN,  # from this machine
}
BODIES: dict[str, dict[str, Any]] = {
    "/api/v1/login": {"name": "x", "password": "x"},
    "/api/v1/welcome": {"secret": "x", "password": "x"},
    "/api/v1/users/me/password": {"old_password": "x", "new_password": "x"},
    "/api/v1/studies": {"main": "x", "files": {}},
    "/api/v1/studies:check": {"main": "x", "files": {}},
    STUDY: {"priority": -1},
    f"{STUDY}/notes": {"text": "x"},
    f"{STUDY}:again": {"text": "x"},
    f"{STUDY}:refine": {},
    f"{STUDY}/trials": {"config": {}},
    f"{STUDY}:ask": {"worker": "w1"},
    f"{STUDY}/trials/{{trial}}:report": {"worker": "w1", "epoch": 1, "metrics": 1.0},
    **{f"{STUDY}/trials/{{trial}}:{verb}": {"worker": "w1"} for verb in ("heartbeat", "complete")},
    f"{STUDY}/trials/{{trial}}:fail": {"worker": "w1", "error": "x"},
    "/api/v1/users": {"name": "no name!"},
    "/api/v1/users/{name}": {"weight": 1},
    "/api/v1/tokens": {},
    "/api/v1/webhooks": {"url": "https://no.such.host.invalid/told"},
}
CALLERS = ("nobody", "guest", "hand", "anne", "bert", "chief")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("storage")) as found:
        found.access.logins.most = 1000
        yield found


def test_the_table_has_every_operation(served: Served) -> None:
    described = served.app.openapi()["paths"]
    assert {(method, path) for path, methods in described.items() for method in methods} == TABLE.keys()


def allowed(rule: str, caller: str) -> bool:
    """Whether a caller may, where the study is anne's."""
    return {
        OPEN: True,
        LOOK: caller != "nobody",
        WORK: caller not in ("nobody", "guest"),
        SUBMIT: caller in ("anne", "bert", "chief"),
        OWN: caller in ("anne", "chief"),
        ADMIN: caller == "chief",
    }[rule]


@pytest.mark.parametrize("operation", TABLE, ids=" ".join)
def test_every_operation_by_every_role(served: Served, operation: tuple[str, str]) -> None:
    method, path = operation
    for caller in CALLERS:
        study = served.study("anne")
        address = path.format(
            study=study, trial="1", path="x", kind="curves", name="nobody-here", token=10**6, webhook="WEBHOOK"
        )
        hook = served.hook("anne") if "{webhook}" in path else 0
        address = address.replace("WEBHOOK", str(hook))
        if address.endswith("/events"):
            served.access.streams.most = 0  # a stream wouldn't end
        client = served.client(None if caller == "nobody" else caller, timeout=60)
        answer = client.request(method, address, json=BODIES.get(path))
        served.access.streams.most = 500
        if allowed(TABLE[operation], caller):
            refused = (
                (401, 403) if path not in ("/api/v1/login", "/api/v1/welcome", "/api/v1/users/me/password") else ()
            )
            assert answer.status_code not in refused, (caller, answer.text)
            assert answer.status_code < 500 or path == "/api/v1/studies:check", (caller, answer.text)
        else:
            assert answer.status_code == (401 if caller == "nobody" else 403), (caller, answer.text)
        after = served.service.studies(limit=1)[0]
        if hook and not allowed(TABLE[operation], caller):
            assert served.app.state.web.webhooks.deliveries(served.users["anne"], hook) == []  # and it is still there
        if not allowed(TABLE[operation], caller):
            assert (after.id, after.state, after.priority) == (study, "checking", 0)


@pytest.mark.parametrize("lowered", [role for role in Role if role is not Role.ADMIN])
def test_an_admins_token_of_a_lower_role_does_no_more(served: Served, lowered: Role) -> None:
    secret = served.access.create_token(served.users["chief"], "low", lowered)[1]
    client = served.client(headers={"Authorization": f"Bearer {secret}"})
    assert client.get("/api/v1/users").status_code == 403
    assert client.get("/api/v1/users/me").json()["role"] == lowered
    assert client.post("/api/v1/tokens", json={"role": "admin"}).status_code == 403
    assert client.post(f"/api/v1/studies/{served.study('anne')}:cancel").status_code == 403
