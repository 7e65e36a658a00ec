"""What the report says, and of runs of any state and damage."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

import tuner
from tests.results.kinds_of_runs import one_hyperparameter
from tests.results.simulated import gone_on_an_hour_later, simulated
from tuner import Budget, NoEarlyStopping, Random, Run, choice, load_run, uniform
from tuner.errors import RunFolderError
from tuner.history.run_info import write_info
from tuner.html_report import report_html, write_report
from tuner.html_report.trial_data import trial_data


def dressed(run: Run) -> Run:
    """With a scored winner, as an image classifier's run has it, and where it came from."""
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
    best = run.best
    assert best is not None
    metrics = {"trial": best.trial, "metrics": {"test_accuracy": 0.93}, "images": {"validation": 500, "test": 100}}
    wrong = {"index": 3, "label": "</script><b>cat", "predicted": "dog", "confidence": 0.9, "image": pixel}
    matrix = {"classes": ["</script><b>cat", "dog"], "counts": [[50, 3], [4, 43]]}
    for name, content in (("metrics", metrics), ("mistakes", [wrong]), ("confusion_matrix", matrix)):
        run.folder.write(f"best/{name}.json", json.dumps(content).encode())
    versions = {"ray": "2.60.0", "torch": "2.15.0"}
    write_info(run.folder, {**run.info, "study_file": "space.py", "command": ["tuner", "run"], "versions": versions})
    return load_run(run.path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return dressed(simulated(tmp_path_factory.mktemp("run")))


ONCE = (
    *("read_all", "leads", "dead", "outcomes_at_full_length", "importance", "certainty", "failure_groups", "repeated"),
    *("verdict", "good_region", "tried", "gains", "trial_rows", "why_stopped"),
)


def test_what_is_found_is_computed_once_for_the_whole_report(run: Run) -> None:
    counted = dict.fromkeys(ONCE, 0)
    package = str(Path(tuner.__file__).parent)

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_qualname in counted and code.co_filename.startswith(package):
            counted[code.co_qualname] += 1

    fresh = load_run(run.path)
    sys.setprofile(count)
    try:
        report_html(fresh)
    finally:
        sys.setprofile(None)
    assert counted == dict.fromkeys(ONCE, 1)


def test_it_says_what_won_and_how_to_do_it_again(run: Run) -> None:
    page = report_html(run)
    best = run.best
    assert best is not None
    assert f"Trial {best.trial} is the best" in page
    assert "test_accuracy 0.93 ±" in page
    for text in ("loguniform(0.0001, 0.1)", "kind is b", "space.py", "torch 2.15.0", "diverged"):
        assert text in page


@pytest.mark.parametrize("killed", [True, False])
def test_a_trials_curve_leaves_out_the_time_when_no_search_ran(tmp_path: Path, killed: bool) -> None:
    run = gone_on_an_hour_later(tmp_path, killed=killed)
    (trial,) = json.loads(trial_data(run, list(run.record.trials.values())))["trials"]
    before = 20 if killed else 25
    assert trial["minutes"] == [round((before + after) / 60, 3) for after in (10, 20, 30)]


def test_epochs_that_were_trained_again_are_told_where_epochs_are_counted(tmp_path: Path) -> None:
    page = report_html(gone_on_an_hour_later(tmp_path, killed=True))
    assert "<dt>epochs trained</dt><dd>3 <small>and 2 again</small></dd>" in page
    assert "3 epochs: 3 in 1 trial trained to the end; in addition 2 trained again after interruptions; 50 s" in page


def test_metrics_are_told_with_their_intervals(tmp_path: Path) -> None:
    run = dressed(simulated(tmp_path))
    found = run.scored("metrics.json")
    assert found is not None
    found["metrics"] |= {"val_f1": 0.8, "val_f1_se": 0.02, "test_f1": 0.75}
    found["intervals"] = {"test_f1": {"low": 0.7, "high": 0.81, "method": "bootstrap"}}
    run.folder.write("best/metrics.json", json.dumps(found).encode())
    page = report_html(load_run(run.path))
    assert "0.8 ± 0.02 (90\N{NO-BREAK SPACE}% interval 0.7671 to 0.8329)" in page
    assert "0.75 (95\N{NO-BREAK SPACE}% interval 0.7 to 0.81)" in page
    assert "val_f1_se" not in page.split("Metrics after epoch")[1].split("</table>")[0]
    assert "Wilson (1927)" in page


def test_where_noise_is_not_known_the_runner_up_is_named_without_a_verdict(run: Run) -> None:
    page = report_html(run)
    assert "The runner-up, trial" in page
    assert "One training of each can't show whether" in page


def test_no_text_of_the_user_becomes_markup(tmp_path: Path) -> None:
    options = ["</script><img src=x onerror=alert(1)>", "b & c"]
    page = report_html(dressed(simulated(tmp_path, space={"kind": choice(options), "lr": uniform(0, 1), "depth": 1})))
    assert "<img src=x" not in page
    assert "</script><b>" not in page


@pytest.mark.parametrize("reports", [0, 1, 7])
def test_a_run_can_be_reported_at_any_time(tmp_path: Path, reports: int) -> None:
    run = simulated(tmp_path, reports=reports)
    page = report_html(run)
    assert ("No trial has reported loss" in page) is (reports == 0)


def test_a_run_of_which_only_the_events_are_left_is_reported(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    kept = ("study", "metric", "mode", "status", "started", "format", "space")
    write_info(run.folder, {name: run.info[name] for name in kept})
    assert "is the best" in report_html(load_run(tmp_path))


@pytest.mark.slow
def test_a_thousand_trials_of_fifty_epochs_stay_below_eight_megabytes(tmp_path: Path) -> None:
    budget = Budget(trials=1000, max_epochs=50)
    search = Random(sobol=False)
    run = simulated(tmp_path, saves=False, search=search, scheduler=NoEarlyStopping(), budget=budget)
    assert len(report_html(run)) < 8e6


# Damaged folders


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_torn_segment_is_read_as_far_as_it_goes_and_left_as_it_is(tmp_path: Path) -> None:
    total = len(simulated(tmp_path).record.trials)
    events = tmp_path / "events/000001.jsonl"
    events.write_bytes(events.read_bytes()[: events.stat().st_size // 2])
    before = bytes_of(tmp_path)
    run = load_run(tmp_path)
    assert 0 < len(run.record.trials) < total
    assert run.best is not None
    page = report_html(run)
    assert f"Trial {run.best.trial} is the best" in page
    assert bytes_of(tmp_path) == before


def test_a_line_of_garbage_costs_no_more_than_itself(tmp_path: Path) -> None:
    whole = simulated(tmp_path).trials
    events = tmp_path / "events/000001.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join([*lines[:-1], b"\xff\x00garbage\n", b'["no event"]\n', lines[-1]]))
    assert load_run(tmp_path).trials.equals(whole)


@pytest.mark.parametrize("damage", ["missing", "torn", "of another kind"])
def test_a_winner_whose_files_are_damaged_is_reported_without_them(tmp_path: Path, damage: str) -> None:
    run = dressed(simulated(tmp_path))
    for file in (tmp_path / "best").iterdir():
        if damage == "missing":
            file.unlink()
        else:
            file.write_text("[1, 2]" if damage == "of another kind" else file.read_text()[:20])
    page = report_html(load_run(tmp_path))
    assert f"Trial {run.best.trial} is the best" in page
    assert "What the winner gets wrong" not in page


def test_a_message_cannot_turn_the_words_around_it(tmp_path: Path) -> None:
    run = simulated(tmp_path)
    events = run.folder.read("events/000001.jsonl").replace(b"loss = nan", "\u202egnorw".encode())
    run.folder.write("events/000001.jsonl", re.sub(rb',"sum":"[0-9a-f]+"', b"", events))
    page = report_html(load_run(tmp_path))
    assert "\u202e" not in page
    assert r"\u202egnorw" in page


def test_reading_and_reporting_loads_neither_ray_nor_torch(run: Run) -> None:
    code = "import sys, tuner; from tuner.html_report import report_html; report_html(tuner.load_run(sys.argv[1]))"
    code += "; sys.exit(bool({'ray', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code, run.path], check=False).returncode == 0


def test_the_command_can_be_typed_again(tmp_path: Path) -> None:
    run = dressed(simulated(tmp_path))
    command = ["/somewhere/tuner/__main__.py", "run", "my space.py", "--seed", "1"]
    write_info(run.folder, {**run.info, "command": command})
    assert "python -m tuner run &#39;my space.py&#39; --seed 1" in report_html(load_run(tmp_path))


def test_a_folder_that_can_not_be_written_to_is_a_clear_message(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, content: bytes) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(run.folder, "write", refuse)
    with pytest.raises(RunFolderError, match=r"into the run's folder, got .* \(Permission denied\); copy"):
        write_report(run)


def test_a_search_that_stopped_nothing_does_not_count_what_stopping_saved(tmp_path: Path) -> None:
    """`0 of 20 trials were stopped early`, `saved 0 epochs of 180`, and `explains 100% ± 0%` of a single one."""
    page = report_html(one_hyperparameter(tmp_path))
    assert "No trial was stopped early; the best is bold" in page
    assert "Early stopping saved" not in page
    assert "± 0%" not in page


@pytest.mark.parametrize(
    ("file", "asked", "to_confirm"),
    [
        ("space.py", False, "python -m tuner confirm {}"),
        (None, False, "tuner.confirm('{}', study=study)"),
        (None, True, None),
    ],
)
def test_what_confirms_a_run_is_what_its_user_can_do(
    tmp_path: Path, file: str | None, asked: bool, to_confirm: str | None
) -> None:
    run = simulated(tmp_path)
    write_info(run.folder, {**run.info, "study_file": file, "asked": asked})
    page = report_html(Run(run.folder))
    shown = None if to_confirm is None else to_confirm.format(run.path).replace("'", "&#39;")
    assert re.findall(r"other seeds: <code>(.*?)</code>", page) == ([] if shown is None else [shown])
