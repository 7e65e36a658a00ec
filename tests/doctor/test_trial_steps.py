"""The checks that train, run on the CPU; and that each finds what it looks for."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tuner.doctor import trial_steps
from tuner.doctor.checks import Finding, Subject
from tuner.machine.child_process import call_apart
from tuner.train import Trainer
from tuner.train.checkpoint import Checkpoint

CPU = Subject("cpu")


def apart(check: Callable[[Subject], Finding]) -> Finding:
    found: Finding = call_apart(lambda: with_one_thread(check), 120)
    return found


def with_one_thread(check: Callable[[Subject], Finding]) -> Finding:
    """OpenMP's threads are lost in a fork, and the tests before this one may have started some."""
    torch.set_num_threads(1)
    return check(CPU)


@pytest.mark.parametrize(
    "check", [trial_steps.fp32, trial_steps.bf16, trial_steps.fp16, trial_steps.resume, trial_steps.memory]
)
def test_a_sound_machine_passes(check: Callable[[Subject], Finding]) -> None:
    found = apart(check)
    assert (found.status, found.fix) == ("ok", ""), found


def test_two_processes_add_up_on_the_cpu() -> None:
    assert apart(trial_steps.two_processes).said == "two processes work together through gloo"


def test_a_loss_that_is_no_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trial_steps._small_network

    def broken(config: dict[str, Any]) -> torch.nn.Module:
        return torch.nn.Sequential(whole(config), torch.nn.Threshold(float("inf"), float("nan")))

    monkeypatch.setattr(trial_steps, "_small_network", broken)
    found = apart(trial_steps.fp32)
    assert found.status == "failed"
    assert "loss" in found.said
    assert "nan" in found.said


def test_a_checkpoint_that_loses_momentum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Trainer.snapshot

    def without_optimizer(running: Trainer) -> Checkpoint:
        kept = whole(running)
        zeroed = {name: torch.zeros_like(value) if value.ndim else value for name, value in kept.training.items()}
        return Checkpoint(kept.model, zeroed, kept.scalars)

    monkeypatch.setattr(Trainer, "snapshot", without_optimizer)
    found = apart(trial_steps.resume)
    assert found.status == "failed"
    assert found.said.startswith(
        "a trial that goes on from its checkpoint must end as without a break, got differences of"
    )


def test_memory_errors_that_are_not_recognised_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.train.memory.errors.is_out_of_memory", lambda error: False)
    assert apart(trial_steps.memory).said.startswith("memory that ran out wasn't recognised (RuntimeError: ")


def test_a_limit_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_steps, "_take", lambda device, size_bytes: None)
    assert apart(trial_steps.memory).said == "a limit of memory isn't kept here"


def test_on_a_gpu_the_limit_is_what_torch_holds_and_a_little_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in for the card: whether torch keeps the limit only a GPU can show."""
    limits: list[float] = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=2**33))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 2**30)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    with trial_steps._limited("cuda"):
        assert limits == [(2**30 + 2**28) / 2**33]
    assert limits[1:] == [1.0]


def test_bf16_that_is_only_emulated_is_left_to_trials_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    assert trial_steps.bf16(Subject("cuda")).status == "none here"
