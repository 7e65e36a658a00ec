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
