import math
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.train.capture import COMPILED, EAGER, GRAPH, PathChoice, RememberedSeconds, Way
from tuner.train.capture.choice import AS_ONE_GRAPH, MEASURED_STEPS, WARM_UP_STEPS, WITH_COMPILER

PHASE = WARM_UP_STEPS + MEASURED_STEPS
WAYS = [AS_ONE_GRAPH, WITH_COMPILER]


class Trial:
    """Takes steps as it is told; each way takes the seconds that it is given here."""

    def __init__(
        self, seconds: dict[str, float], ways: list[Way] | None = None, remembered: RememberedSeconds | None = None
    ) -> None:
        self.seconds, self.now = seconds, 0.0
        self.looks = 0
        self.choice = PathChoice(WAYS if ways is None else ways, self._look, remembered)
        self.taken: list[str] = []

    def _look(self) -> float:
        self.looks += 1
        return self.now

    def steps(self, count: int, *, of: int = 100_000) -> str:
        for _ in range(count):
            path = self.choice.begin_step(of - len(self.taken))
            self.taken.append(path)
            self.now += self.seconds[path]
        return path


def test_each_way_is_measured_and_the_fastest_kept() -> None:
    trial = Trial({EAGER: 0.010, GRAPH: 0.004, COMPILED: 0.0041})
    assert trial.steps(3 * PHASE + 10) == GRAPH
    assert [trial.taken.count(path) for path in (EAGER, COMPILED)] == [PHASE, PHASE + 1]
    assert trial.choice.notes == [
        "a step takes 10.00 ms eagerly, 4.00 ms as one CUDA graph, 4.10 ms with torch.compile: "
        "steps are taken as one CUDA graph"
    ]
    looks = trial.looks
    trial.steps(100)
    assert trial.looks == looks == 6  # the device is waited for twice a way


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [
        ({EAGER: 0.010, GRAPH: 0.0098, COMPILED: 0.0097}, EAGER),
        ({EAGER: 0.010, GRAPH: 0.008, COMPILED: 0.0078}, GRAPH),
        ({EAGER: 0.010, GRAPH: 0.008, COMPILED: 0.0070}, COMPILED),
        ({EAGER: 0.010, GRAPH: 0.020, COMPILED: 0.0070}, COMPILED),
    ],
)
def test_another_way_must_be_a_twentieth_faster(seconds: dict[str, float], kept: str) -> None:
    assert Trial(seconds).steps(3 * PHASE + 10) == kept


def test_what_doesnt_pay_isnt_started() -> None:
    seconds = {EAGER: 0.010, GRAPH: 0.004, COMPILED: 0.002}
    short = Trial(seconds)
    assert short.steps(200, of=400) == EAGER
    assert (set(short.taken), short.choice.notes) == ({EAGER}, [])
    for steps in (5_000, 25_000):  # 50 and 250 s eagerly, but 20 and 100 s by the graph
        middle = Trial(seconds)
        assert middle.steps(200, of=steps) == GRAPH
        assert COMPILED not in middle.taken


def test_without_another_way_nothing_is_measured() -> None:
    trial = Trial({EAGER: 1.0}, ways=[])
    assert trial.steps(100) == EAGER
    assert (trial.looks, trial.choice.notes) == (0, [])


def test_a_way_that_fails_is_given_up_and_the_next_one_tried() -> None:
    trial = Trial({EAGER: 0.010, GRAPH: 0.004, COMPILED: 0.008})
    assert trial.steps(PHASE + 1) == GRAPH
    trial.choice.give_up(GRAPH, "it can't be recorded")
    assert trial.steps(PHASE + 2) == COMPILED
    assert trial.choice.notes == [
        "steps are no longer taken as one CUDA graph: it can't be recorded",
        "a step takes 10.00 ms eagerly, 8.00 ms with torch.compile: steps are taken with torch.compile",
    ]
    trial.choice.give_up(COMPILED, "it ran out of memory")
    assert trial.steps(100) == EAGER


def test_a_way_can_be_given() -> None:
    trial = Trial({EAGER: 0.010, GRAPH: 0.004})
    trial.choice.settle(GRAPH)
    assert (trial.steps(100), trial.looks) == (GRAPH, 0)
    elsewhere = Trial({EAGER: 0.010}, ways=[])
    elsewhere.choice.settle(GRAPH)  # as on a machine without a GPU
    assert elsewhere.steps(10) == EAGER


@pytest.fixture
def entry(tmp_path: Path) -> Callable[[str], RememberedSeconds]:
    return lambda key: RememberedSeconds(tmp_path / "cache" / "steps.json", key)


def test_what_was_measured_isnt_measured_again(entry: Callable[[str], RememberedSeconds]) -> None:
    seconds = {EAGER: 0.010, GRAPH: 0.004, COMPILED: 0.006}
    Trial(seconds, remembered=entry("a")).steps(3 * PHASE + 10)
    again = Trial(seconds, remembered=entry("a"))
    assert again.steps(WARM_UP_STEPS + 1) == GRAPH
    assert (again.looks, again.choice.notes) == (
        0,
        [
            "a step takes 10.00 ms eagerly, 4.00 ms as one CUDA graph, 6.00 ms with torch.compile: "
            "steps are taken as one CUDA graph"
        ],
    )
    short = Trial(seconds, remembered=entry("a"))
    assert short.steps(100, of=200) == EAGER  # recording would take longer than it saves
    other = Trial(seconds, remembered=entry("b"))
    assert other.steps(WARM_UP_STEPS + 1) == EAGER


def test_what_a_shorter_trial_left_out_is_measured_by_a_longer_one(entry: Callable[[str], RememberedSeconds]) -> None:
    seconds = {EAGER: 0.010, GRAPH: 0.006, COMPILED: 0.004}
    Trial(seconds, remembered=entry("a")).steps(200, of=5_000)
    longer = Trial(seconds, remembered=entry("a"))
    assert longer.steps(2 * PHASE) == COMPILED
    assert (longer.taken.count(EAGER), longer.taken.count(GRAPH)) == (WARM_UP_STEPS, 0)


def test_what_failed_in_two_trials_isnt_tried_by_others_unless_it_was_bad_luck(
    entry: Callable[[str], RememberedSeconds],
) -> None:
    def fails(key: str, *, for_others: bool = True) -> None:
        trial = Trial({EAGER: 0.010, GRAPH: 0.004}, [AS_ONE_GRAPH], entry(key))
        assert trial.steps(PHASE + 1) == GRAPH
        trial.choice.give_up(GRAPH, "no", for_others=for_others)

    fails("a")
    assert entry("a").read() == {EAGER: pytest.approx(0.010)}  # it may have been of that moment
    fails("a")
    assert entry("a").read() == {EAGER: pytest.approx(0.010), GRAPH: math.inf}
    assert GRAPH not in Trial({EAGER: 0.010}, [AS_ONE_GRAPH], entry("a")).steps(2 * PHASE)
    for _ in range(3):
        fails("b", for_others=False)
    assert Trial({EAGER: 0.010, GRAPH: 0.004}, [AS_ONE_GRAPH], entry("b")).steps(2 * PHASE) == GRAPH


def test_a_way_that_fails_after_it_was_chosen_counts_as_failed(entry: Callable[[str], RememberedSeconds]) -> None:
    for _ in range(2):
        trial = Trial({EAGER: 0.010, GRAPH: 0.004}, [AS_ONE_GRAPH], entry("a"))
        trial.steps(3 * PHASE)
        trial.choice.give_up(GRAPH, "no")
    assert entry("a").read()[GRAPH] == math.inf


def test_times_beside_other_trials_on_the_gpu_are_for_this_trial_alone(tmp_path: Path) -> None:
    seconds = {EAGER: 0.010, GRAPH: 0.004}
    beside = RememberedSeconds(tmp_path / "steps.json", "a", alone=False)
    assert Trial(seconds, [AS_ONE_GRAPH], beside).steps(3 * PHASE) == GRAPH
    assert RememberedSeconds(tmp_path / "steps.json", "a").read() == {}
    Trial(seconds, [AS_ONE_GRAPH], RememberedSeconds(tmp_path / "steps.json", "a")).steps(3 * PHASE)
    assert beside.read() == {EAGER: pytest.approx(0.010), GRAPH: pytest.approx(0.004)}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"a": 3}', '{"a": {"eager": "fast"}}', '{"a": {"eager": -1.0}}', "[" * 100_000),
        '{"a": {"eager": 0.1, "graph": null}}',  # as earlier versions wrote it after a single failure
    ],
)
def test_a_damaged_file_is_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "steps.json"
    path.write_text(text)
    entry = RememberedSeconds(path, "a")
    assert entry.read() == {}
    entry.write({EAGER: 0.5})
    assert entry.read() == {EAGER: 0.5}


def test_a_folder_that_cant_be_written_to_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    entry = RememberedSeconds(tmp_path / "file" / "steps.json", "a")
    entry.write({EAGER: 0.5})
    assert entry.read() == {}


def test_the_oldest_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.train.capture.remembered.MOST_ENTRIES", 2)
    for key in "abc":
        RememberedSeconds(tmp_path / "steps.json", key).write({EAGER: 0.5})
    assert [RememberedSeconds(tmp_path / "steps.json", key).read() for key in "abc"] == [{}, *[{EAGER: 0.5}] * 2]
