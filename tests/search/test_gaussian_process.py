from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from tuner.search.base import Floats
from tuner.search.gaussian_process import CurveKernel, CurveProcess, Rows, expected_improvement

ONLY_POINTS = CurveKernel(length=0.5, shared=1.0, shared_late=0.0, epochs=0.0, own=0.0, own_late=0.0, noise=0.01)


@dataclass(frozen=True)
class CountingKernel(CurveKernel):
    compared: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, one: Rows, other: Rows) -> Floats:
        self.compared.append((len(one), len(other)))
        return super().__call__(one, other)


def rows(points: list[list[float]], epoch: float = 1.0, *, trials: list[int] | None = None) -> Rows:
    numbers = list(range(len(points))) if trials is None else trials
    return Rows(np.array(points), np.full(len(points), epoch), np.array(numbers))


def test_without_curves_it_is_a_matern_process_as_scikit_learns() -> None:
    generator = np.random.default_rng(0)
    points, places = generator.random((12, 3)), generator.random((5, 3))
    values = np.sin(5 * points).sum(1)
    ours = CurveProcess(ONLY_POINTS, rows(points.tolist()), values)
    theirs = GaussianProcessRegressor(Matern(0.5, nu=2.5), alpha=0.01 + 1e-8, optimizer=None)
    theirs.fit(points, values - ours._mean)
    mean, deviation = theirs.predict(places, return_std=True)
    found = ours.predict(rows(places.tolist(), trials=[-1] * 5))
    assert found[0] == pytest.approx(mean + ours._mean, abs=1e-9)
    assert found[1] == pytest.approx(deviation, abs=1e-9)
    assert ours.mean(rows(places.tolist())) == pytest.approx(found[0])


def test_early_values_say_something_about_the_end_and_late_ones_more() -> None:
    here, place = [[0.2, 0.2]], [[0.2, 0.2]]
    deviations = []
    for epoch in (0.3, 0.7, 1.0):
        model = CurveProcess(CurveKernel(), rows(here, epoch), np.array([1.0]))
        deviations.append(float(model.predict(rows(place, 1.0))[1][0]))
    assert deviations == sorted(deviations, reverse=True)
    assert deviations[0] < CurveKernel().variance ** 0.5


def test_a_trials_own_curve_says_more_about_it_than_anothers_at_the_same_point() -> None:
    model = CurveProcess(CurveKernel(), rows([[0.5], [0.6]], 0.5, trials=[0, 1]), np.array([2.0, -1.0]))
    own, another = (float(model.predict(rows([[0.5]], 1.0, trials=[trial]))[1][0]) for trial in (0, -1))
    assert own < another


def test_believing_its_own_expectation_moves_no_mean_and_lowers_the_doubt() -> None:
    model = CurveProcess(CurveKernel(), rows([[0.1], [0.9]]), np.array([0.0, 1.0]))
    told = model.believing(rows([[0.5]], trials=[7]))
    place = rows([[0.5]], trials=[-1])
    assert told.predict(place)[0] == pytest.approx(model.predict(place)[0], abs=1e-12)
    assert told.predict(place)[1] < model.predict(place)[1]
    assert model.believing(rows([]).take(np.array([], dtype=int))) is model


def test_believing_is_the_same_as_a_process_told_anew() -> None:
    generator = np.random.default_rng(0)
    known, running = rows(generator.random((30, 2)).tolist(), 0.5), rows(generator.random((4, 2)).tolist(), 0.5)
    known, running = known + rows(known.points[:9].tolist()), replace(running, trials=np.arange(100, 104))
    values, places = generator.random(39), rows(generator.random((20, 2)).tolist(), trials=[-1] * 20)
    model = CurveProcess(CurveKernel(), known, values)
    anew = CurveProcess(CurveKernel(), known + running, np.append(values, model.mean(running)))
    for ours, theirs in zip(model.believing(running).predict(places), anew.predict(places), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-9)
    twice = model.believing(running.take(np.arange(1))).believing(running.take(np.arange(1, 4)))
    assert twice.predict(places)[1] == pytest.approx(anew.predict(places)[1], abs=1e-9)


def test_believing_compares_no_rows_again_that_the_process_knows() -> None:
    kernel = CountingKernel()
    model = CurveProcess(kernel, rows([[0.1], [0.4], [0.9]]), np.array([0.0, 0.5, 1.0]))
    kernel.compared.clear()
    model.believing(rows([[0.5], [0.6]], trials=[7, 8]))
    assert sorted(kernel.compared) == [(2, 2), (3, 2)]


def test_expected_improvement_is_the_mean_of_the_excess() -> None:
    generator = np.random.default_rng(1)
    for mean, deviation, best in ((0.0, 1.0, 0.5), (2.0, 0.3, 1.0), (-1.0, 0.7, 0.0)):
        sampled = np.maximum(generator.normal(mean, deviation, 2_000_000) - best, 0).mean()
        found = expected_improvement(np.array([mean]), np.array([deviation]), best)[0]
        assert found == pytest.approx(sampled, abs=2e-3)
