"""The table of trials, and what is said of one: worded once, shown by reports, a service's pages, notebooks, terminal."""

import html
import re
from pathlib import Path
from typing import Any

import pytest

from tests.results.kinds_of_runs import sixty_conditional
from tests.service.web.serving import Served, serving
from tuner import Run
from tuner.console.tables import print_run
from tuner.html_report import report_html
from tuner.results import trial_rows
from tuner.results.trial_rows import Cell, Cells, Column
from tuner.results.trial_texts import ranks_of, trial_texts, why_stopped
from tuner.service.model import State

Shown = tuple[list[str], list[list[str]]]  # headings, and the cells of the rows


def in_report(run: Run) -> Shown:
    table = re.search(r'<table id="all-trials".*?</table>', report_html(run), re.DOTALL)
    assert table
    return of_markup(table[0])


def in_notebook(run: Run) -> Shown:
    return of_markup(run._repr_html_())


def of_markup(text: str) -> Shown:
    def words(cell: str) -> str:
        return html.unescape(re.sub(r"<[^>]+>", "", cell))

    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", text)]
    headings = re.findall(r"<th[^>]*>(.*?)</th>", text)
    return list(map(words, headings)), [list(map(words, row)) for row in rows if row]


def at_service(served: Served, run: Run) -> Shown:
    """Without the columns of further metrics, which its page alone has."""
    path = f"/api/v1/studies/{served.study('anne', State.FINISHED, run)}/table"
    found = served.client("guest").get(path, params={"order": "best", "limit": 200}).json()
    names = [column["name"] for column in found["columns"]]
    others = {*run.history.columns} - {run.metric, "trial", "epoch", "time", "decision"}
    kept = [index for index, name in enumerate(names) if name not in others]
    rows = [[f"{cell['text']} {cell['aside']}".strip() for cell in row["cells"]] for row in found["rows"]]
    return [names[index] for index in kept], [[row[index] for index in kept] for row in rows]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return sixty_conditional(tmp_path / "sixty")


def test_report_service_and_notebook_show_the_same_table_of_trials(run: Run, tmp_path: Path) -> None:
    with serving(tmp_path / "service") as served:
        report, service, notebook = in_report(run), at_service(served, run), in_notebook(run)
    assert report[0] == ["trial", "status", "epochs", "val_accuracy", "time", *run.space.dimensions, "notes"]
    assert service == report
    assert notebook == (report[0], report[1][:10])
    assert report[1][0][:2] == [run.best.trial if run.best else "", "completed"]
    assert "looks odd after epoch 3 #ask-anna" in [row[-1] for row in report[1]]


def test_a_column_that_is_added_and_a_cell_that_is_worded_anew_appear_everywhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are changed in one place."""
    known = trial_rows._columns

    def with_seeds(run: Run, cells: Cells, metrics: Any) -> Any:
        return [*known(run, cells, metrics), (Column("seed", "number"), lambda trial: Cell(str(trial.seed)))]

    monkeypatch.setattr(trial_rows, "_columns", with_seeds)
    monkeypatch.setattr(Cells, "status", lambda cells, trial: Cell(trial.status.upper()))
    with serving(tmp_path / "service") as served:
        shown = [in_report(run), at_service(served, run), in_notebook(run)]
    for headings, rows in shown:
        assert headings[-1] == "seed"
        assert rows[0][1] == "COMPLETED"
        assert rows[0][-1] == str(run.trial(rows[0][0]).seed)
    print_run(run)
    assert "COMPLETED" in capsys.readouterr().out


def test_settings_that_are_none_are_told_from_those_that_a_trial_has_not(run: Run) -> None:
    table = trial_rows.trial_rows(run, run.record.rows())
    place = {column.name: index for index, column in enumerate(table.columns)}
    kinds = {column.name: column.kind for column in table.columns}
    assert (kinds["lr"], kinds["augmentation"]) == ("number", "word")
    for row in table.rows:
        config = run.trial(row.trial).config
        assert (row.cells[place["momentum"]].text == "") is ("momentum" not in config)
        assert (row.cells[place["augmentation"]].text == "None") is (config["augmentation"] is None)


def test_of_a_trial_that_was_stopped_early_its_place_at_that_epoch_is_told(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    history, reasons = run.history, why_stopped(run.record)
    stopped = [one for one in run.record.trials.values() if one.ended_by == "early_stopping"]
    assert len(stopped) > 3
    ranks = ranks_of(run.record)
    for trial in stopped:
        there = history[history["epoch"] == trial.epoch].set_index("trial")["val_accuracy"].dropna()
        place = int((there > there[trial.trial]).sum()) + 1
        said = f"; after epoch {trial.epoch} it was number {place} of the {len(there)} trials that reached it"
        assert trial_texts(run, trial, ranks, reasons).said.endswith(said)
        assert ", rank " not in trial_texts(run, trial, ranks, reasons).said  # of trials of all lengths, it says less
    print_run(run, traceback_of=stopped[0].trial)
    assert f"; after epoch {stopped[0].epoch} it was number " in " ".join(capsys.readouterr().out.split())
    completed = next(one for one in run.record.trials.values() if one.status == "completed")
    assert completed.trial not in reasons
    assert f", rank {ranks[completed.trial]} of {len(ranks)}" in trial_texts(run, completed, ranks, reasons).said


def test_what_is_said_of_a_trial_is_the_same_in_the_report_and_at_the_service(run: Run, tmp_path: Path) -> None:
    best = run.best
    assert best
    expected = trial_texts(run, best, ranks_of(run.record), why_stopped(run.record))
    assert expected.said.startswith("completed, 27 of 27 epochs; val_accuracy 0.9")
    assert expected.said.endswith(f", rank 1 of {len(run.record.ranked())}")
    with serving(tmp_path / "service") as served:
        study = served.study("anne", State.FINISHED, run)
        found = served.client("guest").get(f"/api/v1/studies/{study}/trials/{best.trial}").json()["told"]
    assert (found["said"], found["metrics_of"]) == (expected.said, expected.metrics_of)
    assert {name: dict(found[name]) for name in ("settings", "metrics", "of_run")} == {
        "settings": dict(expected.settings),
        "metrics": dict(expected.metrics),
        "of_run": dict(expected.of_run),
    }
    assert len(found["epochs"]) == 27
