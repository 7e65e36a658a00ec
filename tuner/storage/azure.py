"""Accounts of Azure's Blob Storage from the environment, for both libraries that read and write there.

obstore reads a key and an endpoint from the environment, pyarrow doesn't; so that the same settings serve both, they
are read here and passed to both. Without any of them each library finds the account by itself: the machine's identity,
a workload's identity, `az login`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tuner.errors import RunFolderError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SCHEMES = ("abfs", "abfss")
# Names that Azure's command line and obstore use; the first that is set counts
NAMES = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY")
TOKEN = "AZURE_STORAGE_SAS_TOKEN"
ENDPOINT = "AZURE_STORAGE_ENDPOINT"  # such as https://ACCOUNT.blob.core.windows.net, or http://127.0.0.1:10000/ACCOUNT


@dataclass(frozen=True, repr=False)
class AzurePlace:
    """An Azure account with a path in it, and what the environment says about the account.

    Attributes:
        account: its name
        path: container and prefix
        key: of the account, or None
        token: a shared access signature instead of the key, or None
        endpoint: one other than Azure's own, or None
    """

    account: str
    path: str
    key: str | None = None
    token: str | None = None
    endpoint: str | None = None

    @classmethod
    def of(cls, uri: str) -> AzurePlace:
        """The place of a URI in one of the forms that pyarrow takes.

        They are abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX, abfs://ACCOUNT.blob.core.windows.net/CONTAINER/…,
        and abfs://CONTAINER/PREFIX with the account's name in the environment. Raises RunFolderError without one.
        """
        parts = urlsplit(uri)
        host, inner = parts.hostname or "", unquote(parts.path).strip("/")
        if "." in host:
            account, container = host.partition(".")[0], unquote(parts.username or "")
        else:
            account, container = _first(NAMES) or "", host
        if not account:
            raise RunFolderError(
                f"storage in Azure needs the account's name, got {uri!r}; write "
                f"abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX, or set {NAMES[0]}"
            )
        path = "/".join(part for part in (container, inner) if part)
        key, token, endpoint = _first(KEYS), os.environ.get(TOKEN), os.environ.get(ENDPOINT)
        return cls(account, path, key, token, None if endpoint is None else endpoint.rstrip("/"))

    @property
    def is_told(self) -> bool:
        """Whether the environment has more than the account's place: a key, a token or an endpoint."""
        return bool(self.key or self.token or self.endpoint)

    def filesystem(self) -> FileSystem:
        """The file system for pyarrow."""
        from pyarrow.fs import AzureFileSystem

        options: dict[str, Any] = {}
        if self.endpoint is not None:
            parts = urlsplit(self.endpoint)
            for service in ("blob", "dfs"):
                options |= {f"{service}_storage_authority": parts.netloc, f"{service}_storage_scheme": parts.scheme}
        if self.key is not None:
            options["account_key"] = self.key
        elif self.token is not None:
            options["sas_token"] = f"?{self.token.removeprefix('?')}"
        return AzureFileSystem(self.account, **options)

    def options(self) -> dict[str, Any]:
        """Options for obstore's AzureStore."""
        told = {"account_name": self.account, "account_key": self.key, "endpoint": self.endpoint}
        if self.key is None:
            told["sas_key"] = self.token
        return {name: value for name, value in told.items() if value is not None}


def _first(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
