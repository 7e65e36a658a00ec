import json
import socket
from pathlib import Path

import pytest

from tests.lifecycle.receiver import receiving
from tuner.errors import StudyError
from tuner.lifecycle import targets
from tuner.lifecycle.targets import Undelivered, given_targets, redacted

MESSAGE = {
    "event": "ended",
    "run": "runs/x/1",
    "message": "x: ended; 'quoted' $(touch no) \0",
    "trials": {"completed": 3},
}


def send(target: str) -> None:
    given_targets([target])[0].send(MESSAGE)


def test_an_address_gets_the_message_as_json_with_its_secrets() -> None:
    with receiving() as server:
        host = server.url.removeprefix("http://")
        send(f"http://me:p%40ss@{host}/hook?token=secret#part")
        ((path, headers, body),) = server.requests
    assert (path, body) == ("/hook?token=secret", MESSAGE)
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Basic bWU6cEBzcw=="  # me:p@ss
    assert "Authorization" not in json.dumps(body)


def test_this_machines_own_addresses_are_reached_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    with receiving() as proxy, receiving() as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        send(f"{server.url}/hook")
    assert [path for path, _, _ in server.requests] == ["/hook"]
    assert proxy.requests == []


def test_a_command_gets_the_message_on_its_input_and_in_its_environment(tmp_path: Path) -> None:
    send(
        f"cat > '{tmp_path}/input'; printf '%s|%s|%s' \"$TUNER_EVENT\" \"$TUNER_RUN\" \"$TUNER_MESSAGE\" > '{tmp_path}/variables'"
    )
    assert json.loads((tmp_path / "input").read_text()) == MESSAGE
    assert (tmp_path / "input").read_text().endswith("}\n")  # so that `cat >> FILE` writes a line for each
    assert (tmp_path / "variables").read_text() == "ended|runs/x/1|x: ended; 'quoted' $(touch no) "
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input", "variables"]


def test_a_command_needs_to_read_nothing() -> None:
    send("true")


@pytest.mark.parametrize(("status", "code"), [(404, 404), (500, 500), (302, 302)])
def test_an_answer_that_is_no_success_is_a_failure_and_redirections_are_not_followed(status: int, code: int) -> None:
    with receiving() as server, receiving() as elsewhere:
        server.status, server.location = status, elsewhere.url
        with pytest.raises(Undelivered, match=rf"^http://127\.0\.0\.1 answered {code}$"):
            send(f"{server.url}/hook?token=secret")
        assert elsewhere.requests == []


def test_failures_name_no_secret() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(Undelivered, match=r"^http://127\.0\.0\.1 can't be reached \(Connection refused\)$"):
            send(f"http://me:secret@127.0.0.1:{closed.getsockname()[1]}/secret?token=secret")
    with pytest.raises(Undelivered, match=r"^the command 'exit …' ended with exit code 3$"):
        send("exit 3 # secret")


def test_what_hangs_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(targets, "COMMAND_SECONDS", 0.2)
    monkeypatch.setattr(targets, "URL_SECONDS", 0.2)
    with pytest.raises(Undelivered, match=r"^the command '.*' took more than 0 s$"):
        send("exec sleep 60")
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Undelivered, match="can't be reached"):
        send(f"http://127.0.0.1:{silent.getsockname()[1]}/")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ftp://host/secret", "notify needs an http or https address, got a ftp address; use https://HOST/PATH, or a command"),
        ("file:///etc/passwd", "notify needs an http or https address, got file:// without a host that can be read; use"),
        ("https://[secret", "notify needs an http or https address, got https:// without a host that can be read; use"),
        ("http:///secret", "notify needs an http or https address, got http:// without a host that can be read; use"),
        (" ", "notify needs a command or an http or https address, got ''; leave it out"),
    ],
)  # fmt: skip
def test_what_can_be_no_target_is_refused_without_its_secrets(given: str, message: str) -> None:
    with pytest.raises(StudyError) as refused:
        given_targets([given])
    assert str(refused.value).startswith(message)
    assert "secret" not in str(refused.value)


def test_without_an_option_the_environment_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given_targets([]) == []
    monkeypatch.setenv("TUNER_NOTIFY", "https://host/a\n\nmail -s done me\n")
    assert [target.name for target in given_targets([])] == ["https://host", "mail …"]
    assert [target.name for target in given_targets(["true"])] == ["true"]
    assert "host/a" not in repr(given_targets([]))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["run", "a.py", "--notify", "https://h/secret", "--trials", "3"], ["run", "a.py", "--notify", "…", "--trials", "3"]),
        (["--notify=https://h/secret", "--notif", "x"], ["--notify=…", "--notif", "…"]),
        (["--mlflow", "http://a:b@h", "--ml=x", "--minutes", "3"], ["--mlflow", "…", "--ml=…", "--minutes", "3"]),
        (["--notify", "--notify", "a"], ["--notify", "…", "a"]),
        (["--nice", "3", "--no-history", "--name=x", "--n", "3"], ["--nice", "3", "--no-history", "--name=x", "--n", "3"]),
    ],
)  # fmt: skip
def test_the_command_that_is_recorded_has_no_secrets(arguments: list[str], shown: list[str]) -> None:
    assert redacted(arguments) == shown
