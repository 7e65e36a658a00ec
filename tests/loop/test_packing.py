"""How many trials share a device, decided on traces: a fake card, and reports as its trials would send them."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from tuner.loop.packing import Device, Packing
from tuner.loop.throughput import Rate, trials_at_once
from tuner.trial import MemoryEstimate

GB = 10**9
CONTEXT = 0.7 * GB


def card(name: str = "GPU-0", gigabytes: float = 80, **changes: Any) -> Device:
    settings: dict[str, Any] = {"most": 32, "process_bytes": CONTEXT, "overlaps": True}
    return Device(name, "H100", gigabytes * GB, gigabytes * GB, **(settings | changes))


def needing(gigabytes: float, least: float = 0.1, alike: str = "small") -> MemoryEstimate:
    return MemoryEstimate(int(gigabytes * GB), int(least * GB), alike)


class Trace:
    """Events of trials that run forever on shared devices, an epoch a second, as `speed` says: of trials at once."""

    def __init__(self, packing: Packing, speed: Callable[[int], float], **metrics: float) -> None:
        self.packing, self.speed, self.metrics = packing, speed, metrics
        self.time, self.number = 0.0, 0
        self.events: list[dict[str, Any]] = []
        self.on: dict[str, str] = {}  # device of each trial
        self.tell("study_started", devices=[device.record() for device in packing.devices])

    def tell(self, kind: str, **fields: Any) -> None:
        event = {"event": kind, "time": self.time, **fields}
        self.events.append(event)
        self.packing.apply(event)

    def fill(self, estimate: MemoryEstimate) -> int:
        """Start trials while there is room; how many run now."""
        while (place := self.packing.place(estimate)) is not None:
            trial = f"{self.number:05d}"
            self.number += 1
            self.on[trial] = place.device.name
            self.tell("trial_started", trial=trial, **place.fields)
        return len(self.on)

    def epoch(self, **metrics: float) -> None:
        """A second, at whose end each trial reports one."""
        self.time += 1.0
        for trial, device in self.on.items():
            count = sum(other == device for other in self.on.values())
            told = {"images_per_second": self.speed(count), **self.metrics, **metrics}
            self.tell("epoch_reported", trial=trial, epoch=1, metrics=told)

    def settle(self, estimate: MemoryEstimate, epochs: int = 40) -> int:
        """Trials at once after so many epochs, in which trials that are too many come to their end."""
        for _ in range(epochs):
            self.fill(estimate)
            self.epoch()
            for device in self.packing.devices:
                there = [trial for trial, name in self.on.items() if name == device.name]
                for trial in there[self.packing.at_once :]:
                    self.end(trial)
        return len(self.on)

    def end(self, trial: str) -> None:
        del self.on[trial]
        self.tell("trial_ended", trial=trial, status="completed")


def saturating(at: float) -> Callable[[int], float]:
    """A card on which `at` trials train as fast as one each, and more share what there is."""
    return lambda count: 1000.0 * min(1.0, at / count)


# An 80 GB card


@pytest.mark.parametrize(("at", "expected"), [(1, 1), (3, 4), (8, 8), (100, 32)])
def test_trials_are_added_while_all_together_get_faster(at: float, expected: int) -> None:
    """At `at` trials' worth of speed the card is full: two of four are too few for three; 32 are allowed."""
    packing = Packing([card()])
    Trace(packing, saturating(at)).settle(needing(0.2))
    assert packing.at_once == expected


def test_memory_says_how_many_fit_where_speed_would_allow_more() -> None:
    """An ImageNet ResNet50 of 11 GB and its context take 12.9 GB with what an allocator wastes: six on 80 GB."""
    assert Trace(Packing([card()]), saturating(100)).settle(needing(11)) == 6


def test_what_trials_really_took_corrects_estimates() -> None:
    """Estimated 5 GB, reported 15: the first two are there already when it is known, then five fit, not twelve."""
    estimate = needing(5)
    assert Trace(Packing([card()]), saturating(100)).settle(estimate) == 12
    assert Trace(Packing([card()]), saturating(100), memory_peak_bytes=13.8 * GB).settle(estimate) == 5
    other = Trace(Packing([card()]), saturating(100), memory_peak_bytes=13.8 * GB)
    other.fill(estimate)
    other.epoch()
    assert other.packing.place(needing(30, alike="large")) is None  # 30.7 GB by 2.5 are 78: no room beside another
    assert other.packing.fits(needing(30, least=30, alike="large"))


def test_what_torch_keeps_of_a_card_is_there_for_no_other_trial() -> None:
    """Of 80 GB three times 20 and a context; without it the same trials are six."""
    told = {"memory_peak_bytes": 11 * GB, "memory_reserved_bytes": 20 * GB}
    trace = Trace(Packing([card()]), saturating(100), **told)
    assert trace.settle(needing(11)) == 3
    for trial in list(trace.on)[1:]:
        trace.end(trial)
    beside = trace.packing.place(needing(40, alike="large"))  # 40.7 GB by 1.1: no estimate was too low
    assert beside is not None
    assert trace.packing.place(needing(60, alike="larger")) is None
    assert Trace(Packing([card()]), saturating(100), memory_peak_bytes=11 * GB).settle(needing(11)) == 6


def test_memory_that_runs_out_takes_a_trial_away_for_good() -> None:
    trace = Trace(Packing([card()]), saturating(8), oom_retries=0.0)
    assert trace.settle(needing(0.2)) == 8
    trace.epoch(oom_retries=1.0)
    assert trace.packing.at_once == 7
    trace.settle(needing(0.2))
    assert trace.packing.at_once == 7


def test_a_trial_alone_that_runs_out_of_memory_has_nobody_to_send_away() -> None:
    trace = Trace(Packing([card()]), saturating(2))
    trace.fill(needing(0.2))
    trace.epoch(oom_retries=3.0)
    trace.settle(needing(0.2))
    assert trace.packing.at_once == 2


def test_a_worker_killed_for_memory_takes_a_trial_away_too() -> None:
    trace = Trace(Packing([card(name="cpu", at_first=4, most=4)]), saturating(4))
    assert trace.fill(needing(0.2)) == 4
    trace.tell("trial_lost", trial="00002", cause="out_of_memory", message="killed")
    assert (trace.packing.at_once, trace.packing.place(needing(0.2))) == (3, None)
    trace.tell("trial_lost", trial="00001", cause="lost", message="gone")
    assert trace.packing.place(needing(0.2)) is not None


def test_a_trial_that_was_lost_for_memory_gets_twice_as_much_and_then_a_device_alone() -> None:
    trace = Trace(Packing([card(at_first=8, most=8)]), saturating(8))
    assert trace.fill(needing(10)) == 6  # of 11.8 GB
    shares = []
    for _ in range(2):
        trace.tell("trial_lost", trial="00005", cause="out_of_memory", message="it needs more")
        for other in ("00004", "00003") if not shares else ():
            trace.end(other)
        place = trace.packing.place(needing(10), "00005")
        assert place is not None or shares
        shares.append(0.0 if place is None else place.share)
        trace.tell("trial_started", trial="00005", device="GPU-0", predicted_bytes=10 * GB, alike="small")
    assert shares == [pytest.approx(2 * 11.77 / 80), 0.0]
    trace.tell("trial_lost", trial="00005", cause="lost", message="gone")
    for other in list(trace.on):
        trace.end(other)
    alone = trace.packing.place(needing(10), "00005")
    assert alone is not None
    trace.tell("trial_started", trial="00005", **alone.fields)
    assert trace.packing.place(needing(0.1, alike="tiny")) is None


def test_two_cards_are_filled_alike_the_emptier_one_first() -> None:
    trace = Trace(Packing([card("GPU-a"), card("GPU-b", 70)]), saturating(4))
    trace.fill(needing(1))
    assert list(trace.on.values()) == ["GPU-a", "GPU-b"]
    assert trace.settle(needing(1)) == 8
    assert sorted(trace.on.values()) == ["GPU-a"] * 4 + ["GPU-b"] * 4


def test_a_card_that_is_allowed_one_trial_keeps_the_others_from_nothing() -> None:
    trace = Trace(Packing([card("GPU-a", most=1), card("GPU-b")]), saturating(4))
    assert trace.settle(needing(1)) == 5
    assert sorted(trace.on.values()) == ["GPU-a"] + ["GPU-b"] * 4


def test_trials_that_come_and_go_are_counted_by_their_time_together() -> None:
    """Each is replaced as it ends after two epochs or three, at its own moment; epochs are as fast as their mean."""
    packing = Packing([card()])
    trace = Trace(packing, saturating(4))
    quarters: dict[str, int] = {}  # of an epoch, that a trial has still to train
    images: dict[str, list[float]] = {}  # of the epoch's quarters so far
    for _ in range(600):
        trace.fill(needing(0.2))
        trace.time += 0.25
        count = len(trace.on)
        for index, trial in enumerate(list(trace.on)):
            quarters[trial] = quarters.get(trial, 13 - index % 2 * 4) - 1
            images.setdefault(trial, []).append(trace.speed(count))
            if quarters[trial] % 4 == 0:
                done = images.pop(trial)
                told = {"images_per_second": sum(done) / len(done)}
                trace.tell("epoch_reported", trial=trial, epoch=1, metrics=told)
            if quarters[trial] == 0:
                trace.end(trial)
    assert packing.at_once == 4


def test_a_card_whose_processes_take_turns_gets_no_more_trials_once_it_is_always_busy() -> None:
    turns = Trace(Packing([card(overlaps=False)]), saturating(100), device_utilisation=0.99)
    assert turns.settle(needing(0.2)) == 1


def test_how_busy_a_card_is_shows_in_later_epochs_of_a_worker_than_its_first() -> None:
    # As an H200 reported: the first epoch waits until cuDNN is loaded and steps are recorded.
    first, later = Rate(("small", True), 4588.0, 0.224), Rate(("small", False), 20329.0, 0.941)
    assert trials_at_once({1: [first]}, 1, 32, overlaps=False) == 2  # not known better
    assert trials_at_once({1: [first, later, later]}, 1, 32, overlaps=False) == 1
    assert trials_at_once({1: [first, later, later]}, 1, 32, overlaps=True) == 2
    idle = Trace(Packing([card(overlaps=False)]), saturating(100), device_utilisation=0.3)
    idle.fill(needing(0.2))
    idle.epoch()
    assert idle.packing.at_once == 2  # an epoch is enough to see that the card is idle for most of the time
    overlapping = Trace(Packing([card()]), saturating(4), device_utilisation=0.99)
    assert overlapping.settle(needing(0.2)) == 4


def test_alike_trials_are_compared_with_each_other_alone() -> None:
    """Large images are slow wherever they are: that all later trials have them says nothing of sharing."""
    small, large = ("small", False), ("large", False)
    one = [Rate(small, 1000.0), Rate(large, 100.0)]
    assert trials_at_once({1: one, 2: [Rate(large, 90.0)] * 2}, 1, 32) == 4
    assert trials_at_once({1: one, 2: [Rate(small, 500.0), Rate(("larger", False), 5000.0)]}, 1, 32) == 1


# What is not known


def test_a_trial_whose_memory_is_unknown_has_a_card_to_itself_until_one_like_it_has_reported() -> None:
    unknown = MemoryEstimate(alike="mine", unknown="it looks at its values")
    trace = Trace(Packing([card()]), saturating(8))
    assert trace.settle(unknown, 5) == 1
    trace.metrics["memory_peak_bytes"] = 2.0 * GB
    assert trace.settle(unknown) == 8


def test_a_function_that_nothing_is_known_of_never_shares() -> None:
    trace = Trace(Packing([card(), card("GPU-1")]), saturating(8), memory_peak_bytes=1.0 * GB)
    assert trace.settle(MemoryEstimate(unknown="nothing is known")) == 2


@pytest.mark.parametrize("rate", [math.nan, None, "fast", 0.0, -1.0, True])
def test_reports_without_a_sound_rate_change_nothing(rate: Any) -> None:
    trace = Trace(Packing([card()]), lambda count: rate)
    assert trace.settle(needing(0.2), 9) == 1


# The share of a trial


def test_a_share_is_what_the_trial_needs_and_more_where_there_is_more() -> None:
    packing = Packing([card()])
    alone = packing.place(needing(11))
    assert alone is not None
    assert alone.share == 1.0
    trace = Trace(packing, saturating(4))
    trace.settle(needing(1))
    trace.end("00000")
    fair, greedy = packing.place(needing(1)), packing.place(needing(30, alike="large"))
    assert fair is not None
    assert greedy is not None
    assert fair.share == pytest.approx(1 / 4)
    assert greedy.share == pytest.approx(30.7 * 1.1 / 80)


def test_a_trial_larger_than_a_card_gets_it_alone() -> None:
    trace = Trace(Packing([card()]), saturating(8))
    assert trace.fill(needing(200)) == 1
    assert Packing([card()]).fits(needing(200, least=79))
    assert not Packing([card()]).fits(needing(200, least=80))
    assert Packing([card(alone_bytes=90 * GB)]).fits(needing(200, least=80))


# Going on with a run


def test_the_events_alone_bring_another_driver_to_where_the_first_was() -> None:
    trace = Trace(Packing([card()]), saturating(6), memory_peak_bytes=3.0 * GB, oom_retries=0.0)
    trace.settle(needing(2))
    trace.tell("epoch_reported", trial="00003", epoch=9, metrics={"oom_retries": 2.0, "memory_peak_bytes": 9.0 * GB})
    again = Packing([card()])
    for event in trace.events:
        again.apply(event)
    assert again == trace.packing
    resumed = {"event": "study_resumed", "time": trace.time + 100}
    again.apply({**resumed, "devices": [card().record()]})
    assert again.at_once == trace.packing.at_once == 7
    again.apply({**resumed, "devices": [card(overlaps=False).record()]})  # MPS was ended meanwhile
    assert again.at_once == 1


def test_events_of_a_run_that_did_not_pack_count_for_nothing() -> None:
    packing = Packing([card()])
    for event in (
        {"event": "study_started", "time": 0.0},
        {"event": "trial_started", "time": 1.0, "trial": "00000", "number": 0, "config": {}, "seed": 1},
        {"event": "epoch_reported", "time": 2.0, "trial": "00000", "epoch": 1, "metrics": {"images_per_second": 10.0}},
        {"event": "trial_paused", "time": 2.0, "trial": "00000", "epoch": 1},
        {"event": "trial_ended", "time": 3.0, "trial": "00000", "status": "completed"},
    ):
        packing.apply(event)
    assert packing == Packing([card()])
