"""Webhooks: a real TLS server of this machine is told, and what may not be reached isn't."""

import hashlib
import hmac
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.service.running import running, wait_for, wait_until
from tests.service.submissions import submission
from tests.service.web.serving import Served, made, serving
from tuner.service.access import Access
from tuner.service.access.credentials import holds_secret
from tuner.service.database import audit, studies, webhooks
from tuner.service.database.webhooks import Delivery
from tuner.service.errors import ServiceError
from tuner.service.model import Progress, Role, State
from tuner.service.web.settings import WebSettings
from tuner.service.webhooks import Reach, Sender, Webhooks
from tuner.service.webhooks.addresses import RefusedAddressError, target_of
from tuner.service.webhooks.sender import post

LOOPBACK = ("127.0.0.0/8", "::1")


@dataclass
class Receiver:
    """An HTTPS server of this machine, which answers with these statuses, the last one for ever."""

    port: int
    certificate: Path
    statuses: list[int] = field(default_factory=lambda: [200])
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def reach(self) -> Reach:
        return Reach.of(LOOPBACK, self.certificate)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/told?key=1"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def receiver(certificate: tuple[Path, Path]) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = found.statuses.pop(0) if len(found.statuses) > 1 else found.statuses[0]
            found.got.append((self.path, dict(self.headers), body))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"https://localhost:{found.port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found = Receiver(server.server_address[1], certificate[0])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = made(tmp_path)
    yield found
    found.service.close()


def end(served: Served, state: State = State.FINISHED, owner: str = "anne") -> int:
    """A study of a user that came to an end."""
    study = served.service.submit(submission(), served.users[owner]).id
    states = [State.CHECKING, State.QUEUED, State.STARTING, State.RUNNING, state]
    states = [*states[:2], state] if state is State.PAUSED else states
    for leaves, becomes in pairwise(states):
        with served.service.database.changing() as connection:
            studies.change(connection, study, leaves, becomes, 1e9)
    return study


def only(served: Served, hook: int) -> Delivery:
    with served.service.database.reading() as connection:
        (found,) = webhooks.deliveries_of(connection, hook, None, 10)
    return found


def is_(served: Served, hook: int, state: str) -> Callable[[], bool]:
    return lambda: only(served, hook).state == state


def signed_by(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """As a receiver checks it, by the documents alone."""
    time, _, given = headers["Tuner-Signature"].removeprefix("t=").partition(",v1=")
    made = hmac.new(secret.encode(), time.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(made, given)


def test_a_server_tells_of_a_study_that_finished(tmp_path: Path, receiver: Receiver) -> None:
    with serving(tmp_path, WebSettings(port=0, reach=receiver.reach)) as served:
        anne, bert = served.client("anne"), served.client("bert")
        hook = anne.post("/api/v1/webhooks", json={"url": receiver.url}).json()
        bert.post("/api/v1/webhooks", json={"url": receiver.url})
        study = end(served)
        wait_for(is_(served, hook["id"], "delivered"), 30)
        assert len(receiver.got) == 1  # bert isn't told of anne's
        path, headers, body = receiver.got[0]
        assert (path, headers["Host"]) == ("/told?key=1", f"localhost:{receiver.port}")
        assert signed_by(hook["secret"], headers, body)
        assert not signed_by(hook["secret"], headers, body + b" ")
        told = json.loads(body)
        assert (told["event"], told["study"]["id"], told["study"]["state"]) == ("finished", study, "finished")
        (item,) = anne.get(f"/api/v1/webhooks/{hook['id']}/deliveries").json()["items"]
        assert (item["id"], item["status"], item["tries"]) == (int(headers["Tuner-Delivery"]), 200, 1)
        tested = anne.post(f"/api/v1/webhooks/{hook['id']}:test").json()
        assert (tested["state"], tested["event"], json.loads(receiver.got[1][2])["event"]) == (
            "delivered",
            "test",
            "test",
        )
        assert bert.get(f"/api/v1/webhooks/{hook['id']}").status_code == 403
        shown = anne.get("/api/v1/webhooks").text + anne.get(f"/api/v1/webhooks/{hook['id']}").text
        with served.service.database.reading() as connection:
            shown += str(audit.entries(connection))
        assert not holds_secret(shown)
        assert "key=1" not in str(shown.partition("AuditEntry")[2])
        assert anne.delete(f"/api/v1/webhooks/{hook['id']}").status_code == 204
        assert anne.get(f"/api/v1/webhooks/{hook['id']}").status_code == 404


def test_an_error_is_tried_again_also_by_the_next_server_and_then_given_up(served: Served, receiver: Receiver) -> None:
    database = served.service.database
    first = Sender(database, receiver.reach, waits=(60.0, 60.0))
    hook, _ = Webhooks(database, first).add(served.users["anne"], receiver.url, ["failed"])
    receiver.statuses = [500]
    end(served)  # not asked for
    end(served, State.FAILED)
    first.start()
    wait_for(lambda: only(served, hook.id).tries == 1, 30)
    first.close()
    assert (only(served, hook.id).state, only(served, hook.id).status) == ("waiting", 500)
    with database.changing() as connection:  # the minute is over
        connection.execute("UPDATE deliveries SET next_try = 0")
    second = Sender(database, receiver.reach, waits=(0.0, 0.0))
    second.start()
    wait_for(is_(served, hook.id, "dead"), 30)
    second.close()
    assert (only(served, hook.id).tries, only(served, hook.id).problem) == (3, "it answered with 500")
    assert len({headers["Tuner-Delivery"] for _, headers, _ in receiver.got}) == 1
    assert len(receiver.got) == 3


def test_one_that_works_the_second_time_is_delivered(served: Served, receiver: Receiver) -> None:
    receiver.statuses = [500, 204]
    sender = Sender(served.service.database, receiver.reach, waits=(0.0,))
    hook, secret = Webhooks(served.service.database, sender).add(served.users["anne"], receiver.url)
    end(served, State.PAUSED)
    sender.start()
    wait_for(is_(served, hook.id, "delivered"), 30)
    sender.close()
    assert [signed_by(secret, headers, body) for _, headers, body in receiver.got] == [True, True]


def test_a_redirect_is_not_followed(served: Served, receiver: Receiver) -> None:
    receiver.statuses = [307]
    anne = served.users["anne"]
    hooks = Webhooks(served.service.database, Sender(served.service.database, receiver.reach))
    sent = hooks.test(anne, hooks.add(anne, receiver.url)[0].id)
    assert (sent.state, sent.status) == ("dead", 307)
    assert "redirect" in str(sent.problem)
    assert [path for path, _, _ in receiver.got] == ["/told?key=1"]


def test_loopback_is_refused_unless_it_is_allowed(served: Served, receiver: Receiver) -> None:
    anne = served.users["anne"]
    hooks = Webhooks(served.service.database, Sender(served.service.database, Reach.of(ca=receiver.certificate)))
    sent = hooks.test(anne, hooks.add(anne, receiver.url)[0].id)  # a name: its addresses show when it is used
    assert (sent.state, receiver.got) == ("dead", [])
    assert "not public" in str(sent.problem)
    with pytest.raises(ServiceError, match=r"needs a public address, got 127\.0\.0\.1"):
        hooks.add(anne, f"https://127.0.0.1:{receiver.port}/")


def test_a_name_that_leads_elsewhere_the_second_time_is_connected_where_it_was_checked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def resolved(reach: Reach, host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    monkeypatch.setattr(Reach, "addresses", resolved)  # nobody here has a name whose addresses change
    target = target_of(f"https://rebinding.invalid:{receiver.port}/", receiver.reach)
    outcome = post(target, receiver.reach, {}, b"{}")
    assert asked == ["rebinding.invalid"]  # connected without another look-up, which has no answer
    assert "certificate" in str(outcome.problem)  # as the name that was given isn't the server's
    assert receiver.got == []


def test_a_certificate_that_nobody_vouches_for_is_refused(receiver: Receiver) -> None:
    outcome = post(target_of(receiver.url, receiver.reach), Reach.of(LOOPBACK), {}, b"{}")
    assert "certificate is not trusted" in str(outcome.problem)
    assert receiver.got == []


def test_a_server_that_never_answers_is_left_in_time(certificate: tuple[Path, Path]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        reach = Reach.of(LOOPBACK, certificate[0])
        target = target_of(f"https://localhost:{silent.getsockname()[1]}/", reach)
        assert "no answer" in str(post(target, reach, {}, b"{}", seconds=0.3).problem)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "100.64.0.1",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "fec0::1",
        "feff::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "::",
        "ff02::1",
        "255.255.255.255",
        "no address",
    ],
)
def test_what_is_not_public_is_not_reached(address: str) -> None:
    assert not Reach().reaches(address)


def test_public_and_allowed_addresses_are_reached() -> None:
    assert Reach().reaches("8.8.8.8")
    assert Reach().reaches("2606:4700::1111")
    assert Reach.of(("10.1.0.0/16",)).reaches("10.1.2.3")
    assert not Reach.of(("10.1.0.0/16",)).reaches("10.2.0.1")
    with pytest.raises(RefusedAddressError):
        Reach().addresses("localhost", 443)


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1.", "10.1", "[fec0::1]", "3232235777"],
)
def test_another_form_of_a_private_address_is_refused_when_it_is_entered(host: str) -> None:
    with pytest.raises(ServiceError, match="a webhook needs a public address"):
        target_of(f"https://{host}/told", Reach())
    assert target_of("https://134744072/told", Reach()).host == "134744072"  # 8.8.8.8


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "https://",
        "https://a:b@example.org/",
        "https://example.org:99999/",
        "https://[::1/",
        "x",
        "https://example.org/\r\nX: y",
        "https://exämple.org/",
        "https://example.org/#part",
        "file:///etc/passwd",
    ],
)
def test_an_address_that_cannot_be_told_is_refused(url: str) -> None:
    with pytest.raises(ServiceError, match="https://"):
        target_of(url, Reach())


def test_a_best_value_is_told_once_and_a_quick_series_by_its_last(served: Served) -> None:
    database = served.service.database
    sender = Sender(database, Reach())
    anne, chief = served.users["anne"], served.users["chief"]
    hooks = Webhooks(database, sender)
    hook, _ = hooks.add(anne, "https://example.org/")
    others, _ = hooks.add(chief, "https://example.org/", everybodys=True)
    with pytest.raises(ServiceError, match="needs the role admin"):
        hooks.add(anne, "https://example.org/", everybodys=True)
    study = served.service.submit(submission(), anne)
    for now, best in ((10.0, 0.5), (11.0, 0.7), (11.5, 0.6), (11.6, 0.7), (20.0, 0.8)):
        with database.changing() as connection:
            webhooks.tell_best(connection, study, Progress("accuracy", "max", best, "3", {}, 1, now), now)
    for each in (hook, others):
        found = hooks.deliveries(chief, each.id)
        assert [json.loads(one.body)["best"]["value"] for one in found] == [0.8, 0.7]
    served.access.change_user(chief, "chief", role=Role.ADMIN)
    assert served.users["bert"].role is Role.SUBMITTER
    assert hooks.all(served.users["bert"]) == []


def test_a_driver_that_really_runs_is_told_of(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        access = Access(service.database)
        chief = access.accept(access.first_secret() or "", "four words are enough", "chief", "here")
        hooks = Webhooks(service.database, Sender(service.database, Reach()))
        hook, _ = hooks.add(chief, "https://example.org/")
        study = service.submit(submission(), chief).id
        wait_until(service, study, State.FINISHED)
        told = [json.loads(one.body) for one in reversed(hooks.deliveries(chief, hook.id))]
        assert {one["event"] for one in told[:-1]} == {"new_best"}
        assert (told[-1]["event"], told[-1]["best"]["metric"]) == ("finished", "loss")
        values = [one["best"]["value"] for one in told[:-1]]
        assert values == sorted(set(values), reverse=True)
