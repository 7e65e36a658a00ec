"""A search under Ray: a trial, its winner, and trials that go on or are confirmed get the same values."""

import json
import math
from pathlib import Path

import pytest

from tests.commands import study_file, tuner
from tuner import load_run
from tuner.space.values import value_of

SEEN = """
from pathlib import Path

def train(config):
    with (Path(config["seen"]) / "seen").open("a") as file:
        file.write(f"{config['gamma']!r} {config['pair']!r} {config['flag']!r}\\n")
    tuner.report(loss=0.0 if config["gamma"] > 1 else 1.0)

study = Study(
    "seen", trial=train, metric="loss", mode="min", search=Random(sobol=False), scheduler=NoEarlyStopping(),
    budget=Budget(trials=4, max_epochs=1), warm_start=None,
    space={"gamma": choice([1.0, float("inf")]), "pair": sample_from(lambda config: (config["gamma"], True)),
           "flag": choice([True, 1]), "seen": SEEN_IN},
)
"""


@pytest.mark.ray
def test_the_winner_and_its_confirmations_have_the_infinity_that_the_trial_got(tmp_path: Path) -> None:
    space = study_file(tmp_path, SEEN.replace("SEEN_IN", repr(str(tmp_path))))
    done = tuner("run", space, "--json", folder=tmp_path)
    assert done.code == 0, done.err
    assert value_of(done.json["best"]["config"])["gamma"] == math.inf
    assert "Infinity" not in done.out
    confirmed = tuner("confirm", "runs", "--top", "1", "--seeds", "1", folder=tmp_path)
    assert confirmed.code == 0, confirmed.err
    run = load_run(tmp_path / "runs")
    best = run.record.best_trial()
    assert best is not None
    (again,) = (trial for trial in run.record.trials.values() if trial.confirms)
    replayed = tuner("replay", "runs", best.trial, folder=tmp_path)
    assert replayed.code == 0, replayed.err
    lines = (tmp_path / "seen").read_text().splitlines()
    told = [f"{t.config['gamma']!r} {t.config['pair']!r} {t.config['flag']!r}" for t in run.record.trials.values()]
    assert sorted(lines[:4]) == sorted(told[:4])
    assert lines[4:] == [told[again.number], told[best.number]]
    assert again.config == best.config
    assert (best.config["gamma"], best.config["pair"]) == (math.inf, (math.inf, True))
    assert "inf" in tuner("show", "runs", folder=tmp_path).out
    assert set(run.trials["config/gamma"]) == {trial.config["gamma"] for trial in run.record.trials.values()}
    assert value_of(json.loads(run.folder.read("best/config.json"))) == best.config
