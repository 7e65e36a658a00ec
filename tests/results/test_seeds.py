"""What is told of a run with further seeds: in a line, in its tables, and in the report."""

import re
from pathlib import Path

import pytest

from tests.loop.simulation import build, drive, events_of, study
from tests.loop.test_repeats import confirming, end, finished
from tuner import Run, Study, compare, confirm, load_run
from tuner.errors import RunFolderError
from tuner.history.run_info import FORMAT, write_info
from tuner.html_report import report_html
from tuner.loop.confirming import check_asked, confirmation
from tuner.loop.search_loop import SearchLoop
from tuner.mirrors.wandb_summary import contents
from tuner.results.seeds import repeated, verdict
from tuner.results.wording import best_so_far
from tuner.storage.folder import LocalFolder

INFO = {"format": FORMAT, "study": "simulated", "metric": "loss", "mode": "min", "status": "finished"}


def read(folder: Path, **info: object) -> Run:
    budget = {"trials": 8, "max_epochs": 9}
    write_info(LocalFolder(folder), {**INFO, "budget": budget, "started": "2026-01-31T09:30:00+00:00", **info})
    return load_run(folder)


def confirmed(folder: Path, top: int = 2, seeds: int = 3) -> Run:
    before = finished(folder)
    end(confirming(folder, before.study, top, seeds))
    return read(folder)


def test_repeats_are_told_apart_from_trials(tmp_path: Path) -> None:
    run = confirmed(tmp_path)
    assert "8 trials and 6 repeats" in repr(run)
    page = report_html(run)
    assert re.search(r"<dt>trials</dt><dd>8 <small>of 8</small>", page)
    assert "<dt>repeats, other seeds</dt><dd>6</dd>" in page
    assert "over 8 trials in their order" in page  # of the small history: a mark for each configuration


def test_the_report_has_a_row_for_each_configuration_with_several_seeds(tmp_path: Path) -> None:
    run = confirmed(tmp_path)
    table = report_html(run).split("Under several seeds")[1].split("</table>")[0]
    firsts = {first.trial for first in run.record.repeated}
    assert set(re.findall(r"#trial=(\d+)", table)) == firsts
    assert [int(seeds) for seeds in re.findall(r"<td>(\d+)</td>", table)] == [
        len(run.record.seeds_of(one.trial)) for one in run.record.ranked() if len(run.record.seeds_of(one.trial)) > 1
    ]


def test_a_row_per_configuration_has_the_mean_of_its_seeds(tmp_path: Path) -> None:
    run = confirmed(tmp_path)
    table = run.configurations
    assert len(table) == 8
    assert table["trials"].sum() == 14
    for row in table[table["seeds"] > 1].itertuples():
        values = run.record.seeds_of(run.record.trials[row.trial])
        assert row.loss == pytest.approx(sum(values) / len(values))
        assert (row.lowest, row.highest) == (min(values), max(values))
        assert row.error > 0


def test_configurations_that_are_better_by_too_few_seeds_are_told_of_and_do_not_win(tmp_path: Path) -> None:
    before = finished(tmp_path)
    again = before.record.ranked()[2].trial.trial
    better = [one.trial.trial for one in before.record.ranked()[:2]]
    loop = build(before.study, tmp_path, history=events_of(tmp_path))
    loop.ask_for("confirmation_requested", trials=[again], seeds=2, alone=True, ended_by="trials")
    end(loop)
    run = read(tmp_path)
    assert run.best is not None
    assert run.best.configuration == run.record.trials[again].configuration
    assert {one.trial.trial for one in run.record.challengers()} == set(better)
    first = run.record.challengers()[0]
    told = verdict(run, repeated(run))
    assert told is not None
    assert told.endswith(
        f"; trial {first.trial.trial}, like 1 more, has a better loss, {first.value:.4g}, but under fewer seeds, so it is "
        f"not the winner before it is confirmed: tuner.confirm('{tmp_path}', study=study, top=2)"
    )
    assert sorted(confirmation(run.record, 9, 2, 1).names) == sorted(better)


def test_where_all_that_lead_have_several_seeds_nothing_is_left_out(tmp_path: Path) -> None:
    run = confirmed(tmp_path)
    told = verdict(run, repeated(run))
    assert told is not None
    assert "Welch" in told
    assert "confirm" not in told


def test_the_line_of_the_best_says_which_trial_it_repeats(tmp_path: Path) -> None:
    run = confirmed(tmp_path)
    best = run.best
    assert best is not None
    line = repr(run)
    assert f"by {best.trial}" in line
    assert (f"(trial {best.trial}, which repeats {best.repeats}, epoch" in best_so_far(run.record)) is bool(
        best.repeats
    )


def test_a_run_whose_trials_a_program_asks_for_is_not_confirmed(tmp_path: Path) -> None:
    finished(tmp_path)
    with pytest.raises(RunFolderError, match="confirm needs trials that tuner trains"):
        check_asked(read(tmp_path, asked=True))
    with pytest.raises(RunFolderError, match="confirm needs trials that tuner trains"):
        confirm(tmp_path, progress=False)


def interrupted(folder: Path) -> tuple[Study, SearchLoop]:
    declared = study()
    first = build(declared, folder)
    drive(first, reports=22)  # two trials at full length, and four epochs of a third
    first.close()
    return declared, build(declared, folder, history=events_of(folder))


def test_an_interrupted_run_confirms_and_goes_on_with_its_search(tmp_path: Path) -> None:
    declared, loop = interrupted(tmp_path)
    found = confirmation(loop.record, declared.budget.max_epochs, 2, 1)
    with pytest.raises(RunFolderError, match="got --top 3 for a run that has 2"):  # the third goes on
        confirmation(loop.record, declared.budget.max_epochs, 3, 1)
    loop.ask_for("confirmation_requested", **found.request(None, ended=False))
    drive(loop)
    loop.end()
    loop.close()
    record = loop.record
    assert record.configurations == 6
    assert sorted(t.repeats for t in record.trials.values() if t.repeats) == sorted(found.names)
    assert {t.status for t in record.trials.values()} == {"completed"}
    started = [e.get("repeats") for e in events_of(tmp_path) if e["event"] == "trial_started"]
    assert started[4:6] == found.names  # once the third trial goes on, before anything new


def test_wandb_gets_the_rows_of_configurations_once_there_are_repeats(tmp_path: Path) -> None:
    before = finished(tmp_path)
    assert "configurations" not in contents(read(tmp_path))
    end(confirming(tmp_path, before.study))
    run = load_run(tmp_path)
    table = contents(run)["configurations"]
    assert table.columns == list(run.configurations.columns)
    assert [row[table.columns.index("trials")] for row in table.data] == run.configurations["trials"].tolist()


def test_a_page_counts_configurations_as_trials_wherever_it_says_trials(tmp_path: Path) -> None:
    run = confirmed(tmp_path)
    title = run.plot.curves().layout.title.text
    assert re.match(r"\d of 8 trials were stopped early", title.replace("<br>", " "))
    assert compare([run, run]).table["trials"].tolist() == [8, 8]
