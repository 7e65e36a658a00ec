import io
import json
import platform
import time
from pathlib import Path
from typing import Any

import pytest

from tests.history.events_of_a_run import computed, ended, event, reported, started
from tuner import (
    ASHA,
    Budget,
    Grid,
    HyperOpt,
    ImageClassifier,
    Random,
    Run,
    Study,
    choice,
    load_run,
    loguniform,
    uniform,
)
from tuner.console.printing import Output
from tuner.console.studies import print_earlier, print_study
from tuner.console.tables import print_failure, print_predictions, print_run, print_runs, print_winner
from tuner.errors import RunFolderError
from tuner.history.events import Event
from tuner.history.run_info import FORMAT
from tuner.inspection.tasks.one_label import ClassPrediction
from tuner.results.trial_texts import trial_texts
from tuner.storage.folder import LocalFolder
from tuner.storage.lease import held

TRACEBACK = "Traceback (most recent call last):\n  line 3\nValueError: x[:x:] of [red]shape[/red] " + "9" * 500


def make(folder: Path, *events: Event, status: str = "finished", **info: Any) -> Run:
    """A run of known events and times."""
    (folder / "events").mkdir(parents=True)
    lines = "".join(json.dumps(line) + "\n" for line in events)
    (folder / "events" / "000001.jsonl").write_text(lines)
    known = {"study": "lines", "metric": "accuracy", "mode": "max", "started": "2026-01-31T09:30:00+00:00"}
    content = {"format": FORMAT, "status": status, "host": platform.node(), **known, **info}
    (folder / "run.json").write_text(json.dumps(content))
    return load_run(folder)


def four_trials() -> list[Event]:
    return [
        event("study_started", 100.0, trials=4),
        started(0, 101.0, {"lr": 0.1, "net": {"width": 8}}),
        reported(0, 1, 103.0, accuracy=0.5, val_loss=1.25),
        reported(0, 2, 105.0, "stop", accuracy=0.875, val_loss=0.5),
        ended(0, "completed", 105.0),
        started(1, 106.0, {"lr": 0.2, "layers": ["[red]", ":x:"]}),
        reported(1, 1, 107.0, "stop", accuracy=0.25, val_loss=2.0),
        ended(1, "stopped", 107.0),
        event("notice", 107.5, message="[bold]note:x:[/bold]", code=None),
        started(2, 108.0, {"lr": 0.3}),
        ended(2, "failed", 109.0, cause="error", message="ValueError: x[:x:]", traceback=TRACEBACK),
        started(3, 110.0, {"lr": 0.4}),
        reported(3, 1, 111.0, "stop", accuracy=None),
        ended(3, "failed", 111.0, cause="diverged", message="accuracy = nan"),
        event("study_ended", 200.0, reason="trials"),
    ]


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    """What is on stdout, without the blanks that fill a table's last column."""
    return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())


def test_a_run_is_shown_with_all_its_trials_failures_notices_and_winner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_run(make(tmp_path, *four_trials()))
    assert printed(capsys) == "\n".join(
        [
            f"lines in {tmp_path}: finished, 4 trials, 1 min 40 s",
            "trial  status            epochs  accuracy  at  time  settings",
            "00000  completed         2       0.875     2   4 s   lr=0.1 net.width=8",
            "00001  stopped           1       0.25      1   1 s   lr=0.2 layers=['[red]', ':x:']",
            "00002  failed: error     0                     1 s   lr=0.3",
            "00003  failed: diverged  1                     1 s   lr=0.4",
            "1 trial failed, as trial 00002: ValueError: x[:x:]",
            "1 trial failed, as trial 00003: diverged: accuracy = nan",
            "note: [bold]note:x:[/bold]",
            "best: accuracy 0.875 (trial 00000, epoch 2: lr=0.1 net.width=8)",
            "4 epochs: 2 in 1 trial trained to the end, 1 in 1 trial stopped early, 1 in 1 trial that failed",
            f"run folder: {tmp_path}",
        ]
    )


def test_a_trial_is_shown_in_full_by_its_id_or_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(tmp_path, *four_trials())
    print_run(run, traceback_of="00000")
    whole = printed(capsys)
    assert whole == "\n".join(
        [
            "trial 00000: completed, seed 100, 4 s",
            "  lr = 0.1",
            "  net.width = 8",
            "epoch  accuracy  val_loss  decision",
            "1      0.5       1.25      continue",
            "2      0.875     0.5       stop",
        ]
    )
    print_run(run, traceback_of="0")
    assert printed(capsys) == whole


def on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, width: int = 80, **options: bool) -> list[str]:
    """What a terminal of 24 lines shows."""
    stream = io.StringIO()
    monkeypatch.setattr(
        "tuner.console.tables.new_console",
        lambda: Output(markup=False, emoji=False, highlight=False, file=stream, force_terminal=True, width=width,
                        height=24, color_system=None),
    )  # fmt: skip
    print_run(run, **options)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def sixty_trials() -> list[Event]:
    events = [event("study_started", 100.0, trials=60)]
    for number in range(60):
        config = {"lr": 0.001 * (number + 1), **{f"a_long_hyperparameter_{k}": 0.5 for k in range(5)}}
        at = 101.0 + 2 * number
        events += [started(number, at, config), reported(number, 1, at + 1, "stop", accuracy=number / 100)]
        events += [ended(number, "completed", at + 1)]
    return events


def test_a_terminal_shows_the_best_trials_on_about_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 trials took 510 lines on 80 columns, the worst first."""
    (folder := tmp_path / ("a folder whose name takes most of a line" + 20 * "-")).mkdir()
    lines = on_a_terminal(make(folder, *sixty_trials()), monkeypatch)
    assert len(lines) <= 24
    rows = [line for line in lines if line[:5].isdigit()]
    assert [row[:5] for row in rows] == [f"{number:05d}" for number in range(59, 59 - len(rows), -1)]
    assert f"{60 - len(rows)} more trials; all with: python -m tuner show" in " ".join(lines)
    assert any("settings of each trial not shown, as the terminal is too narrow" in line for line in lines)


def test_what_is_said_below_the_trials_takes_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 40 columns and 30 lines, `show` took 58 lines."""
    noted = [event("notice", 300.0 + n, message=f"notice {n} " + "of many words " * 8) for n in range(5)]
    run = make(tmp_path, *sixty_trials(), *noted)
    shown = {width: on_a_terminal(run, monkeypatch, width=width) for width in (60, 200)}
    rows = {width: sum(line[:5].isdigit() for line in lines) for width, lines in shown.items()}
    assert 5 <= rows[60] < rows[200]


def test_all_trials_are_shown_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_a_terminal(make(tmp_path, *sixty_trials()), monkeypatch, every=True)
    assert sum(line[:5].isdigit() for line in lines) == 60


def test_settings_that_fit_are_all_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_a_terminal(make(tmp_path, *sixty_trials()), monkeypatch, width=300)
    assert any("a_long_hyperparameter_4=0.5" in line for line in lines)
    assert not any("not shown" in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("metric", ["val_accuracy", "time", "a_metric_with_" + "a_long_name_" * 6])
def test_no_value_is_broken_at_any_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, metric: str
) -> None:
    """On 40 columns 0.9394 stood on three lines, and so did times."""
    events = [event("study_started", 100.0, trials=3)]
    for number in range(3):
        events += [started(number, 101.0, {"lr": 0.00123, "a_long_hyperparameter": 0.5})]
        events += [reported(number, epoch, 101.0 + 90 * epoch, **{metric: 0.9394 - number / 8}) for epoch in (1, 2)]
        events += [ended(number, "completed", 400.0)]
    run = make(tmp_path, *events, metric=metric)
    lines = on_a_terminal(run, monkeypatch, width)
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line[:5].isdigit()]
    assert [row[:5] for row in rows] == ["00000", "00001", "00002"]
    following = lines[lines.index(rows[0]) :][:3]
    assert following == rows  # a row is a line
    assert [value in row.split() for value, row in zip(("0.9394", "0.8144", "0.6894"), rows, strict=True)] == [True] * 3


def test_columns_without_room_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_a_terminal(make(tmp_path, *four_trials()), monkeypatch, 40)
    assert not any(line.startswith("trial") and " at " in line for line in lines)
    assert "column 'at', column 'time', " in " ".join(lines)


def test_a_stopped_trial_says_by_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [each | {"by": "early_stopping"} if each.get("status") == "stopped" else each for each in four_trials()]
    print_run(make(tmp_path, *events), traceback_of="1")
    assert printed(capsys).startswith(
        "trial 00001: stopped by early stopping, seed 101, 1 s; after epoch 1 it was number 2 of the 2 trials that reached it\n"
    )


def test_a_trial_is_shown_with_where_it_ran_and_the_end_of_what_it_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = four_trials()
    at = next(index for index, one in enumerate(events) if one["event"] == "trial_started" and one["number"] == 2)
    placed = event("trial_placed", 108.0, trial="00002", host="node-3", pid=42, devices=["cuda:1"], gpus=["H100"])
    run = make(tmp_path, *events[: at + 1], placed, *events[at + 1 :])
    (tmp_path / "logs").mkdir()
    for trial in ("00001", "00002"):
        log = "".join(f"2026-11-22T09:36:11Z epoch 1 | {number}\x1b[2J\n" for number in range(30))
        (tmp_path / "logs" / f"{trial}.log").write_text(log)
    whole = f"python -m tuner show {tmp_path} --trial"
    print_run(run, traceback_of="2")
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == "on node-3, process 42, cuda:1 (H100)"
    assert shown[-21] == f"the last lines that it printed; for all of them: {whole} 00002 --log"
    assert shown[-20:] == [f"2026-11-22T09:36:11Z epoch 1 | {number}\\x1b[2J" for number in range(10, 30)]
    print_run(run, traceback_of="1")
    assert capsys.readouterr().out.splitlines()[-1] == f"for what it printed: {whole} 00001 --log"


def test_a_trial_that_a_worker_asked_for_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = four_trials()
    at = next(index for index, one in enumerate(events) if one["event"] == "trial_started" and one["number"] == 2)
    handed = event("trial_handed", 108.0, trial="00002", worker="hand/w1\x1b[2J")
    print_run(make(tmp_path, *events[: at + 1], handed, *events[at + 1 :]), traceback_of="2")
    assert capsys.readouterr().out.splitlines()[1] == "by worker hand/w1\\x1b[2J, which has what it printed"


def test_a_failed_trials_traceback_is_printed_to_the_letter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_run(make(tmp_path, *four_trials()), traceback_of="2")
    assert printed(capsys) == "\n".join(
        ["trial 00002: failed: error, seed 102, 1 s", "  lr = 0.3", "epoch  decision", "ValueError: x[:x:]", TRACEBACK]
    )


@pytest.mark.parametrize(("events", "known"), [(four_trials(), "00000 to 00003"), ([], "none")])
def test_a_trial_that_is_not_there_is_refused(tmp_path: Path, events: list[Event], known: str) -> None:
    with pytest.raises(RunFolderError) as caught:
        print_run(make(tmp_path, *events), traceback_of="7")
    assert str(caught.value) == f"a trial is named by its id, got '7'; this run has {known}"


def test_a_run_that_has_just_begun_is_shown_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_run(make(tmp_path, event("study_started", 100.0, trials=4), status="interrupted"))
    assert printed(capsys) == "\n".join(
        [
            f"lines in {tmp_path}: interrupted, 0 trials, 0 s",
            "trial  status  epochs  accuracy  at  time  settings",
        ]
    )


def test_a_trial_that_computes_features_says_how_far_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now, said = time.time(), "computing features of mobilenet_v2: 240 of 1,200 images, 40 s left"
    with held(LocalFolder(tmp_path)):
        events = event("study_started", now), started(0, now), computed(0, 240, now, 10.0, 40.2)
        run = make(tmp_path, *events, status="running")
        print_run(run)
        assert f"trial 00000 is {said}" in printed(capsys).splitlines()
        print_run(run, traceback_of="0")
        assert printed(capsys).splitlines()[0].endswith(f"; {said}")
        assert trial_texts(run, run.trial("0"), {}, {}).said.endswith(f"; {said}")


def test_the_winner_stands_with_its_test_figures_and_what_it_started_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make(tmp_path, *four_trials(), started_from="ImageNet weights")
    metrics = {"trial": "00000", "metrics": {"test_accuracy": 0.91446, "test_loss": 0.25}}
    run.folder.write("best/metrics.json", json.dumps(metrics).encode())
    print_winner(run)
    assert printed(capsys) == "\n".join(
        [
            "best: accuracy 0.875 (trial 00000, epoch 2: lr=0.1 net.width=8)",
            "on the test split: test_accuracy 0.9145, test_loss 0.25 (started from ImageNet weights)",
            "4 epochs: 2 in 1 trial trained to the end, 1 in 1 trial stopped early, 1 in 1 trial that failed",
            f"run folder: {tmp_path}",
        ]
    )


def test_a_search_without_a_winner_names_its_most_frequent_failure(tmp_path: Path) -> None:
    failed = [
        line
        for number, cause in enumerate(["lost", "error", "error"])
        for line in (started(number), ended(number, "failed", cause=cause, message=f"message {number}"))
    ]
    stream = io.StringIO()
    run = make(tmp_path, *failed, status="failed")
    print_winner(run)
    print_failure(run, stream)
    assert stream.getvalue() == (
        "no trial succeeded: 2 of 3 trials failed, message 1\n"
        "1 of 3 trials failed, lost: message 0\n"
        f"to see it: python -m tuner show {tmp_path} --trial 00001\n"
    )


def test_a_search_that_failures_ended_is_shown_with_what_they_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alike = [
        line
        for number in range(5)
        for line in (started(number), ended(number, "failed", cause="error", message="ValueError: wrong"))
    ]
    print_run(make(tmp_path, *alike, status="failed", end_reason="failures"))
    assert capsys.readouterr().out.splitlines()[-1] == (
        "the search ended as 5 trials failed with the same error and none got farther: ValueError: wrong"
    )


def test_a_search_without_any_result_says_so(tmp_path: Path) -> None:
    stream = io.StringIO()
    print_failure(make(tmp_path), stream)
    assert stream.getvalue() == f"no trial reported accuracy; see {tmp_path}\n"


def test_runs_are_listed_a_row_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make(tmp_path / "a", *four_trials()), make(tmp_path / "b", status="failed")]
    print_runs(runs, "runs")
    width = len(str(tmp_path / "a"))
    assert printed(capsys) == "\n".join(
        [
            f"{'run':{width}}  status    trials  metric    best   time",
            f"{tmp_path / 'a'}  finished  4       accuracy  0.875  1 min 40 s",
            f"{tmp_path / 'b'}  failed    0       accuracy         0 s",
        ]
    )


def test_no_runs_are_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_runs([], "elsewhere")
    assert printed(capsys) == "no runs under elsewhere"


def test_a_study_is_shown_as_it_was_understood(capsys: pytest.CaptureFixture[str]) -> None:
    study = Study(
        "digits",
        trial=ImageClassifier("digits", weights=None),
        space={
            "lr": loguniform(1e-4, 1e-1),
            "optimizer": choice(["adam", "sgd"]),
            "momentum": uniform(0.8, 0.99).when(optimizer="sgd"),
            "batch_size": 32,
        },
        search=Random(),
        scheduler=ASHA(grace_epochs=2),
        budget=Budget(trials=7, max_epochs=5),
        seed=3,
    )
    print_study(study, [{"lr": 0.01, "optimizer": "adam", "batch_size": 32}])
    assert printed(capsys) == "\n".join(
        [
            "digits: resnet18 on digits, 7 trials, at most 5 epochs each",
            "maximise val_accuracy with Random(sobol=True) and ASHA(grace_epochs=2, reduction_factor=3, rule='promote'), seed 3",
            "dimension   domain                   when",
            "lr          loguniform(0.0001, 0.1)",
            "optimizer   choice(['adam', 'sgd'])",
            "momentum    uniform(0.8, 0.99)       optimizer in ['sgd']",
            "batch_size  32 (constant)",
            "the first 1 configuration:",
            "  lr=0.01 optimizer=adam batch_size=32",
        ]
    )


@pytest.mark.parametrize(
    ("settings", "trials"),
    [
        ({"search": Grid(), "budget": Budget(trials=None)}, "6 trials of 6 configurations"),
        ({"search": Grid(), "budget": Budget(trials=4)}, "4 trials of 6 configurations"),
        (
            {"search": HyperOpt(), "budget": Budget(trials=None), "space": {"lr": uniform(0.1, 0.2)}},
            "no limit of trials",
        ),
    ],
)
def test_a_study_says_how_many_trials_it_can_run(
    settings: dict[str, Any], trials: str, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"lr": choice([0.1, 0.2, 0.3]), "batch_size": choice([16, 32])}
    study = Study("digits", **{"trial": ImageClassifier("digits", weights=None), "space": space, **settings})
    print_study(study, [])
    assert printed(capsys).splitlines()[0] == f"digits: resnet18 on digits, {trials}, at most 10 epochs each"


def test_predictions_are_a_row_per_image(capsys: pytest.CaptureFixture[str]) -> None:
    prediction = ClassPrediction(Path("a/3.png"), "three", 0.956, (("three", 0.956), ("eight", 0.044)))
    print_predictions([prediction], ("class", "confidence"))
    assert printed(capsys) == "image    class  confidence\na/3.png  three  95.6%"


def test_of_many_earlier_runs_the_newest_are_shown_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    print_earlier([(f"small/{number}", 3, None if number % 2 else "another metric") for number in range(13)])
    lines = printed(capsys).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "and 3 older runs, of which 1 teach where to start; all with --json"
