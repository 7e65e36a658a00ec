"""The Hugging Face hub: its cache on this machine, read without the hub's library, and downloads into it by that.

HF_HUB_CACHE/models--OWNER--NAME/refs/main           the commit that "main" was when a file of it was last fetched
                                /snapshots/COMMIT/…  the files of that commit, links into blobs/
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

MAIN = "main"
BETWEEN = ", "  # commits of several repositories, each as OWNER/NAME@COMMIT
SECONDS = 10.0  # for the hub to answer


_commits: ContextVar[Mapping[str, str]] = ContextVar("commits", default=MappingProxyType({}))


class HubProblem(Exception):  # noqa: N818 -- it names a thing
    """What the hub, or a file of it, lacks; the text is the reason."""


def hub_cache() -> Path:
    """The cache's folder, found as the hub's library finds it."""
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expandvars(named or f"{home}/hub")).expanduser()


def hub_address() -> str:
    """The hub's address with a slash at its end: the one that its library asks."""
    return f"{(os.environ.get('HF_ENDPOINT') or 'https://huggingface.co').rstrip('/')}/"


def cached_repositories() -> list[str]:
    """The models' repositories that the cache has anything of, as OWNER/NAME."""
    folders = sorted(hub_cache().glob("models--*--*"))
    return [each.name.removeprefix("models--").replace("--", "/", 1) for each in folders]


def commits_in(fingerprint: str | None) -> dict[str, str]:
    """The commits of repositories on the hub, and the versions of models' files, by names, in a run's fingerprint."""
    return dict(each.split("@") for each in (fingerprint or "").split(BETWEEN) if "@" in each)


@contextmanager
def at_commits(commits: Mapping[str, str]) -> Iterator[None]:
    """Within the block these commits of repositories are taken for "main": those with which a run began."""
    token = _commits.set(commits)
    try:
        yield
    finally:
        _commits.reset(token)


@dataclass(frozen=True)
class HubFile:
    """A file of a model's repository, in one commit.

    Attributes:
        repository: OWNER/NAME
        name: the file's
        commit: 40 hexadecimal digits; None for the one that this machine knows as "main"
    """

    repository: str
    name: str
    commit: str | None = None

    @property
    def folder(self) -> Path:
        """The repository's place in the cache."""
        return hub_cache() / f"models--{self.repository.replace('/', '--')}"

    @property
    def fixed_commit(self) -> str | None:
        """The commit, or that with which the run began whose files are read; None for that of "main"."""
        return self.commit or _commits.get().get(self.repository)

    @property
    def known_commit(self) -> str | None:
        """The commit, or that of "main" in this machine's cache; None if nothing of it was ever fetched."""
        main = self.folder / "refs" / MAIN
        return self.fixed_commit or (main.read_text(encoding="utf-8").strip() if main.is_file() else None)

    @property
    def path(self) -> Path:
        """Where the file lies, or would lie."""
        return self.folder / "snapshots" / (self.known_commit or MAIN) / self.name

    def settled_commit(self) -> str:
        """The commit; if this machine's cache lacks the file, the one that the hub has as "main" now.

        "main" itself for a file that a user has put there. Raises HubProblem if the hub has to be asked, and can't be.
        """
        return self.known_commit or MAIN if self.fixed_commit or self.path.is_file() else self._main_now()

    def fetch(self) -> Path:
        """The file's path, downloaded by the hub's library unless it is there; raises HubProblem if it can't be."""
        if not self.path.is_file():
            is_main = self._main_now() == self.fixed_commit  # then the library also notes it as "main" in the cache
            revision = MAIN if is_main or self.fixed_commit is None else self.fixed_commit
            _asked(lambda hub: hub.hf_hub_download(self.repository, self.name, revision=revision))
        return self.path

    def _main_now(self) -> str:
        """The hub's commit of "main". Unlike in a download, the library gives up at once if there is no connection."""
        return str(_asked(lambda hub: hub.HfApi().model_info(self.repository, timeout=SECONDS).sha))


def _asked(request: Any) -> Any:
    """The result of a request to the hub's library, which is only loaded here."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise HubProblem("huggingface_hub isn't installed") from error
    try:
        return request(huggingface_hub)
    except Exception as error:  # its own, those of its HTTP client, and of the disk
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise HubProblem(reason[0]) from error
