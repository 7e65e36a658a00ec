"""The inbox as the driver reads it: what others write there, by command and by hand, and what is no order."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.storage.folders import store
from tuner.errors import RunFolderError
from tuner.history.events import EventLog, read_events
from tuner.orders.inbox import SECOND_LOOK, Inbox, open_inbox, put, withdraw
from tuner.orders.order import Malformed, Order
from tuner.storage.folder import LocalFolder


class Looking:
    """An inbox with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.folder = LocalFolder(folder)
        open_inbox(self.folder)
        self.inbox = Inbox(self.folder, clock=lambda: self.now)

    def look(self, seconds: float = 0.0) -> list[Order | Malformed]:
        self.now += seconds
        return self.inbox.look()


@pytest.fixture
def looking(tmp_path: Path) -> Looking:
    return Looking(tmp_path)


def test_orders_come_once_in_the_order_of_time_and_go_when_they_are_answered(looking: Looking, tmp_path: Path) -> None:
    sent = [put(looking.folder, "note", {"text": str(number)}) for number in range(3)]
    found = looking.look()
    assert [(one.id, one.arguments) for one in found if isinstance(one, Order)] == [
        (one.id, one.arguments) for one in sent
    ]
    assert looking.look() == []
    files = list((tmp_path / "inbox").iterdir())
    assert [file.stat().st_mode & 0o777 for file in files] == [0o644] * 3  # the driver may be another user
    for one in found:
        looking.inbox.done(one)
    looking.look()
    assert list((tmp_path / "inbox").iterdir()) == []


def test_another_driver_finds_what_was_not_answered(looking: Looking) -> None:
    put(looking.folder, "pause", {})
    assert [one.id for one in looking.look()] == [one.id for one in Inbox(looking.folder).look()]


def test_an_order_is_taken_back(looking: Looking) -> None:
    withdraw(looking.folder, put(looking.folder, "stop", {}))
    assert looking.look() == []


def test_what_an_editor_writes_gets_a_second_look(looking: Looking, tmp_path: Path) -> None:
    file = tmp_path / "inbox" / "mine.json"
    file.write_text('{"verb": "set", "argum')
    assert looking.look() == []
    file.write_text('{"verb": "set", "arguments": {"trials": 50}}')
    (order,) = looking.look(0.1)
    assert isinstance(order, Order)
    assert order.arguments == {"trials": 50}


def test_what_stays_no_order_is_refused_a_second_later(looking: Looking, tmp_path: Path) -> None:
    (tmp_path / "inbox" / "odd.json").write_text("more trials, please")
    assert looking.look() == []
    assert looking.look(SECOND_LOOK / 2) == []
    (odd,) = looking.look(SECOND_LOOK)
    assert isinstance(odd, Malformed)
    assert odd.problem.startswith("an order needs to be JSON")
    looking.inbox.done(odd)
    looking.look()
    assert not (tmp_path / "inbox" / "odd.json").exists()


def test_a_name_may_be_used_again(looking: Looking, tmp_path: Path) -> None:
    ids = []
    for second in (100, 200):
        file = tmp_path / "inbox" / "mine.json"
        file.write_text('{"verb": "pause"}')
        os.utime(file, (second, second))
        (order,) = looking.look()
        ids.append(order.id)
        looking.inbox.done(order)
        looking.look()
    assert ids == ["mine@100.000", "mine@200.000"]


def test_files_that_are_no_orders_by_their_names_are_left_alone(looking: Looking, tmp_path: Path) -> None:
    names = [".mine.json.swp", ".mine.json", "mine.json~", "#mine.json#", "4913", "mine.txt"]
    for name in names:
        (tmp_path / "inbox" / name).write_text('{"verb": "stop"}')
    (tmp_path / "inbox" / "folder.json").mkdir()
    assert looking.look(10) == looking.look(10) == []
    assert len(list((tmp_path / "inbox").iterdir())) == len(names) + 1


@pytest.mark.parametrize("where", ["outside", "inside", "nowhere"])
def test_a_symbolic_link_is_never_followed(looking: Looking, tmp_path: Path, where: str) -> None:
    target = {"outside": tmp_path.parent / f"{tmp_path.name}.secret", "inside": tmp_path / "other"}.get(where)
    if target is not None:
        target.write_text('{"verb": "stop"}')
    (tmp_path / "inbox" / "link.json").symlink_to(target or tmp_path / "gone")
    found = looking.look() + looking.look(2)
    assert not any(isinstance(one, Order) for one in found)
    assert not any("stop" in one.problem for one in found if isinstance(one, Malformed))
    for one in found:
        looking.inbox.done(one)
    looking.look()
    assert target is None or target.exists()


def test_an_inbox_that_leads_elsewhere_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.json").write_text('{"verb": "stop"}')
    (tmp_path / "run" / "inbox").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFolderError, match="outside of it"):
        Inbox(LocalFolder(tmp_path / "run")).look()


def test_a_pipe_holds_nothing_up(looking: Looking, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "inbox" / "pipe.json")
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.extend([looking.look(), looking.look(5)]), daemon=True)
    thread.start()
    thread.join(300)
    assert not thread.is_alive()
    assert seen[0] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_run_that_may_not_be_written_to_is_refused_by_name(looking: Looking, tmp_path: Path) -> None:
    (tmp_path / "inbox").chmod(0o500)
    with pytest.raises(RunFolderError, match="an order needs write access to the run's inbox/"):
        put(looking.folder, "stop", {})


def test_an_inbox_that_others_may_write_to_as_the_umask_has_it(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        open_inbox(LocalFolder(tmp_path))
    finally:
        os.umask(before)
    assert (tmp_path / "inbox").stat().st_mode & 0o777 == 0o775


OWNER, SENDER, TEAM = 65533, 65534, 65532


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """With the user's rights alone; all of them are of the group TEAM."""
    groups = os.getgroups()
    os.setgroups([TEAM])
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@pytest.fixture
def foreign_run() -> Iterator[Path]:
    """A run folder that others may read, where pytest's own folders are closed to them."""
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        Path(temporary).chmod(0o755)
        os.chown(temporary, OWNER, OWNER)
        yield Path(temporary)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")
@pytest.mark.parametrize(("mode", "group"), [(0o1777, OWNER), (0o1770, TEAM), (0o755, OWNER), (0o1770, OWNER)])
def test_orders_of_another_user_arrive_where_the_inbox_lets_them(foreign_run: Path, mode: int, group: int) -> None:
    with acting_as(OWNER):
        looking = Looking(foreign_run)
    inbox = foreign_run / "inbox"
    os.chown(inbox, OWNER, group)
    inbox.chmod(mode)
    if mode == 0o755 or (mode == 0o1770 and group != TEAM):
        with acting_as(SENDER), pytest.raises(RunFolderError, match="an order needs write access to the run's inbox/"):
            put(looking.folder, "note", {"text": "mine"})
        return
    before = os.umask(0o077)  # the driver can read it all the same
    try:
        with acting_as(SENDER):
            sent = put(looking.folder, "note", {"text": "mine"})
    finally:
        os.umask(before)
    with acting_as(OWNER):
        found = [*looking.look(), *looking.look(SECOND_LOOK)]
        assert [(one.id, one.arguments) for one in found if isinstance(one, Order)] == [(sent.id, {"text": "mine"})]
        looking.inbox.done(found[0])
        looking.look()
        assert list(inbox.iterdir()) == []


def test_orders_on_object_storage_are_read_as_on_a_disk(tmp_path: Path) -> None:
    folder = store(tmp_path)
    (tmp_path / "inbox").mkdir()  # what a prefix of a store needs no making for
    assert Inbox(folder).look() == []
    folder.write("inbox/mine.json", b'{"verb": "set", "arguments": {"trials": 50}}')
    folder.write("inbox/large.json", b" " * 10**6)
    now = [0.0]
    inbox = Inbox(folder, clock=lambda: now[0])
    (order,) = inbox.look()
    assert isinstance(order, Order)
    assert order.arguments == {"trials": 50}
    now[0] += SECOND_LOOK
    (large,) = inbox.look()
    assert isinstance(large, Malformed)
    assert large.problem == "an order takes at most 65,536 bytes, got more; shorten it"
    for one in (order, large):
        inbox.done(one)
    inbox.look()
    assert folder.files("inbox") == []


def test_on_object_storage_an_order_stays_until_its_answer_is_there(tmp_path: Path) -> None:
    for name in ("inbox", "events"):
        (tmp_path / name).mkdir()
    folder = store(tmp_path)
    log = EventLog(folder)
    inbox = Inbox(folder, store_answers=log.flush)
    folder.write("inbox/mine.json", b'{"verb": "note", "arguments": {"text": "keep it"}}')
    (order,) = inbox.look()
    log.append("notice", message="answered")  # held back, as every event on an object store
    inbox.done(order)
    assert (len(folder.files("inbox")), list(read_events(folder))) == (1, [])
    (tmp_path / "events").rename(tmp_path / "away")  # the store fails
    inbox.look()
    assert len(folder.files("inbox")) == 1
    (tmp_path / "away").rename(tmp_path / "events")
    inbox.look()
    assert folder.files("inbox") == []
    assert [event["message"] for event in read_events(folder)] == ["answered"]
    log.close()
