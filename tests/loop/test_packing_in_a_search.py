"""Packing inside a search: what waits, what is refused, what is said."""

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.loop.simulation import build, events_of, study
from tests.loop.test_packing import GB, card, needing
from tuner import Budget, Failures, HyperOpt, choice
from tuner.loop import queue
from tuner.loop.packing import Admission, Device, Packing, Place, Refusal
from tuner.loop.queue import Start
from tuner.loop.search_loop import SearchLoop
from tuner.storage.folder import LocalFolder
from tuner.trial import MemoryEstimate


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
        "H100; such configurations are skipped; leave them out of the space to search faster",
        f"{len(refused)} configurations were skipped, as they need more memory than a device has",
    ]


def test_a_space_that_fits_nowhere_ends_the_search_with_a_reason(tmp_path: Path) -> None:
    loop = packed_loop(tmp_path, {9: needing(500, least=95), 10: needing(600, least=99)}, trials=120)
    assert starts(loop) == []
    assert loop.finished
    assert loop.end_reason == "space"
    assert [e["message"] for e in events_of(tmp_path) if e.get("code") == "refused"][1:] == [
        "100 configurations in a row need more memory than a device has; no more are tried"
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


def test_a_trial_that_may_not_be_lost_is_tried_once_more_alone_on_its_device(tmp_path: Path) -> None:
    declared = study(failures=Failures(lost=0), budget=Budget(trials=3, max_epochs=3))
    admission = Admission(Packing([card(at_first=2, most=2)]), lambda config: needing(1))
    loop = build(declared, tmp_path, concurrency=8, admission=admission)
    first, second = starts(loop)
    loop.failed(first.trial, "out_of_memory", "no room")
    assert starts(loop) == []  # it needs all of the device
    finish(loop, second)
    (again,) = starts(loop)
    assert (again.trial, loop.running) == (first.trial, {first.trial})
    loop.failed(again.trial, "out_of_memory", "no room")
    assert (loop.record.trials[first.trial].status, loop.record.trials[first.trial].losses) == ("failed", 0)
    assert [start.trial for start in starts(loop)] == ["00002"]


def test_sharing_without_mps_is_told_once_and_so_is_each_new_number(tmp_path: Path) -> None:
    loop = packed_loop(tmp_path, {1: needing(1)}, card(overlaps=False, most=2), trials=4)
    (only,) = starts(loop)
    assert isinstance(only.place, Place)
    for epoch in (1, 2):
        loop.report(only.trial, epoch, {"loss": 1.0, "images_per_second": 100.0, "device_utilisation": 0.6})
    assert len(starts(loop)) == 1
    assert [e["message"] for e in events_of(tmp_path) if e["event"] == "notice"] == [
        "trials at once on each H100 from now on: 2",
        "several trials share a GPU and take turns on it, which is hardly faster than one after another; their "
        "work would overlap under NVIDIA's MPS, which isn't installed here or doesn't work",
    ]


def test_a_search_whose_trials_have_fixed_amounts_places_none(tmp_path: Path) -> None:
    loop = build(study(), tmp_path, concurrency=2)
    assert [start.place for start in starts(loop)] == [None, None]
    assert "device" not in events_of(tmp_path)[-1]


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
    assert alone[0].startswith("a trial has this machine to itself until a similar one has been measured: it looks")
    assert "for the 80.0 GB of this machine; such configurations are skipped" in str(Refusal(90 * GB, device))
    assert second.place is not None


def test_refusals_count_towards_giving_up_only_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MOST_REFUSED", 2)
    needs = cycle([needing(90, least=90), needing(1)])  # every other one fits nowhere
    declared = study(space={"x": choice(list(range(50)))}, budget=Budget(trials=4, max_epochs=3))
    admission = Admission(Packing([card(at_first=8, most=8)]), lambda config: next(needs))
    loop = build(declared, tmp_path, concurrency=8, admission=admission)
    assert len(starts(loop)) == 4
