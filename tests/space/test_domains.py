import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SpaceError
from tuner.space import (
    Domain,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    uniform,
)

DOMAINS: dict[str, Domain] = {
    "uniform(-1, 2)": uniform(-1, 2),
    "loguniform(0.0001, 0.1)": loguniform(1e-4, 1e-1),
    "quniform(0, 1, 0.1)": quniform(0, 1, 0.1),
    "qloguniform(0.1, 10, 0.1)": qloguniform(0.1, 10, 0.1),
    "randint(4, 10)": randint(4, 10),
    "qrandint(0, 12, 3)": qrandint(0, 12, 3),
    "lograndint(1, 1001)": lograndint(1, 1001),
    "qlograndint(8, 512, 8)": qlograndint(8, 512, 8),
    "randn(0, 2)": randn(0, 2),
    "qrandn(10, 4, 0.5)": qrandn(10, 4, 0.5),
    "choice(['a', None, True, 1, 2.5, [1, 2], {'k': 1}])": choice(["a", None, True, 1, 2.5, [1, 2], {"k": 1}]),
    "grid_search([1, 2])": grid_search([1, 2]),
}
each_domain = pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS.keys())


@pytest.mark.parametrize(("text", "domain"), DOMAINS.items())
def test_a_domain_describes_itself_as_it_was_written(text: str, domain: Domain) -> None:
    assert domain.describe() == text


@each_domain
@given(unit=st.floats(0, 1))
def test_what_is_decoded_lies_in_the_domain_and_encodes_to_a_unit_that_decodes_to_it(
    domain: Domain, unit: float
) -> None:
    value = domain.decode(unit)
    assert domain.contains(value)
    assert domain.coerce(value) == value
    encoded = domain.encode(value)
    assert 0 <= encoded <= 1
    again = domain.decode(encoded)
    assert again == pytest.approx(value, rel=1e-6) if isinstance(value, float) else again == value


@each_domain
def test_values_are_plain_python(domain: Domain) -> None:
    generator = np.random.default_rng(0)
    kinds = {type(domain.sample(generator)) for _ in range(300)}
    assert kinds <= {float, int, str, bool, type(None), list, dict}
    assert len(kinds) == (7 if len(domain.describe()) > 40 else 1)


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (randint(4, 8), [4, 5, 6, 7]),
        (qrandint(0, 12, 3), [0, 3, 6, 9, 12]),
        (lograndint(1, 4), [1, 2, 3]),
        (quniform(0, 0.9, 0.3), [0.0, 0.3, 0.6, 0.9]),
        (choice(["b", "a"]), ["b", "a"]),
        (grid_search([3, 1]), [3, 1]),
    ],
    ids=lambda value: value.describe() if isinstance(value, Domain) else "",
)
def test_a_finite_domain_lists_its_values_and_draws_every_one(domain: Domain, values: list[Any]) -> None:
    generator = np.random.default_rng(0)
    assert domain.values() == values
    assert domain.size == len(values)
    assert {str(domain.sample(generator)) for _ in range(400)} == {str(value) for value in values}


def test_integers_are_drawn_evenly() -> None:
    generator = np.random.default_rng(0)
    counts = np.bincount([randint(0, 4).sample(generator) for _ in range(8000)])
    assert counts.min() > 1850


def test_logarithmic_integers_are_about_even_per_octave() -> None:
    generator = np.random.default_rng(0)
    draws = np.array([lograndint(1, 1025).sample(generator) for _ in range(8000)])
    share = [np.mean((draws >= 2**k) & (draws < 2 ** (k + 1))) for k in range(2, 9)]
    assert min(share) > 0.075
    assert max(share) < 0.11


def test_quantised_values_are_clean() -> None:
    assert quniform(0, 1, 0.1).values() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_a_logarithmic_domain_is_even_in_the_exponent() -> None:
    assert loguniform(1e-4, 1e-2).decode(0.5) == pytest.approx(1e-3)
    assert loguniform(1e-4, 1e-2).encode(1e-3) == pytest.approx(0.5)


def test_a_normal_domain_has_its_mean_in_the_middle_and_no_infinite_ends() -> None:
    assert randn(3, 2).decode(0.5) == pytest.approx(3)
    assert math.isfinite(randn(3, 2).decode(0.0))
    assert math.isfinite(randn(3, 2).decode(1.0))


def test_a_choice_tells_true_from_one_and_a_list_equals_a_tuple() -> None:
    values = choice([1, True, [1, 2]])
    assert [values.index(value) for value in (1, True, [1, 2], (1, 2), 2)] == [0, 1, 2, 2, None]
    assert values.coerce((1, 2)) == [1, 2]


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (uniform(1, 0), "uniform needs low < high, got low=1 and high=0 for 'x'; swap or widen them"),
        (randint(3, 3), "randint needs low < high, got low=3 and high=3 for 'x'; swap or widen them"),
        (loguniform(0, 1), "loguniform needs low > 0, got low=0 for 'x'; use uniform or raise low"),
        (lograndint(0, 10), "lograndint needs low > 0, got low=0 for 'x'; use randint or raise low"),
        (uniform(0, math.inf), "uniform needs a finite number as high, got inf for 'x'; write a number"),
        (uniform("0", 1), "uniform needs a finite number as low, got '0' for 'x'; write a number"),  # type: ignore[arg-type]
        (quniform(0, 1, 0), "quniform needs q > 0, got q=0 for 'x'; use the step between values"),
        (
            quniform(0.05, 1, 0.1),
            "quniform needs bounds that are multiples of q, got low=0.05 with q=0.1 for 'x'; use low=0.0",
        ),
        (randn(0, 0), "randn needs sd > 0, got sd=0 for 'x'; use a constant for no spread"),
        (choice([]), "choice needs at least one value, got an empty list for 'x'; list what may be tried"),
        (choice([1, 2, 1]), "choice needs distinct values, got 1 twice for 'x'; remove one"),
        (
            choice([{"lr": uniform(0, 1)}]),
            None,
        ),
    ],
    ids=lambda value: "" if isinstance(value, Domain) else str(value)[:30],
)
def test_a_domain_that_cannot_work_is_refused(domain: Domain, message: str | None) -> None:
    with pytest.raises(SpaceError) as caught:
        domain.validate("x")
    if message is not None:
        assert str(caught.value) == message
    else:
        assert "give the inner hyperparameter a name of its own and .when(...)" in str(caught.value)


def test_a_choice_of_a_text_is_refused() -> None:
    with pytest.raises(SpaceError) as caught:
        choice("adam")
    assert str(caught.value) == "choice needs a list of values, got 'adam'; write choice(['adam'])"
