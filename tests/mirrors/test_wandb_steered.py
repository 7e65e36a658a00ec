"""Runs that users steer, and that fail and are tried again, as W&B gets them."""

import base64
import io
import json
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from tests.history.events_of_a_run import ended, event, reported, started
from tests.mirrors.test_wandb import mirror
from tests.mirrors.wandb_files import Shown, shown_runs
from tests.mirrors.wandb_server import wandb_server
from tuner import Run, load_run
from tuner.history.events import Event
from tuner.history.run_info import FORMAT, write_info
from tuner.storage.folder import LocalFolder

STUDY = {
    "study": "größe",
    "metric": "accuracy",
    "mode": "max",
    "started": "2026",
    "host": "elsewhere",
    "format": FORMAT,
}


def ordered(verb: str, number: int, refused: bool = False, **arguments: object) -> Event:
    kind = "order_refused" if refused else "order_obeyed"
    return event(kind, order=f"{number}", verb=verb, arguments=arguments, by="ada", message="done")


FIRST = [
    event("study_started", trials=3, study_version=1),
    started(0), reported(0, 1, accuracy=0.5), ordered("note", 1, trial="00000", text="noisy #again"),
    reported(0, 2, accuracy=0.6), ended(0, "completed"),
    started(1), reported(1, 1, accuracy=0.7), reported(1, 2, accuracy=0.8),
    ended(1, "failed", cause="error", message="KeyError: 'a'", traceback='  File "/x/study.py", line 3, in train\n'),
    started(2), ended(2, "failed", cause="error", message="KeyError: 'a'", traceback='  File "/x/study.py", line 3, in train\n'),
    ordered("set", 2, hours=2), ordered("stop", 3, refused=True), ordered("note", 4, text="a #sweep of mine"),
    ordered("note", 5, trial="00000", text="overfits"),
    event("study_interrupted", reason="Ctrl-C"),
]  # fmt: skip
SECOND = [
    event("study_resumed", trials=3, study_version=1),
    event("retry_requested", trials=["00001"]),
    started(1, from_epoch=1), reported(1, 2, accuracy=0.85), reported(1, 3, accuracy=0.9), ended(1, "completed"),
    event("study_ended", reason="trials"),
]  # fmt: skip


def write(folder: Path, *drivers: list[Event], status: str) -> Run:
    """A run whose drivers wrote these events one after another."""
    store = LocalFolder(folder)
    for number, events in enumerate(drivers, 1):
        lines = "".join(f"{json.dumps(one | {'time': 100.0 * number + place})}\n" for place, one in enumerate(events))
        store.write(f"events/{number:06d}.jsonl", lines.encode())
    write_info(store, {**STUDY, "status": status, "space": {}, "budget": {"max_epochs": 3}, "end_reason": "Ctrl-C"})
    return load_run(folder)


def score(run: Run) -> None:
    """Two mistakes of the winner, one of them with a damaged image."""
    picture = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(picture, "PNG")
    image = base64.b64encode(picture.getvalue()).decode()
    mistake = {"index": 7, "label": "cat", "predicted": "dog", "confidence": 0.9}
    mistakes = [{**mistake, "image": image}, {**mistake, "image": image[:40]}]
    run.folder.write("best/mistakes.json", json.dumps(mistakes).encode())
    run.folder.write("best/config.json", b"{}")


@pytest.fixture(scope="module")
def sittings(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Shown], dict[str, Shown]]:
    """What W&B's files say when the search is interrupted, and when it has gone on to its end."""
    folder = tmp_path_factory.mktemp("a folder") / "größe" / "run"
    told(mirror(write(folder, FIRST, status="interrupted"), "offline"))
    interrupted = shown_runs(folder / "wandb")
    run = write(folder, FIRST, SECOND, status="finished")
    score(run)
    told(mirror(run, "offline"))
    return interrupted, shown_runs(folder / "wandb")


def told(finished: "subprocess.CompletedProcess[str]") -> None:
    assert finished.returncode == 0, finished.stdout + finished.stderr


def epochs(shown: Shown) -> list[int]:
    return [row["epoch"] for row in shown.history]


def test_notes_of_a_trial_are_its_notes_and_their_hashtags_its_tags(sittings: tuple[dict[str, Shown], ...]) -> None:
    found = sittings[0]["größe 00000"]
    assert found.notes == "seed 100\nada: noisy #again\nada: overfits"
    assert found.tags == ("completed", "best", "again")
    assert epochs(found) == [1, 2]


def test_notes_of_the_run_and_its_orders_are_in_the_summary(sittings: tuple[dict[str, Shown], ...]) -> None:
    found = sittings[0]["größe summary"]
    assert found.notes == "ada: a #sweep of mine"
    assert found.tags == ("interrupted", "sweep")
    assert found.history[-1]["search/orders.nrows"] == 5


def test_the_first_failure_of_a_kind_is_an_alert_and_so_is_an_interruption(
    sittings: tuple[dict[str, Shown], ...],
) -> None:
    first = sittings[0]
    ((title, text, level),) = first["größe 00001"].alerts
    assert (title, level) == ("Trial 00001 has failed", "ERROR")
    assert "KeyError: 'a' (study.py:3)" in text
    assert "--trial 00001" in text
    assert first["größe 00002"].alerts == []
    assert [(title, level) for title, _, level in first["größe summary"].alerts] == [
        ("The search has been interrupted", "WARN")
    ]


def test_a_trial_that_is_tried_again_has_each_epoch_once_and_is_no_failure_any_more(
    sittings: tuple[dict[str, Shown], ...],
) -> None:
    before, after = (each["größe 00001"] for each in sittings)
    assert before.tags == ("failed", "error")
    assert after.tags == ("completed", "best")
    assert epochs(after) == [1, 2, 3]
    assert (after.summary["status"], after.summary["cause"], after.summary["traceback"]) == ("completed", None, None)
    assert (after.summary["best_epoch"], after.summary["best_accuracy"]) == (3, 0.9)
    assert len(after.alerts) == 1
    assert sittings[1]["größe 00000"].tags == ("completed", "again")  # which was the best before


def test_mistakes_are_a_table_of_images_and_the_winner_an_artifact(sittings: tuple[dict[str, Shown], ...]) -> None:
    found = sittings[1]["größe summary"]
    assert found.history[-1]["winner/mistaken_images.nrows"] == 1
    assert any(file.startswith("media/table/winner/mistaken_images") for file in found.files)
    (artifact,) = [one for one in found.artifacts if one.type == "model"]
    assert artifact.name == "gr--e-winner"
    assert artifact.metadata == {"accuracy": 0.9, "trial": "00001", "epoch": 3, "config": {"x": 1}}


@pytest.mark.slow
def test_a_run_without_any_trial_has_no_empty_panels(tmp_path: Path) -> None:
    run = write(tmp_path / "study" / "run", FIRST[:1], status="failed")
    told(mirror(run, "offline"))
    (found,) = shown_runs(tmp_path / "study" / "run" / "wandb").values()
    assert found.history == []
    assert [level for _, _, level in found.alerts] == ["ERROR"]
    assert found.exit_code == 1


@pytest.mark.slow
def test_online_the_server_is_asked_for_each_of_it_once(tmp_path: Path) -> None:
    run = write(tmp_path / "größe" / "run", FIRST, SECOND, status="finished")
    score(run)
    with wandb_server("answers") as server:
        told(mirror(run, "online", server.url))
        names = {key: about["displayName"] for key, about in server.runs.items()}
        rows = {names[key]: [row.get("epoch") for row in history] for key, history in server.history.items()}
        tags = {about["displayName"]: about["tags"] for about in server.runs.values()}
        alerts = [about["title"] for name, about in server.asked if name == "NotifyScriptableRunAlert"]
        artifacts = [about["input"] for name, about in server.asked if name == "CreateArtifact"]
    assert rows == {"größe 00000": [1, 2], "größe 00001": [1, 2, 3], "größe 00002": [], "größe summary": [None]}
    assert tags["größe 00001"] == ["completed", "best"]
    assert tags["größe 00000"] == ["completed", "again"]
    assert alerts == ["Trial 00001 has failed"]
    (winner,) = [one for one in artifacts if one["artifactTypeName"] == "model"]
    assert {one["alias"] for one in winner["aliases"]} == {"latest", "best"}
    assert sum(file.startswith("media/table/winner/mistaken_images") for file in server.files) == 1
