"""A real server on a real socket in a thread of the test, with a user of each role; and runs for its studies."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from tests.results.simulated import simulated
from tests.service.running import end_drivers
from tests.service.submissions import external, furnace, submission
from tuner import Run
from tuner.service.access import Access
from tuner.service.database import studies
from tuner.service.executors import LocalProcesses, Task
from tuner.service.executors.driver_reports import run_of
from tuner.service.executors.local import OF_SEARCHES
from tuner.service.model import Limits, Role, State, User
from tuner.service.service import Service
from tuner.service.web.server import listening, server
from tuner.service.web.settings import WebSettings
from tuner.service.webhooks import Webhooks

PASSWORD = "four words are enough"
PATIENT = Limits(requests_per_second=1e6, burst=10**6, checks_per_user=10**6)  # tests ask quicker than people
NAMES = {"guest": Role.VIEWER, "hand": Role.WORKER, "anne": Role.SUBMITTER, "bert": Role.SUBMITTER, "chief": Role.ADMIN}


@dataclass
class Served:
    """A server, and what its users show it."""

    service: Service
    access: Access
    url: str = ""
    port: int = 0
    app: Any = None
    users: dict[str, User] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    def client(self, user: str | None = None, **options: Any) -> httpx.Client:
        """A client of a user, or of nobody."""
        headers = {"Authorization": f"Bearer {self.tokens[user]}"} if user else {}
        # without reading this machine's certificates each time
        options = {"base_url": self.url, "verify": False, "timeout": 60, **options}
        return httpx.Client(headers=headers | options.pop("headers", {}), **options)

    def study(self, owner: str = "anne", state: State | None = None, run: Run | None = None) -> int:
        """A submitted study, brought to a state, with a run."""
        found = self.service.submit(submission(), self.users[owner]).id
        path = {State.RUNNING: (State.QUEUED, State.STARTING, State.RUNNING)}
        self.state(found, *(path.get(state, (State.QUEUED,)) if state else ()))
        if run is not None:
            with self.service.database.changing() as connection:
                studies.update(connection, found, run=run.path)
        return found

    def external(self, owner: str = "anne", **changes: Any) -> int:
        """An external study that runs: its process is a real one, which no supervisor looks after."""
        found = self.service.submit(external(furnace(**changes)), self.users[owner]).id
        folder = self.service.folder.attempt(found, 1)
        bundle, storage = self.service.folder.bundle(found), self.service.folder.storage
        LocalProcesses(OF_SEARCHES).start(Task(str(bundle / "study.json"), None, str(storage)), folder)
        while (run := run_of(folder)) is None:
            time.sleep(0.01)
        self.state(found, State.QUEUED, State.STARTING, State.RUNNING)
        with self.service.database.changing() as connection:
            studies.update(connection, found, run=run, attempt=1)
        return found

    def state(self, study: int, *becomes: State) -> None:
        """Bring a study to one state after the other."""
        for each in becomes:
            with self.service.database.changing() as connection:
                studies.change(connection, study, studies.get(connection, study).state, each, time.time())

    def hook(self, owner: str) -> int:
        """A user's one webhook, new, which nobody answers."""
        webhooks: Webhooks = self.app.state.web.webhooks
        for old in webhooks.all(self.users[owner]):
            webhooks.remove(self.users[owner], old.id)
        return webhooks.add(self.users[owner], "https://no.such.host.invalid/told")[0].id


def made(folder: Path, before: Served | None = None, limits: Limits = PATIENT) -> Served:
    """A service with users, which no socket serves; after a restart those of `before`."""
    service = Service(folder, limits=limits)
    access = Access(service.database, limits)
    if before is not None:
        return Served(service, access, users=before.users, tokens=before.tokens)
    served = Served(service, access)
    secret = access.first_secret()
    assert secret is not None
    chief = served.users["chief"] = access.accept(secret, PASSWORD, "chief", "here")
    for name, role in NAMES.items():
        if name != "chief":
            served.users[name] = access.add_user(chief, name, role)[0]
        served.tokens[name] = access.create_token(served.users[name], "test")[1]
    return served


@contextmanager
def serving(
    folder: Path, settings: WebSettings | None = None, before: Served | None = None, limits: Limits = PATIENT
) -> Iterator[Served]:
    """The same behind a socket of this machine, until the block ends."""
    served = made(folder, before, limits)
    with listening(settings or WebSettings(port=0)) as listener:
        settings = replace(settings or WebSettings(), port=listener.getsockname()[1])
        found = server(served.service, settings, served.access)
        thread = threading.Thread(target=found.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not found.started:
                time.sleep(0.01)
            served.url, served.port, served.app = settings.url, settings.port, found.config.app
            yield served
        finally:
            found.should_exit = True
            thread.join(300)
            served.service.close()
            end_drivers(folder)
    assert not thread.is_alive()


def a_run(folder: Path, **changes: Any) -> Run:
    """A finished run under a storage folder."""
    return simulated(folder / "simulated" / "1", **changes)
