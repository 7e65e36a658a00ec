"""A submission becomes a row of the queue and a folder with its files, both or neither.

One that is sent again with the same key is known: a client that got no answer may repeat a request.
"""

from __future__ import annotations

import inspect
import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from tuner.errors import did_you_mean, shown
from tuner.service import bundles, rights
from tuner.service.data_folder import DataFolder
from tuner.service.database import Database, audit, studies
from tuner.service.database.connection import disk_full
from tuner.service.errors import Code, ServiceError
from tuner.service.model import OF_DRIVERS, OF_SEARCHES, Limits, Role, State, Submission, User
from tuner.storage.locations import no_space
from tuner.study.budget import NAMES
from tuner.study.declaration import Study

OF_STUDIES = frozenset(inspect.signature(Study.with_options).parameters) - {"self", "limits"} | set(NAMES)
LARGEST_OPTIONS = 100_000  # characters, as JSON
LONGEST_KEY = 200
WAITING = (State.CHECKING, State.QUEUED)
_DEAD_ENDS = (State.REFUSED, State.FAILED, State.CANCELLED)
KEY_SECONDS = 2 * 24 * 3600.0


def accept(
    database: Database,
    folder: DataFolder,
    limits: Limits,
    submission: Submission,
    by: User,
    now: float,
    key: str | None = None,
) -> int:
    """Accept a submission; returns the study's id. Raises ServiceError, and then nothing of it is stored."""
    check(submission, by, limits)
    _check_key(key)
    digest = bundles.digest_of(submission)
    if key is not None:
        with database.reading() as connection:
            known = known_submission(connection, by.id, key, digest)
        if known is not None:
            return known
    _check_room(folder, submission, limits)
    try:
        new = bundles.written(submission.files, folder.bundles)
    except OSError as error:
        if no_space(error):
            raise disk_full(str(folder.path)) from error
        raise
    placed = new
    try:
        with database.changing() as connection:
            if key is not None and (known := known_submission(connection, by.id, key, digest)) is not None:
                return known  # sent twice at the same time
            study = _inserted(connection, submission, by, limits, now)
            if key is not None:
                remember_submission(connection, by.id, key, digest, study, now)
            placed = folder.bundle(study)
            bundles.lay_out(new, placed)
    except BaseException:
        bundles.remove(placed)  # also where the transaction could not be stored
        raise
    finally:
        bundles.remove(new)
    return study


def check(submission: Submission, by: User, limits: Limits) -> None:
    """Raise ServiceError for what can be refused without running the study file."""
    rights.require(by, Role.SUBMITTER, "submitting a study")
    rights.check_priority(by, submission.priority)
    bundles.check_bundle(submission, limits)
    check_options(submission.options, external=submission.external)
    count = submission.devices
    if submission.external and count is not None:
        raise ServiceError(
            Code.REFUSED, "a study in JSON holds no devices, as its trials run elsewhere", shown(count), "leave it out"
        )
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 10**6):
        raise ServiceError(Code.REFUSED, "devices needs a whole number of at least 1", shown(count), "leave it out")


def check_options(options: Mapping[str, Any], *, external: bool = False) -> None:
    """Raise ServiceError for options that neither a study nor its driver has."""
    known = (*sorted(OF_STUDIES), *(OF_SEARCHES if external else OF_DRIVERS))
    for name in options:
        if name not in known:
            raise ServiceError(
                Code.REFUSED, "an option needs to be one of `tuner run`'s", shown(name), did_you_mean(name, known)
            )
    try:
        size = len(json.dumps(dict(options), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ServiceError(
            Code.REFUSED, "options need values that JSON has", shown(dict(options)), "use numbers and texts"
        ) from error
    if size > LARGEST_OPTIONS:
        raise ServiceError(
            Code.TOO_LARGE, f"options take at most {LARGEST_OPTIONS:,} characters as JSON", f"{size:,}", "shorten them"
        )
    at_once = options.get("concurrency")
    if at_once is not None and (isinstance(at_once, bool) or not isinstance(at_once, int) or at_once < 1):
        raise ServiceError(
            Code.REFUSED, "concurrency needs a whole number of at least 1", shown(at_once), "use 1 or more"
        )


def _inserted(connection: sqlite3.Connection, submission: Submission, by: User, limits: Limits, now: float) -> int:
    """The new row's id; raises ServiceError if the queue is full."""
    _check_counts(connection, by, limits)
    _check_after(connection, submission.after)
    name = str(submission.options.get("name") or _declared_name(submission))
    study = studies.insert(
        connection,
        name=name,  # the file's name, until the check finds the study's
        user_id=by.id,
        user=by.name,
        state=State.CHECKING,
        priority=submission.priority,
        preemptible=submission.preemptible,
        wanted=submission.devices,
        after=sorted(set(submission.after)),
        submitted=now,
        changed=now,
        options=dict(submission.options),
        main=submission.main,
        external=submission.external,
    )
    audit.write(connection, now, by, "submit", study, name=name, priority=submission.priority)
    return study


def _declared_name(submission: Submission) -> str:
    """The name of a study in JSON, or of the study file: nothing of that was executed yet."""
    if submission.external:
        return str(json.loads(submission.files[submission.main])["name"])
    return submission.main


def _check_counts(connection: sqlite3.Connection, by: User, limits: Limits) -> None:
    for most, states, user_id, rule, once in (
        (limits.checks_per_user, (State.CHECKING,), by.id, f"studies of {by.name!r} that aren't checked yet", "passed"),
        (limits.queued_per_user, WAITING, by.id, f"studies of {by.name!r}", "begun"),
        (limits.queued, WAITING, None, "studies of all users", "begun"),
    ):
        if studies.count(connection, states, user_id) >= most:
            fix = f"submit it once some have {once}, or cancel some"
            raise ServiceError(
                Code.TOO_MANY, f"the queue holds at most {most:,} {rule}", "one more", fix, retry_after=60
            )


def _check_after(connection: sqlite3.Connection, after: tuple[int, ...]) -> None:
    for each in after:
        state = studies.get(connection, each).state
        if state in _DEAD_ENDS:
            raise ServiceError(
                Code.CONFLICT, "after needs studies that can still finish", f"{each}, which is {state}", "leave it out"
            )


def _check_key(key: str | None) -> None:
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isprintable()):
        raise ServiceError(
            Code.REFUSED,
            f"a key has 1 to {LONGEST_KEY} printable characters",
            shown(key),
            "use a random one, as a UUID",
        )


def _check_room(folder: DataFolder, submission: Submission, limits: Limits) -> None:
    if folder.free_bytes < limits.free_bytes + sum(map(len, submission.files.values())):
        raise disk_full(str(folder.path))


def known_submission(connection: sqlite3.Connection, user_id: int, key: str, digest: str) -> int | None:
    """The study that was submitted with the key; None for a new one. Raises ServiceError for another submission."""
    query = "SELECT study, digest FROM idempotency_keys WHERE user_id = ? AND key = ?"
    row = connection.execute(query, (user_id, key)).fetchone()
    if row is None:
        return None
    if row["digest"] != digest:
        raise ServiceError(
            Code.CONFLICT,
            "a key belongs to one submission",
            f"another one with the key of study {row['study']}",
            "use a new key",
        )
    return int(row["study"])


def remember_submission(
    connection: sqlite3.Connection, user_id: int, key: str, digest: str, study: int, now: float
) -> None:
    """Store the key for two days."""
    connection.execute("DELETE FROM idempotency_keys WHERE time < ?", (now - KEY_SECONDS,))
    connection.execute("INSERT INTO idempotency_keys VALUES (?, ?, ?, ?, ?)", (user_id, key, digest, study, now))
