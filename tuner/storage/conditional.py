"""Writes an object only if it doesn't exist yet (conditional PUT), by obstore; pyarrow's file systems can't do this.

Accounts are found where pyarrow finds them: in the URI, the AWS_… variables, the shared credentials file, the role of
the machine. Accounts that only the AWS command line knows (single sign-on) need the boto3 package, too.
"""

from __future__ import annotations

import configparser
import importlib.util
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tuner.errors import RunFolderError
from tuner.storage.azure import ENDPOINT, SCHEMES, AzurePlace

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from pyarrow.fs import FileSystem

RETRY_SECONDS = 20.0
ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", ENDPOINT)  # variables that pyarrow and obstore read


class UnconditionalStore(Exception):  # noqa: N818 -- what it is, rather than what went wrong
    """The store has no conditional writes, or obstore doesn't know its kind."""


def create_object(uri: str, path: str, content: bytes, filesystem: FileSystem) -> bool:
    """Write the object at `path`, which begins with its bucket, unless it exists; returns whether this call wrote it.

    Raises UnconditionalStore if that isn't possible, and RunFolderError if the store refuses.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError

    bucket, _, key = path.partition("/")
    try:
        obstore.put(object_store(uri, bucket, filesystem), key, content, mode="create")
    except (AlreadyExistsError, PreconditionError):
        return False
    except NotSupportedError as error:
        raise UnconditionalStore(uri) from error
    except (BaseError, OSError) as error:
        if "501 Not Implemented" in str(error):
            raise UnconditionalStore(uri) from error
        reason = str(error).partition("\n")[0].partition("<")[0].rstrip(" :")
        raise RunFolderError(
            f"a run on object storage needs a store that it may write to, got {uri!r} ({reason}); "
            "check the bucket and the credentials"
        ) from error
    return True


def object_store(
    uri: str,
    bucket: str,
    filesystem: FileSystem,
    retry_seconds: float = RETRY_SECONDS,
    timeout_seconds: float | None = None,
) -> ObjectStore:
    """The bucket for obstore, with the account and the endpoint of the URI and the environment.

    A request is repeated for `retry_seconds`, and may take `timeout_seconds`. Raises UnconditionalStore for a kind of
    store that obstore doesn't know.
    """
    from obstore.store import AzureStore, GCSStore, S3Store

    parts = urlsplit(uri)
    plain = dict(parse_qsl(parts.query)).get("scheme") == "http" or any(
        os.environ.get(name, "").startswith("http://") for name in ENDPOINTS
    )
    options: dict[str, Any] = {
        "client_options": {"allow_http": plain}
        | ({} if timeout_seconds is None else {"timeout": timedelta(seconds=timeout_seconds)}),
        "retry_config": {"retry_timeout": timedelta(seconds=retry_seconds)},
    }
    kinds: dict[str, Any] = {
        "s3": lambda: S3Store(bucket, **_s3(uri, filesystem), **options),
        "gs": lambda: GCSStore(bucket, **options),
        "gcs": lambda: GCSStore(bucket, **options),
        **dict.fromkeys(SCHEMES, lambda: AzureStore(bucket, **AzurePlace.of(uri).options(), **options)),
    }
    if parts.scheme not in kinds:
        raise UnconditionalStore(uri)
    store: ObjectStore = kinds[parts.scheme]()
    return store


def _s3(uri: str, filesystem: FileSystem) -> dict[str, Any]:
    """Options of obstore's S3Store for pyarrow's kind of URI."""
    parts = urlsplit(uri)
    query = dict(parse_qsl(parts.query))
    options: dict[str, Any] = {"region": query.get("region") or getattr(filesystem, "region", None) or "us-east-1"}
    if "endpoint_override" in query:
        endpoint = query["endpoint_override"]
        options["endpoint"] = endpoint if "://" in endpoint else f"{query.get('scheme', 'https')}://{endpoint}"
    if parts.username and parts.password:
        return options | {
            "access_key_id": unquote(parts.username),
            "secret_access_key": unquote(parts.password),
        }
    return options | _account()


def _account() -> dict[str, Any]:
    """An account found in addition to the variables and roles that obstore knows."""
    if "AWS_ACCESS_KEY_ID" in os.environ:
        return {}
    if importlib.util.find_spec("boto3") is not None:
        from obstore.auth.boto3 import Boto3CredentialProvider

        try:
            return {"credential_provider": Boto3CredentialProvider()}
        except ValueError:  # boto3 finds no account
            return {}
    return _shared_credentials()


def _shared_credentials() -> dict[str, Any]:
    """The keys of the profile in use, as `aws configure` writes them."""
    file = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(file)
        profile = dict(parser[os.environ.get("AWS_PROFILE", "default")])
        keys = {"access_key_id": profile["aws_access_key_id"], "secret_access_key": profile["aws_secret_access_key"]}
    except (configparser.Error, KeyError, UnicodeDecodeError):
        return {}
    token = profile.get("aws_session_token")
    return keys | ({"session_token": token} if token else {})
