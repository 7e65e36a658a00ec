"""What a worker does with the processes of its trial: reports, checkpoints, and going on where one fails."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.commands import ROOT
from tests.worker.test_output import lines
from tests.worker.test_saving import ASSIGNMENT
from tuner import ImageClassifier
from tuner.errors import TrialLost, TrialOutOfMemory, describe_failure
from tuner.history.stacks import take_stacks
from tuner.storage.folder import LocalFolder
from tuner.worker.assignment import Assignment
from tuner.worker.hanging import HangWatch
from tuner.worker.output import NO_OUTPUT, Output, captured
from tuner.worker.several import train_on_several


class Session:
    """Takes what the worker's session would hand to Ray."""

    def __init__(self, folder: Path, output: Output = NO_OUTPUT, hung_seconds: float | None = None) -> None:
        self.folder, self.notes, self.output = folder, [], output
        self.watch = HangWatch(LocalFolder(folder), "00001", hung_seconds)
        self.reports: list[tuple[int, dict[str, Any], bool]] = []

    def checkpoints(self) -> list[Path]:
        return []

    def is_leaving(self) -> bool:
        return False

    def report_epoch(self, epoch: int, metrics: dict[str, Any], fill: Callable[[Path], None] | None = None) -> None:
        folder = self.folder / str(epoch)
        if fill is not None:
            folder.mkdir()
            fill(folder)
        self.reports.append((epoch, metrics, (folder / "model.safetensors").is_file()))


def data() -> Any:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (48, 1, 8, 8), generator=generator).to(torch.uint8)
    return [(images[part::3], torch.arange(48)[part::3] % 2) for part in range(3)]


class Narrow(nn.Module):
    """Has room for so many images in training."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.layers, self.room = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), room

    def forward(self, images: Tensor) -> Tensor:
        if self.training and len(images) > self.room:
            raise MemoryError(f"{len(images)} images")
        return self.layers(images)  # type: ignore[no-any-return]


def network(config: dict[str, Any]) -> nn.Module:
    return Narrow(100)


def narrow(config: dict[str, Any]) -> nn.Module:
    return Narrow(2)


def narrow_stages(config: dict[str, Any]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.GELU(), Narrow(2))


def normalised(config: dict[str, Any]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), Narrow(2))


def oversized(config: dict[str, Any]) -> nn.Module:
    raise MemoryError("no room for weights")


def hopeless(config: dict[str, Any]) -> nn.Module:
    return Narrow(0)


def asked(**changes: Any) -> Assignment:
    given: dict[str, Any] = {"config": {"batch_size": 8}, "epochs": 3, "save_epochs": [2]}
    return replace(ASSIGNMENT, **{"cpus": 2, "strategy": "ddp", **given, **changes})


def test_epochs_are_reported_with_checkpoints_where_the_policy_wants_them(tmp_path: Path) -> None:
    session = Session(tmp_path)
    train_on_several(ImageClassifier(data, network), asked(), session)  # type: ignore[arg-type]
    assert [epoch for epoch, _, _ in session.reports] == [1, 2, 3]
    assert session.reports[1][2]
    assert "val_accuracy" in session.reports[0][1]


@pytest.mark.slow
def test_memory_that_runs_out_halves_the_micro_batches_of_all(tmp_path: Path) -> None:
    session = Session(tmp_path)
    train_on_several(ImageClassifier(data, narrow), asked(epochs=1), session)  # type: ignore[arg-type]
    ((epoch, metrics, _),) = session.reports
    assert epoch == 1
    assert metrics["micro_batch_size"] == 2
    assert sum("micro-batches half the size" in note for note in session.notes) == 1


@pytest.mark.slow
def test_memory_that_runs_out_in_a_stage_halves_the_micro_batches(tmp_path: Path) -> None:
    session, config = Session(tmp_path), {"batch_size": 8, "pipeline_micro_batches": 2}
    assignment = asked(epochs=1, strategy="pipeline", config=config)
    train_on_several(ImageClassifier(data, narrow_stages), assignment, session)  # type: ignore[arg-type]
    ((_, metrics, _),) = session.reports
    assert metrics["micro_batch_size"] == 2
    assert "process 1 of 2: 4 images at once don't fit into memory (4 images)" in session.notes[0]
    assert "all processes go on with micro-batches half the size" in session.notes[0]


@pytest.mark.slow
def test_a_single_image_that_does_not_fit_spoils_the_trial(tmp_path: Path) -> None:
    with pytest.raises(TrialOutOfMemory, match="of 2: 1 images at once"):
        train_on_several(ImageClassifier(data, hopeless), asked(config={"batch_size": 2}), Session(tmp_path))  # type: ignore[arg-type]


@pytest.mark.slow
def test_where_a_whole_batch_never_fits_batch_norms_go_on_with_their_running_statistics(tmp_path: Path) -> None:
    session = Session(tmp_path)
    train_on_several(ImageClassifier(data, normalised), asked(epochs=1), session)  # type: ignore[arg-type]
    ((_, metrics, _),) = session.reports
    assert (metrics["micro_batch_size"], metrics["batch_norm"]) == (2, "running statistics")
    halved, running = (note for note in session.notes if "all processes go on" in note)
    assert "with micro-batches half the size" in halved
    assert "batch norms with their running statistics" in running


@pytest.mark.slow
def test_a_model_that_does_not_fit_is_not_tried_again(tmp_path: Path) -> None:
    session = Session(tmp_path)
    with pytest.raises(TrialOutOfMemory, match="of 2: no room for weights"):
        train_on_several(ImageClassifier(data, oversized), asked(), session)  # type: ignore[arg-type]
    assert session.notes == []


def test_a_process_that_is_killed_makes_the_trial_lost_as_its_worker_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = lambda connection: ["sh", "-c", "kill -9 $$"]  # noqa: E731 -- in place of a process that trains
    monkeypatch.setattr("tuner.train.parallel.launching.rank_command", killed)
    session = Session(tmp_path)
    with pytest.raises(TrialLost, match="of 2 was killed by signal 9") as raised:
        train_on_several(ImageClassifier(data, network), asked(), session)  # type: ignore[arg-type]
    assert describe_failure(raised.value)[0] == "lost"  # the driver counts it by Failures(lost=…)


class Stuck(nn.Module):
    """Says who it is, and is in one process never heard of again."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))

    def forward(self, images: Tensor) -> Tensor:
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        print(f"process {rank} begins")
        if rank == 1:
            waits_for_ever()
        return self.layers(images)  # type: ignore[no-any-return]


def waits_for_ever() -> None:
    while True:
        time.sleep(3600)


def stuck(config: dict[str, Any]) -> nn.Module:
    return Stuck()


def hangs(folder: Path) -> None:
    """A trial of two processes that hangs, watched as a worker is; runs in a process of its own, which is killed."""
    with captured("00001", str(folder), "begins") as output:
        session = Session(folder, output, hung_seconds=600.0)

        def watch_closely() -> None:
            while not (folder / "logs/00001.log").exists() or "process 1 begins" not in log_text(folder):
                time.sleep(0.1)
            session.watch._seconds = 1.0  # from now on, however long the processes took to begin
            session.watch.start()

        threading.Thread(target=watch_closely, daemon=True).start()
        train_on_several(ImageClassifier(data, stuck), asked(), session)  # type: ignore[arg-type]


def log_text(folder: Path) -> str:
    return (folder / "logs/00001.log").read_text()


@pytest.mark.slow
def test_what_hangs_in_another_process_leaves_the_stacks_of_all_in_the_log(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from tests.worker.test_several import hangs; hangs(Path(sys.argv[1]))"
    killed = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, timeout=280, check=False)
    assert killed.returncode == 1
    assert "in its log" in (take_stacks(LocalFolder(tmp_path), "00001") or "")
    until = time.monotonic() + 10
    while not any("waits_for_ever" in text for _, text in lines(tmp_path)) and time.monotonic() < until:
        time.sleep(0.1)  # the log's process outlives the worker for a moment
    said = lines(tmp_path)
    assert ("epoch 1 rank 1", "process 1 begins") in said
    assert any(source == "epoch 1 rank 1" and "in waits_for_ever" in text for source, text in said)
    assert any(source == "epoch 1 rank 0" and "most recent call first" in text for source, text in said)
