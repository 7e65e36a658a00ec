from pathlib import Path

import pytest

from tuner.service.access import Access, Caller
from tuner.service.access.credentials import digest
from tuner.service.database import Database, audit
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Role, User

PASSWORD = "four words are enough"


class Clock:
    """Seconds since 1970, turned on by tests."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "db")


@pytest.fixture
def access(database: Database, clock: Clock) -> Access:
    return Access(database, clock=clock)


@pytest.fixture
def chief(access: Access) -> User:
    secret = access.first_secret()
    assert secret is not None
    return access.accept(secret, PASSWORD, "chief", "here")


def refusal(code: Code, call: object, *arguments: object, **named: object) -> str:
    with pytest.raises(ServiceError) as refused:
        call(*arguments, **named)  # type: ignore[operator]
    assert refused.value.code is code, refused.value
    return str(refused.value)


def test_the_first_link_makes_an_admin_and_works_once(access: Access) -> None:
    secret = access.first_secret()
    assert secret is not None
    assert access.accept(secret, PASSWORD, "chief", "here").role is Role.ADMIN
    refusal(Code.UNAUTHENTICATED, access.accept, secret, PASSWORD, "other", "here")
    assert access.first_secret() is None
    assert [user.name for user in access.users()] == ["chief"]


def test_another_start_makes_the_first_link_anew(access: Access) -> None:
    first, second = access.first_secret(), access.first_secret()
    assert first
    assert second
    refusal(Code.UNAUTHENTICATED, access.accept, first, PASSWORD, "chief", "here")
    access.accept(second, PASSWORD, "chief", "here")


def test_a_first_link_that_failed_at_a_name_can_be_used_again(access: Access) -> None:
    secret = access.first_secret()
    refusal(Code.REFUSED, access.accept, secret, PASSWORD, "a b", "here")
    refusal(Code.REFUSED, access.accept, secret, "short", "chief", "here")
    assert access.accept(str(secret), PASSWORD, "chief", "here").name == "chief"


def test_a_link_ends_after_three_days(access: Access, chief: User, clock: Clock) -> None:
    _, secret = access.add_user(chief, "anne", Role.SUBMITTER)
    clock.now += 3 * 86_400 + 1
    assert "was used or has expired" in refusal(Code.UNAUTHENTICATED, access.accept, secret, PASSWORD, None, "here")


def test_a_user_sets_the_password_by_a_link_and_logs_in(access: Access, chief: User) -> None:
    user, secret = access.add_user(chief, "anne", Role.SUBMITTER)
    refusal(Code.UNAUTHENTICATED, access.log_in, "anne", PASSWORD, "here")
    assert access.accept(secret, PASSWORD, None, "here") == user
    found, session, _ = access.log_in("ANNE", PASSWORD, "here")
    assert found == user
    assert access.by_session(session) == Caller(user, f"session {user.id}", 1_000_000 + 7 * 86_400, by_cookie=True)


def test_wrong_names_and_wrong_passwords_are_refused_alike(access: Access, chief: User) -> None:
    wrong = refusal(Code.UNAUTHENTICATED, access.log_in, "chief", PASSWORD + "!", "here")
    assert refusal(Code.UNAUTHENTICATED, access.log_in, "nobody", PASSWORD, "here") == wrong


def test_five_failed_logins_a_minute(access: Access, chief: User) -> None:
    now = [0.0]
    access.logins._clock = lambda: now[0]
    for _ in range(5):
        refusal(Code.UNAUTHENTICATED, access.log_in, "chief", "wrong", "one host")
    message = refusal(Code.TOO_MANY, access.log_in, "Chief", PASSWORD, "one host")
    assert message.startswith("5 logins may fail in 60 seconds, got more; wait a minute")
    now[0] = 59.9
    refusal(Code.TOO_MANY, access.log_in, "chief", PASSWORD, "one host")
    now[0] = 60.1
    for _ in range(20):  # those that succeed don't count
        access.log_in("chief", PASSWORD, "one host")


def test_strangers_at_other_addresses_lock_nobody_out(access: Access, chief: User) -> None:
    for address in range(9):
        refusal(Code.UNAUTHENTICATED, access.log_in, "chief", "wrong", f"host {address % 3}")
    access.log_in("chief", PASSWORD, "the admin's")


def test_failed_logins_of_one_address_count_whatever_the_name(access: Access, chief: User) -> None:
    for number in range(50):
        refusal(Code.UNAUTHENTICATED, access.log_in, f"user{number}", "wrong", "one host")
    refusal(Code.TOO_MANY, access.log_in, "chief", PASSWORD, "one host")
    access.log_in("chief", PASSWORD, "another host")


def test_a_token_is_good_for_thirty_days_and_its_role(access: Access, chief: User, clock: Clock) -> None:
    token, secret = access.create_token(chief, "ci", Role.VIEWER)
    caller = access.by_token(secret)
    assert (caller.user.name, caller.user.role, caller.expires) == ("chief", Role.VIEWER, clock.now + 30 * 86_400)
    clock.now += 30 * 86_400 - 1
    access.by_token(secret)
    clock.now += 2
    refusal(Code.UNAUTHENTICATED, access.by_token, secret)
    assert token.role is Role.VIEWER


def test_a_token_never_has_more_than_its_user_has_now(access: Access, chief: User) -> None:
    other = access.add_user(chief, "other", Role.ADMIN)[0]
    _, secret = access.create_token(other, "all", Role.ADMIN)
    access.change_user(chief, "other", role=Role.VIEWER)
    assert access.by_token(secret).user.role is Role.VIEWER
    refusal(Code.FORBIDDEN, access.create_token, access.by_token(secret).user, "more", Role.SUBMITTER)


@pytest.mark.parametrize("days", [0, -1, 367, float("nan")])
def test_a_token_has_an_end(access: Access, chief: User, days: float) -> None:
    refusal(Code.REFUSED, access.create_token, chief, "x", None, days)


def test_who_is_removed_is_out_at_once(access: Access, chief: User) -> None:
    user, secret = access.add_user(chief, "anne", Role.SUBMITTER)
    access.accept(secret, PASSWORD, None, "here")
    session = access.log_in("anne", PASSWORD, "here")[1]
    token = access.create_token(user, "x")[1]
    before = access.ended(user.id)
    access.change_user(chief, "anne", disabled=True)
    refusal(Code.UNAUTHENTICATED, access.by_session, session)
    refusal(Code.UNAUTHENTICATED, access.by_token, token)
    refusal(Code.UNAUTHENTICATED, access.log_in, "anne", PASSWORD, "elsewhere")
    assert access.ended(user.id) != before


def test_the_last_admin_stays(access: Access, chief: User) -> None:
    assert "a service has at least one admin" in refusal(
        Code.CONFLICT, access.change_user, chief, "chief", disabled=True
    )
    refusal(Code.CONFLICT, access.change_user, chief, "chief", role=Role.VIEWER)
    access.add_user(chief, "second", Role.ADMIN)
    access.change_user(chief, "chief", role=Role.VIEWER)


def test_only_admins_change_users(access: Access, chief: User) -> None:
    user = access.add_user(chief, "anne", Role.SUBMITTER)[0]
    refusal(Code.FORBIDDEN, access.add_user, user, "bert", Role.ADMIN)
    refusal(Code.FORBIDDEN, access.change_user, user, "anne", role=Role.ADMIN)
    refusal(Code.FORBIDDEN, access.invite, user, "chief")
    refusal(Code.FORBIDDEN, access.tokens, user, everybodys=True)
    refusal(Code.CONFLICT, access.add_user, chief, "ANNE", Role.VIEWER)


def test_tokens_of_others_are_not_found(access: Access, chief: User) -> None:
    user = access.add_user(chief, "anne", Role.SUBMITTER)[0]
    mine, secret = access.create_token(user, "mine")
    theirs, _ = access.create_token(chief, "theirs")
    assert [token.id for token in access.tokens(user)] == [mine.id]
    assert [token.id for token in access.tokens(chief, everybodys=True)] == [mine.id, theirs.id]
    refusal(Code.NOT_FOUND, access.revoke_token, user, theirs.id)
    access.revoke_token(chief, mine.id)
    refusal(Code.UNAUTHENTICATED, access.by_token, secret)


def test_a_new_password_ends_everything_else(access: Access, chief: User) -> None:
    session, token = access.log_in("chief", PASSWORD, "here")[1], access.create_token(chief, "x")[1]
    refusal(Code.FORBIDDEN, access.change_password, chief, "another", "a new password", "here")
    new, _ = access.change_password(chief, PASSWORD, "a new password", "here")
    assert access.by_session(new).user == chief
    refusal(Code.UNAUTHENTICATED, access.by_session, session)
    refusal(Code.UNAUTHENTICATED, access.by_token, token)
    access.log_in("chief", "a new password", "here")


def test_the_database_holds_no_secret_and_the_audit_every_change(
    access: Access, chief: User, database: Database, tmp_path: Path
) -> None:
    _, link = access.add_user(chief, "anne", Role.SUBMITTER)
    _, token = access.create_token(chief, "x")
    session = access.log_in("chief", PASSWORD, "here")[1]
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert digest(token).encode() in stored
    for secret in (link, token, session, PASSWORD):
        assert secret.encode() not in stored
    with database.reading() as connection:
        found = [(entry.user, entry.action) for entry in reversed(audit.entries(connection))]
    assert found == [
        ("chief", "accept an invitation"),
        ("chief", "add a user"),
        ("chief", "create a token"),
        ("chief", "log in"),
    ]
