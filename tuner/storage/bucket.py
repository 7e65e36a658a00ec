"""The objects under a URI of an object store: names, sizes, contents, and ETags, which pyarrow doesn't provide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.errors import RunFolderError
from tuner.storage.outages import waits_for_the_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

RETRY_SECONDS = 6.0  # for one request; `waits_for_the_store` tries longer
REQUEST_SECONDS = 60.0
_STATUS = re.compile(r"status code: (\d+)")
_CODE = re.compile(r"<Code>([^<]+)</Code>")


class StoreProblem(Exception):  # noqa: N818 -- what it is; who asked makes a message of it
    """A store can't provide what was requested: `reason`, as the end of a sentence, and `fix`."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(f"{reason}; {fix}")
        self.reason, self.fix = reason, fix


@dataclass(frozen=True)
class Stored:
    """One object.

    Attributes:
        name: relative to the listed prefix, with / between its parts
        size: in bytes
        etag: changes with the content; None if the store has none
    """

    name: str
    size: int
    etag: str | None


class Bucket:
    """A bucket of an object store (s3, gs, abfs), read below one prefix or at one object.

    Endpoint and account are found as for a run's folder. Methods raise StoreProblem if the store refuses, doesn't have
    the object, or can't be reached for two minutes (at once if it was never reached).
    """

    def __init__(self, uri: str) -> None:
        from tuner.storage.conditional import UnconditionalStore, object_store
        from tuner.storage.object_folder import ObjectFolder

        self.uri = uri
        try:
            folder = ObjectFolder(uri)
            self.store = f"read {folder.store}"  # separate from run folders': another library with its own outages
            self._bucket, _, self._key = folder.key.partition("/")
            self._store: ObjectStore = object_store(
                folder.uri, self._bucket, folder.filesystem, RETRY_SECONDS, timeout_seconds=REQUEST_SECONDS
            )
        except UnconditionalStore:
            raise StoreProblem("stores of this kind aren't read", "use s3://, gs:// or abfs://") from None
        except RunFolderError as error:
            raise StoreProblem(_short(str(error).rpartition("; ")[2]), "check the URI and the endpoint") from error

    def objects(self, below: str = "") -> list[Stored]:
        """All objects below the prefix, and a further one after it, sorted by name."""
        with _told(self):
            return self._objects("/".join(filter(None, (self._key, below))) or None)

    def object(self) -> Stored:
        """The one object at the URI."""
        with _told(self):
            return self._object()

    def read(self, one: Stored, start: int, end: int, *, alone: bool) -> bytes:
        """Bytes `start` to `end` of an object, all from the content that its ETag identifies.

        `alone` says that the URI is the object's own.
        """
        with _told(self):
            return self._read(self._key if alone else f"{self._key}/{one.name}".lstrip("/"), one, start, end)

    @waits_for_the_store
    def _objects(self, below: str | None) -> list[Stored]:
        import obstore

        prefix = f"{self._key}/" if self._key else ""
        with _as_os_errors():
            rows = [row for chunk in obstore.list(self._store, prefix=below) for row in chunk]
        found = [_stored(row, str(row["path"]).removeprefix(prefix)) for row in rows]
        return sorted(found, key=lambda one: one.name)

    @waits_for_the_store
    def _object(self) -> Stored:
        import obstore

        if not self._key:  # some stores answer for the bucket
            raise FileNotFoundError(self.uri)
        with _as_os_errors():
            return _stored(obstore.head(self._store, self._key), self._key.rpartition("/")[2])

    @waits_for_the_store
    def _read(self, key: str, one: Stored, start: int, end: int) -> bytes:
        import obstore

        with _as_os_errors():
            options: Any = {"range": (start, end)} | ({"if_match": one.etag} if one.etag else {})
            return bytes(obstore.get(self._store, key, options=options).bytes())


def _stored(row: Any, name: str) -> Stored:
    return Stored(name, int(row["size"]), row.get("e_tag"))


class _Changed(OSError):  # noqa: N818
    """The object has changed since it was listed."""


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Within the block obstore's errors become OSError or its subclasses."""
    from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError

    try:
        yield
    except PreconditionError as error:
        raise _Changed(_short(str(error))) from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(_short(str(error))) from error
    except FileNotFoundError:
        raise
    except (BaseError, OSError, ValueError) as error:
        status = _STATUS.search(str(error))
        kinds: dict[str, type[OSError]] = {"401": PermissionError, "403": PermissionError, "404": FileNotFoundError}
        raise kinds.get(status[1] if status else "", OSError)(_short(str(error))) from error


@contextmanager
def _told(bucket: Bucket) -> Iterator[None]:
    """Within the block OSError becomes StoreProblem."""
    name = bucket._bucket
    try:
        yield
    except _Changed as error:
        raise StoreProblem(
            "an object there changed while it was read", "start again once nobody writes there"
        ) from error
    except PermissionError as error:
        reason = f"the store refuses this account ({error})"
        raise StoreProblem(
            reason, "check the credentials, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise StoreProblem(f"there is no bucket {name!r}", "correct the URI, or its endpoint") from error
        raise StoreProblem("there is no such object", "correct the URI") from error
    except OSError as error:
        if any(text in str(error) for text in ("arsing Path", "parse path", "invalid path")):
            raise StoreProblem(
                f"a name there can be none of a file ({error})", "rename it, or correct the URI"
            ) from error
        if "169.254." in str(error) or "metadata" in str(error):
            raise StoreProblem(
                "no credentials were found",
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role",
            ) from error
        raise StoreProblem(f"the store can't be reached ({error})", "check endpoint and network") from error


def _short(text: str) -> str:
    """The first line of a library's error, without XML; the store's own code if there is one."""
    code, status = _CODE.search(text), _STATUS.search(text)
    line = text.partition("\n")[0].partition("<")[0].rstrip(" :-")
    if status:
        return f"status code: {status[1]}{f', {code[1]}' if code else ''}"
    return line.removeprefix("Generic S3 error: ")
