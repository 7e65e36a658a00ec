import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tuner.errors import StudyError
from tuner.search import EarlierStudy, EarlierTrial, History, Problem, Proposals, Random, learn
from tuner.search.history import why_unfit
from tuner.space import Config, Space, choice, loguniform, randint, uniform

SPACE = Space({"x": uniform(0, 1), "y": uniform(0, 1)})


def study(
    name: str, value: Callable[[Config], float], space: Space = SPACE, *, trials: int = 25, **constants: Any
) -> EarlierStudy:
    generator = np.random.default_rng(len(name))
    configs = [{**space.sample(generator), **constants} for _ in range(trials)]
    told = tuple(EarlierTrial(c, {epoch: value(c) - 1 / epoch for epoch in (1, 2, 3)}) for c in configs)
    return EarlierStudy(name, 3, (1,), told)


def near(x: float, y: float) -> Callable[[Config], float]:
    return lambda config: -math.dist((config["x"], config["y"]), (x, y))


def test_the_best_of_one_study_is_where_the_next_one_starts() -> None:
    earlier = study("one", near(0.2, 0.8))
    found = learn(Problem(SPACE), [earlier], 10)
    best = max(earlier.trials, key=lambda trial: max(trial.curve.values()))
    assert found.configs == (best.config,)
    assert found.studies == ("one",)


def test_none_is_an_option_like_others() -> None:
    space = Space({"x": uniform(0, 1), "cap": choice([None, 1, 2])})
    earlier = study("one", lambda config: float(config["cap"] is None), space)
    assert learn(Problem(space), [earlier], 1).configs[0]["cap"] is None


def test_a_study_that_searches_nothing_learns_nothing() -> None:
    assert why_unfit(Problem(Space({})), study("one", near(0.2, 0.8))) == "this study searches no hyperparameter"
    assert why_unfit(Problem(SPACE), study("one", near(0.2, 0.8))) is None


def test_what_is_to_be_low_is_low() -> None:
    earlier = study("one", near(0.2, 0.8))
    worst = min(earlier.trials, key=lambda trial: min(trial.curve.values()))
    assert learn(Problem(SPACE, mode="min"), [earlier], 10).configs == (worst.config,)


def test_each_next_one_helps_where_those_before_did_badly() -> None:
    alike = [study(f"left {'i' * number}", near(0.1, 0.1)) for number in range(4)]
    found = learn(Problem(SPACE), [*alike, study("right", near(0.9, 0.9))], 2)
    assert len(found.configs) == 2
    assert found.configs[0]["x"] < 0.5 < found.configs[1]["x"]
    assert len(found.studies) == 5


def test_no_more_than_asked_for_nor_than_half_of_the_trials() -> None:
    studies = [study("s" * number, near(number / 10, 0.5)) for number in range(1, 9)]
    assert len(learn(Problem(SPACE), studies, 3).configs) == 3
    assert len(learn(Problem(SPACE, trials=9), studies, 10).configs) == 4
    assert learn(Problem(SPACE, trials=1), studies, 10).configs == ()
    assert learn(Problem(SPACE), [], 10).studies == ()


def test_values_outside_of_the_space_are_moved_to_its_border() -> None:
    wide = Space(
        {"x": loguniform(1e-4, 1), "n": randint(1, 20), "k": choice([8, 16, 32]), "kind": choice(["a", "b", "c"])}
    )
    narrow = Space({"x": loguniform(1e-2, 1e-1), "n": randint(1, 5), "k": choice([8, 20]), "kind": choice(["a", "b"])})
    inside = study("s", lambda c: -c["x"], narrow).trials
    best = EarlierTrial({"x": 0.9, "n": 12, "k": 32, "kind": "c"}, {1: 5.0})
    assert wide.check(dict(best.config), "best") == best.config
    (config,) = learn(Problem(narrow), [EarlierStudy("s", 3, (1,), (*inside, best))], 1).configs
    assert config == {"x": pytest.approx(0.1), "n": 4, "k": 20}  # a kind that there is no more is sampled


def test_a_study_with_other_values_of_a_constant_says_nothing() -> None:
    space = Space({"x": uniform(0, 1), "y": uniform(0, 1), "size": 28})
    assert learn(Problem(space), [study("other", near(0.5, 0.5), size=32)], 5).studies == ()
    assert learn(Problem(space), [study("same", near(0.5, 0.5), size=28)], 5).studies == ("same",)
    assert learn(Problem(space), [study("unknown", near(0.5, 0.5))], 5).studies == ("unknown",)


def test_half_of_the_hyperparameters_suffice() -> None:
    wider = Space({**SPACE.dimensions, "z": uniform(0, 1), "w": uniform(0, 1)})
    (config,) = learn(Problem(wider), [study("s", near(0.5, 0.5))], 5).configs
    assert set(config) == {"x", "y"}
    widest = Space({**SPACE.dimensions, "z": uniform(0, 1), "w": uniform(0, 1), "v": uniform(0, 1)})
    assert learn(Problem(widest), [study("s", near(0.5, 0.5))], 5).configs == ()


def test_what_the_constraint_rules_out_is_not_learned() -> None:
    left, right = study("left", near(0.1, 0.1)), study("right", near(0.9, 0.9))
    space = SPACE.constrained(lambda config: bool(config["x"] < 0.5))
    found = learn(Problem(space), [left, right], 10)
    assert found.studies == ("left",)
    proposals = Proposals(Problem(space), Random().build(Problem(space)), learned=found.configs)
    assert proposals.suggest(0) == found.configs[0]


def test_too_few_trials_say_nothing() -> None:
    assert learn(Problem(SPACE), [study("s", near(0.5, 0.5), trials=2)], 5).studies == ()
    assert learn(Problem(SPACE), [study("s", near(0.5, 0.5), trials=3)], 5).studies == ("s",)


def test_conditional_and_nested_hyperparameters_are_kept_where_they_hold() -> None:
    space = Space(
        {
            "net": {"optimizer": choice(["adam", "sgd"]), "momentum": uniform(0, 1).when(optimizer="sgd")},
            "lr": uniform(0, 1),
        }
    )
    earlier = study("s", lambda c: c["net"].get("momentum", -1.0), space)
    (config,) = learn(Problem(space), [earlier], 1).configs
    assert config["net"]["optimizer"] == "sgd"
    assert config["net"]["momentum"] > 0.5
    only_adam = Space({"net": {"optimizer": choice(["adam"])}, "lr": uniform(0, 1)})
    (config,) = learn(Problem(only_adam), [earlier], 1).configs
    assert set(config) == {"lr"}


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (History(top=0), "History.top needs a whole number from 1 to 1,000,000, got 0; use 10"),
        (History(path=3), "History.path needs a folder or URI, got 3; leave it out for the storage"),  # type: ignore[arg-type]
        (History(studies="digits"), "History.studies needs a list of names, got 'digits'; write ['name']"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_cannot_work_are_refused(history: History, message: str) -> None:
    with pytest.raises(StudyError) as error:
        history.check()
    assert str(error.value) == message
