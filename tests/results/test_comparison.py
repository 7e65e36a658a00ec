import json
import re
from pathlib import Path

import pytest

from tests.history.events_of_a_run import ended, event, reported, started
from tests.html_report.browsing import unpacked
from tests.results.simulated import gone_on_an_hour_later, of_events, simulated
from tuner import Budget, NoEarlyStopping, Random, Run, compare, load_run
from tuner.cli import main
from tuner.errors import RunFolderError
from tuner.history.records import RunRecord
from tuner.history.run_info import write_info
from tuner.html_report import comparison_html, elements, report_html
from tuner.results.comparison import CAVEAT
from tuner.results.wording import combination
from tuner.storage.folder import LocalFolder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The same search with early stopping and without, which costs more."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        simulated(folder / "stopping", search=Random(sobol=False)),
        simulated(
            folder / "whole",
            search=Random(sobol=False),
            seed=1,
            scheduler=NoEarlyStopping(),
            budget=Budget(trials=40, max_epochs=9),
        ),
    ]


def winning_after(run: Run, epochs: int) -> float | None:
    """The winner's value if the search had ended after so many epochs."""
    failed = {trial.trial for trial in run.record.trials.values() if trial.status == "failed"}
    then, left = RunRecord("loss", "min"), epochs
    for one in run.events:
        left -= one["event"] == "epoch_reported"
        if left < 0:
            break
        if one["event"] != "epoch_reported" or one["trial"] not in failed:
            then.apply(one)
    return then.winning_value


def test_runs_are_compared_at_what_the_cheaper_one_cost(runs: list[Run]) -> None:
    found = compare(runs)
    table = found.table
    assert found.epochs == runs[0].record.epochs() < runs[1].record.epochs()
    assert table["run"].tolist() == ["stopping", "whole"]
    assert table["loss"].tolist() == [run.record.winning_value for run in runs]
    assert table[found.equal_cost][0] == runs[0].record.winning_value
    assert table[found.equal_cost][1] == winning_after(runs[1], found.epochs) > table["loss"][1]


def test_epochs_that_were_trained_again_have_a_column_if_there_are_any(runs: list[Run], tmp_path: Path) -> None:
    column = "epochs trained again"
    again = gone_on_an_hour_later(tmp_path, killed=True)
    assert compare([again, runs[0]]).table[["epochs", column]].to_numpy().tolist() == [[3, 2], [len_of(runs[0]), 0]]
    assert column not in compare(runs).table


def len_of(run: Run) -> int:
    return sum(len(trial.epochs) for trial in run.record.trials.values())


def test_what_ships_in_place_of_a_winners_own_network_has_a_column(tmp_path: Path) -> None:
    trial = [started(0), reported(0, 1, 10.0, loss=3.0), ended(0, "completed", 10.0)]
    own = of_events(tmp_path / "own", [event("study_started"), *trial])
    assert "in best/" not in compare([own, own]).table
    gain = {"loss": 3.0, "gain": 0.5, "error": 0.1, "better": 1.0, "better_error": 0.0, "images": 9, "candidates": 3}
    cost = {"milliseconds": 3.0, "own_milliseconds": 1.0, "bytes": 30, "own_bytes": 10}
    of_own = {"gain": 0.5, "error": 0.1, "test_accuracy": 0.9}
    members = [{"trial": f"0000{number}", "share": 1 / 3} for number in range(3)]
    combined = {"asked": "auto", "in": True, "members": members, "own": of_own, "cost": cost, **gain}
    told = {"trial": "00000", "epoch": 1, "metrics": {"loss": 3.0}, "combined": combined}
    averaged = of_events(
        tmp_path / "averaged", [event("study_started"), event("combination_requested", how="auto"), *trial]
    )
    (tmp_path / "averaged" / "best").mkdir()
    file = tmp_path / "averaged" / "best" / "metrics.json"
    file.write_text(json.dumps(told | {"combined": combined | {"in": False}}))
    assert "in best/" not in compare([own, load_run(averaged.path)]).table  # it was found not to pay
    file.write_text(json.dumps(told))
    assert averaged.average is not None
    assert compare([own, averaged]).table["in best/"].tolist() == ["the winner", "the average of 3 trials"]
    for way, shipped in (("soup", "the mean weights of 3 trials"), ("distilled", "a student of 3 trials")):
        file.write_text(json.dumps(told | {"combined": combined | {"way": way, "epochs": 6}}))
        assert compare([own, load_run(averaged.path)]).table["in best/"].tolist() == ["the winner", shipped]
    scaled = {
        "members": [{"trial": "00000", "share": 1.0, "scale": 0.614}],
        "own": of_own | {"gain": 0.0, "error": 0.0},
    }
    file.write_text(json.dumps(told | {"combined": combined | scaled}))
    found = load_run(averaged.path)
    assert compare([own, found]).table["in best/"].tolist() == ["the winner", "the winner, its outputs scaled"]
    (sentence,) = combination(found)
    assert "the outputs of the winner's network are multiplied by 0.614 in best/" in sentence
    assert "that gains: loss 3 to 2.5, 0.5 ± 0.1 less, and an average of several gains less, or nothing" in sentence
    file.write_text(json.dumps(told | {"combined": combined | scaled | {"candidates": 1}}))
    (sentence,) = combination(load_run(averaged.path))
    assert "0.5 ± 0.1 less, and no other trial has a network that could be averaged; best/single has" in sentence


def test_the_conclusion_names_the_better_one_and_the_difference(runs: list[Run]) -> None:
    found = compare(runs)
    values = dict(zip(found.names, found.table[found.equal_cost], strict=True))
    best, other = sorted(values, key=lambda name: values[name])
    assert found.conclusion == (
        f"after {found.epochs} epochs {best} has the best loss, {values[best]:.4g}, "
        f"{values[other] - values[best]:.4g} ahead of {other}; {CAVEAT}"
    )
    assert compare([runs[0], load_run(runs[0].path)]).conclusion.endswith(
        f"even at loss {runs[0].record.winning_value:.4g}"
    )


def test_all_runs_are_drawn_on_the_same_axes(runs: list[Run]) -> None:
    found = compare(runs).plot()
    assert [trace.name for trace in found.figure.data] == ["stopping", "whole"]
    assert found.figure.layout.xaxis.title.text == "epochs trained in all"
    assert set(found.table["run"]) == {"stopping", "whole"}


def test_the_command_prints_a_row_per_run_and_json(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    paths = [run.path for run in runs]
    assert main(["compare", *paths]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == compare(runs).conclusion
    assert len(lines) == 4
    assert main(["compare", *paths, "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["stopping", "whole"]


def test_runs_that_cannot_be_compared_are_refused(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="compare needs at least two runs, got 1; name another"):
        compare(runs[:1])
    other = simulated(tmp_path)
    write_info(LocalFolder(tmp_path), {**other.info, "metric": "accuracy", "mode": "max"})
    with pytest.raises(RunFolderError, match="compare needs runs of the same metric, got others: "):
        compare([runs[0], load_run(tmp_path)])


def test_a_comparison_is_a_page_with_every_run_on_the_same_axes(runs: list[Run]) -> None:
    page = comparison_html(compare(runs))
    conclusion = compare(runs).conclusion
    assert f'<p class="lead">{conclusion[0].upper()}{conclusion[1:]}.</p>' in page
    sources = re.findall(r'<script type="application/gzip" data-plot="([^"]*)">(.*?)</script>', page)
    assert [name for name, _ in sources] == [f"plot-comparison-against-{axis}" for axis in ("epochs", "time", "trials")]
    for _, source in sources:
        assert [trace["name"] for trace in json.loads(unpacked(source))["data"]] == ["stopping", "whole"]
    for run in runs:
        assert run.best is not None
        assert f"{run.best.config['lr']:.4g}" in page


def test_rows_that_a_table_leaves_out_are_counted(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements.table_of, "__defaults__", (1,))
    pages = comparison_html(compare(runs)), report_html(runs[0])
    counts, of_report = (re.findall(r"[0-9]+ more rows?[^<]*", page) for page in pages)
    assert "1 more row." in counts
    assert all(re.fullmatch(r"[0-9]+ more rows?\.", one) for one in counts)
    assert all(re.fullmatch(r"[0-9]+ more rows?; all are in trials.csv and history.csv\.", one) for one in of_report)
    assert len(counts) > 1
    assert len(of_report) > 1


def test_the_page_is_written_where_it_is_wanted_and_never_over_another_file(
    runs: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", *(run.path for run in runs), "--html", str(tmp_path / "page.html")]
    assert main(command) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert main(command) == 2
    assert "--html names a new file" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
