"""The checks that train, run on the CPU; and that each finds what it looks for."""

from collections.abc import Callable

import pytest
import torch

from tuner.doctor import training
from tuner.doctor.apart import call_apart
from tuner.doctor.checks import Subject
from tuner.doctor.findings import Finding
from tuner.train import Trainer
from tuner.train.checkpoint import Checkpoint

CPU = Subject("cpu")


def apart(check: Callable[[Subject], Finding]) -> Finding:
    found: Finding = call_apart(lambda: check(CPU), 120)
    return found


@pytest.mark.parametrize("check", [training.fp32, training.bf16, training.fp16, training.resume, training.memory])
def test_a_sound_machine_passes(check: Callable[[Subject], Finding]) -> None:
    found = apart(check)
    assert (found.status, found.fix) == ("ok", ""), found


def test_two_processes_add_up_on_the_cpu() -> None:
    assert apart(training.two_processes).said == "two processes add up by gloo"


def test_a_loss_that_is_no_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(running: Trainer, steps: int) -> None:
        running._loss.fill_(float("nan"))

    monkeypatch.setattr(Trainer, "train", broken)
    assert apart(training.fp32).said == "the loss of 5 steps in fp32 is nan"


def test_a_checkpoint_that_loses_momentum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Trainer.snapshot

    def without_optimizer(running: Trainer) -> Checkpoint:
        kept = whole(running)
        zeroed = {name: torch.zeros_like(value) if value.ndim else value for name, value in kept.training.items()}
        return Checkpoint(kept.model, zeroed, kept.scalars)

    monkeypatch.setattr(Trainer, "snapshot", without_optimizer)
    found = apart(training.resume)
    assert found.status == "failed"
    assert found.said.startswith(
        "a trial that goes on from its checkpoint must end where it would have ended, got apart"
    )


def test_memory_errors_that_are_not_recognised_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.train.memory.errors.is_out_of_memory", lambda error: False)
    assert apart(training.memory).said.startswith("memory that ran out wasn't recognised (RuntimeError: ")


def test_a_limit_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_take", lambda device, size_bytes: None)
    assert apart(training.memory).said == "a limit of memory isn't kept here"
