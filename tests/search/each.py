"""Every search algorithm, for the tests that take them all: a new one is added to each list here, and nowhere else."""

from typing import Any

from tuner.errors import StudyError
from tuner.search import BOHB, Grid, HyperOpt, MultiFidelityGP, Optuna, Random, SearchAlgorithm
from tuner.space import Space, choice, loguniform, randint, uniform

EACH: list[SearchAlgorithm] = [
    Random(),
    Random(sobol=False),
    Grid(),
    HyperOpt(),
    BOHB(),
    BOHB(min_points=5),
    MultiFidelityGP(),
    MultiFidelityGP(startup_trials=6),
    Optuna(),
    Optuna("TPESampler", options={"n_startup_trials": 3}),
]
EAGER: list[SearchAlgorithm] = [  # that ask their models after few trials, and ask for little
    MultiFidelityGP(startup_trials=1, candidates=20),
    HyperOpt(startup_trials=1, candidates=4),
    BOHB(min_points=1, random_share=0, candidates=8),
    Optuna(options={"n_startup_trials": 1}),
    Random(),
    Grid(),
]
CONTINUOUS = {
    "lr": loguniform(1e-4, 1e-1),
    "layers": randint(1, 4),
    "optimizer": choice(["adam", "sgd"]),
    "momentum": uniform(0, 1).when(optimizer="sgd"),
}
FINITE = {"layers": randint(1, 4), "optimizer": choice(["adam", "sgd"])}


def is_finite_only(algorithm: SearchAlgorithm) -> bool:
    """Whether it takes spaces of finitely many configurations alone."""
    try:
        algorithm.check(Space(CONTINUOUS))
    except StudyError:
        return True
    return False


def domains_for(algorithm: SearchAlgorithm) -> dict[str, Any]:
    """Of a space that it takes, with a condition if it may have one."""
    return FINITE if is_finite_only(algorithm) else CONTINUOUS
