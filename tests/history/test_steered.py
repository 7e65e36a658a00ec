"""What a run's events say of orders and of tries, where nothing but the events tells it."""

from tests.history.events_of_a_run import ended, event, fold, reported, started


def obeyed(verb: str, **arguments: object) -> dict[str, object]:
    return event("order_obeyed", order=f"{verb}-1", verb=verb, arguments=arguments, by="me@here", message="")


def test_a_trial_that_an_order_ended_is_to_end_no_more() -> None:
    begun = (started(0), started(1), obeyed("stop", trial="00000"))
    assert fold(*begun).steered.to_end == {"00000"}
    assert fold(*begun, ended(0, "stopped", by="stop")).steered.to_end == set()


def test_a_search_that_goes_on_anew_was_not_stopped() -> None:
    stopped = (event("study_started"), obeyed("stop"))
    assert fold(*stopped).steered.stopped_by == "me@here"
    assert fold(*stopped, event("study_resumed")).steered.stopped_by == "me@here"
    assert fold(*stopped, event("study_resumed", anew=True)).steered.stopped_by is None


def test_a_trial_that_has_ended_waits_for_no_other_try() -> None:
    failure = {"trial": "00000", "cause": "error", "message": "it raised", "traceback": None}
    tried = (started(0), reported(0, 1, accuracy=0.5), event("trial_retried", 1.0, **failure))
    assert fold(*tried).trials["00000"].attempts.waiting
    assert not fold(*tried, ended(0, "stopped", 2.0, by="stop")).trials["00000"].attempts.waiting


def test_a_trial_was_tried_again_after_all_failures_but_the_one_that_is_its_end() -> None:
    lost = {"trial": "00000", "cause": "hung", "message": "it hung"}
    tries = (started(0), event("trial_lost", 1.0, **lost), started(0, 2.0), event("trial_lost", 3.0, **lost))
    attempts = fold(*tries, ended(0, "failed", 3.0, cause="hung", message="it hung")).trials["00000"].attempts
    assert [attempt.time for attempt in attempts.failed] == [1.0, 3.0]
    assert [attempt.time for attempt in attempts.tried_again] == [1.0]


def test_an_order_to_retry_puts_failed_trials_back() -> None:
    failed = (started(0), ended(0, "failed", 1.0, cause="error", message="it raised"))
    record = fold(*failed, {**obeyed("retry"), "trials": ["00000"]})
    assert record.trials["00000"].live
    assert record.trials["00000"].attempts.waiting
