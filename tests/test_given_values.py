"""Every later reader gets the values that a trial was given, equal and of the same type; what none can get is refused."""

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ask_tell.asked import study as asked_study
from tests.mirrors.test_wandb import mirror
from tests.mirrors.wandb_files import shown_runs
from tuner import (
    Grid,
    Random,
    Resources,
    Run,
    Search,
    choice,
    load_run,
    sample_from,
    study_from_json,
    study_to_json,
    uniform,
)
from tuner.ask_tell.desk import _view
from tuner.errors import SpaceError
from tuner.history.event_lines import parsed
from tuner.history.events import EventLog, read_all
from tuner.history.records import RunRecord
from tuner.history.run_info import read_info, write_info
from tuner.html_report import write_report
from tuner.lifecycle.description import describe_run
from tuner.orders.inbox import put, waiting
from tuner.orders.order import parsed as parsed_order
from tuner.replay.stays import stays, way
from tuner.results import export
from tuner.results.summaries import summary_of_trial
from tuner.service.remote_trial import RemoteTrial
from tuner.service.web.event_reader import sent
from tuner.service.web.routes.trials import _brief
from tuner.space import Space, recorded_space, space_record
from tuner.space.values import canonical, is_recordable, recorded, value_of
from tuner.space.values import plain as as_python
from tuner.storage.folder import LocalFolder
from tuner.text import text_of_cell

TEXTS = ["", "inf", "nan", "none", "None", "1", "true", "a\r\nb", "'=1", "=1", "\u202e", "$tuple"]
plain = (
    st.none() | st.booleans() | st.integers() | st.sampled_from([2**53 + 1, -(2**64) - 1, 10**400]) | st.floats()
    | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan]) | st.sampled_from(TEXTS) | st.text(max_size=3)
    | st.sampled_from([Path("a/b"), Path("inf"), np.float32(0.1), np.int64(2**40), np.array([1, 2])])
)  # fmt: skip
hashable = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.sampled_from(TEXTS),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=2),
    max_leaves=3,
)
odd = st.sampled_from([b"x", 1j, object(), range(2), "\udcff", lambda: None])
values = st.recursive(
    plain | hashable | st.sets(hashable, max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2) | st.tuples(inner) | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(["a", "b.c", "$tuple", ""]) | hashable, inner, max_size=2)
    ),
    max_leaves=5,
)  # fmt: skip
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def typed(value: Any) -> Any:
    """A value in which equality tells types, NaN and -0.0 apart, and a NaN equals a NaN."""
    if isinstance(value, dict):
        return dict, frozenset((typed(key), typed(one)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(map(typed, value))
    if isinstance(value, set | frozenset):
        return type(value), frozenset(map(typed, value))
    return type(value), repr(value)


def as_json(value: Any) -> Any:
    """Through JSON as others read it: without NaN and infinities."""
    return json.loads(json.dumps(value, allow_nan=False), parse_constant=pytest.fail)


def through_events(config: dict[str, Any], folder: LocalFolder) -> list[dict[str, Any]]:
    """The configuration as listeners, readers, records, and readers of streams have it."""
    log = EventLog(folder)
    event = log.append("trial_started", trial="00000", number=0, config=config, seed=1)
    log.append("order_obeyed", order="1", verb="try", arguments={"config": config}, by="", message="", config=config)
    log.close()
    events = read_all(folder).events[-2:]
    record = RunRecord("loss", "min", events)
    line = sent(None, event).split(b"data: ")[1].strip()
    trial, streamed = record.trials["00000"], value_of(as_json(json.loads(line)))["config"]
    summary = value_of(as_json(summary_of_trial(trial, folder)["config"]))
    return [
        event["config"], events[1]["arguments"]["config"], trial.config, record.steered.waiting["1"],
        streamed, summary, parsed(line)["config"],
    ]  # fmt: skip


def through_run_json(config: dict[str, Any], folder: LocalFolder) -> list[dict[str, Any]]:
    """The starting points and fixed values that another driver finds."""
    study = asked_study(space={name: choice([value]) for name, value in config.items()}, start_from=[config])
    whole = {name: value for name, value in config.items() if not isinstance(value, dict)}  # these are sections
    info = describe_run(study, {"fixed": whole}, Resources(cpus=1, gpus=0), None)
    write_info(folder, info | {"status": "running"})
    as_json(json.loads(folder.read("run.json")))
    read, damages = read_info(folder)
    assert damages == []
    fixed = study.with_options(**read["options"]).search_space.constants
    assert typed(fixed) == typed(whole)
    return [value_of(read["start_from"][0])]


@quick
@given(value=values | st.tuples(values, odd) | odd)
def test_a_value_is_refused_or_the_same_for_every_reader(tmp_path: Path, value: Any) -> None:
    folder = LocalFolder(tmp_path)
    declared = {"x": choice([value]), "y": sample_from(lambda: value), "z": 1}
    if not is_recordable(value):
        with pytest.raises(SpaceError, match="choice needs values that the files of a run can hold, got "):
            Space(declared)
        return
    space = Space(declared)
    config = space.sample(np.random.default_rng(0))
    assert typed(config["x"]) == typed(config["y"]) == typed(as_python(value))
    expected = typed(config)
    read = [*through_events(config, folder), *through_run_json(config, folder)]
    put(folder, "try", {"config": config})
    order = waiting(folder)[-1]
    folder.remove(f"inbox/{order.file}")
    remote = RemoteTrial(lambda *_: None, "w", as_json(_view_of(config)), 1e6)
    remote._over.set()
    read += [order.arguments["config"], remote.config]  # type: ignore[union-attr]
    for found in read:
        assert typed(found) == expected
        assert typed(space.restored(found)) == expected
        assert space.key(found) == space.key(config)


def _view_of(config: dict[str, Any]) -> dict[str, Any]:
    from tuner.ask_tell.trial import AskedTrial

    return _view(AskedTrial("00000", 0, config, 1, 2))


@quick
@given(options=st.lists(values, min_size=1, max_size=4))
def test_a_space_is_the_same_from_run_json_and_study_json(options: list[Any]) -> None:
    first = options[0]
    if len(set(map(canonical, options))) < len(options):
        with pytest.raises(SpaceError, match="choice needs distinct values"):
            Space({"x": choice(options)})
        return
    space = Space({"x": choice(options), "c": choice([1]).when(x=[first])})
    constant = {} if isinstance(first, dict) else {"k": first}  # a dict is a section
    study = asked_study(space={"x": choice(options), "c": choice([1]).when(x=[first]), "k": constant})
    told = as_json(space_record(study.search_space))
    for found in (recorded_space(told), study_from_json(study_to_json(study)).search_space):
        assert typed(found.dimensions["x"].values()) == typed(space.dimensions["x"].values())
        assert typed(found.constants) == typed(study.search_space.constants)
        assert typed(found.conditions) == typed(study.search_space.conditions)
    for unit in np.linspace(0, 1, len(options)):
        config = space.decode([unit, math.nan])
        assert typed(space.decode(space.encode(space.restored(config)))["x"]) == typed(config["x"])


MIXED = [
    True, False, 1, 0, 1.0, -0.0, "1", "True", "inf", "none", "nan", "", math.inf, -math.inf, math.nan, None, (1, 2),
    "(1, 2)", [3, (math.inf,)], {"a": 1}, {}, {1: "x", (2,): None}, {4}, frozenset({4, 5}), Path("a"), 2**64 + 1, "a\nb",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Each value was tried, half of them by a search that went on."""
    study = asked_study(
        space={"x": choice(MIXED), "y": sample_from(lambda config: (config["x"],)), "k": math.inf},
        search=Random(sobol=False),
        budget=asked_study().budget.__class__(trials=len(MIXED), max_epochs=3),
    )
    storage = tmp_path_factory.mktemp("storage")
    given_to: dict[str, Any] = {}
    with Search(study, storage=storage) as search:
        for _ in range(len(MIXED) // 2):
            trial = search.ask()
            assert trial is not None
            given_to[trial.id] = trial.config
            search.report(trial, 1, 1.0)
    with Search.resume(search.run.path, study) as search:
        while (trial := search.ask()) is not None:
            assert typed(trial.config) == typed(given_to.setdefault(trial.id, trial.config))
            for epoch in trial.epochs_left:
                search.report(trial, epoch, 1.0 + trial.number / epoch)
            search.tell(trial)
    found = load_run(search.run.path)
    assert {typed(config["x"]) for config in given_to.values()} == {typed(value) for value in MIXED}
    assert {name: typed(trial.config) for name, trial in found.record.trials.items()} == {
        name: typed(config) for name, config in given_to.items()
    }
    assert (found.info["format"], found.damages) == (3, [])
    return found


def given_x(run: Run) -> list[Any]:
    return [trial.config["x"] for trial in run.record.trials.values()]


def test_tables_have_the_values(run: Run) -> None:
    tables = [run.trials, run.configurations.sort_values("configuration")]
    for index, trial in enumerate(run.record.trials.values()):
        for table in tables:
            row = table.iloc[index]
            if trial.config["x"] == {"a": 1}:
                assert (row["config/x"] is pd.NA, row["config/x.a"]) == (True, 1)
            else:
                assert typed(row["config/x"]) == typed(trial.config["x"])
            assert typed(row["config/y"]) == typed(trial.config["y"])


def test_csv_tells_what_a_file_of_texts_can(run: Run, tmp_path: Path) -> None:
    export(run, "csv", tmp_path)
    cells = pd.read_csv(tmp_path / "trials.csv", dtype=str, keep_default_na=False)["config/x"].map(text_of_cell)
    told = ["none" if x is None else "" if x == {"a": 1} else str(x) for x in given_x(run)]
    assert cells.tolist() == told
    assert set(pd.read_csv(tmp_path / "trials.csv")["config/k"]) == {math.inf}


def test_whole_numbers_stay_whole_in_csv_though_a_trial_has_none(tmp_path: Path) -> None:
    space = {"kind": choice(["a", "b"]), "width": choice([8]).when(kind="a")}
    with Search(asked_study(space=space, search=Grid()), storage=tmp_path) as search:
        while (trial := search.ask()) is not None:
            search.tell(trial, 1.0)
    lines = search.run.folder.read("trials.csv").decode().splitlines()[1:]
    assert sorted(line.rpartition(",")[2] for line in lines) == ["", "8"]


def test_optuna_has_a_category_for_each_option(run: Run, tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    export(run, "optuna", tmp_path / "study.db")
    study = optuna.load_study(study_name="asked", storage=f"sqlite:///{tmp_path}/study.db")
    choices = study.best_trial.distributions["x"].choices
    assert (len(choices), len(set(choices))) == (len(MIXED), len(MIXED))
    assert [trial.params["x"] for trial in study.trials] == list(map(repr, given_x(run)))


@pytest.mark.parametrize("options", [[True, False, 1, 0], [1, 1.0], [0.0, -0.0], [(1, 2), "(1, 2)"], [None, "None", 2]])
def test_optunas_categories_are_texts_only_where_it_would_take_two_for_one(tmp_path: Path, options: list[Any]) -> None:
    optuna = pytest.importorskip("optuna")
    with Search(asked_study(space={"x": choice(options)}, search=Grid()), storage=tmp_path / "runs") as search:
        while (trial := search.ask()) is not None:
            search.tell(trial, 1.0)
    export(search.run, "optuna", tmp_path / "study.db")
    study = optuna.load_study(study_name="asked", storage=f"sqlite:///{tmp_path}/study.db")
    label: Callable[[Any], Any] = (lambda value: value) if None in options else repr
    assert study.trials[0].distributions["x"].choices == tuple(map(label, options))
    assert sorted(map(str, (trial.params["x"] for trial in study.trials))) == sorted(map(str, map(label, options)))


def test_wandb_shows_the_values(run: Run) -> None:
    finished: subprocess.CompletedProcess[str] = mirror(run, "offline")
    assert finished.returncode == 0, finished.stderr
    shown = shown_runs(Path(run.path) / "wandb")
    for trial in run.record.trials.values():
        config = {name: value for name, value in shown[f"asked {trial.trial}"].config.items() if name != "_wandb"}
        assert typed(as_one_number(value_of(config))) == typed(as_one_number(trial.config))


def as_one_number(value: Any) -> Any:
    """W&B's client writes 1.0 as 1, as JSON has one type of number."""
    if isinstance(value, dict):
        return {name: as_one_number(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(map(as_one_number, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def test_a_replay_gets_the_values(run: Run) -> None:
    study = asked_study(space={"x": choice(MIXED), "y": sample_from(lambda config: (config["x"],)), "k": math.inf})
    for trial in run.record.trials.values():
        (stay, *_) = stays(run, study, trial, way(trial, 3, None, ()))
        assert typed(stay.assignment.config) == typed(trial.config)


def test_pages_and_files_are_json_for_others(run: Run) -> None:
    scripts = Path(write_report(run)).read_text().split('type="application/json"')[1:]
    assert scripts
    for script in scripts:
        text = script.partition(">")[2].partition("</script>")[0]
        as_json(json.loads(text, parse_constant=pytest.fail))
    for trial in run.record.trials.values():
        assert typed(value_of(as_json(_brief(run, trial)["config"]))) == typed(trial.config)
    for name in ("best/config.json", "run.json"):
        json.loads(run.folder.read(name), parse_constant=pytest.fail)
    assert run.best is not None
    assert typed(value_of(json.loads(run.folder.read("best/config.json")))) == typed(run.best.config)
    as_json(run.summary())


def test_a_run_whose_values_json_has_stays_readable_for_earlier_versions(tmp_path: Path) -> None:
    search = Search(asked_study(), storage=tmp_path)
    search.close()
    assert search.run.info["format"] == 2


def test_a_constant_of_another_type_is_another_study(tmp_path: Path) -> None:
    def declared(value: object) -> Any:
        return asked_study(space={"x": uniform(0, 1), "k": value})

    for value, other in ((1, True), (math.inf, -math.inf), ((1, 2), [1, 2])):
        with Search(declared(value), storage=tmp_path / repr(value)) as search:
            search.ask()
        Search.resume(search.run.path, declared(value)).close()
        with pytest.raises(Exception, match="a run keeps the space that it began with"):
            Search.resume(search.run.path, declared(other))


def test_values_of_older_runs_are_read_and_restored(tmp_path: Path) -> None:
    line = b'{"event":"trial_started","time":1,"trial":"00000","number":0,"config":{"x":[1,[2]],"y":"a"},"seed":1}'
    config = parsed(line)["config"]
    assert config == {"x": [1, [2]], "y": "a"}
    space = Space({"x": choice([(1, (2,)), 3]), "y": choice([Path("a"), Path("b")])})
    assert space.restored(config) == {"x": (1, (2,)), "y": Path("a")}


def test_orders_name_infinity_by_a_text_and_json_by_its_tag() -> None:
    order = parsed_order("a.json", b'{"verb": "try", "arguments": {"config": {"x": {"$float": "inf"}}}}', 0)
    assert order.arguments == {"config": {"x": math.inf}}
    assert recorded({"x": math.inf, "y": (1,)}) == {"x": {"$float": "inf"}, "y": {"$tuple": [1]}}
