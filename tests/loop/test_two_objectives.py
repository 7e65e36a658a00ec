"""Searches for the front of two metrics, without Ray: what is declared, compared, resumed and told."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partialmethod
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, drive, events_of, study
from tests.results.simulated import simulated
from tuner import (
    ASHA,
    BOHB,
    Budget,
    External,
    HyperOpt,
    ImageClassifier,
    MedianStopping,
    MultiFidelityGP,
    Optuna,
    Random,
    ReportError,
    Search,
    Study,
    StudyError,
    choice,
    load_run,
    uniform,
)
from tuner.console.tables import print_run
from tuner.errors import RunFolderError
from tuner.history.events import Event
from tuner.lifecycle.study_changes import comparable
from tuner.lifecycle.writing_best import write_as_saved
from tuner.results import refine
from tuner.results.comparison import compare
from tuner.results.front import at_point, front_of, shares_of_area
from tuner.results.study_text import study_text
from tuner.results.trial_rows import trial_rows
from tuner.results.wording import front_in_words
from tuner.schedule import Decision, HyperBand, NoEarlyStopping, Scheduler
from tuner.search import SearchAlgorithm
from tuner.space.mode import Objective
from tuner.storage.folder import Folder
from tuner.study.as_json import study_from_json, study_to_json

SPACE = {"x": uniform(0, 1), "width": choice([1, 2, 4, 8])}
TWO: dict[str, Any] = {"metric": ["loss", "seconds"], "mode": ["min", "min"], "space": SPACE, "scheduler": ASHA()}


def loss(config: dict[str, Any], epoch: int) -> float:
    return float((config["x"] - 0.3) ** 2 + 1 / config["width"] + 1 / epoch)


def seconds(config: dict[str, Any]) -> dict[str, float]:
    return {"seconds": config["width"] * (1 + config["x"])}


def started(events: list[Event]) -> list[dict[str, Any]]:
    return [event["config"] for event in events if event["event"] == "trial_started"]


def test_the_widest_and_the_narrowest_are_trained_to_their_end(tmp_path: Path) -> None:
    loop = build(study(**TWO, search=MultiFidelityGP(), budget=Budget(trials=30, max_epochs=9)), tmp_path)
    drive(loop, loss, more=seconds)
    full = {trial.config["width"] for trial in loop.record.trials.values() if trial.status == "completed"}
    assert {1, 8} <= full
    alone = build(
        study(**{**TWO, "metric": "loss", "mode": "min"}, budget=Budget(trials=30, max_epochs=9)), tmp_path / "1"
    )
    drive(alone, loss)
    assert 1 not in {trial.config["width"] for trial in alone.record.trials.values() if trial.status == "completed"}


@pytest.mark.parametrize("scheduler", [NoEarlyStopping(), ASHA(), ASHA(rule="stop"), HyperBand()])
@pytest.mark.parametrize("search", [MultiFidelityGP(), HyperOpt(startup_trials=3), BOHB(min_points=2)])
@pytest.mark.parametrize("cut", [5, 31])
def test_a_resumed_search_tries_what_the_uninterrupted_one_would_have(
    tmp_path: Path, scheduler: Scheduler, search: SearchAlgorithm, cut: int
) -> None:
    declared = study(**{**TWO, "scheduler": scheduler, "search": search}, budget=Budget(trials=12, max_epochs=9))
    drive(build(declared, tmp_path / "whole"), loss, more=seconds)
    drive(build(declared, tmp_path / "parts"), loss, more=seconds, reports=cut)
    drive(build(declared, tmp_path / "parts", history=events_of(tmp_path / "parts")), loss, more=seconds)
    whole, parts = (
        {json.dumps(config, sort_keys=True) for config in started(events_of(tmp_path / name))}
        for name in ("whole", "parts")
    )
    assert parts == whole


def test_a_trial_that_does_not_report_the_second_metric_fails_and_says_so(tmp_path: Path) -> None:
    loop = build(study(**TWO, budget=Budget(trials=1, max_epochs=9)), tmp_path)
    drive(loop, loss)
    (trial,) = loop.record.trials.values()
    assert trial.status == "failed"
    assert "must report the study's metric 'seconds' after every epoch, got loss" in str(trial.message)
    loop = build(study(**TWO, budget=Budget(trials=1, max_epochs=9)), tmp_path / "nan")
    drive(loop, loss, more=lambda config: {"seconds": float("nan")})
    assert next(iter(loop.record.trials.values())).cause == "diverged"


@pytest.mark.parametrize(
    "scheduler", [ASHA(grace_epochs=1), ASHA(rule="stop", grace_epochs=1), HyperBand(grace_epochs=1)]
)
@pytest.mark.parametrize("search", [MultiFidelityGP(), HyperOpt(startup_trials=3), BOHB(min_points=2)])
@pytest.mark.parametrize("told", [{"seconds": math.nan}, {}])
def test_a_run_with_trials_that_failed_by_the_second_metric_is_resumed(
    tmp_path: Path, scheduler: Scheduler, search: SearchAlgorithm, told: dict[str, float]
) -> None:
    declared = study(**{**TWO, "scheduler": scheduler, "search": search}, budget=Budget(trials=16, max_epochs=9))

    def more(config: dict[str, Any]) -> dict[str, float]:
        return told if config["width"] == 2 else seconds(config)

    drive(build(declared, tmp_path / "whole"), loss, more=more)
    drive(build(declared, tmp_path / "parts"), loss, more=more, reports=40)
    drive(build(declared, tmp_path / "parts", history=events_of(tmp_path / "parts")), loss, more=more)
    whole, parts = (started(events_of(tmp_path / name)) for name in ("whole", "parts"))
    assert {str(config) for config in whole} == {str(config) for config in parts}


def test_a_trial_that_failed_by_the_second_metric_at_a_rung_is_judged_there_when_it_runs_again(tmp_path: Path) -> None:
    declared = study(**TWO, budget=Budget(trials=4, max_epochs=9))
    loop, broken = build(declared, tmp_path), {"seconds": math.nan}
    start = loop.next_action()
    assert start is not None
    for epoch in (1, 2):
        loop.report(start.trial, epoch, {"loss": 1.0, "seconds": 1.0}, saved=[epoch], saves=True)
    loop.report(start.trial, 3, {"loss": 1.0, **broken}, saved=[], saves=True)
    assert loop.record.trials[start.trial].status == "failed"
    loop.retry([start.trial])
    again = loop.next_action()
    assert again is not None
    assert again.trial == start.trial
    assert loop.report(start.trial, 3, {"loss": 1.0, "seconds": 1.0}, saved=[3], saves=True) is Decision.PAUSE


def test_refined_is_the_region_of_the_front(tmp_path: Path) -> None:
    file = tmp_path / "space.py"
    file.write_text(
        "from tuner import *\ndef train(config): pass\n"
        "study = Study('s', trial=train, space={'x': uniform(0, 1), 'width': choice([1, 2, 4, 8, 16, 32])}, "
        "metric=['loss', 'seconds'], mode=['min', 'min'])\n"
    )
    space = {"x": uniform(0, 1), "width": choice([1, 2, 4, 8, 16, 32])}
    changes = {**TWO, "space": space, "search": MultiFidelityGP(), "budget": Budget(trials=40, max_epochs=9)}
    run = simulated(tmp_path / "run", curve=loss, more=seconds, **changes)
    run.info["study_file"] = str(file)
    (tmp_path / "run" / "study.py").write_text(file.read_text())
    found = refine(run, "narrowed")
    assert "by the front of loss and seconds" in found.summary
    kept = set(found.study.search_space.dimensions["width"].values())  # type: ignore[attr-defined]
    assert {1, 32} <= kept


def test_a_programs_reports_need_both_metrics_and_its_study_is_kept_as_json(tmp_path: Path) -> None:
    declared = Study("asked", trial=External(), space=SPACE, metric=["loss", "seconds"], mode=["min", "max"])  # type: ignore[arg-type]
    again = study_from_json(study_to_json(declared))
    assert (again.metric, again.mode, again.second) == ("loss", "min", Objective("seconds", "max"))
    with Search(declared, storage=tmp_path) as search:
        assert search.metrics == ("loss", "seconds")
        trial = search.ask()
        for wrong in (0.5, {"loss": 0.5}, {"loss": 0.5, "seconds": "abc"}):
            with pytest.raises(ReportError, match="seconds"):
                search.report(trial, 1, wrong)
        assert search.report(trial, 1, {"loss": 0.5, "seconds": 2}) == "continue"
    assert (next(tmp_path.glob("asked/*")) / "study.json").is_file()


def test_the_run_tells_its_front(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = simulated(tmp_path, curve=loss, more=seconds, **{**TWO, "search": MultiFidelityGP()})
    assert run.second == Objective("seconds", "min")
    found = front_of(run)
    assert [one.cost for one in found] == sorted(one.cost for one in found)
    assert [one.value for one in found] == sorted((one.value for one in found), reverse=True)
    assert found[-1].trial is run.best
    front = run.front
    assert front["trial"].tolist() == [one.trial.trial for one in found]
    assert front["seconds"].tolist() == [seconds(one.trial.config)["seconds"] for one in found]
    told = run.summary()["front"]
    assert [one["seconds"] for one in told] == front["seconds"].tolist()
    assert f"{len(found)} configurations on the front of loss and seconds: " in str(front_in_words(run))
    table = run.trials.dropna(subset="best_epoch")
    assert table["metric/seconds"].tolist() == [
        w * (1 + x) for w, x in zip(table["config/width"], table["config/x"], strict=True)
    ]
    assert run.plot.tradeoff().layout.title.text.startswith("loss 0.")
    rows = trial_rows(run, run.record.rows())
    place = [column.name for column in rows.columns].index("seconds")
    assert rows.columns[place - 1].name == "loss"
    assert {row.trial: row.cells[place].value for row in rows.rows}[found[0].trial.trial] == found[0].cost
    print_run(run)
    assert "seconds" in capsys.readouterr().out.splitlines()[1].split()


@pytest.mark.parametrize("search", [Random(), MultiFidelityGP()])
def test_each_configuration_on_the_front_keeps_its_network(tmp_path: Path, search: SearchAlgorithm) -> None:
    run = simulated(tmp_path, curve=loss, more=seconds, **{**TWO, "search": search})
    found = {one.trial.trial for one in front_of(run)}
    networks = {one.trial for one in run.record.trials.values() if one.checkpoints}
    assert len(networks & found) >= min(9, len(found))  # ten, of which one may have left the front since
    assert len(networks - found) <= 1  # the best of those that were trained to their end


def test_a_trial_that_runs_and_was_lucky_once_takes_no_network_from_another(tmp_path: Path) -> None:
    """The last has one very good epoch before it falls back; it costs as much as the second, the first costs more."""
    curves = {0: [0.4, 0.2, 0.2, 0.2], 1: [0.6, 0.5, 0.5, 0.5], 2: [0.6, 0.3, 0.6, 0.6]}
    points = [{"x": float(place) / 4, "width": width} for place, width in enumerate((8, 1, 1))]
    declared = study(
        **{**TWO, "scheduler": NoEarlyStopping(), "start_from": points},
        search=Random(),
        budget=Budget(trials=3, max_epochs=4),
    )
    loop = build(declared, tmp_path)
    drive(
        loop,
        lambda config, epoch: curves[round(config["x"] * 4)][epoch - 1],
        more=lambda config: {"seconds": float(config["width"])},
        saves=True,
    )
    assert {trial.trial for trial in loop.record.trials.values() if trial.checkpoints} == {"00000", "00001"}


def test_the_other_networks_of_the_front_lie_beside_the_winners(tmp_path: Path) -> None:
    run = simulated(tmp_path, curve=loss, more=seconds, **TWO)
    declared = study(**TWO, budget=Budget(trials=24, max_epochs=9))
    write_as_saved(run.folder, run.record, declared)
    run = load_run(tmp_path)
    found = front_of(run)
    others = [one.trial.trial for one in found[:-1]]
    assert sorted(run.folder.child("front").folders()) == sorted(others)
    assert json.loads((tmp_path / "front" / others[0] / "metrics.json").read_text())["trial"] == others[0]

    for named in ("cheapest", others[0], others[0].lstrip("0")):
        assert at_point(run, named).best.trial == others[0]
    assert at_point(run, found[-1].trial.trial) is run  # the winner
    limit = found[1].cost
    assert at_point(run, f"seconds <= {limit!r}").best_folder == f"front/{found[1].trial.trial}"
    assert at_point(run, "knee").best_metrics["seconds"] in {one.cost for one in found}
    for wrong in ("fastest", "seconds<=0.01", "seconds>=3", "seconds<=x", "loss<=1", "99999"):
        with pytest.raises(RunFolderError, match=r"point is knee, cheapest, 'seconds<=NUMBER', or a trial"):
            at_point(run, wrong)

    again = tmp_path / "front" / others[0] / "metrics.json"
    before = again.stat().st_mtime_ns
    (tmp_path / "front" / "00099").mkdir()
    write_as_saved(run.folder, run.record, declared)
    assert again.stat().st_mtime_ns == before
    assert not (tmp_path / "front" / "00099").exists()


def test_a_conclusion_that_is_cut_off_within_the_front_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first conclusion is killed before its first change of the folder, each later one a change later."""
    run = simulated(tmp_path, curve=loss, more=seconds, **TWO)
    declared = study(**TWO, budget=Budget(trials=24, max_epochs=9))
    calls, cut = count(), 0

    def cut_off(change: Callable[..., None], *arguments: Any) -> None:
        if next(calls) == cut:
            raise KeyboardInterrupt
        change(*arguments)

    kind = type(run.folder)
    for name in ("delete", "rename", "write"):
        monkeypatch.setattr(kind, name, partialmethod(_before, cut_off, getattr(kind, name)))
    while True:
        with suppress(KeyboardInterrupt):
            write_as_saved(run.folder, run.record, declared)
            break
        cut, calls = cut + 1, count()
    run = load_run(tmp_path)
    found = front_of(run)
    assert cut > len(found) > 2
    for one in found:
        scored = at_point(run, one.trial.trial).scored("metrics.json")
        assert scored is not None
        assert scored["trial"] == one.trial.trial
        assert (tmp_path / at_point(run, one.trial.trial).best_folder / "config.json").exists()
    assert not (tmp_path / "best.new").exists()


def _before(folder: Folder, cut_off: Callable[..., None], change: Callable[..., None], *arguments: Any) -> None:
    cut_off(change, folder, *arguments)


def test_a_run_of_one_metric_has_no_points(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    with pytest.raises(RunFolderError, match="a run without one"):
        at_point(run, "knee")


def test_a_comparison_says_what_each_front_dominates(tmp_path: Path) -> None:
    many, few = (
        simulated(tmp_path / str(trials), curve=loss, more=seconds, **TWO, budget=Budget(trials=trials, max_epochs=9))
        for trials in (24, 4)
    )
    shares = shares_of_area([many, few])
    assert shares is not None
    assert 0 < shares[1] < shares[0] <= 1
    assert "of the area that all fronts dominate together, in all their epochs: " in compare([many, few]).conclusion
    alone = simulated(tmp_path / "alone")
    assert shares_of_area([many, alone]) is None
    assert "dominate" not in compare([many, alone]).conclusion


def test_a_run_of_one_metric_has_no_front(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    assert run.front.empty
    assert "front" not in run.summary()
    assert front_in_words(run) is None


def test_the_second_metric_is_declared_recorded_and_written_again(tmp_path: Path) -> None:
    declared = study(**TWO)
    assert (declared.metric, declared.mode, declared.second) == ("loss", "min", Objective("seconds", "min"))
    assert comparable(declared)["second metric"] == "seconds"
    assert "second metric" not in comparable(study())
    photos = Study("p", trial=ImageClassifier(), space={"lr": uniform(0.01, 1)}, metric=["val_accuracy", "val_loss"])  # type: ignore[arg-type]
    assert (photos.mode, photos.second) == ("max", Objective("val_loss", "min"))
    text = study_text(photos, "again", tmp_path / "again.py")
    assert "metric=['val_accuracy', 'val_loss']" in text
    assert "mode=['max', 'min']" in text
    names: dict[str, Any] = {}
    exec(text, names)
    assert names["study"].second == photos.second


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric": ["loss"]}, "a list of two different ones"),
        ({"metric": ["loss", "loss"]}, "a list of two different ones"),
        ({"metric": ["loss", 3]}, "a list of two different ones"),
        ({"metric": ["a", "b", "c"]}, "a list of two different ones"),
        ({"mode": ["min"]}, "two metrics have two modes"),
        ({"mode": None}, r"a second metric needs a direction, got None for 'seconds'; write mode=\['max', 'min'\]"),
        ({"mode": ["min", "low"]}, "a second metric needs a direction"),
        ({"mode": ["low", "min"]}, "mode needs 'min' or 'max'"),
        ({"scheduler": MedianStopping()}, r"scheduler needs one that takes two metrics.*use ASHA\(\)"),
        ({"search": Optuna()}, r"search needs one that takes two metrics.*use MultiFidelityGP\(\)"),
        ({"search": MultiFidelityGP(), "budget": Budget(trials=5, min_improvement=0.1)}, "is of one metric"),
        (
            {"trial": ImageClassifier(), "metric": ["val_loss", "speed"], "space": {}},
            "one of latency_ms, size_mb, memory",
        ),
        ({"trial": ImageClassifier(), "metric": ["size_mb", "val_loss"], "space": {}}, "may be the second"),
        (
            {"trial": ImageClassifier(), "metric": ["val_loss", "size_mb"], "mode": ["min", "max"], "space": {}},
            "is better low",
        ),
        ({"trial": ImageClassifier(), "metric": ["val_loss", "val_f1"], "space": {}}, "val_f1 is better high"),
        ({"metric": "loss", "mode": "min", "second": "seconds"}, r"second is set by tuner.*write metric=\["),
        (
            {"trial": ImageClassifier(), "metric": ["val_loss", "size_mb"], "space": {}, "combine": "auto"},
            "raises size_mb",
        ),
    ],
)
def test_what_can_not_be_searched_for_both_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError, match=said):
        study(**{**TWO, **changes})
