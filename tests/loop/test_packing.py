"""How many trials share a device, decided on traces: a fake card, and reports as its trials would send them."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, events_of, study
from tuner import Budget, HyperOpt, choice
from tuner.loop.packing import Admission, Device, Packing, Place, Refusal
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.loop.throughput import Rate, trials_at_once
from tuner.storage.folder import LocalFolder
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


# In a search


def estimates(by_size: dict[int, MemoryEstimate | None]) -> Callable[[dict[str, Any]], MemoryEstimate | None]:
    return lambda config: by_size[config["size"]]


def packed_loop(folder: Path, sizes: dict[int, MemoryEstimate | None], *devices: Device, trials: int = 4) -> SearchLoop:
    declared = study(
        space={"size": choice(sorted(sizes)), "x": choice(list(range(50)))},
        budget=Budget(trials=trials, max_epochs=3),
    )
    admission = Admission(Packing(devices or [card(at_first=4, most=4)]), estimates(sizes))
    opening = {"devices": [device.record() for device in admission.packing.devices]}
    return build(declared, folder, concurrency=8, admission=admission, opening=opening)


def starts(loop: SearchLoop) -> list[Start]:
    found = []
    while (start := loop.next_action()) is not None:
        found.append(start)
    return found


def finish(loop: SearchLoop, started: Start) -> None:
    for epoch in range(1, 4):
        loop.report(started.trial, epoch, {"loss": 1.0})


def test_a_trial_that_has_no_room_waits_and_is_the_next_to_start(tmp_path: Path) -> None:
    loop = packed_loop(tmp_path, {1: needing(25)})
    first = starts(loop)
    assert [start.trial for start in first] == ["00000", "00001"]
    assert starts(loop) == []
    assert not loop.finished
    finish(loop, first[0])
    assert [start.trial for start in starts(loop)] == ["00002"]
    written = [event for event in events_of(tmp_path) if event["event"] == "trial_started"]
    assert {(event["device"], event["predicted_bytes"], event["alike"]) for event in written} == {
        ("GPU-0", 25 * GB, "small")
    }


@pytest.mark.parametrize("limit", [{"most": 1}, {"gigabytes": 2.5, "most": 8, "at_first": 8}], ids=["number", "memory"])
def test_a_configuration_is_chosen_when_there_is_room_for_it_by_all_that_is_known_then(
    tmp_path: Path, limit: dict[str, Any]
) -> None:
    """One trial after another on a packed device is the search with one worker, though Ray asks all the time."""
    declared = study(search=HyperOpt(startup_trials=2), budget=Budget(trials=8, max_epochs=3))
    admission = Admission(Packing([card(**limit)]), lambda config: needing(1))
    packed = build(declared, tmp_path / "packed", concurrency=8, admission=admission)
    alone = build(declared, tmp_path / "alone", concurrency=1)
    for loop in (packed, alone):
        while not loop.finished:
            for started in starts(loop):
                for epoch in range(1, 4):
                    loop.report(started.trial, epoch, {"loss": (started.config["x"] - 0.3) ** 2})
                    loop.next_action() if epoch < 3 else None
    assert [t.config for t in packed.record.trials.values()] == [t.config for t in alone.record.trials.values()]


def test_a_trial_waits_for_its_estimate(tmp_path: Path) -> None:
    sizes: dict[int, MemoryEstimate | None] = {1: None}
    loop = packed_loop(tmp_path, sizes)
    assert starts(loop) == []
    assert not loop.finished
    sizes[1] = needing(1)
    assert [start.trial for start in starts(loop)] == ["00000", "00001", "00002", "00003"]


def test_a_configuration_that_fits_nowhere_is_replaced_counted_and_told_once(tmp_path: Path) -> None:
    loop = packed_loop(tmp_path, {1: needing(1), 9: needing(500, least=95)}, trials=12)
    while not loop.finished:
        for start in starts(loop):
            finish(loop, start)
    loop.end()
    trials = list(loop.record.trials.values())
    assert len(trials) == 12
    assert {trial.config["size"] for trial in trials} == {1}
    events = events_of(tmp_path)
    refused = [event["config"] for event in events if event["event"] == "configuration_refused"]
    assert refused
    assert {config["size"] for config in refused} == {9}
    told = [event["message"] for event in events if event["event"] == "notice" and event["code"] == "refused"]
    assert told == [
        "a configuration needs a device that holds one image at a time, got 95.0 GB for the 80.0 GB of the "
        "H100; such ones are passed over, so leave them out of the space to search faster",
        f"{len(refused)} configurations were passed over, as they fit on no device",
    ]


def test_a_space_that_fits_nowhere_ends_the_search_with_a_reason(tmp_path: Path) -> None:
    loop = packed_loop(tmp_path, {9: needing(500, least=95), 10: needing(600, least=99)}, trials=120)
    assert starts(loop) == []
    assert loop.finished
    assert loop.end_reason == "space"
    assert [e["message"] for e in events_of(tmp_path) if e.get("code") == "refused"][1:] == [
        "100 configurations in a row fit on no device; no more are tried"
    ]


def test_a_search_that_goes_on_proposes_no_configuration_again_that_was_refused(tmp_path: Path) -> None:
    sizes: dict[int, MemoryEstimate | None] = {1: needing(1), 9: needing(500, least=95)}
    loop = packed_loop(tmp_path, sizes, trials=6)
    first = starts(loop)
    loop.end(interrupted_by="Ctrl-C")
    loop.close()
    history = events_of(tmp_path)
    declared = study(
        space={"size": choice([1, 9]), "x": choice(list(range(50)))}, budget=Budget(trials=30, max_epochs=3)
    )
    again = SearchLoop(
        declared,
        LocalFolder(tmp_path),
        concurrency=8,
        history=history,
        admission=Admission(Packing([card(at_first=4, most=4)]), estimates(sizes)),
    )
    while not again.finished:
        for start in starts(again):
            finish(again, start)
    refused = [str(e["config"]) for e in events_of(tmp_path) if e["event"] == "configuration_refused"]
    assert len(refused) == len(set(refused))
    assert [start.trial for start in first] == ["00000", "00001", "00002", "00003"]
    assert {trial.config["size"] for trial in again.record.trials.values()} == {1}


def test_a_trial_whose_memory_runs_out_beside_others_goes_on_with_fewer_of_them(tmp_path: Path) -> None:
    """Its memory was estimated too low: it ends in smaller micro-batches (`halvings`), not in a failed trial."""
    loop = packed_loop(tmp_path, {1: needing(1)}, card(at_first=2, most=2), trials=2)
    first, second = starts(loop)
    loop.report(first.trial, 1, {"loss": 1.0})
    loop.failed(first.trial, "out_of_memory", "the model needs more memory than there is", "traceback")
    assert starts(loop) == []  # the other one has the device to itself now
    finish(loop, second)
    (again,) = starts(loop)
    assert (again.trial, again.reported, again.halvings) == (first.trial, 1, 1)
    loop.failed(again.trial, "out_of_memory", "a single image doesn't fit")  # alone, so it doesn't fit at all
    assert loop.record.trials[first.trial].status == "failed"
    assert loop.record.trials[first.trial].cause == "out_of_memory"


def test_sharing_without_mps_is_told_once_and_so_is_each_new_number(tmp_path: Path) -> None:
    loop = packed_loop(tmp_path, {1: needing(1)}, card(overlaps=False, most=2), trials=4)
    (only,) = starts(loop)
    assert isinstance(only.place, Place)
    for epoch in (1, 2):
        loop.report(only.trial, epoch, {"loss": 1.0, "images_per_second": 100.0, "device_utilisation": 0.6})
    assert len(starts(loop)) == 1
    assert [e["message"] for e in events_of(tmp_path) if e["event"] == "notice"] == [
        "trials at once on each H100 from now on: 2",
        "several trials share a GPU and take turns on it; their work would overlap under NVIDIA's MPS, which "
        "`nvidia-cuda-mps-control -d` starts",
    ]


def test_on_the_cpu_it_is_told_of_the_machine_and_why_trials_became_fewer(tmp_path: Path) -> None:
    device = card("cpu", at_first=2, most=2)
    loop = packed_loop(tmp_path, {1: needing(1)}, device, trials=2)
    first, second = starts(loop)
    loop.report(first.trial, 1, {"loss": 1.0, "oom_retries": 1.0})
    starts(loop)
    assert [e["message"] for e in events_of(tmp_path) if e["event"] == "notice"] == [
        "trials at once on this machine from now on: 1, as memory ran out with more"
    ]
    alone = Packing([device], unknown="it looks at its values").news()
    assert alone is not None
    assert alone[0].startswith("a trial has this machine to itself until one like it has told what it takes: it looks")
    assert "for the 80.0 GB of this machine; such ones are passed over" in str(Refusal(90 * GB, device))
    assert second.place is not None


def test_a_search_whose_trials_have_fixed_amounts_places_none(tmp_path: Path) -> None:
    loop = build(study(), tmp_path, concurrency=2)
    assert [start.place for start in starts(loop)] == [None, None]
    assert "device" not in events_of(tmp_path)[-1]
