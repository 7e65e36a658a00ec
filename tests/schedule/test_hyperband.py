import random
from typing import Literal

import pytest

from tests.schedule.driving import run_search
from tuner.schedule import Decision, EarlyStopper, HyperBand

CONTINUE, STOP, PAUSE = Decision.CONTINUE, Decision.STOP, Decision.PAUSE


def build(
    *,
    mode: Literal["min", "max"] = "max",
    max_epochs: int = 9,
    can_pause: bool = True,
    trials: int | None = None,
    **settings: int,
) -> EarlyStopper:
    return HyperBand(**{"grace_epochs": 1, **settings}).build(
        mode=mode, max_epochs=max_epochs, can_pause=can_pause, trials=trials
    )


def start(stopper: EarlyStopper, *trials: str) -> None:
    for trial in trials:
        stopper.start(trial)


def drained(stopper: EarlyStopper) -> list[str]:
    found = []
    while (trial := stopper.resumable()) is not None:
        found.append(trial)
    return found


@pytest.mark.parametrize(
    ("max_epochs", "members"),
    [
        (9, {1: 9, 3: 5, 9: 3}),
        (27, {1: 27, 3: 12, 9: 6, 27: 4}),
        (81, {1: 81, 3: 34, 9: 15, 27: 8, 81: 5}),  # Li et al. 2018, table 1: R = 81, eta = 3
    ],
)
def test_brackets_have_the_papers_sizes(max_epochs: int, members: dict[int, int]) -> None:
    """Epoch of its bracket's first rung, or the last epoch, of one trial after another."""
    stopper = build(max_epochs=max_epochs)
    paused_at = []
    for number in range(sum(members.values()) + members[1]):
        trial = str(number)
        stopper.start(trial)
        epochs = (epoch for epoch in range(1, max_epochs) if stopper.report(trial, epoch, 0.0) is PAUSE)
        paused_at.append(next(epochs, max_epochs))
    once = [epoch for epoch, count in members.items() for _ in range(count)]
    assert paused_at == once + [1] * members[1]  # and then start again


def test_a_bracket_waits_for_all_and_keeps_the_best_third() -> None:
    stopper = build()  # brackets of 9, 5 and 3
    trials = [str(number) for number in range(9)]
    start(stopper, *trials)
    for trial in trials[:8]:
        assert stopper.report(trial, 1, float(trial)) is PAUSE
    assert (drained(stopper), stopper.eliminated()) == ([], [])
    assert stopper.report("8", 1, 8.0) is PAUSE
    assert drained(stopper) == ["8", "7", "6"]
    assert stopper.eliminated() == ["5", "4", "3", "2", "1", "0"]
    for trial, value in (("8", 0.0), ("7", 1.0), ("6", 0.5)):
        assert stopper.report(trial, 2, value) is CONTINUE
        assert stopper.report(trial, 3, value) is PAUSE
    assert (drained(stopper), stopper.eliminated()) == (["7"], ["6", "8"])
    assert [stopper.report("7", epoch, 0.0) for epoch in range(4, 10)] == [CONTINUE] * 6


def test_it_minimises_and_breaks_ties_by_id() -> None:
    stopper = build(mode="min", max_epochs=3)  # one rung: brackets of 3 and 2
    start(stopper, "a", "b", "c")
    for trial, value in (("c", 1.0), ("b", 1.0), ("a", 2.0)):
        stopper.report(trial, 1, value)
    assert (drained(stopper), stopper.eliminated()) == (["b"], ["c", "a"])


def test_brackets_do_not_compete_with_each_other() -> None:
    stopper = build(max_epochs=3)
    start(stopper, "a", "b", "c", "d", "e", "f", "g", "h")  # 3, 2 without a rung, 3 again
    for trial in "abc":
        stopper.report(trial, 1, 0.1)
    assert [stopper.report(trial, epoch, 0.0) for trial in "de" for epoch in (1, 2, 3)] == [CONTINUE] * 6
    for trial, value in zip("fgh", (1.0, 2.0, 3.0), strict=True):
        stopper.report(trial, 1, value)
    assert drained(stopper) == ["a", "h"]


def test_a_failed_trial_is_not_waited_for() -> None:
    stopper = build(max_epochs=3)
    start(stopper, "a", "b", "c")
    stopper.report("a", 1, 1.0)
    stopper.report("b", 1, 2.0)
    stopper.end("c")
    assert (drained(stopper), stopper.eliminated()) == (["b"], ["a"])


def test_a_trial_that_is_shorter_than_the_rung_is_not_waited_for() -> None:
    stopper = build(max_epochs=27, grace_epochs=3)
    start(stopper, *map(str, range(9)))
    assert stopper.report("0", 1, 9.0) is CONTINUE
    stopper.end("0")
    for trial in range(1, 9):
        assert stopper.report(str(trial), 3, float(trial)) is PAUSE
    assert drained(stopper) == ["8", "7"]


def test_a_trial_that_ends_at_the_rung_it_won_is_not_resumed() -> None:
    stopper = build(max_epochs=3)
    start(stopper, "a", "b", "c")
    for trial, value in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        stopper.report(trial, 1, value)
    stopper.end("c")
    assert drained(stopper) == []
    stopper.end("a")
    assert stopper.eliminated() == ["b"]


def test_a_short_bracket_closes_when_no_more_come() -> None:
    stopper = build()
    start(stopper, "a", "b")
    stopper.report("a", 1, 1.0)
    stopper.report("b", 1, 2.0)
    assert drained(stopper) == []
    stopper.more_coming(False)
    assert (drained(stopper), stopper.eliminated()) == (["b"], ["a"])


def test_a_short_bracket_waits_while_more_are_coming() -> None:
    stopper = build()
    start(stopper, "a", "b")
    stopper.report("a", 1, 1.0)
    stopper.report("b", 1, 2.0)
    stopper.more_coming(True)
    assert (drained(stopper), stopper.eliminated()) == ([], [])


def test_the_last_bracket_closes_with_the_budgets_last_trial() -> None:
    stopper = build(trials=2)
    start(stopper, "a")
    stopper.report("a", 1, 1.0)
    assert drained(stopper) == []
    start(stopper, "b")
    stopper.report("b", 1, 2.0)
    assert (drained(stopper), stopper.eliminated()) == (["b"], ["a"])


def test_a_closed_bracket_takes_no_new_members() -> None:
    stopper = build(max_epochs=3)
    start(stopper, "a")
    stopper.report("a", 1, 1.0)
    stopper.more_coming(False)
    assert drained(stopper) == ["a"]
    start(stopper, "b", "c")
    assert [stopper.report(trial, 1, 5.0) for trial in "bc"] == [CONTINUE, CONTINUE]  # the bracket without a rung


def test_a_trial_that_went_on_before_its_rung_closed_is_no_rival_any_more() -> None:
    stopper = build(max_epochs=3)
    start(stopper, "a", "b")
    stopper.report("a", 1, 9.0)
    assert stopper.report("a", 2, 9.0) is CONTINUE
    start(stopper, "c")
    stopper.report("b", 1, 1.0)
    stopper.report("c", 1, 2.0)
    assert (drained(stopper), stopper.eliminated()) == (["c"], ["b"])


def test_where_trials_cannot_pause_each_bracket_stops_with_its_own_grace() -> None:
    stopper = build(can_pause=False)  # 9 trials with rungs 1 and 3, 5 with rung 3, 3 with none
    start(stopper, *map(str, range(17)))
    first = [stopper.report(str(trial), 1, value) for trial, value in ((0, 1.0), (1, 0.5), (2, 1.0))]
    assert first == [CONTINUE, STOP, CONTINUE]
    second = [stopper.report("9", epoch, 0.0) for epoch in (1, 2, 3)]
    assert second == [CONTINUE, CONTINUE, CONTINUE]
    assert stopper.report("10", 3, -1.0) is STOP
    assert [stopper.report("14", epoch, -9.0) for epoch in range(1, 10)] == [CONTINUE] * 9
    assert (stopper.resumable(), stopper.eliminated()) == (None, [])


def test_a_whole_search_spends_what_the_brackets_allow() -> None:
    curves = {f"{number:02}": [float(number)] * 9 for number in range(17)}
    epochs = run_search(build(trials=17), curves)
    # bracket of 9: 6 end at epoch 1, 2 at 3, 1 at 9; of 5: 4 at 3, 1 at 9; of 3: all at 9
    expected = [1, 1, 1, 1, 1, 1, 3, 3, 9, 3, 3, 3, 3, 9, 9, 9, 9]
    assert [epochs[trial] for trial in curves] == expected


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("budget", [25, None])
def test_in_the_end_every_trial_has_finished_failed_or_lost(seed: int, budget: int | None) -> None:
    """Four at once, 25 in all, of which some fail or are shorter: nobody is left waiting or heard of twice."""
    generator = random.Random(seed)
    stopper = build(max_epochs=9, trials=budget)
    running: list[str] = []
    epochs: dict[str, int] = {}
    over: set[str] = set()
    eliminated: list[str] = []
    while True:
        while len(running) < 4:
            trial = stopper.resumable()
            if trial is None and len(epochs) < 25:
                trial = f"{len(epochs):02}"
                stopper.start(trial)
                epochs[trial] = 0
            stopper.more_coming(len(epochs) < 25)
            if trial is None and (trial := stopper.resumable()) is None:
                break
            assert trial not in {*running, *over, *eliminated}
            running.append(trial)
        if not running:
            break
        trial = generator.choice(running)
        epochs[trial] += 1
        if generator.random() < 0.05 or epochs[trial] == (5 if int(trial) % 6 == 0 else 9):
            stopper.end(trial)
            over.add(trial)
            running.remove(trial)
        elif stopper.report(trial, epochs[trial], generator.random()) is PAUSE:
            running.remove(trial)
        eliminated += stopper.eliminated()
    assert len(eliminated) == len(set(eliminated))
    assert over | set(eliminated) == epochs.keys()
    assert not over & set(eliminated)
    assert all(epochs[trial] in (1, 3) for trial in eliminated)
