"""`check` names ranges that reach far beyond what did well in the studies that come with tuner."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner import Budget, External, History, ImageClassifier, Study, choice, loguniform, randint, uniform
from tuner.loop.wide_ranges import wide_ranges
from tuner.search.portfolio import GOOD, shipped


def said(space: dict[str, Any], trial: Any = None, **fields: Any) -> list[str]:
    trial = trial or ImageClassifier("digits", "mobilenet_v2", weights="IMAGENET1K_V1")
    return list(wide_ranges(Study("wide", trial=trial, space=space, budget=Budget(trials=2, max_epochs=2), **fields)))


def test_a_range_far_beyond_what_did_well_is_named_with_a_narrower_one() -> None:
    (sentence,) = said({"finetune": "head", "lr": loguniform(1e-6, 1.0), "weight_decay": loguniform(1e-6, 0.1)})
    assert sentence.startswith("lr=loguniform(1e-06, 1) reaches far beyond")
    assert "loguniform(5e-05, 0.2) leaves out 40% of it" in sentence
    assert "21 studies" in sentence


@pytest.mark.parametrize("weights", [None, "IMAGENET1K_V1"])
def test_the_narrower_range_has_all_good_trials(weights: str | None) -> None:
    known, kind = shipped(), "weights" if weights else "random"
    finetune = "head" if weights else "all"
    studies, low, high = known.good_range("lr", kind, finetune)
    rows = [row for row, number in enumerate(known.study) if known.kinds[number] == kind]
    rows = [row for row in rows if known.configs[row]["finetune"] == finetune and known.regrets[row] <= GOOD]
    values = [known.configs[row]["lr"] for row in rows]
    assert (low, high) == (min(values), max(values))
    assert studies == len({known.study[row] for row in rows})
    trial = ImageClassifier("digits", "mobilenet_v2", weights=weights)
    (sentence,) = said({"finetune": finetune, "lr": loguniform(1e-8, 10.0)}, trial)
    narrow = sentence.partition("; loguniform(")[2].partition(")")[0].split(", ")
    assert float(narrow[0]) <= min(values) <= max(values) <= float(narrow[1])
    assert not said({"finetune": finetune, "lr": loguniform(*map(float, narrow))}, trial)  # following it is enough


def test_where_values_at_an_end_did_well_nothing_is_said_of_values_beyond() -> None:
    assert not said({"finetune": "head", "weight_decay": loguniform(1e-12, 1.0), "dropout": uniform(0, 0.9)})
    studies, low, high = shipped().good_range("weight_decay", "weights", "head")
    assert studies > 15
    assert np.isinf([low, high]).all()


@pytest.mark.parametrize("count", [4, 5])
def test_few_studies_are_not_enough(count: int) -> None:
    known = shipped()
    chosen = np.flatnonzero([kind == "random" for kind in known.kinds])[-count:]
    rows = np.flatnonzero(np.isin(known.study, chosen))
    configs = [known.configs[row] for row in rows]
    few = replace(known, study=known.study[rows], configs=configs, regrets=known.regrets[rows])
    studies, _, high = few.good_range("lr", "random", "all")
    assert studies == count
    assert np.isinf(high) == (count < 5)


@pytest.mark.parametrize(
    ("space", "trial"),
    [
        ({"lr": loguniform(1e-6, 1.0)}, None),  # all layers of pretrained networks learn: hardly recorded
        ({"lr": loguniform(1e-6, 1.0), "finetune": choice(["head", "all"])}, None),
        ({"lr": choice([1e-6, 1.0]), "finetune": "head", "batch_size": randint(2, 9)}, None),
        ({"lr": loguniform(2e-4, 0.1), "finetune": "head"}, None),  # a little beyond
        ({"lr": loguniform(1e-6, 1.0)}, External("elsewhere")),
        ({"lr": loguniform(1e-6, 1.0), "finetune": "head"}, ImageClassifier("digits", "mobilenet_v2", weights=None)),
    ],
)
def test_nothing_is_said_where_nothing_is_known(space: dict[str, Any], trial: Any) -> None:
    assert not said(space, trial)


@pytest.mark.parametrize(
    "fields", [{"warm_start": None}, {"warm_start": History(portfolio=False)}, {"metric": "val_loss"}]
)
def test_where_the_portfolio_is_left_out_it_says_nothing_of_ranges(fields: dict[str, Any]) -> None:
    space = {"lr": loguniform(1e-6, 1.0), "finetune": "head"}
    assert said(space)
    assert not said(space, **fields)


@pytest.mark.parametrize("ends", [(1e-8, 1e-6), (0.5, 2.0)])
def test_a_range_without_any_good_value_is_named_with_the_range_of_these(ends: tuple[float, float]) -> None:
    (sentence,) = said({"lr": loguniform(*ends), "finetune": "head"})
    assert "has no value that did well" in sentence
    assert sentence.endswith("; loguniform(0.0001, 0.1) has those")


def test_the_end_of_what_was_searched_stands_for_a_limit_that_is_not_known() -> None:
    trial = ImageClassifier("digits", "mobilenet_v2", weights=None)
    (sentence,) = said({"weight_decay": loguniform(0.1, 1.0)}, trial)
    assert sentence.endswith("; loguniform(1e-06, 0.03) has those")


def test_check_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tuner.cli.main import main

    (tmp_path / "space.py").write_text(
        "from tuner import Budget, ImageClassifier, Study, loguniform\n"
        'study = Study("wide", trial=ImageClassifier("digits", weights=None), space={"lr": loguniform(1e-6, 1.0)},\n'
        "              budget=Budget(trials=2, max_epochs=2))\n"
    )
    assert main(["check", str(tmp_path / "space.py"), "--storage", str(tmp_path / "runs")]) == 0
    assert "leaves out 50% of it" in " ".join(capsys.readouterr().out.split())
