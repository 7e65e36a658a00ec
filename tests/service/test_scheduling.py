import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.service.checking.study_facts import Facts, demand_of
from tuner.service.model import Demand, Device, State, SubmittedStudy
from tuner.service.scheduling import Foresight, Pause, Plan, Share, plan

NOW = 1_000_000.0
GPUS = tuple(Device("gpu", index) for index in range(4))


def queued(number: int, least: int = 1, count: int | None = None, kind: str = "gpu", **changes: Any) -> SubmittedStudy:
    settings: dict[str, Any] = {"user": "anne", "user_id": 1, "priority": 0, "preemptible": False, "after": ()}
    demand = Demand(kind, count or least, least)
    settings |= {"name": f"s{number}", "state": State.QUEUED, "submitted": float(number), "changed": 0.0}
    return SubmittedStudy(id=number, demand=demand, **{**settings, **changes})


def running(number: int, *devices: int, **changes: Any) -> SubmittedStudy:
    held = tuple(GPUS[index] for index in devices)
    return queued(number, len(held), **{"state": State.RUNNING, "devices": held, "started": float(number), **changes})


def started(found: Plan) -> dict[int, int]:
    return {start.study: len(start.devices) for start in found.starts}


def applied(studies: Sequence[SubmittedStudy], found: Plan, *, gives_back: bool = False) -> list[SubmittedStudy]:
    """The studies after a plan; those that are to give devices back do so if `gives_back`."""
    sizes = {resize.study: resize for resize in found.resizes}
    studies = [
        replace(s, devices=(*s.devices, *sizes[s.id].more)[: sizes[s.id].keep if gives_back else None])
        if s.id in sizes
        else s
        for s in studies
    ]
    starts = {start.study: start.devices for start in found.starts}
    pauses = {pause.study for pause in found.pauses}
    lost = dict(found.hopeless)
    after = []
    for study in studies:
        if study.id in starts:
            after.append(replace(study, state=State.STARTING, devices=starts[study.id], started=NOW))
        elif study.id in pauses:
            after.append(replace(study, state=State.PAUSING))
        else:
            after.append(replace(study, state=State.FAILED) if study.id in lost else study)
    return after


def test_priority_goes_before_use_and_use_before_submission() -> None:
    studies = [
        queued(1, user_id=1),
        queued(2, user_id=2),
        queued(3, user_id=3, priority=1),
        queued(4, user_id=2),
    ]
    usage = {1: Share(10.0), 2: Share(3.0), 3: Share(99.0)}
    found = plan(studies, GPUS[:1], usage, NOW)
    assert started(found) == {3: 1}
    assert [position.study for position in found.positions] == [2, 4, 1]
    assert [position.position for position in found.positions] == [1, 2, 3]
    weighed = plan(studies, GPUS[:1], {**usage, 1: Share(10.0, weight=10.0)}, NOW)
    assert [position.study for position in weighed.positions] == [1, 2, 4]


def test_a_study_that_starts_before_the_first_in_line_grows_in_the_next_plan() -> None:
    studies = [running(1, 0, 1), queued(2, 3), queued(3, 1, 2)]
    found = plan(studies, GPUS, {}, NOW)
    assert (started(found), found.positions[0].study) == ({3: 1}, 2)
    after = applied(studies, found)
    grows = plan(after, GPUS, {}, NOW)
    assert resized(grows) == {3: (2, 1)}
    assert resized(plan(applied(after, grows), GPUS, {}, NOW)) == {}


def test_a_small_study_fills_a_gap_only_if_the_first_in_line_is_not_delayed() -> None:
    studies = [running(1, 0, 1), queued(2, 4), queued(3, 1), queued(4, 1)]
    foresight = Foresight(ends={1: NOW + 100}, lasts={3: 101.0, 4: 99.0})
    found = plan(studies, GPUS, {}, NOW, foresight)
    assert started(found) == {4: 1}
    assert found.positions[0].reason == "first in line: it needs 4 GPUs, and 2 are free"
    assert found.positions[0].start == NOW + 100
    full = plan([running(1, 0, 1, 2, 3), queued(2, 4), queued(3, 1)], GPUS, {}, NOW)
    assert full.positions[1].reason == "behind study 2, which is first in line; it needs 1 GPU, and none is free"
    assert found.positions[1].reason == "2 GPUs free and kept for study 2, which is first in line"


def test_a_study_of_unknown_length_may_use_what_the_first_in_line_will_not_need() -> None:
    studies = [running(1, 0, 1, 2), queued(2, 3), queued(3, 1), queued(4, 1)]
    assert started(plan(studies, GPUS, {}, NOW)) == {3: 1}


def test_devices_are_shared_by_those_that_can_take_more_than_they_need() -> None:
    assert started(plan([queued(1, 1, 4)], GPUS, {}, NOW)) == {1: 4}
    assert started(plan([queued(1, 1, 4), queued(2, 1, 4)], GPUS, {}, NOW)) == {1: 2, 2: 2}
    assert started(plan([queued(number, 1, 4) for number in range(1, 9)], GPUS, {}, NOW)) == dict.fromkeys(
        range(1, 5), 1
    )
    assert started(plan([queued(1, 1, 2), queued(2, 3)], GPUS, {}, NOW)) == {1: 1, 2: 3}


def elastic(number: int, *devices: int, count: int = 4, least: int = 1, **changes: Any) -> SubmittedStudy:
    return replace(running(number, *devices, **changes), demand=Demand("gpu", count, least))


def resized(found: Plan) -> dict[int, tuple[int, int]]:
    return {resize.study: (resize.keep, len(resize.more)) for resize in found.resizes}


def test_a_study_that_runs_gives_back_what_is_another_users_share() -> None:
    alone = elastic(1, 0, 1, 2, 3)
    assert plan([alone], GPUS, {}, NOW).resizes == ()
    found = plan([alone, queued(2, 1, 4, user_id=2)], GPUS, {}, NOW)
    assert (resized(found), started(found)) == ({1: (2, 0)}, {})
    assert found.positions[0].reason == (
        "first in line: it needs 1 GPU, and none is free; study 1 gives 2 GPUs back as its trials end"
    )
    heavy = plan([alone, queued(2, 1, 4, user_id=2)], GPUS, {1: Share(weight=3.0)}, NOW)
    assert resized(heavy) == {1: (3, 0)}
    urgent = plan([alone, queued(2, 1, 4, user_id=2, priority=5)], GPUS, {}, NOW)
    assert resized(urgent) == {1: (1, 0)}
    fixed = replace(alone, demand=Demand("gpu", 4, 4, fixed=True))
    assert plan([fixed, queued(2, user_id=2)], GPUS, {}, NOW).resizes == ()


def test_idle_devices_go_to_whoever_can_use_them() -> None:
    studies = [elastic(1, 0), elastic(2, 1, user_id=2, count=2)]
    assert resized(plan(studies, GPUS, {}, NOW)) == {1: (2, 1), 2: (2, 1)}
    assert resized(plan([elastic(1, 0), running(2, 1, user_id=2)], GPUS, {}, NOW)) == {1: (3, 2)}
    waits = plan([elastic(1, 0, 1), queued(2, 1, user_id=2)], GPUS, {}, NOW)
    assert (started(waits), resized(waits)) == ({2: 1}, {1: (3, 1)})
    fewer = replace(elastic(1, 0, 1, 2), demand=Demand("gpu", 1, 1))  # its user lowered the concurrency
    assert resized(plan([fewer], GPUS, {}, NOW)) == {1: (1, 0)}


def test_devices_are_shared_as_many_at_a_time_as_a_trial_holds() -> None:
    both = elastic(1, 0, 1, 2, 3, least=2)
    assert resized(plan([both, queued(2, 1, user_id=2)], GPUS, {}, NOW)) == {1: (2, 0)}
    found = plan([elastic(1, 0, 1, least=2), queued(2, 1, user_id=2)], GPUS, {}, NOW)
    assert (started(found), found.resizes) == ({2: 1}, ())  # the device that is left is no use to either
    found = plan([elastic(1, 0, 1, least=2), queued(2, 1, 4, user_id=2)], GPUS, {}, NOW)
    assert (started(found), found.resizes) == ({2: 2}, ())


def test_a_trial_of_one_and_a_half_devices_leaves_none_of_three_idle() -> None:
    facts = Facts("s", "loss", "min", 9, 1, {}, {}, "", "", "", "cpu", 1.5)
    cpus = tuple(Device("cpu", index) for index in range(5))
    assert demand_of(facts, cpus[:3], None, None) == Demand("cpu", 3, 2)
    assert demand_of(facts, cpus, None, 2).count == 3
    assert demand_of(replace(facts, each=2.0), cpus, None, None).count == 4  # the fifth is no use
    study = replace(queued(1, kind="cpu"), demand=demand_of(facts, cpus[:3], None, None))
    assert started(plan([study], cpus[:3], {}, NOW)) == {1: 3}


def test_a_study_that_is_paused_gets_nothing_in_the_same_plan() -> None:
    studies = [elastic(1, 0, preemptible=True), running(2, 1), queued(3, 3, priority=1)]
    found = plan(studies, GPUS, {}, NOW)
    assert (found.pauses, found.resizes) == ((Pause(1, 3),), ())


def test_nobody_is_paused_for_a_study_that_would_not_get_the_devices() -> None:
    theirs = [elastic(1, 0, 1, user_id=1, priority=2), running(2, 2, user_id=2, priority=1, preemptible=True)]
    others = [elastic(3, 3, user_id=3, priority=2)]
    studies = [*theirs, *others, queued(4, 1, user_id=1, priority=2)]
    assert plan(studies, GPUS, {3: Share(weight=4.0)}, NOW).pauses == ()
    assert plan(studies, GPUS, {}, NOW).pauses == (Pause(2, 4),)


def test_a_study_that_runs_gets_nothing_that_the_first_in_line_waits_for() -> None:
    studies = [elastic(1, 0), running(2, 1, 2, user_id=2), queued(3, 3, user_id=3)]
    assert resized(plan(studies, GPUS, {}, NOW, Foresight(ends={1: NOW + 999, 2: NOW + 100}))) == {}
    assert resized(plan(studies, GPUS, {}, NOW, Foresight(ends={1: NOW + 99, 2: NOW + 100}))) == {1: (2, 1)}


def test_slots_of_searches_whose_trials_run_elsewhere_have_no_cap() -> None:
    slots = tuple(Device("external", index) for index in range(4))
    spent = {1: Share(most=1, most_hours=1.0, week_hours=2.0)}
    studies = [queued(number, kind="external") for number in (1, 2)]
    assert started(plan(studies, slots, spent, NOW)) == {1: 1, 2: 1}


def test_a_share_that_cannot_be_divided_stays_where_it_is() -> None:
    studies = [elastic(1, 0, 1, user_id=1), elastic(2, 2, user_id=2)]
    for used in (1.0, 50.0, 99.0):
        assert plan(studies, GPUS[:3], {1: Share(used), 2: Share(50.0)}, NOW).resizes == ()


def test_a_cap_holds_for_all_studies_of_its_user_and_says_so() -> None:
    capped = {1: Share(most=2)}
    found = plan([queued(1, 1, 4), queued(2, 1, 4), queued(3, 3)], GPUS, capped, NOW)
    assert started(found) == {1: 1, 2: 1}
    assert found.positions[0].reason == (
        "anne may have 2 GPUs at once; an admin changes this: tuner user cap anne --devices N"
    )
    assert resized(plan([elastic(1, 0, 1, 2, 3)], GPUS, capped, NOW)) == {1: (2, 0)}  # lowered while it runs
    assert plan([elastic(1, 0, 1)], GPUS, capped, NOW).resizes == ()
    behind = plan([elastic(1, 0, 1), queued(2), queued(3, user_id=2)], GPUS, {1: Share(most=1)}, NOW)
    assert (started(behind), resized(behind)) == ({3: 1}, {1: (1, 0)})
    spent = plan([elastic(1, 0, 1), queued(2)], GPUS, {1: Share(most_hours=10.0, week_hours=10.5)}, NOW)
    assert (started(spent), resized(spent)) == ({}, {1: (1, 0)})
    assert spent.positions[0].reason == (
        "anne has used 10.5 device-hours in the last 7 days, and may use 10; an admin changes this: "
        "tuner user cap anne --hours N"
    )
    none = plan([queued(1)], GPUS, {1: Share(most=0, most_hours=10.0, week_hours=1.0)}, NOW)
    assert none.positions[0].reason == (
        "anne may have 0 GPUs at once; an admin changes this: tuner user cap anne --devices N"
    )


def test_a_preemptible_study_makes_room_for_a_higher_priority_alone() -> None:
    lower = running(1, 0, 1, preemptible=True)
    fixed = running(2, 2, 3)
    assert plan([lower, fixed, queued(3, 2)], GPUS, {}, NOW).pauses == ()
    assert plan([lower, fixed, queued(3, 2, priority=1)], GPUS, {}, NOW).pauses == (Pause(1, 3),)
    assert plan([lower, fixed, queued(3, 3, priority=1)], GPUS, {}, NOW).pauses == ()  # it wouldn't be enough
    pausing = replace(lower, state=State.PAUSING)
    assert plan([pausing, fixed, queued(3, 2, priority=1)], GPUS, {}, NOW).pauses == ()


def test_a_preemptible_study_is_paused_although_it_would_give_devices_back_between_trials() -> None:
    lower = elastic(1, 0, 1, 2, 3, preemptible=True)
    assert plan([lower, queued(2, 2, priority=1)], GPUS, {}, NOW).pauses == (Pause(1, 2),)
    other = elastic(2, 1, 2, 3, user_id=2)
    both = [elastic(1, 0, preemptible=True), other, queued(3, 2, priority=1)]
    found = plan(both, GPUS, {}, NOW)
    assert (resized(found), found.pauses) == ({2: (1, 0)}, ())  # trials have to end anyway


def test_a_study_that_ends_before_it_would_have_paused_is_left_alone() -> None:
    """It got a device that the first in line can't use yet, and ends before the other one has paused."""
    studies = [running(1, 0, preemptible=True), queued(5, 3, priority=1), queued(6, preemptible=True)]
    first = plan(studies, GPUS[:3], {}, NOW, Foresight(lasts={6: 1.0}))
    assert (started(first), first.pauses) == ({6: 1}, (Pause(1, room_for=5),))
    second = plan(applied(studies, first), GPUS[:3], {}, NOW, Foresight(ends={6: NOW + 1.0}))
    assert (second.starts, second.pauses) == ((), ())


def test_an_overdue_study_is_paused_all_the_same() -> None:
    """When it should have ended is only an estimate."""
    studies = [running(1, 0, 1, 2, 3, preemptible=True), queued(2, 4, priority=1)]
    for ends in ({}, {1: NOW + 100}, {1: NOW - 3600}):
        assert plan(studies, GPUS, {}, NOW, Foresight(ends=ends)).pauses == (Pause(1, room_for=2),)
    assert plan(studies, GPUS, {}, NOW, Foresight(ends={1: NOW + 5})).pauses == ()


def test_the_least_urgent_and_newest_is_paused_and_no_more_than_needed() -> None:
    studies = [
        running(1, 0, preemptible=True),
        running(2, 1, preemptible=True),
        running(3, 2, preemptible=True, priority=-1),
        running(4, 3, preemptible=True, priority=2),
        queued(5, 2, priority=2),
    ]
    assert plan(studies, GPUS, {}, NOW).pauses == (Pause(3, 5), Pause(2, 5))


def test_after_waits_for_a_finish_and_gives_up_after_a_failure() -> None:
    first = running(1, 0)
    waits = plan([first, queued(2, after=(1,))], GPUS, {}, NOW)
    assert (started(waits), waits.positions[0].reason) == ({}, "runs after study 1")
    done = replace(first, state=State.FINISHED, devices=())
    assert started(plan([done, queued(2, after=(1,))], GPUS, {}, NOW)) == {2: 1}
    failed = plan([replace(done, state=State.FAILED), queued(2, after=(1,)), queued(3)], GPUS, {}, NOW)
    assert failed.hopeless == ((2, "it was to run after study 1, which is failed; submit it again without that"),)
    assert started(failed) == {3: 1}


def test_what_waits_for_its_next_try_or_asks_for_too_much_holds_nobody_up() -> None:
    studies = [queued(1, not_before=NOW + 60), queued(2, 5), queued(3)]
    found = plan(studies, GPUS, {}, NOW)
    assert started(found) == {3: 1}
    reasons = {position.study: position.reason for position in found.positions}
    assert reasons == {
        1: "its driver died; it starts again in 60 s",
        2: "needs 5 GPUs; this server has 4 GPUs",
    }
    assert all(position.start is None for position in found.positions)


def test_cancelled_studies_keep_their_devices_until_their_drivers_are_gone() -> None:
    studies = [running(1, 0, 1, 2, 3, state=State.CANCELLED), queued(2)]
    assert started(plan(studies, GPUS, {}, NOW)) == {}


def test_cpus_and_gpus_have_lines_of_their_own() -> None:
    cpus = tuple(Device("cpu", index) for index in range(2))
    studies = [running(1, 0, 1, 2, 3), queued(2, 4), queued(3, 2, kind="cpu")]
    assert started(plan(studies, (*GPUS, *cpus), {}, NOW)) == {3: 2}


def test_the_start_is_foreseen_one_study_after_the_other() -> None:
    studies = [running(1, 0, 1, 2, 3), queued(2, 4), queued(3, 4), queued(4, 4)]
    found = plan(studies, GPUS, {}, NOW, Foresight(ends={1: NOW + 10}, lasts={2: 20.0}))
    assert [position.start for position in found.positions] == [NOW + 10, NOW + 30, None]


# Properties

DEVICES = tuple(Device("gpu", index) for index in range(6))


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[SubmittedStudy], dict[int, Share], Foresight]:
    free = list(DEVICES)
    studies, ends, lasts = [], {}, {}
    for number in range(1, draw(st.integers(1, 12)) + 1):
        least = draw(st.integers(1, 7))
        changes: dict[str, Any] = {
            "user_id": draw(st.integers(1, 3)),
            "priority": draw(st.integers(-2, 2)),
            "preemptible": draw(st.booleans()),
        }
        known = draw(st.none() | st.integers(1, 50))
        if draw(st.booleans()) and free:
            taken, free = tuple(free[:least]), free[least:]
            changes |= {"state": draw(st.sampled_from([State.RUNNING, State.PAUSING])), "devices": taken}
            changes["started"] = draw(st.floats(0, NOW))
            ends |= {} if known is None else {number: NOW + known}
        else:
            changes["after"] = tuple(draw(st.sets(st.integers(1, number - 1), max_size=1))) if number > 1 else ()
            changes["not_before"] = draw(st.sampled_from([0.0, 0.0, NOW + 5]))
            lasts |= {} if known is None else {number: float(known)}
        studies.append(queued(number, least, least + draw(st.integers(0, 3)), **changes))
    usage = {user: Share(draw(st.floats(0, 100)), draw(st.sampled_from([0.5, 1.0, 4.0]))) for user in (1, 2, 3)}
    return studies, usage, Foresight(ends, lasts)


@given(queues())
@settings(max_examples=60, deadline=None)
def test_no_device_is_given_twice_and_nobody_gets_less_than_needed(
    drawn: tuple[list[SubmittedStudy], dict[int, Share], Foresight],
) -> None:
    studies, usage, foresight = drawn
    found = plan(studies, DEVICES, usage, NOW, foresight)
    held = [device for study in applied(studies, found) for device in study.devices]
    assert len(held) == len(set(held))
    by_id = {study.id: study for study in studies}
    for start in found.starts:
        assert by_id[start.study].demand.least <= len(start.devices) <= by_id[start.study].demand.count
        assert by_id[start.study].state is State.QUEUED
    places = [*started(found), *dict(found.hopeless), *(position.study for position in found.positions)]
    assert sorted(places) == [study.id for study in studies if study.state is State.QUEUED]


@given(queues())
@settings(max_examples=60, deadline=None)
def test_what_is_given_back_soon_ends_in_shares_that_stay(
    drawn: tuple[list[SubmittedStudy], dict[int, Share], Foresight],
) -> None:
    studies, usage, foresight = drawn
    for _ in range(len(studies) + len(DEVICES)):
        found = plan(studies, DEVICES, usage, NOW, foresight)
        if not (found.starts or found.resizes or found.pauses):
            return
        studies = [
            replace(s, devices=(), state=State.PAUSED) if s.state is State.PAUSING else s
            for s in applied(studies, found, gives_back=True)
        ]
    pytest.fail(f"devices go back and forth: {found}")


@given(queues(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_same_queue_gives_the_same_plan_in_whatever_order_it_is_read(
    drawn: tuple[list[SubmittedStudy], dict[int, Share], Foresight], order: random.Random
) -> None:
    studies, usage, foresight = drawn
    shuffled = studies[:]
    order.shuffle(shuffled)
    assert plan(shuffled, DEVICES, usage, NOW, foresight) == plan(studies, DEVICES, usage, NOW, foresight)


@given(queues())
@settings(max_examples=100, deadline=None)
def test_plans_carried_out_one_after_another_end_and_undo_nothing(
    drawn: tuple[list[SubmittedStudy], dict[int, Share], Foresight],
) -> None:
    studies, usage, foresight = drawn
    ends, hopeless = dict(foresight.ends), set[int]()
    begun, got = set[int](), set[int]()
    for _ in range(5):
        found = plan(studies, DEVICES, usage, NOW, Foresight(ends, foresight.lasts))
        direct = {study for study, _ in found.hopeless}  # later: those that come after what failed in the plan before
        assert not hopeless or all(set(study.after) & hopeless for study in studies if study.id in direct)
        assert not {pause.study for pause in found.pauses} & (begun | got)
        held = {study.id: len(study.devices) for study in studies}
        assert not {r.study for r in found.resizes if r.keep < held[r.study] + len(r.more)} & (begun | got)
        if not (found.starts or found.pauses or any(resize.more for resize in found.resizes)):
            return
        ends |= {start: NOW + foresight.lasts[start] for start in started(found) if start in foresight.lasts}
        begun |= set(started(found))
        got |= {resize.study for resize in found.resizes if resize.more}
        hopeless |= direct
        studies = applied(studies, found)
    pytest.fail(f"a sixth plan still has something to do: {found}")


@given(queues())
@settings(max_examples=60, deadline=None)
def test_nobody_starts_before_the_first_in_line_at_its_expense(
    drawn: tuple[list[SubmittedStudy], dict[int, Share], Foresight],
) -> None:
    """Priority is kept: with the starts of this plan, the first in line starts no later than without any.

    All studies are one user's: otherwise users' shares decide who is first.
    """
    drawn_studies, usage, foresight = drawn
    studies = [replace(study, user_id=1) for study in drawn_studies]
    known = Foresight(
        {study.id: foresight.ends.get(study.id, NOW + 7) for study in studies},
        {study.id: foresight.lasts.get(study.id, 9.0) for study in studies},
    )
    found = plan(studies, DEVICES, usage, NOW, known)
    first = next((each for each in found.positions if each.reason.startswith("first in line")), None)
    if first is None:
        return
    ahead = set[int]()
    order = sorted(
        (study for study in studies if study.state is State.QUEUED),
        key=lambda study: (-study.priority, usage[study.user_id].used, study.submitted, study.id),
    )
    for study in order:
        if study.id == first.study:
            break
        ahead.add(study.id)
    alone = [study for study in studies if study.state is not State.QUEUED or study.id in ahead | {first.study}]
    without = plan(alone, DEVICES, usage, NOW, known)
    expected = next(each for each in without.positions if each.study == first.study)
    assert first.start is not None
    assert expected.start is not None
    assert first.start <= expected.start


@given(queues())
@settings(max_examples=40, deadline=None)
def test_everybody_starts_at_last_however_many_come_behind(
    drawn: tuple[list[SubmittedStudy], dict[int, Share], Foresight],
) -> None:
    """No starvation: small studies are submitted without end by users with a better share, and all begin in time."""
    studies, usage, foresight = drawn
    possible = [replace(s, after=(), priority=0, not_before=0.0) for s in studies if s.demand.least <= len(DEVICES)]
    mine = {study.id for study in possible if study.state is State.QUEUED}
    ends = {s.id: NOW + foresight.ends.get(s.id, NOW + 20) - NOW for s in possible if s.devices}
    now, number = NOW, 1000
    for _ in range(400):
        if not mine & {study.id for study in possible if study.state is State.QUEUED}:
            return
        number += 1
        possible.append(queued(number, submitted=now, user_id=1))
        shares = {user: Share(1.0) for user in usage}  # equal: submission decides
        found = plan(possible, DEVICES, shares, now, Foresight(ends, {study.id: 10.0 for study in possible}))
        possible = applied(possible, found)
        ends |= dict.fromkeys(started(found), now + 10.0)
        now = min([end for end in ends.values() if end > now], default=now + 1)
        possible = [
            replace(s, devices=(), state=State.FINISHED) if ends.get(s.id, math.inf) <= now else s for s in possible
        ]
        possible = [s for s in possible if s.state is not State.FINISHED]
    pytest.fail(f"never started: {mine & {study.id for study in possible if study.state is State.QUEUED}}")
