"""Runs that only differ in their seed are compared as groups."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.history.events_of_a_run import event, reported, started
from tests.loop.simulation import study
from tests.results.simulated import gone_on_an_hour_later, of_events, simulated
from tuner import Budget, NoEarlyStopping, Random, Resources, Run, compare, load_run
from tuner.cli import main
from tuner.history.events import EventLog
from tuner.history.run_info import write_info
from tuner.html_report import comparison_html
from tuner.lifecycle.description import describe_run
from tuner.results.comparison import FEW_RUNS
from tuner.results.groups import difference


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
    return float(abs(config["lr"] - 0.01)) * 0.5 + 1 / epoch - 5


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


@pytest.mark.parametrize(("notice", "together"), [(None, True), ("portfolio", False)])
def test_a_run_from_before_the_portfolio_joins_seeds_that_got_nothing_from_it(
    tmp_path: Path, notice: str | None, together: bool
) -> None:
    old, new = (recorded(tmp_path / str(seed), seed, trial_function()) for seed in (0, 1))
    write_info(old.folder, {**old.info, "warm_start": "History(path=None, studies=None, top=10)"})
    write_info(new.folder, {**new.info, "options": {"seed": 1, "portfolio": False}})
    log = EventLog(new.folder)
    log.append("notice", message="starts with 5 configurations", code=notice)
    log.close()
    groups = compare([load_run(old.path), load_run(new.path)]).groups
    assert [group.seeds for group in groups] == ([(0, 1)] if together else [(0,), (1,)])


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
    assert [trace.name for trace in found.plot().figure.data if trace.name] == ["Random", "HyperOpt"]


def test_the_course_over_minutes_of_each_group_ends_with_its_longest_run(runs: list[Run]) -> None:
    found = compare(runs)
    drawn = found.plot("time")
    ends = drawn.table.groupby("group")["minutes"].max()
    for name, of_group in (("Random", runs[:3]), ("HyperOpt", runs[3:])):
        assert ends[name] == pytest.approx(max(run.record.wall_seconds for run in of_group) / 60)
    assert (drawn.table["runs"] == 3).all()
    last = drawn.table[drawn.table["group"] == "HyperOpt"].iloc[-1]
    assert last["mean"] == pytest.approx(np.mean([run.record.winning_value for run in runs[3:]]))
    assert last["standard error"] > 0
    assert [trace.name for trace in drawn.figure.data if trace.name] == ["Random", "HyperOpt"]


def timed(folder: Path, study: str, seed: int, first: float, *values: float) -> Run:
    """A run of one trial that reports after `first` seconds, and then every 10 s."""
    reports = [reported(0, at + 1, first + 10 * at, loss=value) for at, value in enumerate(values)]
    end = first + 10 * len(values)
    events = [event("study_started"), started(0), *reports, event("study_ended", end, reason="trials")]
    return of_events(folder / f"{study}-{seed}-{first:g}", events, seed=seed, search=f"{study}()")


def test_a_group_is_drawn_whose_slowest_run_begins_after_another_run_has_ended(tmp_path: Path) -> None:
    runs = [timed(tmp_path, "slow", 0, 10.0, 5.0), timed(tmp_path, "slow", 1, 60.0, 4.0, 2.0)]
    runs += [timed(tmp_path, "quick", seed, 5.0 + seed, 3.0 + seed) for seed in (0, 1)]
    drawn = compare(runs).plot("time")
    assert [trace.name for trace in drawn.figure.data if trace.name] == ["slow", "quick"]
    slow = drawn.table[drawn.table["group"] == "slow"]
    assert (slow["minutes"].iloc[0], slow["minutes"].iloc[-1]) == (1.0, pytest.approx(80 / 60))
    assert (slow["mean"].iloc[0], slow["mean"].iloc[-1]) == (4.5, 3.5)


def test_groups_that_cannot_be_drawn_are_named_in_the_title(tmp_path: Path) -> None:
    silent = [timed(tmp_path, "silent", seed, 5.0) for seed in (0, 1)]
    quick = [timed(tmp_path, "quick", seed, 5.0, 3.0 + seed) for seed in (0, 1)]
    title = compare([*quick, *silent]).plot("time").figure.layout.title.text.replace("<br>", " ")
    assert title.endswith("against minutes of the search, without silent: no value was reported there")
    assert compare(silent).plot("time").figure.layout.title.text == "No run has reported a value"


def test_the_minutes_of_groups_leave_out_the_time_when_no_search_ran(tmp_path: Path) -> None:
    runs = [gone_on_an_hour_later(tmp_path / str(seed), killed=True) for seed in (0, 1)]
    for seed, run in enumerate(runs):
        write_info(run.folder, {**run.info, "seed": seed})
    drawn = compare([load_run(run.path) for run in runs]).plot("time").table
    assert (drawn["minutes"].min(), drawn["minutes"].max()) == (10 / 60, 50 / 60)


def test_a_cell_that_ends_with_the_plot_shows_it(runs: list[Run]) -> None:
    drawn = compare(runs).plot()
    assert drawn._repr_mimebundle_() == drawn.figure._repr_mimebundle_()


def test_long_titles_are_broken_for_notebooks_and_whole_on_the_page(runs: list[Run]) -> None:
    found = compare(runs)
    lines = found.plot().figure.layout.title.text.split("<br>")
    assert len(lines) > 1
    assert all(len(line) <= 84 for line in lines)
    told = found.conclusion[0].upper() + found.conclusion[1:]
    assert f'<figcaption id="caption-comparison-against-epochs">{told}' in comparison_html(found)


def test_a_sure_difference_is_said_with_its_test(runs: list[Run]) -> None:
    found = compare(runs)
    (told,) = found.differences
    assert (told.better, told.kind, told.count, told.sure) == ("HyperOpt", "paired", 3, True)
    assert found.conclusion.startswith(
        f"after {found.epochs} epochs HyperOpt is better than Random by 5 (95 % interval "
    )
    assert "paired t-test of 3 seeds" in found.conclusion


def test_groups_without_a_difference_cannot_be_told_apart() -> None:
    found = difference("a", {0: 0.5, 1: 0.7, 2: 0.6}, "b", {0: 0.6, 1: 0.6, 2: 0.59}, "max")
    assert found is not None
    assert not found.sure
    assert "a and b can't be distinguished" in str(found)


def test_a_paired_test_is_that_of_a_textbook() -> None:
    """scipy.stats.ttest_rel of the same numbers."""
    from scipy.stats import ttest_ind, ttest_rel

    first, second = [0.9, 0.8, 0.95, 0.7], [0.85, 0.78, 0.9, 0.69]
    paired = difference("a", dict(enumerate(first)), "b", dict(enumerate(second)), "max")
    welch = difference("a", dict(enumerate(first)), "b", dict(enumerate(second, start=10)), "min")
    assert paired is not None
    assert welch is not None
    assert (paired.kind, paired.better) == ("paired", "a")
    assert paired.p == pytest.approx(ttest_rel(first, second).pvalue)
    by_scipy = ttest_ind(first, second, equal_var=False).pvalue
    assert (welch.kind, welch.better) == ("Welch", "b")
    assert welch.p == pytest.approx(by_scipy)


def test_the_interval_is_that_of_a_textbook() -> None:
    """Differences 0.05, 0.02, 0.05, 0.01: mean 0.0325, standard deviation 0.02062, t(3, 97.5 %) = 3.1824."""
    found = difference("a", {0: 0.9, 1: 0.8, 2: 0.95, 3: 0.7}, "b", {0: 0.85, 1: 0.78, 2: 0.9, 3: 0.69}, "max")
    assert found is not None
    assert found.low == pytest.approx(0.0325 - 0.0328, abs=1e-4)
    assert found.high == pytest.approx(0.0653, abs=1e-4)
    assert not found.sure  # as the interval holds 0
    assert str(found).startswith("a and b can't be distinguished: a is ahead by 0.0325 (95 % interval -0.00")


def test_equal_differences_are_no_proof() -> None:
    """Of 50 images two seeds gain one each: p was 0."""
    found = difference("a", {0: 0.52, 1: 0.56, 2: 0.5}, "b", {0: 0.5, 1: 0.54, 2: 0.48}, "max")
    assert found is not None
    assert (found.p, found.sure) == (0.25, False)
    apart = difference("a", dict.fromkeys((0, 1, 2), 0.5), "b", dict.fromkeys((3, 4, 5), 0.4), "max")
    assert apart is not None
    assert apart.p == pytest.approx(2 / 20)
    even = difference("a", {0: 0.5, 1: 0.6}, "b", {0: 0.5, 1: 0.6}, "max")
    assert even is not None
    assert even.p == 1.0


def test_two_common_seeds_of_ten_are_no_paired_test() -> None:
    generator = np.random.default_rng(0)
    first: dict[int | None, float] = dict(enumerate(generator.normal(1.0, 0.1, 10).tolist()))
    second: dict[int | None, float] = dict(enumerate(generator.normal(0.0, 0.1, 10).tolist(), start=8))
    found = difference("a", first, "b", second, "max")
    assert found is not None
    assert (found.kind, found.sure) == ("Welch", True)


def simulated_groups(seed: int, groups: int, seeds: int) -> list[dict[int | None, float]]:
    """Values of groups that are equally good, where a seed is as lucky in each of them, in part."""
    generator = np.random.default_rng([seed, groups, seeds])
    luck = 0.02 * generator.standard_normal(seeds)
    return [dict(enumerate((0.8 + luck + 0.02 * generator.standard_normal(seeds)).tolist())) for _ in range(groups)]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_interval_holds_the_truth_as_often_as_it_says(seeds: int, paired: bool) -> None:
    held = 0
    for seed in range(600):
        first, second = simulated_groups(seed, 2, seeds)
        alone = simulated_groups(seed + 1000, 1, seeds)[0]
        apart: dict[int | None, float] = dict(enumerate(alone.values(), start=100))
        other = second if paired else apart
        found = difference("a", first, "b", other, "max")
        assert found is not None
        held += found.low <= 0 <= found.high
    assert 0.92 <= held / 600 <= 0.985


@pytest.mark.parametrize("groups", [2, 4, 6])
def test_of_equal_groups_hardly_ever_one_is_called_better(groups: int) -> None:
    wrong = 0
    for seed in range(300):
        values = sorted(simulated_groups(seed, groups, 5), key=lambda each: -sum(each.values()))
        told = [difference("best", values[0], "other", other, "max", groups) for other in values[1:]]
        wrong += any(one is not None and one.sure for one in told)
    assert wrong / 300 < 0.08


def test_each_pair_by_itself_would_call_one_of_six_equal_groups_better_in_a_third_of_the_sets() -> None:
    """What the number of groups is for: of 2,000 other sets of six it was 32 %, of their comparisons 9 %."""
    wrong = 0
    for seed in range(300):
        values = sorted(simulated_groups(seed, 6, 5), key=lambda each: -sum(each.values()))
        told = [difference("best", values[0], "other", other, "max") for other in values[1:]]
        wrong += any(one is not None and one.sure for one in told)
    assert 0.25 < wrong / 300 < 0.45


def test_one_run_each_says_nothing_sure() -> None:
    assert difference("a", {0: 0.9}, "b", {0: 0.1}, "max") is None


def test_the_same_seed_twice_is_no_second_measurement(tmp_path: Path) -> None:
    twice = [run_of(tmp_path / name, 0, "Random()", curve=worse) for name in ("a", "b")]
    assert [len(group.runs) for group in compare(twice).groups] == [1, 1]


def test_a_seed_that_is_there_twice_is_named_and_the_others_are_told_by_their_mean(tmp_path: Path) -> None:
    runs = [timed(tmp_path, "a", seed, 5.0, value) for seed, value in enumerate((3.0, 4.0, 5.0))]
    again = timed(tmp_path, "a", 0, 6.0, 1.0)
    said = "seed 0 is in a-0-5 and a-0-6: such runs are no independent measurements, so a group has only one of them"
    found = compare([*runs, again])
    assert found.conclusion == f"after 1 epoch a-0-5 and 2 more reached loss 4 ± 0.58, the mean of 3 seeds; {said}"
    assert [(len(group.runs), group.surplus) for group in found.groups] == [(3, False), (1, True)]
    others = [timed(tmp_path, "b", seed, 5.0, 2.0 + seed / 10) for seed in (0, 1, 2)]
    both = compare([*runs, again, *others]).conclusion
    assert both.startswith("after 1 epoch b-0-5 and 2 more and a-0-5 and 2 more can't be distinguished: b-0-5 ")
    assert both.endswith(f"; {said}")


def test_groups_of_one_run_are_ranked_by_means_and_never_tested(tmp_path: Path) -> None:
    runs = [timed(tmp_path, "a", seed, 5.0, value) for seed, value in enumerate((3.0, 5.0))]
    one, more = timed(tmp_path, "b", 0, 5.0, 3.5), timed(tmp_path, "c", 0, 5.0, 6.0)
    assert compare([*runs, one, more]).conclusion == (
        "after 1 epoch b-0-5 has the best mean loss, 3.5, 0.5 ahead of a-0-5 and 1 more; a-0-5 and 1 more has 4 ± 1; "
        f"c-0-5 has 6; {FEW_RUNS}"
    )
    others = [timed(tmp_path, "d", seed, 5.0, value) for seed, value in enumerate((7.0, 7.5))]
    assert compare([*runs, one, *others]).conclusion.endswith("; not tested, as one run each: b-0-5 with 3.5")


def test_seeds_of_one_study_are_told_by_their_mean(runs: list[Run]) -> None:
    assert "the mean of 3 seeds" in compare(runs[:3]).conclusion


def test_groups_are_printed_and_on_the_page(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *(run.path for run in runs)]) == 0
    printed = capsys.readouterr().out
    assert "standard error" in printed
    assert printed.splitlines()[-1] == compare(runs).conclusion
    assert "Groups of seeds" in comparison_html(compare(runs))
    assert "Groups of seeds" not in comparison_html(compare([runs[0], runs[3]]))
