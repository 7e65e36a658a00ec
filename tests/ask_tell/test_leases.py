from tuner.ask_tell import AskedTrial
from tuner.ask_tell.leases import Leases, holders

FIRST, SECOND = AskedTrial("00000", 0, {}, 1, 3), AskedTrial("00001", 1, {}, 2, 3)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_lease_runs_out_unless_something_is_heard() -> None:
    clock = Clock()
    leases = Leases(60, clock)
    leases.watch(True)
    mine, yours = leases.give("w1", FIRST), leases.give("w2", SECOND)
    clock.now = 60.0
    assert leases.expired() == []
    leases.renew(yours)
    clock.now = 60.1
    assert leases.expired() == [mine]
    leases.end(mine)
    assert leases.expired() == []
    assert (leases.of("w1"), leases.of("w2")) == (None, yours)


def test_nothing_runs_out_while_nobody_can_be_heard() -> None:
    clock = Clock()
    leases = Leases(60, clock)
    lease = leases.give("w1", FIRST)
    clock.now = 1000.0
    assert leases.expired() == []
    leases.watch(True)  # the server is back: all leases start again
    clock.now = 1060.0
    assert leases.expired() == []
    clock.now = 1061.0
    assert leases.expired() == [lease]
    leases.watch(True)  # a second line is no return
    assert leases.expired() == [lease]


def test_a_worker_holds_the_trial_that_it_has_and_no_other() -> None:
    leases = Leases(60, Clock())
    old = leases.give("w1", FIRST)
    assert leases.held("w1", FIRST.id) is old
    assert leases.held("w1", SECOND.id) is None
    assert leases.held("w2", FIRST.id) is None
    new = leases.give("w1", SECOND)
    leases.end(old)  # which ends nothing of the new one
    assert leases.of("w1") is new


def test_who_had_what_is_told_by_the_events() -> None:
    def of(kind: str, trial: str, **more: object) -> dict[str, object]:
        return {"event": kind, "trial": trial, **more}

    events = [of("trial_handed", trial, worker=f"anne/w{trial}") for trial in "01234"]
    events += [of("trial_lost", "0"), of("trial_retried", "1"), of("trial_ended", "2"), of("trial_paused", "3")]
    events += [{"event": "study_resumed"}, of("trial_handed", "0", worker="bert/w9")]
    assert holders(events) == {"4": "anne/w4", "0": "bert/w9"}
