"""Runs that differ in their seed alone are compared as groups."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import study
from tests.results.simulated import simulated
from tuner import Budget, NoEarlyStopping, Random, Resources
from tuner.cli import main
from tuner.html_report import comparison_html
from tuner.lifecycle.description import describe_run
from tuner.results import Run, compare, load_run
from tuner.results.groups import difference
from tuner.results.run import write_info


def run_of(folder: Path, seed: int, search: str, **changes: Any) -> Run:
    """A run whose folder says what was searched, as a driver writes it."""
    run = simulated(
        folder,
        seed=seed,
        search=Random(sobol=False),
        scheduler=NoEarlyStopping(),
        budget=Budget(trials=8, max_epochs=3),
        **changes,
    )
    write_info(run.folder, {**run.info, "seed": seed, "search": search, "scheduler": "NoEarlyStopping()"})
    return load_run(folder)


def better(config: dict[str, Any], epoch: int) -> float:
    return float(abs(config["lr"] - 0.01)) + 1 / epoch - 5


def worse(config: dict[str, Any], epoch: int) -> float:
    return float(abs(config["lr"] - 0.01)) + 1 / epoch


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two algorithms, three seeds each."""
    folder = tmp_path_factory.mktemp("groups")
    return [
        run_of(folder / f"{name}-{seed}", seed, f"{name}()", curve=curve)
        for name, curve in (("Random", worse), ("HyperOpt", better))
        for seed in (0, 1, 2)
    ]


def test_runs_that_differ_in_their_seed_alone_are_a_group(runs: list[Run]) -> None:
    found = compare(runs)
    assert [(group.name, group.seeds) for group in found.groups] == [("Random", (0, 1, 2)), ("HyperOpt", (0, 1, 2))]
    assert found.has_groups
    assert not compare([runs[0], runs[3]]).has_groups


def recorded(folder: Path, seed: int, trial: Callable[[dict[str, Any]], Any]) -> Run:
    """A run with all that a driver records of a study."""
    run = simulated(folder, seed=seed, budget=Budget(trials=4, max_epochs=3))
    declared = study(trial=trial, seed=seed, search=Random(), budget=Budget(trials=4, max_epochs=3))
    info = describe_run(declared, {"seed": seed}, Resources(cpus=1, gpus=0), None)
    write_info(run.folder, {**info, "metric": "loss", "mode": "min", "status": "finished"})
    return load_run(folder)


def trial_function() -> Callable[[dict[str, Any]], Any]:
    """The same function at another address, as another process has it."""

    def train(config: dict[str, Any]) -> None:
        pass

    return train


def test_what_a_driver_records_of_the_seed_parts_no_group(tmp_path: Path) -> None:
    functions = [trial_function() for _ in range(3)]
    runs = [recorded(tmp_path / str(seed), seed, function) for seed, function in enumerate(functions)]
    assert len({run.info["trial"] for run in runs}) == 3  # they say where the function lay in memory
    assert [group.seeds for group in compare(runs).groups] == [(0, 1, 2)]


@pytest.mark.parametrize("name", ["function_sources", "data_fingerprint"])
def test_runs_of_other_code_or_data_are_no_group(tmp_path: Path, name: str) -> None:
    first, second = (recorded(tmp_path / str(seed), seed, trial_function()) for seed in (0, 1))
    other = {"1": "0123456789abcdef"} if name == "function_sources" else "0123456789abcdef"
    write_info(second.folder, {**second.info, name: other})
    assert [len(group.runs) for group in compare([first, load_run(second.path)]).groups] == [1, 1]


def test_a_group_is_told_by_its_mean_and_standard_error(runs: list[Run]) -> None:
    found = compare(runs)
    row = found.by_group.iloc[0]
    values = found.table[found.equal_cost][:3]
    assert row["runs"] == 3
    assert row["seeds"] == "0, 1, 2"
    assert row[f"mean {found.equal_cost}"] == pytest.approx(values.mean())
    assert row["standard error"] == pytest.approx(values.std() / 3**0.5)


def test_the_course_over_time_ends_at_equal_cost(runs: list[Run]) -> None:
    found = compare(runs)
    course = found.over_time
    last = course[course["group"] == "HyperOpt"].iloc[-1]
    assert last["epochs"] == found.epochs
    assert last["mean"] == pytest.approx(found.by_group[f"mean {found.equal_cost}"][1])
    assert (course["runs"] == 3).all()
    assert [trace.name for trace in found.plot().data if trace.name] == ["Random", "HyperOpt"]


def test_a_sure_difference_is_said_with_its_test(runs: list[Run]) -> None:
    found = compare(runs)
    (told,) = found.differences
    assert (told.better, told.kind, told.count, told.sure) == ("HyperOpt", "paired", 3, True)
    assert found.conclusion.startswith(f"after {found.epochs} epochs HyperOpt is better than Random by 5 ± ")
    assert "paired t-test of 3 seeds" in found.conclusion


def test_groups_without_a_difference_cannot_be_told_apart() -> None:
    found = difference("a", {0: 0.5, 1: 0.7, 2: 0.6}, "b", {0: 0.6, 1: 0.6, 2: 0.59}, "max")
    assert found is not None
    assert not found.sure
    assert "a and b can't be told apart" in str(found)


def test_a_paired_test_is_that_of_a_textbook() -> None:
    """scipy.stats.ttest_rel of the same numbers."""
    from scipy.stats import ttest_ind, ttest_rel

    first, second = [0.9, 0.8, 0.95, 0.7], [0.85, 0.78, 0.9, 0.69]
    paired = difference("a", dict(enumerate(first)), "b", dict(enumerate(second)), "max")
    welch = difference("a", dict(enumerate(first)), "b", dict(enumerate(second, start=10)), "min")
    assert paired is not None
    assert welch is not None
    assert (paired.kind, paired.better, paired.p) == ("paired", "a", pytest.approx(ttest_rel(first, second).pvalue))
    by_scipy = ttest_ind(first, second, equal_var=False).pvalue
    assert (welch.kind, welch.better, welch.p) == ("Welch", "b", pytest.approx(by_scipy))


def test_one_run_each_says_nothing_sure() -> None:
    assert difference("a", {0: 0.9}, "b", {0: 0.1}, "max") is None


def test_the_same_seed_twice_is_no_second_measurement(tmp_path: Path) -> None:
    twice = [run_of(tmp_path / name, 0, "Random()", curve=worse) for name in ("a", "b")]
    assert [len(group.runs) for group in compare(twice).groups] == [1, 1]


def test_seeds_of_one_study_are_told_by_their_mean(runs: list[Run]) -> None:
    assert "the mean of 3 seeds" in compare(runs[:3]).conclusion


def test_groups_are_printed_and_on_the_page(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *(run.path for run in runs)]) == 0
    printed = capsys.readouterr().out
    assert "standard error" in printed
    assert printed.splitlines()[-1] == compare(runs).conclusion
    assert "Groups of seeds" in comparison_html(compare(runs))
    assert "Groups of seeds" not in comparison_html(compare([runs[0], runs[3]]))
