"""What networks cost when they answer, really measured: once on a machine, and as limits need it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner import Budget, Folds, ImageClassifier, Latency, Study, StudyError, choice, uniform
from tuner.worker import known_costs
from tuner.worker.known_costs import limits_in_words, remembered, said_of, with_costs
from tuner.worker.measuring import Measurers
from tuner.worker.network_cost import inference_cost

SPACE = {"model": choice(["squeezenet1_1", "resnet18"]), "lr": uniform(0.001, 0.1), "image_size": 32}


def study(**changes: Any) -> Study:
    settings: dict[str, Any] = {"trial": ImageClassifier("digits", weights=None), "space": SPACE}
    settings |= {"limits": {"size_mb": 20}, "budget": Budget(trials=9, max_epochs=3)}
    return Study("limited", **{**settings, **changes})


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shared by the tests of this file, so that each network is measured once."""
    folder = tmp_path_factory.getbasetemp() / "costs"
    monkeypatch.setenv("TUNER_CACHE", str(folder))
    return folder


def test_each_network_is_measured_once_on_a_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    assert remembered(study()).costs is None
    assert "2 networks are measured when the search starts" in limits_in_words(study())
    told: list[str] = []
    found = with_costs(study(), tell=told.append).costs
    assert found is not None
    small, large = (found.of({"model": model}) for model in ("squeezenet1_1", "resnet18"))
    assert small is not None
    assert large is not None
    assert 2.8 < small.size_mb < 3.2
    assert 44 < large.size_mb < 46  # 11.2 million weights of 4 bytes
    assert 0 < small.fastest_ms == small.latency_ms  # in one process, as no time is asked for
    assert small.flops < large.flops == pytest.approx(74e6, rel=0.06)  # 1.81e9 products of 224 pixels in colour
    assert large.memory_mb > large.size_mb
    assert told == [
        "measuring what networks cost: 1 of 2, model=resnet18",
        "measuring what networks cost: 2 of 2, model=squeezenet1_1",
    ]
    assert said_of(found).startswith("1 of 2 networks keep size_mb 20; not trained: model=resnet18 (size_mb 44.8)")

    def measured_again(*_: Any, often: bool) -> Any:
        raise AssertionError("measured again")

    monkeypatch.setattr(Measurers, "inference_costs", measured_again)
    other = study(limits={"size_mb": 10}, trial=ImageClassifier("digits", weights=None, validation=0.2))
    assert with_costs(other).costs == replace(found, limits={"size_mb": 10})  # other limits, data split otherwise
    assert remembered(other).costs == with_costs(other).costs
    within = study(limits={"latency_ms": 1e4})
    assert remembered(within).costs is None  # one process was enough for a size
    for file in (tmp_path / "network_costs").iterdir():
        assert file.stem.endswith("-once")
        file.with_stem(file.stem.removesuffix("-once")).write_bytes(file.read_bytes())
    assert remembered(within).costs is not None  # as if its times had been measured often
    for file in (tmp_path / "network_costs").iterdir():
        file.write_text(json.dumps({**json.loads(file.read_text()), "latency_ms": 3.0, "fastest_ms": 1.0}))
    assert remembered(within).costs is None  # others disturbed its times
    assert remembered(other).costs is not None
    with pytest.raises(AssertionError):
        with_costs(study(latency=Latency(batch=2)))
    for file in (tmp_path / "network_costs").iterdir():
        file.write_text("{")
    with pytest.raises(AssertionError):  # a damaged file counts as missing
        with_costs(study())


def test_a_cross_validations_networks_are_measured_together_and_a_refit_is_one() -> None:
    folds = ImageClassifier("digits", "squeezenet1_1", weights=None, validation=Folds(3))
    space = {"lr": uniform(0.001, 0.1), "image_size": 32}
    together = with_costs(study(trial=folds, space=space)).costs
    alone = with_costs(study(trial=folds, space=space, refit="train+validation")).costs
    assert together is not None
    assert alone is not None
    assert together.by_network["{}"].size_mb == pytest.approx(3 * alone.by_network["{}"].size_mb, rel=0.03)


def test_two_views_and_a_batch_take_more_operations_and_longer() -> None:
    trial = ImageClassifier("digits", "squeezenet1_1", weights=None)
    of: dict[str, Any] = {"channels": 1, "classes": 10, "often": False}
    one = inference_cost(trial, {"image_size": 64}, Latency(), **of)
    two = inference_cost(trial, {"image_size": 64, "test_time_flip": True}, Latency(batch=8), **of)
    assert two.flops == 2 * one.flops
    assert two.latency_ms > 4 * one.latency_ms  # sixteen times as much work


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"limits": {"size_mb": 1}}, r"got none with size_mb 1: model=squeezenet1_1 \(size_mb 3.0"),
        ({"start_from": [{"model": "resnet18"}]}, r"start_from\[0\]: limits need size_mb 20, got .*44.8 MB"),
        ({"space": {**SPACE, "image_size": choice(list(range(32, 200)))}}, "has at most 64 of them"),
        ({"latency": Latency(device="cuda")}, "needs a GPU"),
        (
            {"trial": ImageClassifier(lambda: None, "squeezenet1_1", weights=None), "space": {"lr": 0.1}},
            "are known before",
        ),  # type: ignore[arg-type,return-value]
    ],
)
def test_what_no_network_keeps_is_refused_with_what_each_costs(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(StudyError, match=said):
        with_costs(study(**changes))


def test_a_missing_library_is_told_with_what_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    monkeypatch.setattr(known_costs, "OF_ONNX", ("onnx", "no_such_library"))
    with pytest.raises(StudyError, match=r"without no_such_library; pip install 'image-tuner\[onnx\]'"):
        with_costs(study())


def test_what_is_known_is_looked_up_without_ray_and_torch() -> None:
    program = (
        "import sys; from tuner import *; from tuner.worker.known_costs import limits_in_words, remembered; "
        "study = Study('s', trial=ImageClassifier('digits', weights=None), space={'image_size': choice([32, 64])}, "
        "limits={'size_mb': 20}); print(limits_in_words(remembered(study))); "
        "print({'ray', 'torch', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "costs: size_mb 20; 2 networks are measured when the search starts, about 3 s each",
        "set()",
    ]
