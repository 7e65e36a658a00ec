"""The same configuration under other seeds: `tuner confirm`, and studies that race the leading ones."""

import cProfile
import pstats
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.history.events_of_a_run import ended, event, reported, started
from tests.loop.simulation import build, events_of, study
from tuner import ASHA, Budget, External, Grid, Study, grid_search, uniform
from tuner.errors import RunFolderError, StudyError
from tuner.history.checkpoints import CheckpointStore
from tuner.history.records import RunRecord
from tuner.loop.confirming import confirmation
from tuner.loop.racing import next_to_repeat
from tuner.loop.search_loop import SearchLoop
from tuner.orders.order import Order
from tuner.schedule import Decision

NOISE = 0.05


def noisy(config: dict[str, Any], epoch: int, seed: int) -> float:
    """Best at x = 0.3, plus what the seed changes."""
    draw = np.random.default_rng([seed, epoch]).normal(0, 0.2 * NOISE) + np.random.default_rng(seed).normal(0, NOISE)
    return float((config["x"] - 0.3) ** 2 + 1 / epoch + draw)


def run_on(loop: SearchLoop, reports: int | None = None) -> None:
    """Train trial after trial until the end, or until a driver is killed after so many reports."""
    left = 10**9 if reports is None else reports
    while left > 0:
        start = loop.next_action()
        if start is None:
            assert loop.finished or loop.running
            return
        epoch, decision = loop.record.trials[start.trial].last_checkpoint, Decision.CONTINUE
        while decision is Decision.CONTINUE and left > 0:
            epoch, left = epoch + 1, left - 1
            CheckpointStore(loop.folder).write(start.trial, epoch, lambda folder: None)
            value = noisy(start.config, epoch, start.seed)
            decision = loop.report(start.trial, epoch, {"loss": value}, saved=[epoch])


def finished(folder: Path, **changes: Any) -> SearchLoop:
    declared = study(**{"scheduler": ASHA(), "budget": Budget(trials=8, max_epochs=9), **changes})
    loop = build(declared, folder)
    run_on(loop)
    loop.end()
    loop.close()
    return loop


def confirming(folder: Path, declared: Study, top: int = 2, seeds: int = 3) -> SearchLoop:
    history = events_of(folder)
    loop = build(declared, folder, history=history)
    found = confirmation(loop.record, declared.budget.max_epochs, top, seeds)
    reason = next(event["reason"] for event in reversed(history) if event["event"] == "study_ended")
    loop.ask_for("confirmation_requested", **found.request(reason, ended=True))
    return loop


def end(loop: SearchLoop) -> RunRecord:
    run_on(loop)
    loop.end()
    loop.close()
    return loop.record


def repeats(record: RunRecord) -> list[tuple[str | None, str, int]]:
    return sorted((t.repeats, t.status, len(t.epochs)) for t in record.trials.values() if t.repeats is not None)


def test_confirm_trains_the_best_at_full_length_under_other_seeds_and_nothing_else(fast: Path) -> None:
    before = finished(fast)
    best = [one.trial.trial for one in before.record.ranked()][:2]
    loop = confirming(fast, before.study)
    record = end(loop)
    assert repeats(record) == sorted([(trial, "completed", 9) for trial in best for _ in range(3)])
    assert record.configurations == 8
    assert len({trial.seed for trial in record.trials.values()}) == 14
    assert loop.end_reason == "trials"
    for first in record.repeated:
        members = record.same_configuration(first)
        assert {trial.config["x"] for trial in members} == {first.config["x"]}
        completed = [worth.value for t in members if t.status == "completed" and (worth := record.worth_of(t.trial))]
        standing = record.standing_of(record.ranked()[0].trial.trial)
        assert standing is not None
        assert record.seeds_of(first) == tuple(completed)
    winner = record.best_trial()
    assert winner is not None
    standing = record.standing_of(winner.trial)
    assert standing is not None
    assert standing.value == pytest.approx(np.mean(record.seeds_of(winner)))
    assert standing.seeds == len(record.seeds_of(winner))
    assert standing.epoch in winner.checkpoints


def test_the_reason_of_a_search_s_end_stays_true_after_a_confirm_beyond_its_limits(fast: Path) -> None:
    before = finished(fast)
    late = replace(before.study, budget=replace(before.study.budget, hours=1e-9))
    loop = confirming(fast, late, seeds=1)
    record = end(loop)
    assert (record.ended, loop.end_reason) == ("trials", "trials")  # which the conclusion asks for after the end


def test_a_search_that_goes_on_after_a_stopped_confirm_ends_for_its_own_reason(fast: Path) -> None:
    before = finished(fast)
    loop = build(before.study, fast, history=events_of(fast))
    found = confirmation(loop.record, 9, 1, 2)
    loop.ask_for("confirmation_requested", **found.request("stop", ended=True))
    run_on(loop, 3)
    loop.close()
    more = replace(before.study, budget=replace(before.study.budget, trials=10))
    loop = build(more, fast, history=events_of(fast), opening={"search_on": True})  # as `resume --trials 10` says
    record = end(loop)
    assert (record.configurations, record.ended, loop.end_reason) == (10, "trials", "trials")


def test_a_repeat_that_starts_again_is_no_sign_that_the_search_goes_on(fast: Path) -> None:
    """A killed confirm of a search that an order had stopped: nothing but its repeats is trained, whatever the limits."""
    before = finished(fast, budget=Budget(trials=8, max_epochs=9))
    first = confirming(fast, before.study, top=1, seeds=2)
    run_on(first, 3)
    first.close()
    more = replace(before.study, budget=replace(before.study.budget, trials=20))
    loop = build(more, fast, history=events_of(fast))
    start = loop.next_action()
    assert start is not None
    assert loop.record.trials[start.trial].repeats is not None
    assert loop.record.confirming.alone
    loop.close()


@pytest.mark.parametrize("killed_after", [0, 1, 8, 9, 10, 23, 40, 53])
def test_a_confirm_that_is_killed_goes_on_and_trains_nothing_twice(fast: Path, killed_after: int) -> None:
    before = finished(fast)
    first = confirming(fast, before.study)
    run_on(first, killed_after)
    first.close()  # as a driver that was killed: no end is written
    record = end(build(before.study, fast, history=events_of(fast)))
    whole = fast.with_name(fast.name + "-whole")
    again = finished(whole)
    undisturbed = end(confirming(whole, again.study))
    assert {t.trial: (t.repeats, t.seed, t.status) for t in record.trials.values()} == {
        t.trial: (t.repeats, t.seed, t.status) for t in undisturbed.trials.values()
    }
    assert record.epochs() == undisturbed.epochs()
    reported = [(e["trial"], e["epoch"]) for e in events_of(fast) if e["event"] == "epoch_reported"]
    assert len(reported) == len(set(reported))
    assert record.winning_value == undisturbed.winning_value


def test_confirm_trains_the_best_of_a_search_that_a_user_stopped(fast: Path) -> None:
    declared = study(scheduler=ASHA(), budget=Budget(trials=8, max_epochs=9))
    first = build(declared, fast)
    run_on(first, 20)
    first.obey(Order("1", "stop", {}, "somebody", 0.0))
    assert first.next_action() is None
    first.end()
    first.close()
    record = end(confirming(fast, declared, top=1, seeds=2))
    assert [(status, epochs) for _, status, epochs in repeats(record)] == [("completed", 9)] * 2


@pytest.mark.parametrize("repeats_", [2, 3])
@pytest.mark.parametrize("killed_after", [12, 31, 50])
def test_a_race_goes_on_as_if_it_had_not_been_killed(fast: Path, repeats_: int, killed_after: int) -> None:
    declared = study(scheduler=ASHA(), budget=Budget(trials=8, max_epochs=9), repeats=repeats_)
    first = build(declared, fast)
    run_on(first, killed_after)
    first.close()
    record = end(build(declared, fast, history=events_of(fast)))
    undisturbed = finished(fast.with_name(fast.name + "-whole"), repeats=repeats_).record
    told = [(t.trial, t.config, t.seed, t.repeats, t.status) for t in record.trials.values()]
    assert told == [(t.trial, t.config, t.seed, t.repeats, t.status) for t in undisturbed.trials.values()]
    assert record.repeated
    assert record.configurations == 8


def test_a_race_believes_no_leader_of_one_seed_and_stays_within_its_repeats(fast: Path) -> None:
    record = finished(fast, repeats=3).record
    assert next_to_repeat(record, 3) is None
    winner = record.best_trial()
    assert winner is not None
    assert len(record.seeds_of(winner)) >= 2
    assert all(len(record.same_configuration(first)) <= 3 for first in record.repeated)
    assert next_to_repeat(record, 1) is None


def lucky(values: dict[int, list[float]], folder: Path, trials: int, **changes: Any) -> SearchLoop:
    """A finished search over x = 0, 1, …; `values` are those of each x under its seeds, in their order."""
    declared = study(
        **{"space": {"x": grid_search(range(trials))}, "search": Grid(), "budget": Budget(max_epochs=1), **changes}
    )
    return told(build(declared, folder), values)


def told(loop: SearchLoop, values: dict[int, list[float]]) -> SearchLoop:
    while (start := loop.next_action()) is not None:
        before = sum(1 for t in loop.record.trials.values() if t.config == start.config and t.trial != start.trial)
        CheckpointStore(loop.folder).write(start.trial, 1, lambda folder: None)
        loop.report(start.trial, 1, {"loss": values[start.config["x"]][before]}, saved=[1])
    loop.end()
    loop.close()
    return loop


def asked_to_confirm(before: SearchLoop, values: dict[int, list[float]], top: int, seeds: int) -> RunRecord:
    loop = build(before.study, Path(before.folder.uri), history=events_of(Path(before.folder.uri)))
    found = confirmation(loop.record, 1, top, seeds)
    loop.ask_for("confirmation_requested", **found.request(loop.record.ended, ended=True))
    return told(loop, values).record


def seeds_and_network(record: RunRecord) -> tuple[float, int, bool]:
    winner = record.best_trial()
    assert winner is not None
    return winner.config["x"], len(record.seeds_of(winner)), 1 in winner.checkpoints


def test_what_was_not_confirmed_does_not_win_and_a_second_confirm_trains_it(fast: Path) -> None:
    values = {0: [-1.0, 5.0, 5.0], 1: [0.5], 2: [1 / 3], 3: [0.25, 0.26, 0.27]}
    before = lucky(values, fast, 4)
    record = asked_to_confirm(before, values, top=1, seeds=2)
    assert seeds_and_network(record) == (0, 3, True)
    assert [one.trial.config["x"] for one in record.challengers()] == [3, 2, 1]
    again = asked_to_confirm(before, values, top=1, seeds=2)
    assert seeds_and_network(again) == (3, 3, True)
    assert again.challengers() == []


def test_the_command_that_confirms_a_challenger_gives_it_as_many_seeds_as_the_winner_has(fast: Path) -> None:
    values = {0: [0.01, 0.1, 0.12, *[0.11] * 9], 1: [0.05, *[0.9, 0.8, 1.0] * 4], 2: [2.0]}
    before = lucky(values, fast, 3)
    record = asked_to_confirm(before, values, top=1, seeds=2)
    assert (seeds_and_network(record), len(record.challengers())) == ((0, 3, True), 1)
    by_default = confirmation(record, 1, 1, None)
    assert (by_default.names, by_default.seeds) == (["00002"], (2,))  # of x=1, in a grid's order
    with_seeds = confirmation(record, 1, 1, 5)
    assert (with_seeds.names, with_seeds.seeds) == (["00002", "00000"], (5, 3))
    record = asked_to_confirm(before, values, top=1, seeds=5)
    assert seeds_and_network(record) == (0, 6, True)
    assert record.challengers() == []


def test_a_configuration_whose_seed_failed_can_still_win(fast: Path) -> None:
    record = RunRecord("loss", "min")
    told = [(0, 0, 0.1, "completed"), (1, 1, 0.5, "completed"), (2, 0, 0.12, "completed"), (3, 1, 0.6, "completed")]
    for number, x, value, status in [*told, (4, 0, 0.0, "failed"), (5, 1, 0.55, "completed")]:
        first = {} if number < 2 else {"repeats": f"{x:05d}", "confirms": True}
        record.apply({**started(number, config={"x": x}), **first})
        record.apply(reported(number, 1, loss=value))
        record.apply(ended(number, status))
    winner = record.best_trial()
    assert winner is not None
    assert (winner.config["x"], len(record.seeds_of(winner)), record.seed_count(winner)) == (0, 2, 3)


def test_seeds_with_a_network_stand_for_a_configuration_whose_last_epoch_is_not_saved(fast: Path) -> None:
    values = {0: [-1.0, 5.0, 5.0], 1: [0.5, 0.4, 0.6]}
    declared = study(space={"x": grid_search([0, 1])}, search=Grid(), budget=Budget(max_epochs=2))

    def work(loop: SearchLoop) -> RunRecord:
        while (start := loop.next_action()) is not None:
            before = sum(1 for t in loop.record.trials.values() if t.config == start.config and t.trial != start.trial)
            CheckpointStore(loop.folder).write(start.trial, 1, lambda folder: None)
            for epoch in (1, 2):
                loss = values[start.config["x"]][before] - epoch / 100
                loop.report(start.trial, epoch, {"loss": loss}, saved=[1] if epoch == 1 else [])
        loop.end()
        loop.close()
        return loop.record

    work(build(declared, fast))
    loop = build(declared, fast, history=events_of(fast))
    loop.ask_for("confirmation_requested", **confirmation(loop.record, 2, 2, 2).request("space", ended=True))
    record = work(loop)
    winner = record.best_trial()
    assert winner is not None
    assert (winner.config["x"], winner.checkpoints) == (1, {1})


def test_the_seed_that_ships_stays_the_same_once_all_checkpoints_are_cleaned_away(fast: Path) -> None:
    values = {0: [0.1, 0.9, 0.9], 1: [0.2, 0.3, 0.25]}
    record = asked_to_confirm(lucky(values, fast, 2), values, top=2, seeds=2)
    winner = record.best_trial()
    assert winner is not None
    assert winner.repeats is not None
    assert record.trials[winner.repeats].checkpoints == set()  # it was better, and its network is gone
    record.apply(event("checkpoint_deleted", trial=winner.trial, epoch=1))
    assert record.best_trial() is winner
    assert (
        RunRecord(
            "loss", "min", [*events_of(fast), event("checkpoint_deleted", trial=winner.trial, epoch=1)]
        ).best_trial()
        == winner
    )


def test_a_lucky_first_trial_that_was_stopped_does_not_stand_for_its_completed_seeds() -> None:
    record = RunRecord("accuracy", "max")
    for number, values, status, more in [
        (0, [0.5, 0.6, 0.6, 0.6], "completed", {}),
        (1, [0.9, 0.95], "stopped", {}),  # clearly beyond
        (2, [0.1, 0.2, 0.2, 0.2], "completed", {"repeats": "00001"}),
    ]:
        record.apply({**started(number), **more})
        for epoch, value in enumerate(values, 1):
            record.apply(reported(number, epoch, accuracy=value))
        record.apply(ended(number, status))
    assert [(one.trial.trial, one.value) for one in record.ranked() if one.trial.configuration == 1] == [("00002", 0.2)]


def test_configurations_are_confirmed_until_they_have_equally_many_seeds(fast: Path) -> None:
    values = {0: [-1.0, *[5.0] * 9], 1: [0.5] * 9, 2: [0.3] * 9}
    before = lucky(values, fast, 3)
    record = asked_to_confirm(before, values, top=1, seeds=4)
    found = confirmation(record, 1, 3, 1)
    assert dict(zip(found.names, found.seeds, strict=True)) == {"00002": 4, "00001": 4, "00000": 0}
    assert found.cost().startswith(
        "trains the best 3 configurations under up to 4 other seeds, until they have equally many: 8 trials and 8 epochs"
    )
    record = asked_to_confirm(before, values, top=3, seeds=1)
    assert sorted(len(record.seeds_of(record.trials[first])) for first in ("00000", "00001", "00002")) == [5, 5, 5]
    assert seeds_and_network(record) == (2, 5, True)


@pytest.mark.parametrize("seed", range(20))
def test_after_confirms_and_races_the_winner_has_as_many_seeds_as_any_other_and_its_network(
    fast: Path, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    values = {x: [float(v) for v in draw.normal(0.1 * x, draw.choice([0.01, 0.5]), 60)] for x in range(6)}
    before = lucky(values, fast, 6, repeats=int(draw.choice([1, 2, 3])))
    for _ in range(3):
        record = asked_to_confirm(before, values, top=int(draw.integers(1, 4)), seeds=int(draw.integers(1, 4)))
        _, seeds, network = seeds_and_network(record)
        assert seeds == record.most_seeds == max(len(record.seeds_of(t)) for t in record.trials.values()) > 1
        assert network
        assert record.best_ended_trial is record.completed(1)[0].trial is record.best_trial()


def test_a_leader_that_was_stopped_early_is_confirmed_by_one_more_seed(fast: Path) -> None:
    """A first trial that early stopping ended was a try, too: one that has only its first, lucky seed doesn't win."""
    record = RunRecord("loss", "min")
    for number, (x, values, status) in enumerate([(0, [0.2], "stopped"), (1, [0.3, 0.3], "completed")]):
        record.apply(started(number, config={"x": x}))
        for epoch, value in enumerate(values, 1):
            record.apply(reported(number, epoch, loss=value))
        record.apply(ended(number, status))
    found = confirmation(record, 2, 1, 1)
    assert (found.names, found.seeds) == (["00000"], (1,))
    record.apply({**started(2, config={"x": 0}), "repeats": "00000", "confirms": True})
    for epoch in (1, 2):
        record.apply(reported(2, epoch, loss=0.4))
    record.apply(ended(2, "completed"))
    winner = record.best_trial()
    assert winner is record.trials["00002"]
    assert [one.trial.trial for one in record.challengers()] == ["00001"]


def test_a_race_without_budget_for_a_new_leader_does_not_crown_it(fast: Path) -> None:
    values = {0: [0.5, 0.5, 0.5], 1: [0.1, 0.1, 0.1]}
    loop = lucky(values, fast, 2, repeats=2, budget=Budget(max_epochs=1, total_epochs=3))
    assert seeds_and_network(loop.record) == (0, 2, True)
    assert [one.trial.config["x"] for one in loop.record.challengers()] == [1]


def test_a_new_leader_of_a_race_gets_as_many_seeds_as_the_one_before(fast: Path) -> None:
    values = {0: [0.5, 0.6, 0.4], 2: [0.45, 0.6, 0.5], 1: [0.01, 0.02, 0.03]}  # in the order of a grid
    loop = lucky(values, fast, 3, repeats=3, budget=Budget(max_epochs=1))
    assert seeds_and_network(loop.record) == (1, 3, True)


def test_a_leader_whose_further_seeds_fail_holds_up_no_race(fast: Path) -> None:
    loop = build(study(space={"x": grid_search([0, 1])}, search=Grid(), budget=Budget(max_epochs=1), repeats=2), fast)
    while (start := loop.next_action()) is not None:
        if start.config["x"] == 0 and start.repeats is not None:
            loop.failed(start.trial, "error", "KeyError: 'x'")
        else:
            loop.report(start.trial, 1, {"loss": float(start.config["x"])}, saved=[])
    assert loop.finished
    winner = loop.record.best_trial()
    assert winner is not None
    assert (winner.config["x"], len(loop.record.seeds_of(winner))) == (1, 2)


def test_an_action_in_a_race_costs_the_same_however_many_trials_there_were(fast: Path) -> None:
    def calls(trials: int) -> float:
        """Of functions, for each trial."""
        declared = study(space={"x": uniform(0, 50)}, budget=Budget(trials=trials, max_epochs=3), repeats=3)
        loop = build(declared, fast / str(trials))
        profile = cProfile.Profile()
        profile.runcall(run_on, loop)
        assert loop.record.repeated
        return pstats.Stats(profile).total_calls / trials  # type: ignore[attr-defined]

    assert calls(400) < 2 * calls(100)


def test_a_race_counts_in_the_budget_of_epochs_and_begins_nothing_that_it_does_not_pay_for(fast: Path) -> None:
    declared = study(scheduler=ASHA(), budget=Budget(total_epochs=60, max_epochs=9), repeats=3)
    loop = build(declared, fast)
    run_on(loop)
    loop.end()
    assert loop.record.repeated
    assert loop.record.search_epochs() == loop.record.epochs() <= 60
    assert all(t.status == "completed" for t in loop.record.trials.values() if t.repeats is not None)


def test_confirm_is_bound_by_no_limit_that_ended_the_search(fast: Path) -> None:
    before = finished(fast, budget=Budget(total_epochs=40, max_epochs=9))
    assert before.end_reason == "total_epochs"
    loop = confirming(fast, before.study, top=1, seeds=2)
    record = end(loop)
    assert [status for _, status, _ in repeats(record)] == ["completed", "completed"]
    assert record.search_epochs() == 40
    assert loop.end_reason == "total_epochs"


def test_a_failed_repeat_of_a_search_that_reached_its_target_runs_again_and_nothing_else(fast: Path) -> None:
    target = {"budget": Budget(trials=8, max_epochs=9, target=5.0)}
    before = finished(fast, **target)
    assert (before.end_reason, before.record.configurations) == ("target", 1)
    loop = confirming(fast, before.study, top=1, seeds=2)
    start = loop.next_action()
    assert start is not None
    loop.failed(start.trial, "error", "KeyError: 'x'")
    end(loop)
    loop = build(before.study, fast, history=events_of(fast))
    assert loop.retry() == [start.trial]
    record = end(loop)
    assert [t.status for t in record.trials.values() if t.repeats is not None] == ["completed"] * 2
    assert (record.configurations, record.ended, loop.end_reason) == (1, "target", "target")


def test_an_order_to_confirm_goes_before_what_is_suggested_and_a_stop_takes_it_back(fast: Path) -> None:
    loop = build(study(budget=Budget(trials=6, max_epochs=3)), fast)
    run_on(loop, 6)
    loop.obey(Order("a", "confirm", {"top": 1, "seeds": 2}, "somebody"))
    (answer,) = [event for event in events_of(fast) if event["event"] == "order_obeyed"]
    assert "trains the best configuration under 2 other seeds: 2 trials and 6 epochs" in answer["message"]
    start = loop.next_action()
    assert start is not None
    assert start.repeats in ("00000", "00001")
    loop.obey(Order("b", "stop", {}, "somebody"))
    assert not loop.record.confirming.waiting
    assert loop.finished


@pytest.mark.parametrize(
    ("top", "seeds", "message"),
    [
        (9, 5, "got --top 9 for a run that has 8; use --top 8"),
        (0, 5, "confirm needs a whole number from 1 to 1,000,000 as top, got 0; use 3"),
        (3, 0, "confirm needs a whole number from 1 to 1,000 as seeds, got 0; use 5"),
        (3, True, "as seeds, got True; use 5"),
    ],
)
def test_what_cannot_be_confirmed_is_refused(fast: Path, top: int, seeds: int, message: str) -> None:
    record = finished(fast).record
    with pytest.raises(RunFolderError) as refused:
        confirmation(record, 9, top, seeds)
    assert message in str(refused.value)


def test_a_run_without_a_winner_has_nothing_to_confirm() -> None:
    with pytest.raises(RunFolderError, match="confirm needs a run with a winner"):
        confirmation(RunRecord("loss", "min"), 9, None, None)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "3", 101])
def test_repeats_are_a_few(value: Any) -> None:
    with pytest.raises(StudyError, match="repeats counts the seeds of a leading configuration"):
        study(repeats=value)


def test_repeats_need_trials_that_tuner_trains() -> None:
    with pytest.raises(StudyError, match="repeats needs trials that tuner trains"):
        Study("asked", trial=External(), space={"x": uniform(0, 1)}, metric="loss", mode="min", repeats=3)


def test_a_configuration_with_several_seeds_is_one_point_for_the_search(fast: Path) -> None:
    before = finished(fast)
    record = end(confirming(fast, before.study))
    assert len(record.reported()) == len(record.ranked()) == len(record.rows()) == 8
    first = record.repeated[0]
    curves = [dict(t.values("loss")) for t in record.same_configuration(first) if t.status == "completed"]
    assert dict(record.mean_curve(first))[3] == pytest.approx(np.mean([curve[3] for curve in curves]))


def test_a_confirm_in_a_running_search_names_better_trials_that_have_not_ended(fast: Path) -> None:
    declared = study(scheduler=ASHA(rule="stop"), budget=Budget(trials=8, max_epochs=9))
    loop = build(declared, fast, concurrency=4)
    losses = (0.1, 0.9)
    names = [start.trial for _ in losses if (start := loop.next_action()) is not None]
    for name, loss in zip(names, losses, strict=True):
        for epoch in (1, 2, 3):
            decision = loop.report(name, epoch, {"loss": loss}, saved=[])
    assert decision is Decision.STOP
    found = confirmation(loop.record, 9, 1, 1)
    assert (found.names, found.not_ended) == (["00001"], ("00000",))
    assert found.cost().endswith(" 9 epochs (00001; trial 00000 ranks higher so far, but hasn't ended)")
    two = replace(found, not_ended=("00000", "00002")).cost()
    assert two.endswith(" 9 epochs (00001; trials 00000, 00002 rank higher so far, but haven't ended)")
    loop.close()
