"""What a look at the GPUs changes for a search; the looks are injected, as there may be no GPU here."""

import os
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest

from tests.fake_nvml import Card, FakeNvml
from tuner import Budget, ImageClassifier, Resources, Study
from tuner.console.live_table import Plan, display
from tuner.doctor.readiness import Readiness
from tuner.driver.gpus import gpus_checked
from tuner.errors import StudyError
from tuner.machine.hardware import _gpu_names
from tuner.machine.techniques import VARIABLE, allowed


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tuner.machine.nvml._load", lambda: FakeNvml(Card("GPU-1")))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    _gpu_names.cache_clear()
    yield
    _gpu_names.cache_clear()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many GPUs each look was at; it finds graphs broken."""
    made: list[int] = []

    def look(count: int, tell: Callable[[str], None]) -> Readiness:
        made.append(count)
        tell("this takes a while")
        return Readiness({"graph": "GPU 0: crashed"})

    monkeypatch.setattr("tuner.driver.gpus.readiness", look)
    return made


def study(gpus: float | None = None) -> Study:
    trial = ImageClassifier("digits", weights=None)
    return Study("s", trial=trial, space={}, budget=Budget(trials=1), resources=Resources(gpus=gpus))


def test_what_does_not_work_is_off_for_the_search_alone(looks: list[int]) -> None:
    with gpus_checked(study()) as notices:
        assert not allowed("graph")
        assert allowed("compile")
        assert os.environ[VARIABLE] == "graph"
    assert notices == [
        "training doesn't use CUDA graphs on this machine (GPU 0: crashed); `python -m tuner doctor` checks it again"
    ]
    assert VARIABLE not in os.environ
    assert looks == [1]


def test_what_the_user_switched_off_stays_off(looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "bf16, graph")
    with gpus_checked(study(0.5)):
        assert os.environ[VARIABLE] == "bf16,graph"
        assert not allowed("bf16")
    assert os.environ[VARIABLE] == "bf16, graph"


class Broken:
    def on_event(self, event: object) -> None:
        raise ValueError("no such thing")


def test_the_terminal_says_what_takes_a_while_before_it_is_done(looks: list[int]) -> None:
    declared, stream = study(), StringIO()
    with display(Plan.of(declared), stream, quiet=False) as shown, gpus_checked(declared, None, [Broken(), shown]):
        pass
    assert stream.getvalue() == "s: starting Ray\nnote: this takes a while\n"


def test_a_name_that_is_no_technique_is_refused(looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "graphs")
    rule = "TUNER_SWITCHED_OFF takes a list of compile, graph, bf16, fp16, got 'graphs'; remove other names"
    with pytest.raises(StudyError, match=rule), gpus_checked(study()):
        pass
    with pytest.raises(KeyError):
        allowed("graphs")


def test_nothing_is_looked_at_without_gpus_or_on_a_cluster(looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with gpus_checked(study(0)) as notices:
        assert notices == []
    with gpus_checked(study(), "127.0.0.1:6379"):
        pass
    with gpus_checked(Study("f", trial=print, space={}, metric="loss", resources=Resources(gpus=1))):
        pass  # a function may use a GPU without torch
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    _gpu_names.cache_clear()
    with gpus_checked(study()):
        pass
    assert looks == []


@pytest.mark.slow
def test_a_search_is_refused_where_torch_cannot_use_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real look, at a card that there isn't: torch finds no driver."""
    import tuner

    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(StudyError, match=r"a search on a GPU needs one that works, got GPU 0: .*--gpus-per-trial 0"):
        tuner.run(study(), storage=tmp_path / "runs", wandb="off")
    assert not list((tmp_path / "runs").glob("*/*/run.json"))
