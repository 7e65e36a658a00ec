"""What an object store of any kind has to do for a run's folder."""

from __future__ import annotations

from pathlib import Path

from tuner.storage.locations import open_folder


def works_for_everything(uri: str, target: Path) -> None:
    """Write, list, read, rename, fetch and delete below the URI; `target` is a local folder for what is fetched."""
    storage = open_folder(uri)
    folder = storage.child("größe 50%").child("2026-01-31T09-30-00")
    folder.write("run.json", b"{}")
    folder.write("tune/00001/saved_000003/training.json", b"3")
    again = open_folder(folder.uri)
    assert (again.uri, again.name) == (folder.uri, "2026-01-31T09-30-00")
    assert (again.read("run.json"), again.files(), again.folders()) == (b"{}", ["run.json"], ["tune"])
    inside = open_folder(again.child("tune/00001").uri)
    assert (inside.folders(), inside.exists("saved_000003/training.json")) == (["saved_000003"], True)
    assert "größe 50%" in storage.folders()
    again.rename("tune/00001", "best")
    assert (again.fetch("best", target) / "saved_000003" / "training.json").read_text() == "3"
    assert again.held_bytes() == 3
    again.delete("best")
    again.delete("best")
    assert (again.files("best/saved_000003"), again.exists("run.json")) == ([], True)
    again.remove("run.json")
    again.remove("run.json")
    assert not again.exists("run.json")
