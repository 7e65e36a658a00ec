import numpy as np
import pytest
from scipy.stats import chisquare

from tuner.search.kernel_density import KernelDensity
from tuner.space import Space, choice, uniform

NUMBERS = Space({"x": uniform(0, 1), "y": uniform(0, 1)})
MIXED = Space({"kind": choice(["a", "b", "c"]), "x": uniform(0, 1).when(kind="a")})


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def test_it_integrates_to_one_with_mass_cut_off_at_the_edges() -> None:
    density = KernelDensity(NUMBERS, np.array([[0.0, 0.5], [0.02, 0.6], [0.1, 0.95]]), generator())
    middles = (np.arange(200) + 0.5) / 200
    places = np.array([(x, y) for x in middles for y in middles])
    assert np.exp(density(places)).mean() == pytest.approx(1, abs=0.01)


def test_choices_have_probabilities_that_add_up_to_one() -> None:
    space = Space({"kind": choice(["a", "b", "c"])})
    density = KernelDensity(space, np.array([[1 / 6], [1 / 6], [0.5]]), generator())
    probabilities = np.exp(density(np.array([[1 / 6], [0.5], [5 / 6]])))
    assert probabilities.sum() == pytest.approx(1)
    assert probabilities[0] > probabilities[1] > probabilities[2] > 0


def test_what_is_no_part_of_a_configuration_counts_for_nothing() -> None:
    rows = np.array([[1 / 6, 0.2], [1 / 6, 0.3], [0.5, np.nan]])
    density = KernelDensity(MIXED, rows, generator())
    assert np.isfinite(density(np.array([[0.5, np.nan], [1 / 6, 0.25]]))).all()
    assert density(np.array([[1 / 6, 0.25]])) > density(np.array([[1 / 6, 0.9]]))
    nowhere = KernelDensity(MIXED, np.array([[0.5, np.nan], [5 / 6, np.nan]]), generator())
    assert np.isfinite(nowhere(np.array([[1 / 6, 0.25]]))).all()


def test_samples_follow_the_density() -> None:
    density = KernelDensity(NUMBERS, np.array([[0.05, 0.5], [0.1, 0.6], [0.7, 0.9]]), generator())
    drawn = density.sample(20_000, np.random.default_rng(1))
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    middles = (np.arange(400) + 0.5) / 400
    grid = np.array([(x, y) for x in middles for y in middles])
    mass = np.exp(density(grid)).reshape(4, 100, 4, 100).mean(axis=(1, 3)).ravel() / 16
    found, *_ = np.histogram2d(drawn[:, 0], drawn[:, 1], bins=4, range=[[0, 1], [0, 1]])
    assert chisquare(found.ravel(), mass / mass.sum() * 20_000).pvalue > 1e-3


def test_samples_of_choices_follow_the_density() -> None:
    space = Space({"kind": choice(["a", "b", "c", "d"])})
    density = KernelDensity(space, np.array([[0.125], [0.125], [0.625]]), generator())
    drawn = density.sample(20_000, np.random.default_rng(1))
    places = np.array([[0.125], [0.375], [0.625], [0.875]])
    found = [(drawn == place).sum() for place in places]
    assert sum(found) == 20_000
    assert chisquare(found, np.exp(density(places)) * 20_000).pvalue > 1e-3


def test_equal_rows_are_no_spike() -> None:
    density = KernelDensity(NUMBERS, np.full((4, 2), 0.5), generator())
    assert np.isfinite(density(np.array([[0.5, 0.5], [0.0, 1.0]]))).all()
