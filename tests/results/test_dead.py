"""Dead hyperparameters are found in searches whose functions have a fault, and none in healthy ones."""

import argparse
import copy
import dataclasses
import json
import math
import pickle
import pprint
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests import commands
from tests.commands import study_file
from tests.history.events_of_a_run import ended, reported, started
from tuner import Budget, Study, choice, load_run, loguniform, uniform
from tuner.history.records import RunRecord
from tuner.loop.search_loop import SearchLoop
from tuner.results.dead import alike, dead, unread
from tuner.schedule import Decision
from tuner.space import Space
from tuner.storage.folder import LocalFolder
from tuner.trial import session
from tuner.worker.read_values import Reading, asks_by_name

SPACE = {"lr": loguniform(1e-5, 1e-1), "momentum": uniform(0.5, 0.99), "optimizer": {"wd": loguniform(1e-6, 1e-2)}}
Config = dict[str, Any]


class Here:
    """Runs a trial in this process, as a worker does."""

    def __init__(self, loop: SearchLoop, trial: str, config: Config, function: Callable[[Config], None]) -> None:
        self.loop, self.trial, self.epoch = loop, trial, 0
        self.reading = Reading(config) if asks_by_name(function) else None

    def report(self, metrics: Config, checkpoint: Path | None) -> None:
        self.epoch += 1
        decision = self.loop.report(
            self.trial, self.epoch, metrics, saves=False, reading=self.reading and self.reading.news()
        )
        if decision is not Decision.CONTINUE:
            raise SystemExit(0)

    def checkpoint(self) -> None:
        return None

    def ignored(self) -> None:
        return None


def searched(
    folder: Path, function: Callable[[Config], None], space: Any = SPACE, seed: int = 0, **how: Any
) -> SearchLoop:
    settings = {"metric": "val_loss", "mode": "min", "seed": seed, "budget": Budget(trials=8, max_epochs=3)} | how
    study = Study(name="dead", trial=function, space=space, **settings)
    loop = SearchLoop(study, LocalFolder(folder), concurrency=1)
    while (start := loop.next_action()) is not None:
        here = Here(loop, start.trial, start.config, function)
        random.seed(start.seed)
        try:
            with session.activate(here):
                function(start.config if here.reading is None else here.reading)
            loop.returned(start.trial)
        except SystemExit:
            pass
    loop.end()
    loop.close()
    return loop


def epochs(*used: float, seed: int | None = None) -> None:
    """Three epochs whose loss depends on what is used, and on chance."""
    chance = random.Random(seed) if seed is not None else random
    for epoch in range(1, 4):
        tuner.report(val_loss=sum(used) + 1 / epoch + chance.random() / 10)


def ignored(config: Config) -> None:
    epochs(0.01)


def default_instead(config: Config, lr: float = 0.01) -> None:
    epochs(lr, config["momentum"], config["optimizer"]["wd"])


def misspelt(config: Config) -> None:
    epochs(config["lr"], config.get("momentun", 0.9), config["optimizer"]["wd"])


def never_taken(config: Config) -> None:
    wd = config["optimizer"]["wd"] if config["lr"] < 0 else 0.0
    epochs(config["lr"], config["momentum"], wd)


LR = 0.01


def shadowed_by_a_global(config: Config) -> None:
    epochs(LR, config["momentum"], config["optimizer"]["wd"])


def argparse_defaults(config: Config) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    epochs(parser.parse_args([]).lr, config["momentum"], config["optimizer"]["wd"])


def overwritten_before(config: Config) -> None:
    config["lr"] = 0.01
    epochs(config["lr"], config["momentum"], config["optimizer"]["wd"])


def asked_whether_it_is_there(config: Config) -> None:
    lr = config["learning_rate"] if "learning_rate" in config else 0.01  # noqa: SIM401
    epochs(lr, config["momentum"], config["optimizer"]["wd"])


def caught(config: Config) -> None:
    try:
        lr = config["Lr"]
    except KeyError:
        lr = 0.01
    epochs(lr, config["momentum"], config["optimizer"]["wd"])


def own_defaults(config: Config) -> None:
    config = {"lr": 0.1, "momentum": 0.9}
    epochs(config["lr"], config["momentum"])


UNREAD = {
    ignored: ["lr", "momentum", "optimizer.wd"],
    default_instead: ["lr"],
    misspelt: ["momentum"],
    never_taken: ["optimizer.wd"],
    shadowed_by_a_global: ["lr"],
    argparse_defaults: ["lr"],
    overwritten_before: ["lr"],
    asked_whether_it_is_there: ["lr"],
    caught: ["lr"],
    own_defaults: ["lr", "momentum", "optimizer.wd"],
}


@pytest.mark.parametrize(("function", "names"), UNREAD.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_what_no_trial_reads_is_named_and_never_ranked(tmp_path: Path, function: Any, names: list[str]) -> None:
    record = searched(tmp_path, function).record
    notices = [notice for notice in record.notices if "must be read to have an effect" in notice]
    assert len(notices) == 1
    assert f"got {', '.join(names)}, which" in notices[0]
    assert list(unread(record, Space(SPACE))) == names


def test_it_is_named_after_the_first_trial_and_a_misspelt_name_is_corrected(tmp_path: Path) -> None:
    record = searched(tmp_path / "one", ignored, budget=Budget(trials=1, max_epochs=3)).record
    assert "unread" in record.notice_codes
    record = searched(tmp_path / "two", misspelt).record
    assert any("'momentun' is asked for, did you mean 'momentum'?" in notice for notice in record.notices)


def seeded_inside(config: Config) -> None:
    dict(config)
    epochs(0.01, seed=7)


def overwritten_after(config: Config) -> None:
    lr, _, _ = config["lr"], config["momentum"], config["optimizer"]["wd"]
    lr = 0.01
    epochs(lr, seed=1)


def only_printed(config: Config) -> None:
    pprint.pformat(config)
    epochs(0.01, seed=1)


def optimizer_made_again(config: Config) -> None:
    optimizer = {"lr": config["lr"], "momentum": config["momentum"], "wd": config["optimizer"]["wd"]}
    optimizer = {"lr": 0.01}
    epochs(optimizer["lr"], seed=1)


CACHED: list[float] = []


def cached_results(config: Config) -> None:
    if not CACHED:
        CACHED.extend(config["lr"] + config["momentum"] + config["optimizer"]["wd"] + 1 / epoch for epoch in (1, 2, 3))
    for loss in CACHED:
        tuner.report(val_loss=loss, random=random.random())
    dict(config)


@pytest.mark.parametrize(
    "function", [seeded_inside, overwritten_after, only_printed, optimizer_made_again, cached_results]
)
def test_equal_curves_of_different_configurations_are_named_once(tmp_path: Path, function: Any) -> None:
    record = searched(tmp_path, function).record
    told = [notice for notice in record.notices if "have the same curve to the last bit" in notice]
    assert len(told) == 1
    assert "differ in lr, momentum, optimizer.wd and" in told[0]


def test_a_hyperparameter_is_dead_only_if_several_pairs_show_it_and_none_contradicts(tmp_path: Path) -> None:
    """Under adam momentum does nothing, under sgd it does; the third is used by neither."""
    space = {"optimizer": choice(["adam", "sgd"]), "momentum": choice([0.8, 0.9]), "third": choice([1, 2])}

    def train(config: Config) -> None:
        optimizer, momentum, _ = config["optimizer"], config["momentum"], config["third"]
        epochs(momentum if optimizer == "sgd" else 0.5, seed=3)

    budget = Budget(trials=8, max_epochs=3)
    loop = searched(tmp_path, train, space, search=tuner.Grid(), scheduler=tuner.NoEarlyStopping(), budget=budget)
    assert dead(loop.record, Space(space)) == ("third",)


@dataclasses.dataclass
class Settings:
    lr: float
    momentum: float
    optimizer: Any
    kind: str
    depth: int
    beta: float
    late: float


class Wrapped:
    def __init__(self, values: Config) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        value = self._values[name]
        return Wrapped(value) if isinstance(value, dict) else value


def _each_item(config: Config) -> Iterator[Config]:
    yield {name: value for name, value in config.items()}  # noqa: C416


def _series(config: Config) -> Config:
    pandas = pytest.importorskip("pandas")
    return dict(pandas.Series(config))


def _far(config: Config) -> Config:
    code = "import json, sys; print(json.dumps(json.loads(sys.argv[1])))"
    return dict(
        json.loads(
            subprocess.run(
                [sys.executable, "-SE", "-c", code, json.dumps(config)], capture_output=True, check=True
            ).stdout
        )
    )


SCALARS = ("lr", "momentum", "kind", "depth", "beta", "late")
HEALTHY: list[Callable[[Config], Any]] = [
    lambda config: config,
    dict,
    lambda config: dict(**config),
    lambda config: {**config},
    lambda config: config | {},
    lambda config: {} | config,
    copy.copy,
    copy.deepcopy,
    lambda config: config.copy(),
    lambda config: pickle.loads(pickle.dumps(config)),
    lambda config: json.loads(json.dumps(config)),
    lambda config: dataclasses.asdict(Settings(**config)),
    lambda config: next(_each_item(config)),
    lambda config: vars(argparse.Namespace(**config)),
    lambda config: {name: config[name] for name in config},
    lambda config: (
        {name: getattr(Wrapped(config), name) for name in SCALARS} | {"optimizer": {"wd": Wrapped(config).optimizer.wd}}
    ),
    lambda config: {name: config.pop(name) for name in SCALARS} | {"optimizer": config.setdefault("optimizer", {})},
    lambda config: eval(repr(config)),
    _series,
    _far,
]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("way", range(len(HEALTHY)))
def test_two_hundred_healthy_searches_raise_no_alarm(tmp_path: Path, seed: int, way: int) -> None:
    """Small validation sets, saturation, fixed seeds, hyperparameters of one optimizer, late ones; however it is read."""
    images = [50, 150, 1000][seed % 3]
    space = {
        **SPACE,
        "kind": choice(["sgd", "adam", "lion"]),
        "depth": choice([1, 2, 3]),
        "beta": uniform(0.1, 0.9),
        "late": uniform(0, 1),
    }

    def train(given: Config) -> None:
        if seed % 2:
            random.seed(0)
        config = HEALTHY[way](given)
        kind, depth = config["kind"], config["depth"]
        level = 0.2 * abs(config["lr"] - 0.01) + (0.1 * config["momentum"] if kind == "sgd" else 0.02)
        level += config["beta"] * 0.05 if depth > 1 else 0.01
        for epoch in range(1, 4):
            late = config["late"] * 0.01 if epoch == 3 else 0.0
            loss = level + config["optimizer"]["wd"] + late + 0.2 / epoch + 0.01 * random.random()
            tuner.report(
                val_accuracy=min(1.0, round((1.2 if seed % 5 == 0 else 1 - loss) * images) / images),
                val_loss=loss,
                schedule=0.1 / epoch,
            )

    def direct(config: Config) -> None:
        level = 0.2 * abs(config["lr"] - 0.01)
        level += 0.1 * config["momentum"] if config["kind"] == "sgd" else 0.02
        level += config.get("beta", 0.0) * 0.05 if config["depth"] > 1 else 0.01
        for epoch in range(1, 4):
            late = config["late"] * 0.01 if epoch == 3 else 0.0
            loss = level + config["optimizer"]["wd"] + late + 0.2 / epoch + 0.01 * random.random()
            tuner.report(val_accuracy=min(1.0, round((1 - loss) * images) / images), val_loss=loss)

    assert (asks_by_name(direct), asks_by_name(train)) == (True, False)
    function = train if way else direct
    record = searched(tmp_path, function, space, seed, metric="val_accuracy", mode="max").record
    assert not {"unread", "alike"} & record.notice_codes.keys(), record.notices


@pytest.mark.parametrize(("status", "told"), [("completed", [("00000", "00001", ("lr",))]), ("stopped", [])])
def test_curves_that_were_stopped_before_the_end_are_not_compared(status: str, told: list[Any]) -> None:
    """What acts late, such as a step of the learning rate, has changed nothing yet."""
    record = RunRecord("accuracy", "max")
    for number in (0, 1):
        record.apply(started(number, config={"lr": 0.1 + number}))
        for epoch in (1, 2, 3):
            record.apply(reported(number, epoch, accuracy=math.sqrt(epoch) / 7))
        record.apply(ended(number, status))
    assert alike(record, Space({"lr": uniform(0, 2)})) == told


def hands_on(config: Config) -> None:
    ignored(config)


def from_a_function_inside(config: Config) -> None:
    def inside() -> float:
        return float(config["lr"])

    epochs(inside())


def asks_for_items(config: Config) -> None:
    epochs(*(value for name, value in config.items() if name == "lr"))


def in_a_text(config: Config) -> None:
    epochs(len(f"{config}"))


@pytest.mark.parametrize("function", [hands_on, from_a_function_inside, asks_for_items, in_a_text])
def test_a_function_that_may_hand_its_configuration_on_gets_the_dict_itself(function: Any) -> None:
    assert not asks_by_name(function)
    assert asks_by_name(never_taken)


def test_few_names_that_are_asked_for_in_vain_are_kept() -> None:
    reading = Reading({"lr": 0.1})
    assert not any(f"memo_{number}" in reading for number in range(1000))
    assert reading.get(("a", 1)) is None  # type: ignore[call-overload]
    news = reading.news()
    assert news is not None
    assert (news["read"], len(news["absent"])) == ([], 10)


def test_a_name_that_is_missing_has_the_one_that_looks_like_it() -> None:
    reading = Reading({"hiden": 64, "lr": 0.1})
    with pytest.raises(KeyError) as missing:
        reading["hidden"]
    assert reading.advice(missing.value) == "the configuration has no 'hidden'; did you mean 'hiden'?"
    with pytest.raises(KeyError) as other:
        {"a": 1}["b"]
    assert reading.advice(other.value) is None


@pytest.mark.ray
def test_a_search_names_what_is_ignored_and_neither_report_nor_advice_ranks_it(tmp_path: Path) -> None:
    body = """
def train(config):
    lr = 0.01
    for epoch in range(3):
        tuner.report(val_accuracy=0.8 + 0.01 * epoch + 0.001 * __import__("random").random())
study = Study("knob", trial=train, space={"lr": loguniform(1e-5, 1e-1), "momentum": uniform(0.5, 0.99)},
    metric="val_accuracy", budget=Budget(trials=5, max_epochs=3))
"""
    done = commands.tuner("run", study_file(tmp_path, body), "--storage", tmp_path / "runs", folder=tmp_path)
    assert done.code == 0, done.err
    assert "got lr, momentum, which are searched and read by no trial" in done.out + done.err
    run = load_run(next((tmp_path / "runs").glob("*/*/run.json")).parent)
    assert (run.dead, run.importances) == (("lr", "momentum"), ())
    first, *others = run.advice()["text"]
    assert "got lr, momentum, which are searched and read by no trial" in first
    assert not any("lr" in text or "momentum" in text or "region" in text for text in others)
    assert "read by no trial" in (Path(run.path) / "report.html").read_text()
    assert "Nothing can be ranked; lr, momentum changed nothing" in str(run.plot.importance().to_dict())
