"""The mirror in W&B: the real client, offline by what it writes, online against a server on loopback."""

import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.html_report.test_tasks import of_task
from tests.mirrors.wandb_files import Shown, shown_runs
from tests.mirrors.wandb_server import wandb_server
from tests.results.simulated import simulated
from tuner import Budget, NoEarlyStopping, Run, load_run
from tuner.history.records import TrialRecord
from tuner.html_report import write_report
from tuner.mirrors.process import logged_in, mirror_command
from tuner.mirrors.wandb_summary import SECTIONS, contents
from tuner.plots import Plots

OWN = ("_step", "_runtime", "_timestamp")  # W&B's columns


def mirror(run: Run, mode: Any, server: str = "http://127.0.0.1:9") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "WANDB_BASE_URL": server, "WANDB_API_KEY": "0" * 40, "WANDB_INIT_TIMEOUT": "4"}
    command = mirror_command("wandb", run.folder, mode)
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def rows(trial: TrialRecord) -> list[dict[str, Any]]:
    return [
        {"epoch": e.epoch, **{name: value for name, value in e.metrics.items() if value is not None}}
        for e in trial.epochs.values()
    ]


def without_own(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in OWN} for row in history]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    # a run of W&B takes a second for each trial
    budget = Budget(trials=7, max_epochs=9)
    run = simulated(tmp_path_factory.mktemp("storage") / "simulated" / "2026-01-31T09-30-00", budget=budget)
    run.folder.write("best/config.json", b"{}")
    (Path(run.path) / "logs").mkdir()
    for trial in run.record.trials:
        run.folder.write(f"logs/{trial}.log", f"{trial} printed\x1b[2J\n".encode())
    write_report(run)
    return run


@pytest.fixture(scope="module")
def shown(run: Run) -> dict[str, Shown]:
    finished = mirror(run, "offline")
    assert finished.returncode == 0, finished.stderr
    return shown_runs(Path(run.path) / "wandb")


def test_every_trial_is_a_run_of_one_group_with_its_settings_and_every_value(run: Run, shown: dict[str, Shown]) -> None:
    assert len(shown) == len(run.record.trials) + 1
    for trial in run.record.trials.values():
        found = shown[f"simulated {trial.trial}"]
        assert (found.project, found.group, found.job_type) == ("simulated", "simulated/2026-01-31T09-30-00", "trial")
        assert {name: value for name, value in found.config.items() if name != "_wandb"} == trial.config
        assert without_own(found.history) == rows(trial)
        assert [row["_step"] for row in found.history] == list(trial.epochs)


def test_how_a_trial_ended_is_its_tags_and_summary(run: Run, shown: dict[str, Shown]) -> None:
    statuses = set()
    for trial in run.record.trials.values():
        found = shown[f"simulated {trial.trial}"]
        statuses.add(trial.status)
        best = ("best",) if run.best is not None and trial.trial == run.best.trial else ()
        assert found.tags == (trial.status, *([trial.cause] if trial.cause else []), *best)
        assert found.exit_code == (1 if trial.status == "failed" else 0)
        assert found.summary["status"] == trial.status
        said = f"{trial.trial} printed\\x1b[2J" if trial.status == "failed" else None
        assert found.summary.get("output") == said
        assert found.summary["best_loss"] == run.record.best_of(trial.trial)[1]  # type: ignore[index]
    assert statuses == {"completed", "stopped", "failed"}


def test_the_summary_has_the_table_the_plots_the_report_and_the_winner(run: Run, shown: dict[str, Shown]) -> None:
    found = shown["simulated summary"]
    (row,) = found.history
    assert row["trials.nrows"] == len(run.record.trials)
    drawn = {name.removesuffix("._type") for name, kind in row.items() if kind == "plotly-file"}
    assert {"search/history", "search/curves", "hyperparameters/importance", "hyperparameters/parallel"} <= drawn
    assert "winner/confusion" not in drawn  # which would be an empty panel: a function has no test split
    assert row["report.size"] > 1_000_000
    (artifact,) = [one for one in found.artifacts if one.type == "model"]
    assert (artifact.name, set(artifact.aliases)) == ("simulated-winner", {"latest", "best"})
    assert run.best is not None
    assert artifact.metadata["loss"] == run.best_metrics["loss"]
    assert (artifact.metadata["trial"], artifact.metadata["config"]) == (run.best.trial, run.best.config)
    assert (found.summary["total"], found.summary["status"]) == (len(run.record.trials), "finished")
    assert found.tags == ("finished",)


def test_a_resumed_search_goes_on_in_the_same_runs_and_tells_nothing_twice(tmp_path: Path) -> None:
    budget = Budget(trials=2, max_epochs=9)
    whole = simulated(tmp_path / "study" / "run", scheduler=NoEarlyStopping(), budget=budget)
    lines = whole.folder.read("events/000001.jsonl").splitlines(keepends=True)
    (Path(whole.path) / "events/000001.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    assert mirror(load_run(whole.path), "offline").returncode == 0
    told = shown_runs(Path(whole.path) / "wandb")
    (Path(whole.path) / "events/000002.jsonl").write_bytes(b"".join(lines[len(lines) // 2 :]))
    assert mirror(load_run(whole.path), "offline").returncode == 0
    shown = shown_runs(Path(whole.path) / "wandb")
    assert {name: shown[name].id for name in told} == {name: run.id for name, run in told.items()}
    for trial in whole.record.trials.values():
        assert without_own(shown[f"simulated {trial.trial}"].history) == rows(trial)


@pytest.mark.slow
def test_online_the_server_gets_every_value(run: Run) -> None:
    with wandb_server("answers") as server:
        again = simulated_again(run)
        finished = mirror(again, "online", server.url)
        assert finished.returncode == 0, finished.stderr
        url = json.loads((Path(again.path) / "wandb/mirror.json").read_text())["url"]
        assert url.startswith(server.url)
        assert url.endswith("/simulated/groups/simulated%2F2026-01-31T09-30-00")
        by_name = {told["displayName"]: (key, told) for key, told in server.runs.items()}
        for trial in run.record.trials.values():
            key, told = by_name[f"simulated {trial.trial}"]
            assert without_own(server.history[key]) == rows(trial)
            assert told["tags"][0] == trial.status
            assert told["groupName"] == "simulated/2026-01-31T09-30-00"
        assert "simulated summary" in by_name


@pytest.mark.slow
def test_what_a_server_does_not_take_is_kept_for_later(run: Run) -> None:
    with wandb_server("drops") as server:
        again = simulated_again(run)
        finished = mirror(again, "online", server.url)
        assert server.requests > 0
    assert finished.returncode == 1
    assert "kept for `wandb sync`" in finished.stdout
    shown = shown_runs(Path(again.path) / "wandb")
    for trial in again.record.trials.values():
        assert without_own(shown[f"simulated {trial.trial}"].history) == rows(trial)


def simulated_again(run: Run) -> Run:
    """The run as no mirror has seen it."""
    folder = Path(run.path) / "wandb"
    if folder.exists():
        folder.rename(folder.with_name(f"wandb-{len(list(folder.parent.iterdir()))}"))
    return load_run(run.path)


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_without_a_key_nobody_is_logged_in(nobody: Path) -> None:
    assert not logged_in()


def test_a_key_in_the_environment_logs_in(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert logged_in()


def test_a_key_in_netrc_logs_in_to_its_server_alone(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nobody / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password 0123\n")
    (nobody / ".netrc").chmod(0o600)
    assert logged_in()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert not logged_in()


def test_a_damaged_netrc_logs_nobody_in(nobody: Path) -> None:
    (nobody / ".netrc").write_text("machine\n")
    assert not logged_in()


def test_each_plot_has_a_section() -> None:
    assert sorted(chain.from_iterable(SECTIONS.values())) == sorted(Plots.names())


@pytest.mark.parametrize(
    ("task", "drawn", "mistake"),
    [
        ("one", {"confusion", "classes", "calibration"}, {"label": "a", "predicted": "b", "confidence": 0.98}),
        ("several", {"label_scores", "mistaken_together", "calibration"}, {"label": "a, b", "predicted": "none"}),
        ("number", {"predicted_against_true", "errors_by_target"}, {"label": "12.3", "predicted": "14"}),
    ],
)
def test_a_winner_has_the_plots_of_its_task_and_its_mistakes(
    tmp_path: Path, task: str, drawn: set[str], mistake: dict[str, Any]
) -> None:
    found = contents(of_task(tmp_path, task))
    shown = {name.removeprefix("winner/") for name in found if name.startswith("winner/")}
    assert shown == drawn | {"mistakes", "mistaken_images"}
    table = found["winner/mistaken_images"]
    assert [dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.data] == [{"index": 3, **mistake}]


def test_the_mirror_loads_neither_ray_nor_torch(run: Run) -> None:
    code = "import tuner.mirrors.wandb, tuner.mirrors.mlflow, sys; sys.exit(bool({'ray', 'torch', 'wandb', 'mlflow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
