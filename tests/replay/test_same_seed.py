"""`check --same-seed`: what a change of each hyperparameter changes in an epoch with the same seed."""

import json
from pathlib import Path

import pytest

from tests.commands import run_main

STUDY = """
import random

import tuner
from tuner import Budget, Study, choice, uniform


def train(config):
    print(config["printed"])
    for epoch in range(1, 4):
        tuner.report(loss=config["lr"] / epoch + SCALE * RANDOM, steps=10)


study = Study(
    "seeds", trial=train, space={"lr": uniform(0, 1), "printed": uniform(0, 1), "unread": choice(["a", "b"])},
    metric="loss", mode="min", budget=Budget(trials=4, max_epochs=3),
)
"""


@pytest.mark.parametrize(
    ("random", "told"),
    [
        ("random.random()", {"reproducible": True, "unchanged": ["printed", "unread"]}),
        ("random.SystemRandom().random()", {"reproducible": False, "unchanged": []}),
    ],
    ids=["seeded", "not seeded"],
)
def test_what_changes_nothing_is_told_where_training_is_reproducible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], random: str, told: dict[str, object]
) -> None:
    (tmp_path / "space.py").write_text(STUDY.replace("RANDOM", random).replace("SCALE", "0.1"))
    code, out, _ = run_main(capsys, "check", str(tmp_path / "space.py"), "--same-seed", "--json")
    assert code == 0
    found = json.loads(out)["same_seed"]
    assert {name: found[name] for name in told} == told
    assert list(found["changed"]) == (["lr", "printed", "unread"] if told["reproducible"] else [])
    assert all(before != after for before, after in found["changed"].values())


def test_it_is_told_in_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "space.py").write_text(STUDY.replace("RANDOM", "0").replace("SCALE", "1"))
    _, out, _ = run_main(capsys, "check", str(tmp_path / "space.py"), "--same-seed")
    lines = [line for line in out.splitlines() if line.startswith("same seed: ")]
    assert [line.split()[2] for line in lines] == ["lr", "printed", "unread"]
    assert [line.endswith("matters") for line in lines] == [True, False, False]
    assert lines[1].endswith("changed nothing in the first epoch")
