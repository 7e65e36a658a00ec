import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner.trial.session import activate


class Recorder:
    """Keeps what a trial reports."""

    def __init__(self) -> None:
        self.reports: list[tuple[dict[str, Any], Path | None]] = []
        self.was_ignored = False

    def report(self, metrics: dict[str, Any], checkpoint: Path | None) -> None:
        self.reports.append((metrics, checkpoint))

    def checkpoint(self) -> Path | None:
        return Path("earlier")

    def ignored(self) -> None:
        self.was_ignored = True


class Ending(Recorder):
    """Ends its trial after this many reports."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def report(self, metrics: dict[str, Any], checkpoint: Path | None) -> None:
        if len(self.reports) >= self.after:
            raise SystemExit(0)
        super().report(metrics, checkpoint)


def test_metrics_may_be_given_by_name_as_a_dict_or_both() -> None:
    recorder = Recorder()
    with activate(recorder):
        tuner.report(loss=0.3)
        tuner.report({"loss": 0.3})
        tuner.report({"loss": 0.3}, accuracy=0.9, checkpoint="folder")
    assert recorder.reports == [
        ({"loss": 0.3}, None),
        ({"loss": 0.3}, None),
        ({"loss": 0.3, "accuracy": 0.9}, Path("folder")),
    ]


def test_a_metric_may_have_any_name_even_metrics() -> None:
    recorder = Recorder()
    with activate(recorder):
        tuner.report(metrics=1.0)
    assert recorder.reports == [({"metrics": 1.0}, None)]


def test_a_report_of_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^tuner\.report needs at least one metric by name, got \{\}"):
        tuner.report()


def test_outside_of_a_study_a_report_is_printed_and_there_is_no_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    tuner.report(loss=0.3, accuracy=0.9)
    assert capsys.readouterr().out == "tuner.report outside of a study: loss=0.3, accuracy=0.9\n"
    assert tuner.checkpoint() is None


def test_a_session_ends_with_its_block() -> None:
    with activate(Recorder()):
        assert tuner.checkpoint() == Path("earlier")
    assert tuner.checkpoint() is None


def test_a_session_ends_with_an_exception_too() -> None:
    with pytest.raises(RuntimeError), activate(Recorder()):
        raise RuntimeError
    assert tuner.checkpoint() is None


def test_an_inner_session_gives_way_to_the_outer_one() -> None:
    outer, inner = Recorder(), Recorder()
    with activate(outer):
        with activate(inner):
            tuner.report(loss=1.0)
        tuner.report(loss=2.0)
    assert (inner.reports, outer.reports) == ([({"loss": 1.0}, None)], [({"loss": 2.0}, None)])


def in_thread(act: Callable[[], object]) -> Future[object]:
    """What a new thread makes of it; the thread has ended."""
    with ThreadPoolExecutor() as pool:
        return pool.submit(act)


def test_threads_that_a_trial_starts_have_its_session() -> None:
    recorder = Recorder()
    with activate(recorder):
        assert in_thread(tuner.checkpoint).result() == Path("earlier")
        in_thread(lambda: in_thread(lambda: tuner.report(loss=0.3)).result()).result()
    assert recorder.reports == [({"loss": 0.3}, None)]
    assert in_thread(tuner.checkpoint).result() is None


def test_a_thread_that_was_there_before_the_trial_is_refused_and_not_taken_for_one_of_it() -> None:
    recorder = Recorder()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(tuner.checkpoint).result() is None
        with activate(recorder):
            refused = pool.submit(tuner.report, loss=0.3)
            message = r"^tuner\.report works in threads that a trial started, got one that was there before the trial; "
            with pytest.raises(RuntimeError, match=message):
                refused.result()
    assert not recorder.reports


def test_a_thread_that_outlives_its_trial_reports_nothing_to_the_next_one() -> None:
    first, second = Recorder(), Recorder()
    with ThreadPoolExecutor(1) as pool:
        with activate(first):
            pool.submit(tuner.report, loss=1.0).result()
        with (
            activate(second),
            pytest.raises(RuntimeError, match=r"after its end in a thread that it had started; join"),
        ):
            pool.submit(tuner.report, loss=2.0).result()
    assert (first.reports, second.reports) == ([({"loss": 1.0}, None)], [])


def test_trials_in_several_threads_of_a_process_have_sessions_of_their_own() -> None:
    """A thread that one of them starts has to say which, as it can't be told apart."""
    both, told = threading.Barrier(2), dict[int, list[str]]()

    def trial(number: int) -> None:
        recorder = Recorder()
        with activate(recorder):
            both.wait()
            tuner.report(loss=number)
            context = copy_context()
            in_thread(lambda: context.run(tuner.report, loss=number + 10)).result()
            unclear = in_thread(tuner.checkpoint).exception()
            both.wait()
        told[number] = [*(str(metrics["loss"]) for metrics, _ in recorder.reports), str(unclear)]

    threads = [threading.Thread(target=trial, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    unclear = (
        "tuner.checkpoint works in threads that a trial started, got 2 that may have; "
        "run it in contextvars.copy_context()"
    )
    assert told == {1: ["1", "11", unclear], 2: ["2", "12", unclear]}


@pytest.mark.parametrize("waits", ["for the thread", "for its result", "in vain"])
def test_a_trial_that_a_report_in_a_thread_ends_also_ends_in_its_main_thread(waits: str) -> None:
    cleaned: list[str] = []
    recorder = Ending(after=2)

    def work() -> None:
        try:
            while True:
                tuner.report(loss=0.3)
        finally:
            cleaned.append("thread")

    def train() -> None:
        try:
            pool = ThreadPoolExecutor()
            done = pool.submit(work)
            if waits == "for its result":
                done.result()
            for _ in range(1000 * (waits == "in vain")):
                time.sleep(0.01)
            pool.shutdown()
        finally:
            time.sleep(0.2)  # nothing disturbs it
            cleaned.append("main")

    with pytest.raises(SystemExit), activate(recorder):
        train()
    assert cleaned == ["thread", "main"]
    assert len(recorder.reports) == 2
    assert not recorder.was_ignored


def report_in_clean_up() -> None:
    try:
        tuner.report(loss=0.2)
    finally:
        tuner.report(loss=0.1)


def test_a_trial_that_reports_while_it_is_ended_is_asked_again_and_one_that_has_caught_it_goes_on() -> None:
    recorder = Ending(after=1)
    with activate(recorder):
        tuner.report(loss=0.3)
        with pytest.raises(SystemExit):
            report_in_clean_up()
        assert not recorder.was_ignored
        with pytest.raises(SystemExit):
            tuner.report(loss=0.1)
        assert recorder.was_ignored


def test_a_pool_whose_reports_are_ended_is_not_taken_for_code_that_goes_on() -> None:
    ending = Ending(2)

    def train() -> None:
        with ThreadPoolExecutor(1) as pool:
            asked = [pool.submit(tuner.report, loss=float(epoch)) for epoch in range(6)]
            for one in asked:
                one.result(timeout=20)

    with activate(ending), pytest.raises(SystemExit):
        train()
    assert len(ending.reports) == 2
    assert not ending.was_ignored


def test_a_thread_of_a_trial_that_was_ended_is_refused_by_the_next_one() -> None:
    pool = ThreadPoolExecutor(1)
    with suppress(SystemExit), activate(Ending(0)):
        pool.submit(tuner.report, loss=1.0).result(timeout=20)
    recorder = Recorder()
    with activate(recorder), pytest.raises(RuntimeError, match="after its end in a thread"):
        pool.submit(tuner.report, loss=2.0).result(timeout=20)
    assert recorder.reports == []
    pool.shutdown()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("call", ["report", "checkpoint"])
def test_a_process_that_the_trial_forked_is_refused(call: str) -> None:
    reader, writer = os.pipe()
    with activate(Recorder()):
        child = os.fork()
        if child == 0:
            try:
                tuner.report(loss=0.3) if call == "report" else tuner.checkpoint()
            except RuntimeError as error:
                os.write(writer, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    assert os.read(reader, 1000).decode() == (
        f"tuner.{call} works in the trial's own process, got a call in process {child}, which was forked from it; "
        "hand values over, for example by a queue, and call it in the trial's function"
    )


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^tuner\.report needs at least one metric by name, got \{1: 0\.3\}; call"):
        tuner.report({1: 0.3})  # type: ignore[dict-item]


def test_what_is_reported_is_a_copy() -> None:
    recorder, metrics = Recorder(), {"loss": 0.3}
    with activate(recorder):
        tuner.report(metrics)
    metrics["loss"] = 9.0
    assert recorder.reports == [({"loss": 0.3}, None)]
