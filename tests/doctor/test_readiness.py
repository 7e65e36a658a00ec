"""What a search relies on is looked at once; the looks are injected, as only a GPU can give real ones."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pynvml
import pytest

from tests.fake_nvml import Card, FakeNvml
from tuner.doctor.checks import Finding, Subject
from tuner.doctor.examination import Examination, at_once, examinations, examine_machine, perform
from tuner.doctor.readiness import Readiness, examine_gpus, readiness
from tuner.errors import StudyError
from tuner.machine.nvml import read_gpus

GOOD = [Finding("ok", "fine", "", name, "GPU 0") for name in ("wheel", "fp32", "bf16", "fp16", "resume", "graph")]
NO_GCC = Finding("notice", "torch.compile needs a C compiler", "install gcc", "compiler", "this machine")
NO_BF16 = Finding("notice", "this GPU only emulates bfloat16", "use fp16", "bf16", "GPU 0")
NO_GRAPH = Finding("notice", "its process was ended by SIGSEGV", "none is needed", "graph", "GPU 0")
NO_COMPILE = Finding("skipped", "needs wheel, which failed", "", "compile", "GPU 0")
BAD_RESUME = Finding("failed", "ends apart by 80 %", "use NoEarlyStopping()", "resume", "GPU 0")
BAD_WHEEL = Finding("failed", "torch has no kernels for sm_37", "pip install another", "wheel", "GPU 0")


class Looks:
    """A look at the machine that counts."""

    def __init__(self, *findings: Finding) -> None:
        self.findings, self.count = [*findings], 0

    def __call__(self) -> list[Finding]:
        self.count += 1
        return self.findings


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNvml:
    library = FakeNvml(Card("GPU-1"))
    monkeypatch.setattr("tuner.machine.nvml._load", lambda: library)
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return library


def test_a_machine_is_looked_at_once(cards: FakeNvml) -> None:
    look = Looks(*GOOD, NO_GCC, NO_BF16)
    first = readiness(1, look)
    assert first.off == {
        "bf16": "GPU 0: this GPU only emulates bfloat16",
        "compile": "this machine: torch.compile needs a C compiler",
    }
    assert readiness(1, look) == first
    assert look.count == 1
    assert first.notices[1] == (
        "training doesn't use torch.compile on this machine (this machine: torch.compile needs a C compiler); "
        "`python -m tuner doctor` checks it again"
    )
    first.check()


@pytest.mark.parametrize(("count", "gpus"), [(1, "the GPU"), (2, "the 2 GPUs")])
def test_a_look_is_announced_and_what_is_remembered_is_not(cards: FakeNvml, count: int, gpus: str) -> None:
    said: list[str] = []
    look = Looks(*GOOD)
    for _ in range(2):
        readiness(count, look, lambda message: said.append(f"{look.count}: {message}"))
    assert said == [
        f"0: trying out what works on {gpus} of this machine before the first search there; it takes about 20 s, and "
        "is remembered until GPU, driver or torch change"
    ]


def test_another_card_driver_or_compiler_is_looked_at_again(cards: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Looks(*GOOD)
    readiness(1, look)
    cards.driver = "590.10"
    readiness(1, look)
    cards.cards = [Card("GPU-2", name="A100", capability=(8, 0))]
    readiness(1, look)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    readiness(1, look)
    assert look.count == 4
    cards.cards = [Card("GPU-3", name="A100", capability=(8, 0))]  # another of the same kind
    readiness(1, look)
    assert look.count == 4


def test_a_gpu_that_cannot_train_is_refused_and_looked_at_each_time(cards: FakeNvml) -> None:
    look = Looks(BAD_WHEEL, NO_COMPILE)
    for _ in range(2):
        with pytest.raises(StudyError) as refused:
            readiness(1, look).check()
    assert str(refused.value) == (
        "a search on a GPU needs one that works, got GPU 0: torch has no kernels for sm_37; pip install another; "
        "see `python -m tuner doctor`, and --gpus-per-trial 0 uses the CPU"
    )
    assert look.count == 2


def test_what_crashes_is_done_without_and_what_training_needs_otherwise_is_told(cards: FakeNvml) -> None:
    found = readiness(1, Looks(*GOOD, NO_GRAPH, BAD_RESUME))
    assert found.off == {"graph": "GPU 0: its process was ended by SIGSEGV"}
    assert found.notices[-1] == "GPU 0 failed a check, resume: ends apart by 80 %; use NoEarlyStopping()"
    assert readiness(1, Looks()).notices == found.notices  # remembered too
    found.check()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"off": 3}', '{"off": {}}', '{"off": {"luck": 1}, "warnings": 2}'])
def test_a_damaged_memory_is_made_again(cards: FakeNvml, tmp_path: Path, text: str) -> None:
    readiness(1, Looks(*GOOD))
    (file,) = (tmp_path / "cache").glob("machine-*.json")
    file.write_text(text)
    look = Looks(*GOOD, NO_BF16)
    assert readiness(1, look).off == {"bf16": "GPU 0: this GPU only emulates bfloat16"}
    assert look.count == 1
    assert json.loads(file.read_text())["off"]


def test_a_cache_that_takes_nothing_costs_a_look_each_time(
    cards: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "file"))
    look = Looks(*GOOD)
    assert readiness(1, look) == readiness(1, look) == Readiness({})
    assert look.count == 2


def test_each_gpu_is_examined_alone_and_two_together(cards: FakeNvml) -> None:
    cards.cards = [Card("GPU-1"), Card("GPU-2")]
    plan = examinations(read_gpus(), 2)
    assert [(each.where, dict(each.environment)) for each in plan if each.device == "cuda"] == [
        ("GPU 0", {"CUDA_VISIBLE_DEVICES": "GPU-1"}),
        ("GPU 0", {"CUDA_VISIBLE_DEVICES": "GPU-1"}),
        ("GPU 1", {"CUDA_VISIBLE_DEVICES": "GPU-2"}),
        ("GPU 1", {"CUDA_VISIBLE_DEVICES": "GPU-2"}),
        ("the GPUs", {}),
    ]
    assert plan[-1].checks == ("two processes",)


def test_before_a_search_one_gpu_of_each_kind_is_examined_and_the_compiler_once(
    cards: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards.cards = [Card("GPU-1"), Card("GPU-2"), Card("GPU-3", name="A100")]
    plan: list[Examination] = []
    monkeypatch.setattr("tuner.doctor.readiness.perform", lambda examined, *_, **__: plan.extend(examined) or [])
    examine_gpus(read_gpus(), 3)
    relied_on = ("wheel", "fp32", "bf16", "fp16", "resume", "graph")
    assert [(each.where, each.checks, dict(each.environment)) for each in plan] == [
        ("this machine", ("compiler",), {}),
        ("GPU 0", relied_on, {"CUDA_VISIBLE_DEVICES": "GPU-1"}),
        ("GPU 0", ("compile",), {"CUDA_VISIBLE_DEVICES": "GPU-1"}),
        ("GPU 2", relied_on, {"CUDA_VISIBLE_DEVICES": "GPU-3"}),
        ("GPU 2", ("compile",), {"CUDA_VISIBLE_DEVICES": "GPU-3"}),
    ]


@dataclass(frozen=True)
class Meeting(Examination):
    """Waits for another one that runs at the same time."""

    place: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))
    seconds: float = 20.0

    def perform(self, subject: Subject, tell: Callable[[Finding], None]) -> list[Finding]:
        try:
            self.place.wait(self.seconds)
        except threading.BrokenBarrierError:
            return []
        return GOOD[:1]


@pytest.mark.parametrize(("exclusive", "mps", "together"), [(True, False, 0), (True, True, 2), (False, False, 2)])
def test_a_gpu_that_takes_one_process_is_examined_by_one_at_a_time(
    cards: FakeNvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exclusive: bool, mps: bool, together: int
) -> None:
    if exclusive:
        cards.cards.append(Card("GPU-2", compute_mode=pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS))
    if mps:
        (tmp_path / "control").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    first = Meeting("GPU 0", (), seconds=20.0 if together else 0.2)
    plan = [first, replace(first)]
    assert len(perform(plan, Subject("cuda"), lambda _: None, at_once=at_once(read_gpus()))) == together


@pytest.mark.slow
def test_a_gpu_that_nvml_knows_and_torch_does_not_is_a_failure(cards: FakeNvml) -> None:
    """The real processes, which find no driver here, over a card that there isn't."""
    told: list[Finding] = []
    found = examine_machine(only=("wheel", "fp32", "compile"), tell=told.append)
    assert [(finding.where, finding.check) for finding in found] == [
        ("GPU 0", "wheel"),
        ("GPU 0", "fp32"),
        ("GPU 0", "compile"),
    ]
    assert sorted(told, key=lambda finding: finding.check) == sorted(found, key=lambda finding: finding.check)
    wheel, fp32, compiled = found
    assert wheel.status == "failed"
    assert "can't use the GPU by CUDA: Found no NVIDIA driver" in wheel.said
    assert fp32.status == "skipped"
    assert compiled.status == "notice"
    with pytest.raises(StudyError, match="a search on a GPU needs one that works, got GPU 0: torch "):
        Readiness.of(found).check()
