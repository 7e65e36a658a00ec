"""A search service from Python: `tuner.connect(url)`."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import StudyError
from tuner.service.http_client import AGAIN_SECONDS, LONGEST_PAUSE, Connection, RequestError, path_of
from tuner.service.logins import server_of, token_of
from tuner.service.remote_trial import RemoteTrial, ask
from tuner.space.values import LARGEST_EXACT
from tuner.text import printable

if TYPE_CHECKING:
    from tuner.study.declaration import Study

__all__ = ["Client", "RemoteStudy", "RemoteTrial", "RequestError", "connect"]

OVER = ("refused", "finished", "failed", "cancelled")
POLL_SECONDS, LONGEST_POLL = 0.3, 5.0
MOST_CUTS = 8  # of a stream without an event between them
SILENT_SECONDS = 45.0  # after which a stream counts as dead: the server sends something every 15 s


def connect(url: str | None = None, token: str | None = None, *, patience: float | None = None) -> Client:
    """A search service at an address, which `tuner serve` runs.

    Args:
        url: its address; by default `$TUNER_SERVER`, or that of the last `tuner login`
        token: by default `$TUNER_TOKEN`, or that of the login
        patience: seconds for which a server that is away is asked again; by default 600 once it has answered, and 0
            before, so that a wrong address fails at once

    Raises:
        StudyError: there is no such address, or it isn't https and on another machine.
    """
    address = server_of(url)
    return Client(Connection(address, token or token_of(address), patience))


class Client:
    """A user's access to a service. Every method raises `RequestError` if the service refuses or can't be reached.

    While a server is away, as when it restarts, methods wait for it as `connect` says.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.ask, self.content, self.read = connection.ask, connection.content, connection.read
        self.unreachable = connection.unreachable

    def __repr__(self) -> str:
        return f"connect({self.url!r})"

    @property
    def url(self) -> str:
        """The service's address."""
        return self._connection.url

    def submit(
        self,
        study: str | Path | Study,
        *,
        priority: int = 0,
        preemptible: bool = False,
        devices: int | None = None,
        after: Sequence[int] = (),
        options: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> RemoteStudy:
        """Submit a study file with the modules from its folder that it imports.

        A file whose name ends with .json holds a study as `tuner.study_to_json` writes it, whose trials `ask` gives to
        workers; a `Study` with such trials may be given directly.

        `options` are those of `tuner run` by their names, such as `{"trials": 40, "seed": 1}`. A submission with the
        same `key` is only accepted once; by default each call is a new submission, even if it has to be sent again.
        """
        body = {
            **_declared(study),
            "priority": priority,
            "preemptible": preemptible,
            "devices": devices,
            "after": list(after),
            "options": dict(options or {}),
        }
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return RemoteStudy(self, self.ask("POST", "/studies", body, headers=headers, repeatable=True))

    def check(self, study: str | Path | Study, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Let the service check a study without submitting it; returns the facts."""
        body = {**_declared(study), "options": dict(options or {})}
        found = self.ask("POST", "/studies:check", body, repeatable=True)
        facts: dict[str, Any] = found["facts"]
        return facts

    def study(self, study: int | str) -> RemoteStudy:
        """A submitted study by its number, 17 or "@17"."""
        return RemoteStudy(self, self.ask("GET", path_of("studies", number_of(study))))

    def studies(self, state: str | Sequence[str] | None = None, owner: str | None = None) -> Iterator[RemoteStudy]:
        """Submitted studies, the newest first."""
        for found in self.pages("/studies", {"state": state, "owner": owner}):
            yield RemoteStudy(self, found)

    def queue(self) -> list[dict[str, Any]]:
        """Each waiting study's place, why it waits, and when it may start."""
        return list(self.pages("/queue"))

    def devices(self) -> list[dict[str, Any]]:
        """Each device, and who has it."""
        return list(self.pages("/devices"))

    def usage(self, days: float = 7.0) -> list[dict[str, Any]]:
        """Device-hours of each study in the last days."""
        return list(self.pages("/usage", {"days": days}))

    def pages(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """All entries of a list, page after page."""
        cursor = None
        while True:
            page = self.ask("GET", path, query={**(query or {}), "cursor": cursor})
            yield from page["items"]
            cursor = page["cursor"]
            if cursor is None:
                return

    def stream(self, path: str, last: str | None = None) -> Iterator[tuple[str | None, dict[str, Any]]]:
        """Events of a stream with their ids; if the connection is lost, it goes on by itself without a gap."""
        cuts = 0  # since the last event
        while True:
            headers = {"Last-Event-ID": last} if last else {}
            try:
                with self.read(path, headers=headers, seconds=SILENT_SECONDS) as answer:
                    for place, event in _parsed(answer):
                        cuts, last = 0, place or last
                        yield place, event
            except (OSError, http.client.HTTPException) as error:  # the next request waits for the server
                if cuts >= MOST_CUTS:
                    raise self.unreachable(error) from error
            except RequestError as error:
                if cuts >= MOST_CUTS or error.status != 429:
                    raise
            time.sleep(min(LONGEST_PAUSE, AGAIN_SECONDS * 2**cuts))
            cuts += 1


class RemoteStudy:
    """A study at a service; `record` is the service's last answer about it."""

    def __init__(self, client: Client, record: Mapping[str, Any]) -> None:
        self._client = client
        self.record = dict(record)
        self._act = partial(_act, self)

    def __repr__(self) -> str:
        return printable(f"study @{self.id} {self.record['name']!r} of {self.record['user']}: {self.state}")

    @property
    def id(self) -> int:
        """Its number."""
        return int(self.record["id"])

    @property
    def state(self) -> str:
        """Its state at the service's last answer, such as "queued" or "running"."""
        return str(self.record["state"])

    @property
    def server(self) -> str:
        """The address of its service."""
        return self._client.url

    @property
    def path(self) -> str:
        """Its address below the API."""
        return path_of("studies", self.id)

    def refresh(self) -> RemoteStudy:
        """Ask the service again; returns itself."""
        self.record = self._client.ask("GET", self.path)
        return self

    def wait(self, seconds: float | None = None) -> str:
        """Wait until it is over; returns its state. Raises TimeoutError after `seconds`."""
        self._poll(lambda: self.state in OVER, seconds)
        return self.state

    def checked(self, seconds: float | None = None) -> RemoteStudy:
        """Wait until the service has checked it; returns itself.

        Raises:
            StudyError: the study is refused; the message says why, for instance missing data.
            TimeoutError: it is still being checked after `seconds`.
        """
        self._poll(lambda: self.state != "checking", seconds)
        if self.state == "refused":
            raise StudyError(printable(self.record["reason"] or f"study @{self.id} is refused"))
        return self

    def _poll(self, reached: Callable[[], bool], seconds: float | None) -> None:
        end, pause, left = None if seconds is None else time.monotonic() + seconds, POLL_SECONDS, seconds
        while True:
            self.record = self._client.ask("GET", self.path, seconds=left)
            if reached():
                return
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"study @{self.id} is {self.state} after {seconds:g} s")
            time.sleep(pause if left is None else min(pause, left))
            pause = min(LONGEST_POLL, pause * 1.5)

    def events(self, last: str | None = None) -> Iterator[dict[str, Any]]:
        """The events of its run from the beginning, and then each as it happens, until the study is over."""
        while True:
            first = True
            for place, event in self._client.stream(f"{self.path}/events", last):
                if place is not None:
                    last = place
                    yield event
                elif event.get("state") not in OVER:
                    first = False
                elif first:  # comes after all events from before the stream began
                    return
                else:
                    break  # later events are read by another stream

    def request(self, method: str, path: str, body: Any = None, *, repeatable: bool = False) -> dict[str, Any]:
        """The answer to a request about this study; `path` is what follows its address, as "/notes".

        `repeatable` says that the server takes it only once however often it comes.
        """
        found: dict[str, Any] = self._client.ask(method, self.path + path, body, repeatable=repeatable)
        return found

    def ask(self, worker: str) -> RemoteTrial | None:
        """The next trial of an external study for this program to run; None once the search is over.

        Waits while there is nothing to run, also while the study is paused or waits. Workers that run at the same time
        need different names: a `worker` that asks again gets the trial that it has.
        """
        return ask(partial(self.request, repeatable=True), worker)

    def pause(self) -> RemoteStudy:
        """Free its devices; `resume` goes on with it."""
        return self._act("pause")

    def resume(self) -> RemoteStudy:
        """Let a paused or failed study wait for devices again."""
        return self._act("resume")

    def finish(self) -> RemoteStudy:
        """End its search now, with a winner and a report."""
        return self._act("finish")

    def cancel(self) -> RemoteStudy:
        """End it at once without a winner; its files stay."""
        return self._act("cancel")

    def change(self, priority: int | None = None, concurrency: int | None = None, **limits: float) -> RemoteStudy:
        """Change its priority, how many trials run at once, or limits of its budget such as `trials=60`."""
        body = {"priority": priority, "limits": limits, "concurrency": concurrency}
        self.record = self._client.ask("PATCH", self.path, body)
        return self

    def progress(self) -> dict[str, Any] | None:
        """How far its search has come; None while it doesn't run."""
        found: dict[str, Any] | None = self._client.ask("GET", f"{self.path}/progress")
        return found

    def trials(self) -> list[dict[str, Any]]:
        """Its trials in the order in which they were started."""
        return list(self._client.pages(f"{self.path}/trials"))

    def log(self, trial: str | None = None, start: int = 0) -> tuple[str, int]:
        """What its driver or a trial printed, up to a megabyte from a byte on; and the byte to go on from."""
        found, headers = self._client.content("GET", f"{self.path}/logs", query={"trial": trial, "start": start})
        return found.decode("utf-8", "replace"), int(headers["log-end"])

    def download(self, file: str, target: str | Path) -> Path:
        """Save "report", "archive" (a tar of all files) or a figure such as "figures/curves" to a new file.

        Raises StudyError if the file exists, or can't be written.
        """
        path = Path(target)
        with self._client.read(f"{self.path}/{file}") as answer:
            try:
                with path.open("xb") as new:
                    shutil.copyfileobj(answer, new)
                if answer.length:  # http.client takes a body that was cut for a whole one
                    raise http.client.IncompleteRead(b"", answer.length)
            except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
                path.unlink()
                raise self._client.unreachable(error) from error
            except OSError as error:
                raise StudyError(
                    f"a download needs a new file, got {str(path)!r} ({error.strerror or error}); choose another name"
                ) from error
        return path


def number_of(study: int | str) -> int:
    """The number of a study given as 17, "17" or "@17". Raises StudyError."""
    text = str(study).removeprefix("@")
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= LARGEST_EXACT):
        raise StudyError(f"a study of a service is named by its number, got {str(study)!r}; write it as @17")
    return int(text)


def _act(study: RemoteStudy, verb: str) -> RemoteStudy:
    study.record = study._client.ask("POST", f"{study.path}:{verb}")
    return study


def _declared(study: str | Path | Study) -> dict[str, Any]:
    """The part of a submission that says what is searched."""
    from tuner.study.declaration import Study

    if isinstance(study, Study):
        from tuner.study.as_json import study_to_json

        return {"study": json.loads(study_to_json(study))}
    return {"study": _json_of(Path(study))} if str(study).endswith(".json") else _bundle(study)


def _json_of(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise StudyError(
            f"a study in JSON is a file that can be read, got {str(file)!r} ({why}); correct it, or name a .py file"
        ) from error


def _bundle(study_file: str | Path) -> dict[str, Any]:
    from tuner.service.local_imports import bundle_of

    files = bundle_of(study_file)
    encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return {"main": Path(study_file).name, "files": encoded}


def _parsed(answer: http.client.HTTPResponse) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """Server-sent events, parsed as in the standard, each with its id."""
    place, data = None, ""
    for raw in answer:
        name, _, value = raw.decode("utf-8").rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            place = value
        elif name == "data":
            data += value
        elif not name and not value and data:
            yield place, json.loads(data)
            place, data = None, ""
