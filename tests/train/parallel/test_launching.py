"""Processes that train a trial together, on the CPU: what they come to, and what becomes of them when one fails."""

import math
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.commands import ROOT
from tests.processes import is_alive
from tuner import ImageClassifier
from tuner.errors import describe_failure
from tuner.train import Trainer
from tuner.train.parallel.launching import Here, RankFailed, RankLost, Ranks, Task, _seeing_only, rank_command
from tuner.train.tasks.one_label import ClassTargets

CONFIG = {"batch_size": 8, "optimizer": "sgd", "lr": 0.05}


def data() -> Any:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 1, 8, 8), generator=generator).to(torch.uint8)
    return [(images[part::3], torch.arange(40)[part::3] % 2) for part in range(3)]


def network(config: dict[str, Any]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.GELU(), nn.Linear(8, 2))


class Failing(nn.Module):
    """Raises in the process whose number it is given, after some steps."""

    def __init__(self, rank: int, error: Callable[[], BaseException]) -> None:
        super().__init__()
        self.layers, self.rank, self.error, self.steps = network({}), rank, error, 0

    def forward(self, images: Tensor) -> Tensor:
        self.steps += self.training
        if self.steps > 1 and torch.distributed.is_initialized() and torch.distributed.get_rank() == self.rank:
            raise self.error()
        return self.layers(images)  # type: ignore[no-any-return]


def seeing(config: dict[str, Any]) -> nn.Module:
    """Fails with what its process sees of GPUs."""
    raise ValueError(f"GPUs {os.environ.get('CUDA_VISIBLE_DEVICES')!r}")


def broken(config: dict[str, Any]) -> nn.Module:
    return Failing(1, lambda: ValueError("no such class"))


def task(model: Any = network, **changes: Any) -> Task:
    pickled = pickle.dumps((ImageClassifier(data, model), changes.pop("config", CONFIG)))
    given = {"epochs": 3, "seed": 1, "split_seed": 0, "threads": 1}
    return Task(pickled, (str(ROOT),), **{**given, **changes})


def here() -> list[Here]:
    return [Here("cpu"), Here("cpu")]


def pids_of(ranks: Ranks) -> list[int]:
    return [place.process.pid for place in ranks.places if isinstance(place, Here) and place.process is not None]


@pytest.mark.parametrize(
    ("visible", "own"),
    [({}, "1"), ({"CUDA_VISIBLE_DEVICES": "2,5"}, "5"), ({"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, "GPU-b")],
)
def test_each_process_sees_its_own_gpu_alone(visible: dict[str, str], own: str) -> None:
    device, environment = _seeing_only("cuda:1", {"HOME": "/home", **visible})
    assert device == "cuda"
    assert environment == {"HOME": "/home", "CUDA_VISIBLE_DEVICES": own}
    assert _seeing_only("cpu", visible) == ("cpu", visible)


def test_processes_on_the_cpu_see_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(RankFailed, match="GPUs ''"), Ranks(task(seeing), here()) as ranks:
        ranks.next_epoch()


def test_they_come_to_what_one_process_comes_to_and_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    alone = Trainer(ImageClassifier(data, network), CONFIG, epochs=3, seed=1)
    expected = [alone.run_epoch().validation.loss for _ in range(3)]
    with Ranks(task(), here()) as ranks:
        found = [ranks.next_epoch() for _ in range(2)]
        ranks.save(tmp_path / "saved")
        pids = pids_of(ranks)
    assert not any(map(is_alive, pids))
    assert [one.epoch for one in found] == [1, 2]
    assert [one.metrics["val_loss"] for one in found] == pytest.approx(expected[:2], rel=1e-4)
    with Ranks(task(checkpoints=(tmp_path / "saved",)), here()) as ranks:
        last = ranks.next_epoch()
    assert last.epoch == 3
    assert last.metrics["val_loss"] == pytest.approx(expected[2], rel=1e-4)
    plain = Trainer(ImageClassifier(data, network), CONFIG, epochs=3, seed=1)
    plain.load(tmp_path / "saved")
    assert plain.parts.training_step.micro_batch_size == 8  # not the half that each of the processes had
    assert plain.run_epoch().validation.loss == pytest.approx(expected[2], rel=1e-4)


def outcome(given: Task, *, epochs: int = 1, kill: int | None = None) -> tuple[BaseException | None, list[int]]:
    """What training so many epochs raises, and the processes' ids; one is killed after the first epoch."""
    pids: list[int] = []
    try:
        with Ranks(given, here()) as ranks:
            pids = pids_of(ranks)
            for epoch in range(epochs):
                ranks.next_epoch()
                if kill is not None and epoch == 0:
                    os.kill(pids[kill], signal.SIGKILL)
    except Exception as error:
        return error, pids
    return None, pids


@pytest.mark.slow
def test_the_first_that_fails_is_named_and_all_are_ended() -> None:
    error, pids = outcome(task(broken))
    assert isinstance(error, RankFailed)
    assert str(error) == "process 1 of 2: ValueError: no such class"
    assert error.cause == "error"
    assert "in forward\n    raise self.error()" in describe_failure(error)[2]  # where it was raised, in its process
    assert not any(map(is_alive, pids))


def test_one_that_is_killed_is_named_and_the_others_are_ended() -> None:
    error, pids = outcome(task(), epochs=2, kill=1)
    assert isinstance(error, RankLost)
    assert str(error) == "process 1 of 2 was killed by signal 9"
    assert not any(map(is_alive, pids))


@pytest.mark.slow
def test_when_the_one_that_started_them_is_killed_they_end_too(tmp_path: Path) -> None:
    code = (
        "import sys, time; from tests.train.parallel.test_launching import Ranks, here, pids_of, task\n"
        "ranks = Ranks(task(epochs=1000), here()); ranks.next_epoch()\n"
        "print(*pids_of(ranks), flush=True); time.sleep(600)"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    pids = [int(pid) for pid in starter.stdout.readline().split()]
    assert len(pids) == 2
    starter.kill()
    starter.wait()
    for _ in range(100):
        if not any(map(is_alive, pids)):
            break
        time.sleep(0.1)
    assert not any(map(is_alive, pids))


@pytest.mark.slow
def test_one_whose_starter_is_gone_already_ends_at_once() -> None:
    command = [*rank_command("0")[:-1], "1"]  # not this process, as if another had taken its place
    finished = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (1, b"", b"")


# A model that is too big for one device


class Roomy(nn.Sequential):
    """16 layers of 16.8 MB each; once it is made, its process may take 740 MB more."""

    def __init__(self) -> None:
        layers = (layer for _ in range(16) for layer in (nn.Linear(2048, 2048, bias=False), nn.GELU()))
        super().__init__(nn.Flatten(), nn.Linear(64, 2048), *layers, nn.Linear(2048, 2))
        ClassTargets(("a", "b")).metrics(
            torch.eye(2), torch.arange(2)
        )  # imports what else would have to be imported within the limit
        status = Path("/proc/self/status").read_text().splitlines()
        held = int(next(line.split()[1] for line in status if line.startswith("VmSize"))) * 1024
        limit = held + 740_000_000
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def roomy(config: dict[str, Any]) -> nn.Module:
    return nn.Sequential(*Roomy())


def train_roomy_alone() -> None:
    torch.set_num_threads(1)
    Trainer(ImageClassifier(data, roomy), BIG, epochs=1).run_epoch()


BIG = {"batch_size": 8, "optimizer": "adam", "pipeline_micro_batches": 4}  # weights, gradients and two moments


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's limit of a process's memory")
def test_a_model_that_one_process_has_no_memory_for_is_trained_by_two() -> None:
    code = "from tests.train.parallel.test_launching import train_roomy_alone; train_roomy_alone()"
    alone = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert alone.returncode == 1
    assert "TrialOutOfMemory" in alone.stderr
    with Ranks(task(roomy, config=BIG, strategy="pipeline"), here()) as ranks:
        told = ranks.next_epoch()
    assert math.isfinite(float(told.metrics["val_loss"]))
    assert told.metrics["oom_retries"] == 0
