import functools
from typing import Any

import pytest

from tuner.errors import StudyError
from tuner.space import Space, uniform
from tuner.trial import FunctionTrial, ImageClassifier, as_trial

SPACE = Space({"anything": uniform(0, 1)})


def train(config: dict[str, Any]) -> None:
    """Nothing."""


def no_argument() -> None:
    """Nothing."""


def test_a_function_is_a_trial_with_its_name_and_unknown_metrics() -> None:
    trial = as_trial(train)
    trial.check(SPACE)
    trial.check_files()
    assert trial == FunctionTrial(train)
    assert (trial.name, trial.reports, trial.missing_downloads(), trial.fingerprint()) == ("train", None, [], None)


def test_a_trial_stays_what_it_is() -> None:
    trial = ImageClassifier()
    assert as_trial(trial) is trial


def test_a_partial_is_a_function_too() -> None:
    trial = as_trial(functools.partial(lambda extra, config: None, 1))
    trial.check(SPACE)
    assert trial.name == "partial"


def test_a_function_that_cant_take_a_configuration_is_refused() -> None:
    with pytest.raises(StudyError) as caught:
        as_trial(no_argument).check(SPACE)
    assert str(caught.value) == (
        "a trial function takes one argument, the configuration, got no_argument: too many positional arguments; "
        "write def no_argument(config): ..."
    )


@pytest.mark.parametrize("trial", ["resnet18", None, ImageClassifier])
def test_what_is_neither_is_refused(trial: object) -> None:
    with pytest.raises(
        StudyError, match=r"^trial must be an ImageClassifier or a function of config, got .*; write Image"
    ):
        as_trial(trial)
