"""The client and the verbs against a real server."""

import io
import json
import socket
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tuner
from tests.commands import run_main
from tests.service.submissions import STUDY
from tests.service.web.serving import PASSWORD, Served, a_run, serving
from tuner.cli import at_service
from tuner.history.events import EventLog, read_all
from tuner.service import logins
from tuner.service.client import RequestError
from tuner.service.database import studies
from tuner.service.http_client import Connection, checked_url
from tuner.service.model import Change, State
from tuner.storage.folder import LocalFolder
from tuner.text import command


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("storage")) as found:
        yield found


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TUNER_SERVER", "TUNER_TOKEN", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    file = tmp_path / "parabola.py"
    file.write_text(STUDY + "import helper\n")
    (tmp_path / "helper.py").write_text("x = 1\n")
    return file


def told(served: Served, study: int, becomes: State) -> None:
    with served.service.database.changing() as connection:
        studies.change(connection, study, studies.get(connection, study).state, becomes, 1.0)
    served.service._changed(study, "state")


def test_a_study_from_python(served: Served, study_file: Path) -> None:
    client = tuner.connect(served.url, served.tokens["anne"])
    study = client.submit(study_file, priority=-1, options={"trials": 3}, key="mine")
    assert client.submit(study_file, priority=-1, options={"trials": 3}, key="mine").id == study.id
    assert (study.state, study.record["options"]) == ("checking", {"trials": 3})
    assert repr(study) == f"study @{study.id} 'parabola.py' of anne: checking"
    bundle = served.service.folder.bundle(study.id)
    assert sorted(path.name for path in bundle.iterdir()) == ["helper.py", "parabola.py"]
    assert client.study(f"@{study.id}").change(priority=-2).record["priority"] == -2
    assert [found.id for found in client.studies(owner="anne")] == [study.id]
    with pytest.raises(TimeoutError, match=f"study @{study.id} is checking after 0 s"):
        study.wait(seconds=0)
    assert study.cancel().state == study.wait() == "cancelled"


def test_events_of_a_run_until_it_is_over(served: Served, tmp_path: Path) -> None:
    run = a_run(tmp_path, reports=10)
    study = served.study(state=State.RUNNING, run=run)
    found = tuner.connect(served.url, served.tokens["guest"]).study(study)
    seen = []

    def follow() -> None:
        seen.extend(found.events())

    thread = threading.Thread(target=follow)
    thread.start()
    log = EventLog(LocalFolder(run.path))
    log.append("notice", message="the last word")
    log.close()
    told(served, study, State.FINISHED)
    thread.join(300)
    assert seen == read_all(run.folder).events
    assert [event["event"] for event in found.events()][-1] == "notice"  # also once it is over
    target = found.download("archive", tmp_path / "all.tar")
    assert target.stat().st_size > 10_000


def test_a_refusal_has_the_services_words(served: Served, study_file: Path) -> None:
    guest = tuner.connect(served.url, served.tokens["guest"])
    with pytest.raises(RequestError, match=r"^submitting a study needs the role submitter, got 'guest'") as refused:
        guest.submit(study_file)
    assert (refused.value.status, refused.value.problem["fix"]) == (403, "ask an admin")
    with pytest.raises(tuner.StudyError, match=r"^a study of a service is named by its number, got '@x'"):
        guest.study("@x")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://tuner.example.org", "a service on another machine needs https, as others would read the token"),
        ("ftp://localhost", "a service has an address, got 'ftp://localhost'"),
        ("http://user:word@localhost", "a service has an address"),
        ("http://[::1", "a service has an address"),
        ("http://localhost:port", "a service has an address"),
        ("", "a command for a service needs its address, got none; log in first: tuner login URL"),
    ],
)
def test_an_address_that_cannot_be_one(url: str, message: str) -> None:
    with pytest.raises(tuner.StudyError) as refused:
        tuner.connect(url)
    assert str(refused.value).startswith(message)


def test_addresses_as_people_write_them() -> None:
    assert checked_url("localhost:8765") == "http://localhost:8765"
    assert checked_url("https://tuner.example.org/some/page?x=1") == "https://tuner.example.org"


def test_a_server_that_is_away_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(RequestError, match=rf"got no answer from http://127.0.0.1:{port} \(Connection refused\)"):
        tuner.connect(f"127.0.0.1:{port}", "x").queue()


def test_a_server_that_is_something_else_gets_no_token_elsewhere(served: Served) -> None:
    answers = [
        f"HTTP/1.1 307 Go\r\nLocation: {served.url}/api/v1/queue\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 Fine\r\nContent-Length: 5\r\n\r\nhello",
        "what?\r\n\r\n",
    ]
    for answer in answers:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def reply(listener: socket.socket = listener, answer: str = answer) -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer.encode())

            thread = threading.Thread(target=reply)
            thread.start()
            with pytest.raises(RequestError) as refused:
                Connection(f"127.0.0.1:{listener.getsockname()[1]}", served.tokens["anne"]).ask("GET", "/queue")
            thread.join()
            assert "\n" not in str(refused.value)


def test_a_user_logs_in_by_a_link_and_works(
    served: Served,
    study_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logins.keep(served.url, served.tokens["chief"])
    code, out, err = run_main(capsys, "user", "add", "emil")
    assert (code, err) == (0, "")
    assert out.startswith("emil sets a password with this link, which works once:\n")
    link = out.splitlines()[1]
    code, out, err = run_main(capsys, "login", link, "--user", "emil")
    assert (code, out) == (2, "")
    assert err.startswith(
        "tuner: a login link must not be in a command, which others on this machine can see, got one there; use "
    )
    assert link.partition("#")[2] not in err
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{link}\n{PASSWORD}\n"))
    code, out, err = run_main(capsys, "login", served.url, "--link", "--user", "emil")
    file = tmp_path / "config/tuner/logins.json"
    assert (code, out) == (0, "")
    assert err == f"logged in to {served.url} as emil, submitter; the token is in {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
    again = json.loads(run_main(capsys, "login", served.url, "--user", "emil", "--json")[1])
    assert again == {"server": served.url, "user": "emil", "role": "submitter", "file": str(file)}
    code, out, err = run_main(capsys, "submit", study_file, "--priority", "-3", "--trials", "2", "--no-wait")
    study = int(out.split()[1].removeprefix("@"))
    assert (code, out, err) == (0, f"study @{study} parabola.py is checking\n", "")
    lines = run_main(capsys, "queue")[1].splitlines()
    assert lines[0].split() == ["study", "name", "user", "state", "priority", "place", "starts", "reason"]
    assert f"@{study}" in lines[-1]
    assert run_main(capsys, "queue", "--why", f"@{study}")[1].startswith(f"study @{study} parabola.py is checking")
    assert run_main(capsys, "priority", study, "-4")[1] == f"study @{study} has priority -4 now\n"
    assert run_main(capsys, "logs", study) == (0, "", f"study @{study}: its driver printed nothing\n")
    assert run_main(capsys, "cancel", study)[1].startswith(f"study @{study} parabola.py is cancelled")
    assert json.loads(run_main(capsys, "cancel", study, "--json")[1])["state"] == "cancelled"
    assert run_main(capsys, "devices")[1].split()[:5] == ["device", "study", "user", "trial", "busy"]
    assert run_main(capsys, "usage", "--json")[:2] == (0, "[]\n")
    code, out, err = run_main(capsys, "user", "add", "bob")
    assert (code, out) == (2, "")
    assert err == "tuner: this needs the role admin, got 'emil', who is a submitter; ask an admin\n"


@contextmanager
def verdicts(served: Served, becomes: State, **columns: str) -> Iterator[None]:
    """What the check of each study that is submitted meanwhile comes to, a moment after the submission's answer."""

    def come(change: Change) -> None:
        if change.state is State.CHECKING:
            later = threading.Timer(0.2, leave, [change.study])
            later.start()

    def leave(study: int) -> None:
        with served.service.database.changing() as connection:
            studies.change(connection, study, State.CHECKING, becomes, 1.0, **columns)

    end = served.service.subscribe(come)
    yield
    end()


def test_submit_waits_for_the_check_and_says_what_it_found(
    served: Served, study_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logins.keep(served.url, served.tokens["anne"])
    reason = "a study needs data and weights that the server has, got one that lacks folder:photos; put them there"
    with verdicts(served, State.REFUSED, reason=reason):
        code, out, err = run_main(capsys, "submit", study_file)
        assert (code, out) == (2, "")
        assert err.splitlines()[0].endswith("parabola.py is checking")
        assert err.splitlines()[1:] == [f"tuner: {reason}"]
        code, out, err = run_main(capsys, "submit", study_file, "--json", "--wait")
        assert (code, json.loads(out)["state"], json.loads(out)["reason"]) == (2, "refused", reason)
        with pytest.raises(tuner.StudyError, match="one that lacks folder:photos"):
            tuner.connect().submit(study_file).checked()
    with verdicts(served, State.QUEUED):
        code, out, err = run_main(capsys, "submit", study_file)
    assert (code, out.endswith("parabola.py is queued\n"), err.count("\n")) == (0, True, 1)
    monkeypatch.setattr("tuner.cli.submit.CHECK_SECONDS", 0.1)
    code, out, err = run_main(capsys, "submit", study_file)  # nobody checks it
    study = out.split()[1]
    assert (code, out) == (0, f"study {study} parabola.py is checking\n")
    assert err.splitlines()[1] == f"its check takes longer; `tuner queue --why {study}` says what it finds"
    code, _, err = run_main(capsys, "submit", study_file, "--wait", "--no-wait")
    assert (code, "not allowed with argument --wait" in err) == (2, True)


def test_the_queue_tells_what_finished_studies_found(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    progress = {"metric": "loss", "mode": "min", "best": 0.21573, "best_trial": "00011", "trials": {"completed": 13}}
    study = served.study(state=State.RUNNING)
    with served.service.database.changing() as connection:
        studies.update(connection, study, progress=progress | {"epochs": 9, "updated": 1.0})
    told(served, study, State.FINISHED)
    logins.keep(served.url, served.tokens["anne"])
    _, listed, _ = run_main(capsys, "queue", "--all")
    assert "loss 0.2157, trial 00011 of 13" in listed
    _, why, _ = run_main(capsys, "queue", "--why", f"@{study}")
    assert why == f"study @{study} parabola.py is finished: loss 0.2157, trial 00011 of 13\n"


def test_tokens_by_the_command(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_SERVER", served.url)
    monkeypatch.setenv("TUNER_TOKEN", served.tokens["bert"])
    secret = run_main(capsys, "token", "create", "ci", "--role", "viewer", "--days", "1")[1].strip()
    listed = json.loads(run_main(capsys, "token", "list", "--json")[1])
    assert [(one["name"], one["role"]) for one in listed] == [("test", "submitter"), ("ci", "viewer")]
    assert tuner.connect(token=secret).queue() == []
    assert run_main(capsys, "token", "revoke", listed[1]["id"])[0] == 0
    monkeypatch.setenv("TUNER_TOKEN", secret)
    code, _, err = run_main(capsys, "queue")
    assert code == 2
    assert err == (
        "tuner: the service needs a token that is valid, got one that has expired, was revoked or never existed; "
        "log in again: tuner login URL\n"
    )


def test_webhooks_by_the_command(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_SERVER", served.url)
    monkeypatch.setenv("TUNER_TOKEN", served.tokens["bert"])
    url = "https://no.such.host.invalid/told"
    made = json.loads(run_main(capsys, "webhook", "add", url, "--event", "failed", "--json")[1])
    number = str(made["id"])
    assert run_main(capsys, "webhook", "test", number)[1] == "dead: its host has no address\n"
    assert [one["event"] for one in json.loads(run_main(capsys, "webhook", "sent", number, "--json")[1])] == ["test"]
    listed = run_main(capsys, "webhook", "list")[1]
    assert url in listed
    assert made["secret"] not in listed
    assert "needs the role admin" in run_main(capsys, "webhook", "list", "--everybodys")[2]
    monkeypatch.setenv("TUNER_TOKEN", served.tokens["chief"])
    assert url in run_main(capsys, "webhook", "list", "--everybodys")[1]
    assert url not in run_main(capsys, "webhook", "list")[1]
    assert run_main(capsys, "webhook", "remove", number)[1] == f"webhook {number} gets no more messages\n"
    assert "needs a webhook's number, got None" in run_main(capsys, "webhook", "remove")[2]
    assert "begins with https://" in run_main(capsys, "webhook", "add", "http://example.org")[2]


def test_users_by_the_command(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_SERVER", served.url)
    monkeypatch.setenv("TUNER_TOKEN", served.tokens["chief"])
    assert run_main(capsys, "user", "add", "fay", "viewer")[0] == 0
    assert run_main(capsys, "user", "add", "gus", "--role", "viewer", "--json")[0] == 0
    assert ["gus", "viewer", "1.0"] in [line.split() for line in run_main(capsys, "user", "list")[1].splitlines()]
    assert run_main(capsys, "user", "add", "hal", "worker", "--role", "admin")[2].startswith(
        "tuner: a user has one role"
    )
    assert run_main(capsys, "user", "cap", "gus", "--devices", "2", "--hours", "40.5")[1] == (
        "gus has at most 2 devices at once, at most 40.5 device-hours in 7 days, weight 1\n"
    )
    assert run_main(capsys, "user", "cap", "gus", "--hours", "none", "--weight", "2")[1] == (
        "gus has at most 2 devices at once, no cap on device-hours in 7 days, weight 2\n"
    )
    assert ["gus", "viewer", "2.0", "2"] in [line.split() for line in run_main(capsys, "user", "list")[1].splitlines()]
    assert "needs --devices, --hours or --weight, got none" in run_main(capsys, "user", "cap", "gus")[2]
    for action in ("add", "list"):
        assert run_main(capsys, "user", action, "ina", "--devices", "2")[2] == (
            f"tuner: only `tuner user cap` takes --devices, got it with `tuner user {action}`; "
            "run `tuner user cap ina --devices N` for it\n"
        )
    assert "needs a number of at least 0, or none, got '-1'" in run_main(capsys, "user", "cap", "x", "--hours=-1")[2]
    assert run_main(capsys, "user", "role", "fay", "admin")[1] == "fay is admin now\n"
    assert run_main(capsys, "user", "remove", "fay")[1] == f"fay may no longer use {served.url}\n"
    assert "fay" in next(line for line in run_main(capsys, "user", "list")[1].splitlines() if "removed" in line)
    assert run_main(capsys, "user", "remove")[2].startswith("tuner: `tuner user remove` needs a user's name, got none")
    assert run_main(capsys, "user", "remove", "chief")[2].startswith("tuner: a service has at least one admin")


def test_verbs_about_runs_take_studies_too(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_SERVER", served.url)
    monkeypatch.setenv("TUNER_TOKEN", served.tokens["anne"])
    monkeypatch.chdir(tmp_path)
    run = a_run(tmp_path, reports=20)
    study = f"@{served.study(state=State.RUNNING, run=run)}"
    assert json.loads(run_main(capsys, "show", study, "--json")[1]) == json.loads(json.dumps(run.summary()))
    monkeypatch.setattr(at_service, "_run_here", lambda study: None)  # as on another machine
    code, out, err = run_main(capsys, "show", study, "--json")
    assert (code, err) == (0, f"fetching the run of study {study}\n")
    assert json.loads(out)["best"] == json.loads(json.dumps(run.summary()))["best"]
    assert run_main(capsys, "set", study, "--trials", "40") == (0, f"study {study} parabola.py is running\n", "")
    assert run_main(capsys, "set", study, "--concurrency", "3") == (0, f"study {study} parabola.py is running\n", "")
    assert served.service.study(int(study[1:])).options["concurrency"] == 3
    assert run_main(capsys, "note", study, "look here")[1].startswith(f"study {study[1:]} is running: the order waits")
    assert run_main(capsys, "pause", study)[1] == f"study {study} parabola.py is pausing\n"
    told(served, int(study[1:]), State.PAUSED)
    assert run_main(capsys, "resume", study, "--trials", "50") == (0, f"study {study} parabola.py is queued\n", "")
    assert served.service.study(int(study[1:])).limits == {"trials": 50}
    over = f"@{served.study(state=State.RUNNING, run=run)}"
    told(served, int(over[1:]), State.FINISHED)
    assert run_main(capsys, "resume", over, "--trials", "70") == (0, f"study {over} parabola.py is queued\n", "")
    assert run_main(capsys, "refit", study)[2].startswith(f"tuner: refit needs the folder of a run, got '{study}'; ")
    assert json.loads(run_main(capsys, "report", study, "--json")[1]) == {"report": f"study-{study[1:]}.html"}
    exported = json.loads(run_main(capsys, "export", study, "--to", "csv", "tables", "--json")[1])
    assert sorted(exported["files"]) == ["tables/history.csv", "tables/trials.csv"]
    again = run_main(capsys, "report", study)
    assert (again[0], again[2][:60]) == (
        2,
        f"tuner: a download needs a new file, got 'study-{study[1:]}.html' (File"[:60],
    )
    refined = run_main(capsys, "refine", study, "-o", "next.py")
    assert (refined[0], f"needs a run of a study file, got {study}, which" in refined[2]) == (2, True)
    missing = run_main(capsys, "show", "@999")
    assert missing[2] == "tuner: a study is named by its number, got 999; `tuner queue` lists them\n"


def test_messages_name_the_study_and_not_the_folder_of_its_copy() -> None:
    told = f"got 2 in '/tmp/a b'; let it go on: {command('resume', '/tmp/a b', '--trials', '12')}"
    with pytest.raises(tuner.StudyError) as refused, at_service.named("@6", "/tmp/a b"):
        raise tuner.StudyError(told)
    assert str(refused.value) == "got 2 in @6; let it go on: python -m tuner set @6 --trials 12"
    with pytest.raises(tuner.StudyError) as refused, at_service.named("runs/a b", "/tmp/a b"):
        raise tuner.StudyError(told)
    assert str(refused.value) == told


def test_an_archive_that_leads_elsewhere_leaves_nothing_there(tmp_path: Path) -> None:
    """A server that was taken over must not write beside the folder."""
    inside = tmp_path / "inside"
    inside.mkdir()
    with tarfile.open(tmp_path / "archive.tar", "w") as archive:
        for name in ("study-1/run.json", "../beside", str(tmp_path / "absolute"), "study-1/../../beside"):
            member = tarfile.TarInfo(name)
            member.size = 2
            archive.addfile(member, io.BytesIO(b"{}"))
        link = tarfile.TarInfo("study-1/link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(link)
        through = tarfile.TarInfo("study-1/link/through")
        archive.addfile(through)
    at_service._unpack(tmp_path / "archive.tar", inside)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive.tar", "inside"]
    assert (inside / "study-1" / "run.json").read_bytes() == b"{}"
    assert not (inside / "study-1" / "link").is_symlink()
