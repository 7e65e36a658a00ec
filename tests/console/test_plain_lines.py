"""Lines for logs and pipes, whose time is the test's."""

import io
import re
import time
from contextlib import suppress

import pytest

from tests.history.events_of_a_run import computed, ended, event, reported, started
from tuner.console.plain_lines import Lines
from tuner.console.standing import Plan, Progress
from tuner.errors import TunerError
from tuner.history.events import Event
from tuner.results.rest_simulation import Ahead

PLAN = Plan("digits", "accuracy", "max", Ahead(trials=4, max_epochs=10))


class Search:
    """Lines, the time that they see, and what they have printed."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._stream = io.StringIO()
        self.lines = Lines(Progress(PLAN), self._stream, clock=lambda: self.seconds)

    def after(self, seconds: float, *events: Event) -> list[str]:
        """What is printed where these events come so much later, then nothing."""
        self.seconds += seconds
        before = len(self._stream.getvalue())
        for one in events:
            self.lines.on_event(one)
        self.lines.break_silence()
        printed = self._stream.getvalue()[before:].splitlines()
        return [re.sub("; (about .* left .*|[^;]* so far|the trials took [^;]*)$", "", line) for line in printed]


@pytest.fixture
def search() -> Search:
    return Search()


def test_what_is_read_before_the_first_trial_is_told(search: Search) -> None:
    assert search.after(0, event("opening", step="starting Ray, reading 400 images of folder:photos")) == [
        "starting Ray, reading 400 images of folder:photos"
    ]
    assert search.after(2, event("opening", step="reading 400 images of folder:photos")) == [
        "reading 400 images of folder:photos"
    ]
    assert search.after(30) == ["still reading 400 images of folder:photos"]


def test_an_epoch_is_a_line_where_nothing_was_printed_for_half_a_minute(search: Search) -> None:
    assert search.after(0, started(0), started(1)) == ["trial 00000 started: x=0", "trial 00001 started: x=1"]
    assert search.after(29, reported(0, 1, accuracy=0.5)) == []
    assert search.after(1, reported(1, 1, accuracy=0.25), reported(0, 2, accuracy=0.6)) == [
        "trial 00001 at epoch 1 of 10, accuracy 0.25; 2 trials running; best so far 0.5 by 00000"
    ]
    assert search.after(29, reported(0, 3, accuracy=0.7)) == []


def test_silence_is_broken_by_what_goes_on(search: Search) -> None:
    search.after(0, *(started(number) for number in range(6)), reported(1, 4, accuracy=0.5))
    assert search.after(29) == []
    assert search.after(1) == [
        "6 trials running: 00000 in epoch 1, 00001 in epoch 5, 00002 in epoch 1, 00003 in epoch 1, 2 more; "
        "best so far 0.5 by 00001"
    ]
    assert search.after(29) == []
    assert search.after(1, *(ended(number, "completed") for number in range(5)))[-1].startswith("trial 00004 completed")
    assert search.after(30) == ["1 trial running: 00005 in epoch 1; best so far 0.5 by 00001"]


def test_features_have_a_line_when_they_begin_and_each_half_minute(search: Search) -> None:
    now = time.time()
    search.after(0, started(0, now), started(1, now))
    assert search.after(2, computed(0, 240, now, 10.0, 40.2)) == [
        "trial 00000 is computing features of mobilenet_v2: 240 of 1,200 images, 40 s left"
    ]
    assert search.after(5, computed(0, 360, now, 15.0, 35.2)) == []
    assert search.after(24, computed(1, 12, now, 2.0, 400.0))[0].startswith("trial 00001 is computing features of mob")
    assert search.after(1, computed(0, 900, now, 40.0, 13.2)) == [
        "trial 00000 is computing features of mobilenet_v2: 900 of 1,200 images, 13 s left"
    ]
    assert search.after(1, reported(1, 1, now, accuracy=0.5)) == []
    assert search.after(30) == [
        "2 trials running: 00000 computing features of mobilenet_v2: 900 of 1,200 images, 13 s left, "
        "00001 in epoch 2; best so far 0.5 by 00001"
    ]


def test_a_trial_that_may_wait_for_the_features_of_another_is_in_no_epoch(search: Search) -> None:
    now = time.time()
    search.after(0, started(0, now), started(1, now), computed(1, 240, now, 10.0, 40.2))
    (line,) = search.after(30)
    assert line.startswith("2 trials running: 00001 computing features of mobilenet_v2")
    assert line.endswith(" left, 00000 before its first epoch; best so far none")


def test_trials_that_a_limit_ends_together_are_one_line(search: Search) -> None:
    search.after(0, *(started(number) for number in range(6)), reported(0, 1, accuracy=0.5))
    deleted = event("checkpoint_deleted", trial="00000", epoch=1)
    ends = [ended(number, "stopped", by="total_epochs") for number in range(5)]
    assert search.after(1, ends[0], deleted, *ends[1:]) == [
        "5 trials stopped: 00000, 00001, 00002, 00003, 1 more; best so far 0.5 by 00000"
    ]
    assert search.after(1, ended(5, "stopped", by="total_epochs")) == [
        "trial 00005 stopped after 0 epochs; best so far 0.5 by 00000"
    ]


def test_before_the_first_trial_and_after_the_last_it_says_what_is_done(search: Search) -> None:
    assert search.after(30) == ["still starting Ray"]
    search.after(0, started(0), ended(0, "completed"), event("study_ended", reason="trials"))
    assert search.after(1, event("concluding", step="scoring the winner")) == ["scoring the winner"]
    assert search.after(30) == ["still scoring the winner"]
    assert search.after(30) == ["still scoring the winner"]


def test_no_line_is_printed_after_the_end() -> None:
    stream = io.StringIO()
    with Lines(Progress(PLAN), stream) as lines:
        lines.on_event(started(0))
    assert not lines._thread.is_alive()
    assert stream.getvalue().splitlines()[-1].startswith("1 of 4 trials: 1 running; ")


def test_where_a_search_is_refused_nothing_is_said_of_the_earlier_one() -> None:
    stream = io.StringIO()
    with (
        suppress(TunerError),
        Lines(Progress(PLAN, [started(0), ended(0, "completed", 1.0)]), stream),
    ):
        raise TunerError("refused")
    assert stream.getvalue().splitlines() == ["digits: starting Ray"]


def test_a_search_that_is_over_is_summed_up() -> None:
    stream = io.StringIO()
    with Lines(Progress(PLAN, [started(0), ended(0, "completed", 1.0)]), stream, opening="followed"):
        pass
    opening, totals = stream.getvalue().splitlines()
    assert opening == "digits: followed"
    assert totals.startswith("1 of 4 trials: 1 done")
