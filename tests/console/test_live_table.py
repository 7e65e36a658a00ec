import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from tests.history.events_of_a_run import computed, ended, event, reported, started
from tests.loop.simulation import build, drive, events_of, study
from tests.results.simulated import simulated
from tuner import ASHA, Budget, ImageClassifier, NoEarlyStopping, Random, load_run, randint, uniform
from tuner.console.live_table import Lines, LiveTable, Plan, Progress, Silence, display
from tuner.history.events import Event
from tuner.history.records import RunRecord
from tuner.history.run_info import write_info
from tuner.results import time_left as forecast
from tuner.results.rest_simulation import Ahead
from tuner.results.time_left import TimeLeft, time_left
from tuner.results.wording import best_so_far, duration, settings, short

PLAN = Plan("simulated", "loss", "min", Ahead(trials=6, max_epochs=9))


def search(folder: Path, listener: Lines | LiveTable | Progress) -> None:
    loop = build(
        study(search=Random(sobol=False), scheduler=ASHA(grace_epochs=3, rule="stop")), folder, listeners=[listener]
    )
    drive(loop)


def test_lines_name_every_start_and_end_and_the_best_so_far(tmp_path: Path) -> None:
    stream = io.StringIO()
    with Lines(Progress(PLAN), stream) as lines:
        search(tmp_path, lines)
    printed = stream.getvalue().splitlines()
    assert printed[0] == "simulated: starting Ray"
    assert printed[1] == "trial 00000 started: x=0.637"
    assert printed[2].startswith(
        "trial 00000 completed after 9 epochs, loss 0.2316 ± 0.0033 over epochs 8 to 9; "
        "best so far 0.2316 ± 0.0033 by 00000; about "
    )
    assert len(printed) == 1 + 2 * 6 + 1
    assert printed[-1].startswith("6 of 6 trials: ")
    assert "; the trials took " in printed[-1]


def test_the_live_table_tells_of_features_while_a_trial_computes_them() -> None:
    console, now = Console(file=io.StringIO(), width=100, height=30), time.time()
    table = LiveTable(Progress(PLAN), console)

    def shown() -> list[str]:
        console.print(table._render())
        return [line.strip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]

    for one in (event("study_started", now), started(0, now), computed(0, 240, now, 10.0, 40.2)):
        table.on_event(one)
    said = "computing features of mobilenet_v2: 240 of 1,200 images, 40 s left (trial 00000)"
    assert shown().count(said) == 1
    table.on_event(reported(0, 1, now + 1, loss=0.5))
    assert shown().count(said) == 1  # that of before


def test_the_live_table_shows_trials_bar_totals_and_best_on_lines_of_their_own(tmp_path: Path) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, height=30, color_system=None)
    with LiveTable(Progress(PLAN), console) as table:
        search(tmp_path, table)
    last = stream.getvalue().split("trial  status")[-1]
    lines = [line.strip() for line in last.splitlines()]
    assert [line[:5] for line in lines[1:7]] == [f"{number:05d}" for number in range(6)]
    assert lines[7] == "loss, best so far"
    assert set(lines[12]) == {"━"}
    assert lines[13].startswith("6 of 6 trials: ")
    assert any(line.startswith("best loss ") for line in lines)


def test_the_live_table_says_what_follows_the_search_until_it_is_done(tmp_path: Path) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, height=30, color_system=None)
    with LiveTable(Progress(PLAN), console) as table:
        search(tmp_path, table)
        table.on_event(event("concluding", step="scoring the winner"))
        assert "scoring the winner" in rendered(table)
    assert "scoring the winner" not in rendered(table)


def rendered(table: LiveTable) -> str:
    console = Console(file=io.StringIO(), width=100, height=30)
    with console.capture() as shown:
        console.print(table._render())
    return shown.get()


def test_a_display_fits_its_stream(tmp_path: Path) -> None:
    assert isinstance(display(PLAN, io.StringIO(), quiet=True), Silence)
    assert isinstance(display(PLAN, io.StringIO(), quiet=False), Lines)


def test_savings_are_the_share_of_epochs_that_ended_trials_did_not_need(tmp_path: Path) -> None:
    progress = Progress(PLAN)
    search(tmp_path, progress)
    trained = sum(trial.epoch for trial in progress.record.trials.values())
    assert progress.saved_share() == pytest.approx(1 - trained / 54)
    assert trained < 54


def test_a_display_that_knows_earlier_events_goes_on_with_them(tmp_path: Path) -> None:
    declared = study(search=Random(sobol=False))
    drive(build(declared, tmp_path), reports=20)
    earlier = events_of(tmp_path)
    stream = io.StringIO()
    lines = Lines(Progress(PLAN, earlier), stream)
    drive(build(declared, tmp_path, history=earlier, listeners=[lines]))
    assert "trial 00002 started, going on from epoch 2: " in stream.getvalue()


def test_totals_are_of_the_plan_with_which_the_search_goes_on() -> None:
    progress = Progress(PLAN, [event("study_started", 0.0, trials=6), started(0, 1.0), event("study_interrupted", 2.0)])
    progress.on_event(event("study_resumed", 3.0, trials=4, max_epochs=12))
    assert (progress.ahead.trials, progress.ahead.max_epochs) == (4, 12)
    assert progress.totals().startswith("1 of 4 trials")


def test_numbers_and_times_are_short() -> None:
    assert [short(value) for value in (0.00093, 0.123456789, 32, "adam")] == ["0.00093", "0.1235", "32", "adam"]
    assert [duration(value) for value in (0.4, 42, 185, 7620)] == ["0 s", "42 s", "3 min 05 s", "2 h 07 min"]
    assert settings({"lr": 0.1, "net": {"width": 8}}) == "lr=0.1 net.width=8"


def test_without_a_result_there_is_no_best() -> None:
    assert best_so_far(Progress(PLAN).record) == "none yet"


# From events of the test's own choosing

ACCURACY = Plan("digits", "accuracy", "max", Ahead(trials=4, max_epochs=10))


def followed(*events: Event, plan: Plan = ACCURACY) -> Progress:
    progress = Progress(plan)
    for one in events:
        progress.on_event(one)
    return progress


def trained(number: int, epochs: int, status: str, /, **config: int) -> list[Event]:
    reports = [reported(number, epoch, accuracy=epoch / 10) for epoch in range(1, epochs + 1)]
    return [started(number, config=dict(config)), *reports, ended(number, status)]


def test_a_line_is_printed_for_what_happens_to_a_trial_and_for_notices() -> None:
    stream = io.StringIO()
    lines = Lines(Progress(ACCURACY), stream)
    for one in [
        event("study_started", trials=4),
        started(0, config={"lr": 0.1}),
        reported(0, 1, accuracy=0.5),
        event("checkpoint_saved", trial="00000", epoch=1, path="tune/00000/1"),
        event("trial_lost", trial="00000", message="node died"),
        started(0, config={"lr": 0.1}, from_epoch=1),
        event("notice", message="trials can't pause", code=None),
        event("trial_retried", trial="00000", cause="out_of_memory", message="no room", alone=True),
        started(0, config={"lr": 0.1}, from_epoch=1),
        ended(0, "failed", cause="error", message="ValueError: x"),
        event("retry_requested", trials=["00000"]),
        event("study_ended", reason="trials"),
    ]:
        lines.on_event(one)
    assert re.sub(r"about .* left \(.*\)", "about N s left", stream.getvalue()).splitlines() == [
        "trial 00000 started: lr=0.1",
        "trial 00000 lost its worker; another worker goes on from its last checkpoint, if there is one: node died",
        "trial 00000 started, going on from epoch 1: lr=0.1",
        "note: trials can't pause",
        "trial 00000 failed and is tried again, alone on its device: no room",
        "trial 00000 started, going on from epoch 1: lr=0.1",
        "trial 00000 failed: error after 1 epoch, best accuracy 0.5 (ValueError: x); best so far none; about N s left",
        "failed trials run again: 00000",
    ]


def test_a_search_that_started_no_trial_ends_without_totals() -> None:
    stream = io.StringIO()
    with Lines(Progress(ACCURACY), stream):
        pass
    assert stream.getvalue() == "digits: starting Ray\n"


def test_totals_count_trials_by_what_became_of_them() -> None:
    progress = followed(
        event("study_started"), *trained(0, 10, "completed"), *trained(1, 5, "stopped"), *trained(2, 1, "failed"),
        started(3), started(4), event("trial_paused", trial="00004", epoch=0),
    )  # fmt: skip
    assert progress.totals().startswith(
        "5 of 4 trials: 1 running, 1 paused, 1 done, 1 stopped early, 1 failed; "
        "early stopping saved 24% of the epochs; about "
    )


def test_without_a_number_of_trials_totals_name_none() -> None:
    progress = followed(*trained(0, 10, "completed"), plan=Plan("digits", "accuracy", "max", Ahead(None, 10)))
    assert re.fullmatch(r"1 trials: 1 done; \d+ s so far", progress.totals())


def test_totals_of_a_budget_of_epochs_say_how_many_are_spent() -> None:
    plan = Plan("digits", "accuracy", "max", Ahead(None, 10, limits={"total_epochs": 90}))
    progress = followed(*trained(0, 10, "completed"), *trained(1, 3, "stopped"), plan=plan)
    assert progress.totals().startswith("2 trials: 1 done, 1 stopped early; 13 of 90 epochs; ")


@pytest.mark.parametrize(
    ("events", "share"),
    [
        ([], 0.0),
        (trained(0, 10, "completed"), 0.0),
        (trained(0, 5, "stopped"), 0.5),
        (trained(0, 10, "completed") + trained(1, 5, "stopped"), 0.25),
        (trained(0, 4, "completed"), 0.0),  # it returned by itself: nobody saved anything
        (trained(0, 2, "stopped", epochs=4), 0.5),
        (trained(0, 5, "stopped", epochs=99), 0.5),
        (trained(0, 5, "stopped", epochs=0), 0.5),
        (trained(0, 5, "failed"), 0.0),
        ([*trained(0, 5, "stopped"), started(1), reported(1, 1, accuracy=0.5)], 5 / 11),
    ],
)
def test_only_stopped_trials_save_epochs(events: list[Event], share: float) -> None:
    assert followed(*events).saved_share() == share


def test_a_search_without_early_stopping_saves_nothing(tmp_path: Path) -> None:
    space = {"x": uniform(0, 1), "epochs": randint(2, 20)}
    progress = Progress(PLAN)
    drive(build(study(space=space, scheduler=NoEarlyStopping()), tmp_path, listeners=[progress]))
    assert progress.saved_share() == 0.0
    assert "saved" not in progress.totals()


def test_before_the_first_report_nobody_knows_the_time_left() -> None:
    progress = followed(event("study_started", time.time() - 60, trials=4), started(0, time.time() - 50))
    assert progress.eta() == "1 min 00 s so far"


def test_once_epochs_are_reported_the_time_left_has_an_interval() -> None:
    now = time.time()
    progress = followed(
        event("study_started", now - 60, trials=4),
        started(0, now - 55),
        *(reported(0, epoch, now - 55 + 10 * epoch, accuracy=0.1) for epoch in range(1, 6)),
    )
    found = re.fullmatch(r"about (\d+) min left \((\d+) to (\d+) min\)", progress.eta())
    assert found is not None
    middle, low, high = map(int, found.groups())
    assert low <= middle <= high
    assert 4 <= middle <= 8  # 35 epochs of 10 s


def test_the_time_left_follows_an_order_that_changes_the_limits() -> None:
    now = time.time()
    progress = followed(
        event("study_started", now - 60, trials=4),
        started(0, now - 55),
        *(reported(0, epoch, now - 55 + 10 * epoch, accuracy=0.1) for epoch in range(1, 6)),
    )
    before = progress.time_left(now)
    progress.on_event(order("order_obeyed", "set", "trials is 40 now", trials=40))
    after = progress.time_left(now + 1)
    assert before is not None
    assert after is not None
    assert after.low > 3 * before.high


def test_of_a_hundred_trials_a_second_the_time_left_is_not_reckoned_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    reckoned = []

    def counted(record: RunRecord, ahead: Ahead, now: float) -> TimeLeft | None:
        reckoned.append(now)
        return time_left(record, ahead, now)

    monkeypatch.setattr(forecast, "time_left", counted)
    now = time.time()
    progress = followed(event("study_started", now - 60), plan=Plan("digits", "accuracy", "max", Ahead(400, 10)))
    for number in range(100):
        progress.on_event(started(number, now - 60))
        progress.on_event(reported(number, 1, now + number / 100, accuracy=0.1))
        progress.on_event(ended(number, "completed", 0.1))
        assert progress.time_left(now + number / 100) is not None
    assert len(reckoned) == 1
    first, later = progress.time_left(now + 0.2), progress.time_left(now + 0.7)
    assert first is not None
    assert later is not None
    assert later.middle == pytest.approx(first.middle - 0.5)
    progress.time_left(now + 3600)
    assert len(reckoned) == 2
    progress.on_event(event("study_interrupted", now + 3600))
    assert progress.time_left(now + 3600) is None


def test_a_first_reckoning_that_took_long_is_not_kept_for_longer_than_a_tenth_of_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reckoned = []

    def cold(record: RunRecord, ahead: Ahead, now: float) -> TimeLeft | None:
        reckoned.append(now)
        begun = time.thread_time()
        while time.thread_time() < begun + 0.2:  # ten seconds at a fiftieth
            pass
        return TimeLeft(10.0, 20.0, 30.0)

    monkeypatch.setattr(forecast, "time_left", cold)
    now = time.time()
    progress = followed(event("study_started", now - 60), started(0, now - 59), plan=PLAN)
    for second in range(5):
        progress.time_left(now + second)
    assert reckoned == [now, now + 2, now + 4]


@pytest.mark.parametrize(
    ("last", "told"), [("study_interrupted", "55 s so far"), ("study_ended", "the trials took 55 s")]
)
def test_the_last_table_of_a_search_that_was_paused_or_ended_says_no_time_left(last: str, told: str) -> None:
    """It is drawn after the last event, when trials that a limit cut off or a pause left may still be live."""
    now = time.time()
    stream = io.StringIO()
    shown = LiveTable(
        Progress(PLAN), Console(file=stream, force_terminal=True, width=100, height=30, color_system=None)
    )
    with shown as table:
        for one in (
            event("study_started", now - 60), started(0, now - 55),
            *(reported(0, epoch, now - 55 + 10 * epoch, loss=0.1) for epoch in range(1, 6)),
        ):  # fmt: skip
            table.on_event(one)
        before = table._progress.totals()
        table.on_event(event(last, now - 5, reason="hours"))
    assert " left (" in before
    drawn = stream.getvalue().split("trial  status")[-1]
    assert told in drawn
    assert " left (" not in drawn


def test_of_a_search_that_goes_on_after_a_pause_the_time_left_is_told_again() -> None:
    now = time.time()
    progress = followed(
        event("study_started", now - 90), *trained(0, 10, "completed"), event("study_interrupted", now - 60),
        event("study_resumed", now - 55), started(1, now - 55),
        *(reported(1, epoch, now - 55 + 10 * epoch, accuracy=0.1) for epoch in range(1, 6)),
    )  # fmt: skip
    assert " left (" in progress.eta()


def test_all_trials_ended_and_the_whole_search_are_no_more_to_come() -> None:
    now = time.time()
    progress = followed(
        event("study_started", now - 60, trials=2), *trained(0, 10, "completed"), *trained(1, 10, "completed"),
        plan=Plan("digits", "accuracy", "max", Ahead(2, 10)),
    )  # fmt: skip
    assert progress.eta() == "the trials took 1 min 00 s"
    progress.on_event(event("study_ended", now, reason="trials"))
    assert progress.eta() == "the trials took 1 min 00 s"


def test_a_plan_of_a_study_knows_its_rungs() -> None:
    plan = Plan.of(study(scheduler=ASHA(grace_epochs=2), budget=Budget(trials=6, max_epochs=9)))
    assert (plan.ahead.rungs, plan.ahead.reduction_factor, plan.ahead.brackets) == ((2, 6), 3.0, False)


def test_a_plan_knows_whether_the_winner_is_scored(tmp_path: Path) -> None:
    images = study(
        trial=ImageClassifier("digits"), space={"lr": uniform(1e-4, 1e-3)}, metric="val_accuracy", mode="max"
    )
    assert Plan.of(images).ahead.scored
    assert not Plan.of(study()).ahead.scored
    run = simulated(tmp_path)
    assert not Plan.of_run(run, {}).ahead.scored
    write_info(run.folder, {**run.info, "forecast": images.forecast})
    assert Plan.of_run(load_run(tmp_path), {}).ahead.scored


def test_the_trials_worth_a_row_are_the_running_the_best_and_the_latest() -> None:
    events = [one for number in range(20) for one in trained(number, 5 if number == 4 else 2, "stopped")]
    progress = followed(*events, started(20), started(21))
    assert [trial.number for trial in progress.shown(5)] == [4, 18, 19, 20, 21]
    assert [trial.number for trial in progress.shown(2)] == [4, 21]


# On a terminal


def drawn(*events: Event, height: int = 30) -> list[str]:
    """The lines drawn on a terminal of 100 columns, the last drawing after all events."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, height=height, color_system=None)
    with LiveTable(Progress(ACCURACY), console) as table:
        for one in events:
            table.on_event(one)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", stream.getvalue())
    return [line.rstrip() for line in plain.splitlines() if line.strip()]


def test_before_the_first_trial_a_terminal_says_that_ray_starts() -> None:
    assert drawn() == ["digits: starting Ray"]


def test_before_the_first_trial_a_terminal_says_what_is_read() -> None:
    assert drawn(event("opening", step="reading 9 images of folder:[/b]")) == [
        "digits: reading 9 images of folder:[/b]"
    ]


def test_settings_that_look_like_markup_are_drawn_as_they_are() -> None:
    lines = drawn(started(0, time.time(), {"path": "[/data]", "kind": "[red]", "icon": ":x:"}))
    assert "00000  running  0/10                    0 s   path=[/data] kind=[red] icon=:x:" in lines


def test_a_trial_is_drawn_with_the_length_that_it_has_itself() -> None:
    lines = drawn(*trained(0, 4, "completed", epochs=4))
    assert "00000  completed  4/4    0.35      ▁▃▅█   0 s   epochs=4" in lines


def test_a_notice_stands_above_the_table() -> None:
    lines = drawn(started(0, time.time()), event("notice", message="[b]trials[/b] can't pause", code=None))
    assert lines.index("note: [b]trials[/b] can't pause") < max(i for i, line in enumerate(lines) if "running" in line)


def order(kind: str, verb: str, message: str, **arguments: object) -> Event:
    return event(kind, time.time(), order=verb, verb=verb, arguments=arguments, by="me@here", message=message)


def test_an_order_stands_above_the_table_with_who_and_what() -> None:
    lines = drawn(
        started(0, time.time()),
        order("order_obeyed", "set", "trials is 9 now", trials=9),
        order("order_refused", "try", "no [b]room", config={"x": 1}),
    )
    assert "me@here: set trials=9: trials is 9 now" in lines
    assert any("me@here: try config={'x': 1}: refused: no [b]room" in line for line in lines)
    assert any(line.startswith("1 of 9 trials: ") for line in lines)


def test_an_order_is_a_line_in_a_log() -> None:
    stream = io.StringIO()
    lines = Lines(Progress(ACCURACY), stream)
    lines.on_event(order("order_obeyed", "pause", "the search saves and ends"))
    assert stream.getvalue() == "me@here: pause: the search saves and ends\n"


def test_a_long_search_fits_a_low_terminal() -> None:
    events = [one for number in range(50) for one in trained(number, 2, "stopped")]
    rows = [line for line in drawn(*events, height=12) if re.match(r"\d{5} ", line)]
    assert rows[-3:] == [f"{number:05d}  stopped  2/10   0.2       ▁█     0 s" for number in (0, 48, 49)]


def test_of_settings_that_are_too_long_the_end_is_cut_and_nothing_else() -> None:
    long = {"lr": 0.001697825, "batch_size": 128, "optimizer": "sgd", "momentum": 0.926123, "schedule": "cosine"}
    lines = drawn(started(0, time.time(), config=long), reported(0, 1, accuracy=0.91))
    (row,) = [line for line in lines if line.startswith("00000")][-1:]
    assert re.match(r"00000  running  1/10   0\.91 +▄ +\d s +lr=0\.001698 batch_size=128 optimizer=sgd .*…$", row)


def test_a_trial_of_any_state_can_be_drawn() -> None:
    lines = drawn(
        *trained(0, 10, "completed"), *trained(1, 3, "stopped"), *trained(2, 1, "failed"), started(3, time.time()),
        event("trial_paused", time.time(), trial="00003", epoch=0), event("study_interrupted", time.time()),
    )  # fmt: skip
    assert [line.split()[1].rstrip(":") for line in lines if re.match(r"\d{5} ", line)][-4:] == [
        "completed",
        "stopped",
        "failed",
        "interrupted",
    ]


def test_the_best_so_far_is_drawn_as_a_curve_where_there_is_room() -> None:
    events = [one for number in range(4) for one in trained(number, 2 * number + 2, "stopped")]
    lines = drawn(*events, height=40)
    first = max(index for index, line in enumerate(lines) if line == "accuracy, best so far")
    assert [line.split()[-1] for line in (lines[first + 1], lines[first + 4])] == ["0.8", "0.1"]
    assert "accuracy, best so far" not in drawn(*events, height=20)
    assert "accuracy, best so far" not in drawn(*trained(0, 1, "completed"), height=40)


def test_what_running_trials_use_of_their_devices_is_added_up() -> None:
    told = {"memory_bytes": 2e9, "images_per_second": 600.0}
    progress = followed(started(0), reported(0, 1, accuracy=0.1, **told), started(1), reported(1, 1, **told))
    assert progress.device_use() == "2 trials running: 4.0 GB of memory, 1,200 images/s"
    on_gpu = {"device_utilisation": 0.8, "device_memory_bytes": 5e9, "memory_bytes": 1e9}  # of all that share the GPU
    assert followed(started(0), reported(0, 1, **on_gpu)).device_use() == (
        "1 trial running: devices 80% busy, 1.0 GB of memory"
    )
    assert followed(*trained(0, 2, "completed")).device_use() == ""


def test_a_resumed_search_is_drawn_from_what_is_known(tmp_path: Path) -> None:
    declared = study(budget=Budget(trials=6, max_epochs=9))
    drive(build(declared, tmp_path), reports=20)
    earlier = events_of(tmp_path)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, height=30, color_system=None)
    with LiveTable(Progress(PLAN, earlier), console) as table:
        drive(build(declared, tmp_path, history=earlier, listeners=[table]))
    assert "6 of 6 trials: 6 done; " in stream.getvalue()


def test_a_display_on_a_terminal_is_a_live_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal, whatever the stream
    assert isinstance(display(PLAN, io.StringIO(), quiet=False), LiveTable)
    assert isinstance(display(PLAN, io.StringIO(), quiet=True), Silence)


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with Silence() as shown:
        shown.on_event(started(0))
    assert capsys.readouterr() == ("", "")


def test_a_trial_that_hangs_is_named_in_place_of_a_time_left() -> None:
    now = time.time()
    progress = followed(
        event("study_started", now - 460, trials=2), started(0, now - 455), reported(0, 1, now - 420, accuracy=0.1),
        plan=Plan("digits", "accuracy", "max", Ahead(2, 10)),
    )  # fmt: skip
    assert progress.eta() == "00000 has reported nothing for 7 min (see hung_minutes); 7 min 40 s so far"


def test_after_the_last_repeat_of_an_ended_search_no_time_is_left() -> None:
    """Its budget was used up, and the report followed at once: "about 9 s left (4 to 25 s)"."""
    now = time.time()
    progress = followed(
        event("study_started", now - 900, trials=None), *trained(0, 10, "completed"),
        event("study_ended", now - 800, reason="total_epochs"), event("study_resumed", now - 60),
        event("confirmation_requested", now - 60, trials=["00000"], seeds=1, alone=True, ended_by="total_epochs"),
        {**started(1, now - 50), "repeats": "00000", "confirms": True},
        reported(1, 1, now - 40, accuracy=0.1),
        plan=Plan("digits", "accuracy", "max", Ahead(None, 10, limits={"total_epochs": 10})),
    )  # fmt: skip
    assert progress.eta() == "1 repeat left to confirm, 9 epochs, 1 min 00 s so far"
    progress.on_event(ended(1, "completed", now))
    assert progress.eta() == "1 min 00 s so far"


def test_epochs_that_ran_on_at_a_limit_are_told_apart() -> None:
    progress = Progress(Plan("digits", "accuracy", "max", Ahead(None, 10, limits={"total_epochs": 5})))
    for each in trained(0, 7, "completed"):
        progress.on_event(each)
    assert "; 5 of 5 epochs and 2 that ran on at the limit; " in progress.totals()
