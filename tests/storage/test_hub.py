"""The hub's cache, read without the hub's library, beside that library on the same files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import try_to_load_from_cache

from tests import hub_cache
from tests.hub_server import hub_server
from tuner.storage.hub import HubFile, HubProblem
from tuner.storage.hub import hub_cache as cache_folder

OTHER = "f" * 40


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return hub_cache.offline(tmp_path, monkeypatch)


@pytest.mark.parametrize("commit", [None, hub_cache.COMMIT, OTHER])
def test_a_file_is_found_where_the_library_finds_it(home: Path, commit: str | None) -> None:
    hub_cache.put(home, "owner/name", {"config.json": b"old"}, OTHER)
    hub_cache.put(home, "owner/name", {"config.json": b"new"})
    theirs = try_to_load_from_cache("owner/name", "config.json", cache_dir=cache_folder(), revision=commit)
    file = HubFile("owner/name", "config.json", commit)
    assert str(file.path) == theirs
    assert file.path.read_bytes() == (b"old" if commit == OTHER else b"new")
    assert file.fetch() == file.path
    assert file.settled_commit() == (commit or hub_cache.COMMIT)


def test_the_cache_is_named_as_the_librarys_variables_name_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == home / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(home / "mine"))
    assert cache_folder() == home / "mine"
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    assert cache_folder() == home / "xdg" / "huggingface" / "hub"


def test_a_file_that_is_put_there_by_hand_needs_no_hub(home: Path) -> None:
    file = HubFile("owner/name", "model.safetensors")
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(b"weights")
    assert file.path == home / "hub/models--owner--name/snapshots/main/model.safetensors"
    assert (file.known_commit, file.settled_commit(), file.fetch()) == (None, "main", file.path)


def test_a_missing_file_cant_be_had_without_the_hub(home: Path) -> None:
    hub_cache.put(home, "owner/name", {"config.json": b"{}"})
    file = HubFile("owner/name", "model.safetensors")
    for request in (file.settled_commit, file.fetch, HubFile("owner/name", "model.safetensors", OTHER).fetch):
        with pytest.raises(HubProblem):
            request()
    assert HubFile("owner/name", "model.safetensors", OTHER).settled_commit() == OTHER


def test_a_runs_commit_is_downloaded_though_main_is_another_one(tmp_path: Path) -> None:
    """In a process of its own: the hub's library reads its variables when it is loaded."""
    hub_cache.put(tmp_path / "there", "owner/name", {"config.json": b"old"}, OTHER)
    hub_cache.put(tmp_path / "there", "owner/name", {"config.json": b"new"})
    code = f"""
from tuner.storage.hub import HubFile, at_commits
with at_commits({{"owner/name": "{OTHER}"}}):
    file = HubFile("owner/name", "config.json")
    print(file.settled_commit() == "{OTHER}", file.fetch().read_bytes())
print(HubFile("owner/name", "config.json").fetch().read_bytes())
"""
    with hub_server(tmp_path / "there") as hub:
        environment = {**os.environ, "HF_ENDPOINT": hub.address, "HF_HUB_CACHE": str(tmp_path / "here")}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True b'old'\nb'new'\n"
