import threading
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner.session import activate


class Recorder:
    """Keeps what a trial reports."""

    def __init__(self) -> None:
        self.reports: list[tuple[dict[str, Any], Path | None]] = []

    def report(self, metrics: dict[str, Any], checkpoint: Path | None) -> None:
        self.reports.append((metrics, checkpoint))

    def checkpoint(self) -> Path | None:
        return Path("earlier")


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


def test_a_session_is_that_of_its_thread_alone() -> None:
    found: list[Path | None] = []
    with activate(Recorder()):
        thread = threading.Thread(target=lambda: found.append(tuner.checkpoint()))
        thread.start()
        thread.join()
    assert found == [None]


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^tuner\.report needs at least one metric by name, got \{1: 0\.3\}; call"):
        tuner.report({1: 0.3})  # type: ignore[dict-item]


def test_what_is_reported_is_a_copy() -> None:
    recorder, metrics = Recorder(), {"loss": 0.3}
    with activate(recorder):
        tuner.report(metrics)
    metrics["loss"] = 9.0
    assert recorder.reports == [({"loss": 0.3}, None)]
