"""schemathesis sends every operation, by every role, what its description allows and what it doesn't."""

import re
from collections.abc import Callable, Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.openapi.checks import UndefinedStatusCode  # noqa: F401
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.service.web.serving import Served, a_run, serving
from tuner.service.model import State

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ROLES = ("guest", "hand", "anne", "chief")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("storage")
    with serving(folder) as found:
        found.access.streams.most = 0  # a stream wouldn't end
        found.access.logins.most = 10**6
        found.study(state=State.RUNNING, run=a_run(folder, reports=10))
        found.external(budget={"trials": 10_000, "max_epochs": 3})
        yield found


def ask_every_operation(served: Served, user: str | None, examples: int) -> int:
    """Send each operation so many requests; how many operations there are."""
    described = served.client().get("/api/v1/openapi.json").json()
    count = 0
    for operation in schemathesis.openapi.from_dict(described).get_all_operations():
        found = operation.ok()
        modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
        strategies = []
        for mode in modes:
            try:
                strategies.append(found.as_strategy(generation_mode=mode))
            except Exception:
                continue
        secret = served.access.create_token(served.users[user], found.label[:100])[1] if user else None
        ask(served, st.one_of(strategies), secret, examples)()
        count += 1
    return count


def ask(served: Served, cases: st.SearchStrategy[Case], secret: str | None, examples: int) -> Callable[[], None]:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=cases)
    def send(case: Case) -> None:
        response = case.call(base_url=served.url, headers=headers, timeout=60)
        case.validate_response(response, checks=CHECKS)

    return send


def test_operations_answer_as_they_are_described(served: Served) -> None:
    assert ask_every_operation(served, "chief", 2) > 40


def test_every_address_takes_the_methods_that_are_described_and_names_them_for_others(served: Served) -> None:
    described = served.app.openapi()["paths"]
    with served.client("chief") as client:
        for path, operations in described.items():
            methods = {method.upper() for method in operations}
            for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - methods:
                answer = client.request(method, re.sub(r"\{.*?\}", "1", path))
                found = answer.status_code, set(answer.headers["allow"].split(", ")), answer.json()["type"]
                assert found == (405, methods, "urn:tuner:problem:method"), (method, path)


def test_the_description_says_how_callers_are_known_and_what_is_enforced(served: Served) -> None:
    described = served.client().get("/api/v1/openapi.json").json()
    schemes = described["components"]["securitySchemes"]
    assert (schemes["token"]["type"], schemes["token"]["scheme"]) == ("http", "bearer")
    session = f"tuner_session_{served.app.state.web.settings.port}"
    assert [schemes["session"][name] for name in ("type", "in", "name")] == ["apiKey", "cookie", session]
    unknown = {"/api/v1/login", "/api/v1/welcome", "/healthz", "/readyz", "/metrics"}
    for path, operations in described["paths"].items():
        for operation in operations.values():
            known = [{"token": []}, {"session": []}]
            assert operation.get("security", []) == ([] if path in unknown else known), path
    bodies = described["components"]["schemas"]
    assert bodies["UserBody"]["properties"]["name"] | {"title": ""} == {
        **{"type": "string", "minLength": 1, "maxLength": 64, "title": ""},
        "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    }
    assert bodies["PasswordBody"]["properties"]["new_password"]["minLength"] == 12
    assert bodies["WebhookBody"]["properties"]["url"]["pattern"] == "^https://"


@pytest.mark.slow
@pytest.mark.parametrize("user", [None, *ROLES])
def test_every_operation_by_every_role(served: Served, user: str | None) -> None:
    assert ask_every_operation(served, user, 60) > 40
