import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import SpaceError
from tuner.space import (
    Domain,
    Normal,
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
    sample_from,
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
            "quniform needs bounds that are multiples of q, got low=0.05 with q=0.1 for 'x'; use low=0.1",
        ),
        (randn(0, 0), "randn needs sd > 0, got sd=0 for 'x'; use a constant for no spread"),
        (choice([]), "choice needs at least one value, got an empty list for 'x'; list what may be tried"),
        (choice([1, 2, 1]), "choice needs distinct values, got 1 twice for 'x'; remove one"),
        (
            choice([{"lr": uniform(0, 1)}]),
            f"choice needs plain values, got a domain inside { ({'lr': uniform(0, 1)})!r} for 'x'; give the inner "
            "hyperparameter a name of its own and .when(...)",
        ),
        (uniform(2, 2), "uniform needs low < high, got low=2 and high=2 for 'x'; swap or widen them"),
        (uniform(math.nan, 1), "uniform needs a finite number as low, got nan for 'x'; write a number"),
        (uniform(0, True), "uniform needs a finite number as high, got True for 'x'; write a number"),
        (loguniform(-1, 1), "loguniform needs low > 0, got low=-1 for 'x'; use uniform or raise low"),
        (
            qloguniform(1e-12, 10, 1),
            "qloguniform needs bounds that are multiples of q, got low=1e-12 with q=1 for 'x'; use low=1.0",
        ),
        (qloguniform(0, 1, 0.1), "qloguniform needs low > 0, got low=0 for 'x'; use quniform or raise low"),
        (qlograndint(0, 8, 2), "qlograndint needs low > 0, got low=0 for 'x'; use qrandint or raise low"),
        (
            quniform(0, 0.25, 0.1),
            "quniform needs bounds that are multiples of q, got high=0.25 with q=0.1 for 'x'; use high=0.2",
        ),
        (quniform(0, 1, "a"), "quniform needs q > 0, got q='a' for 'x'; use the step between values"),  # type: ignore[arg-type]
        (qloguniform(1, 2, -1), "qloguniform needs q > 0, got q=-1 for 'x'; use the step between values"),
        (randint(0, "5"), "randint needs a finite number as high, got '5' for 'x'; write a number"),  # type: ignore[arg-type]
        (randint(0, None), "randint needs a finite number as high, got None for 'x'; write a number"),  # type: ignore[arg-type]
        (uniform(0, 10**400), f"uniform needs a finite number as high, got 1{'0' * 298}… for 'x'; write a number"),
        (randint(0.5, 5), "randint needs whole numbers, got low=0.5 for 'x'; use uniform or round it"),  # type: ignore[arg-type]
        (lograndint(1, 5.5), "lograndint needs whole numbers, got high=5.5 for 'x'; use uniform or round it"),  # type: ignore[arg-type]
        (qrandint(0, 5.5, 2), "qrandint needs whole numbers, got high=5.5 for 'x'; use quniform or round it"),  # type: ignore[arg-type]
        (qrandint(0, 10, 0), "qrandint needs q > 0, got q=0 for 'x'; use the step between values"),
        (qrandint(0, 10, 2.5), "qrandint needs a whole number as q, got q=2.5 for 'x'; use quniform or round it"),  # type: ignore[arg-type]
        (
            qrandint(4, 5, 3),
            "qrandint needs a multiple of q from low to high, got low=4 and high=5 with q=3 for 'x'; widen them or "
            "lower q",
        ),
        (qrandint(3, 3, 3), "qrandint needs low < high, got low=3 and high=3 for 'x'; swap or widen them"),
        (qrandint(3, 3, 1), "qrandint needs low < high, got low=3 and high=3 for 'x'; swap or widen them"),
        (randn(math.inf, 1), "randn needs a finite mean, got mean=inf for 'x'; write a number"),
        (qrandn(0, -1, 0.5), "qrandn needs sd > 0, got sd=-1 for 'x'; use a constant for no spread"),
        (qrandn(0, 1, 0), "qrandn needs q > 0, got q=0 for 'x'; use the step between values"),
        (grid_search([]), "grid_search needs at least one value, got an empty list for 'x'; list what may be tried"),
        (grid_search([[1], [1]]), "grid_search needs distinct values, got [1] twice for 'x'; remove one"),
        (choice([math.nan, math.nan]), "choice needs distinct values, got nan twice for 'x'; remove one"),
        (sample_from(3), "sample_from needs a function of the configuration, got 3 for 'x'; pass one"),  # type: ignore[arg-type]
    ],
    ids=lambda value: "" if isinstance(value, Domain) else str(value)[:30],
)
def test_a_domain_that_cannot_work_is_refused(domain: Domain, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        domain.validate("x")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("constructor", "values", "message"),
    [
        (choice, "adam", "choice needs a list of values, got 'adam'; write choice(['adam'])"),
        (choice, 3, "choice needs a list of values, got 3; write choice([3])"),
        (grid_search, b"x", "grid_search needs a list of values, got b'x'; write grid_search([b'x'])"),
        (grid_search, None, "grid_search needs a list of values, got None; write grid_search([None])"),
    ],
)
def test_a_choice_of_what_is_no_list_is_refused(
    constructor: Callable[[Any], Domain], values: Any, message: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        constructor(values)
    assert str(caught.value) == message


@pytest.mark.parametrize("domain", [uniform(0, 1), randn(), sample_from(len)], ids=lambda domain: domain.describe())
def test_listing_an_infinite_domain_is_refused(domain: Domain) -> None:
    assert domain.size == math.inf
    with pytest.raises(SpaceError) as caught:
        domain.values()
    assert str(caught.value) == (
        f"a grid needs a finite set of values, got {domain.describe()}; use choice, grid_search or a q… domain"
    )


def test_a_function_has_no_place_in_the_unit_cube() -> None:
    domain = sample_from(len)
    assert (domain.encodable, domain.contains("anything"), domain.describe()) == (False, True, "sample_from(len)")
    assert math.isnan(domain.encode(3))
    with pytest.raises(SpaceError) as caught:
        domain.decode(0.5)
    assert str(caught.value) == "sample_from has no place in the unit cube, got one to decode; use Random"


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        (uniform(0, 1), [0, 1, 0.5, 1.0], [-1e-9, 1.1, math.nan, math.inf, True, "0.5", None]),
        (loguniform(0.1, 1), [0.1, 1], [0, 0.09, 1.01]),
        (quniform(0, 1, 0.1), [0, 0.7, 0.7000000000000001, 0.30000000000000004, 1], [0.75, 1.1, -0.1, True]),
        (randint(1, 4), [1, 3, 2.0], [0, 4, 2.5, True, "2"]),
        (lograndint(1, 4), [1, 3], [0, 4]),
        (qrandint(0, 6, 3), [0, 3, 6, 6.0], [1, 7, 9, -3]),
        (qrandint(1, 4, 1), [1, 3], [0, 4]),
        (qrandint(-4, 10, 3), [-3, 0, 9], [-4, 10, 12, 1]),
        (randn(0, 1), [-100, 0.0, 5], [math.nan, math.inf, True, "0"]),
        (qrandn(0, 1, 0.5), [-1.5, 2, 0], [0.25, math.inf]),
        (choice([1, "a", None]), [1, 1.0, "a", None], [2, True, "1", "b"]),
        (choice([True, 0.5]), [True, 0.5], [1, 1.0, False]),
    ],
    ids=lambda value: value.describe() if isinstance(value, Domain) else "",
)
def test_bounds_are_those_of_ray_and_types_count(domain: Domain, inside: list[Any], outside: list[Any]) -> None:
    assert [value for value in inside if not domain.contains(value)] == []
    assert [value for value in outside if domain.contains(value)] == []


@pytest.mark.parametrize(
    ("domain", "given_value", "plain"),
    [
        (uniform(0, 5), 3, 3.0),
        (quniform(0, 1, 0.1), 0.7000000000000001, 0.7),
        (quniform(0, 30, 10), 20, 20.0),
        (randint(0, 5), 3.0, 3),
        (qrandint(0, 10, 5), 5.0, 5),
        (randn(), 2, 2.0),
        (qrandn(0, 1, 0.1), 0.30000000000000004, 0.3),
        (choice([0.5, 2]), 2.0, 2),
    ],
    ids=str,
)
def test_coercing_gives_the_type_that_sampling_gives(domain: Domain, given_value: float, plain: float) -> None:
    assert (domain.coerce(given_value), type(domain.coerce(given_value))) == (plain, type(plain))


@pytest.mark.parametrize(
    ("domain", "units"),
    [
        (randint(0, 4), {0: 0.125, 1: 0.375, 2: 0.625, 3: 0.875}),
        (qrandint(-4, 10, 3), {-3: 0.1, 0: 0.3, 3: 0.5, 6: 0.7, 9: 0.9}),
        (choice(["a", "b"]), {"a": 0.25, "b": 0.75}),
        (quniform(0, 1, 0.25), {0.0: 0.1, 0.25: 0.3, 0.5: 0.5, 0.75: 0.7, 1.0: 0.9}),
        (quniform(32, 96, 32), {32.0: 1 / 6, 64.0: 0.5, 96.0: 5 / 6}),
        (uniform(-1, 3), {-1.0: 0, 0.0: 0.25, 3.0: 1}),
        (randn(3, 2), {3.0: 0.5, 5.0: 0.8413447460685429}),
    ],
    ids=lambda value: value.describe() if isinstance(value, Domain) else "",
)
def test_encoding_by_hand(domain: Domain, units: dict[Any, float]) -> None:
    assert {value: domain.encode(value) for value in units} == pytest.approx(units)
    assert {value: domain.decode(unit) for value, unit in units.items()} == pytest.approx({v: v for v in units})


@pytest.mark.parametrize("domain", [d for d in DOMAINS.values() if not isinstance(d, Normal)], ids=Domain.describe)
def test_a_unit_outside_of_the_interval_is_clipped(domain: Domain) -> None:
    assert domain.decode(-3) == domain.decode(0)
    assert domain.decode(7) == domain.decode(1)


@given(first=st.integers(-1000, 1000), steps=st.integers(1, 300), digits=st.integers(0, 5), q=st.integers(1, 25))
def test_steps_are_clean_all_there_and_told_apart(first: int, steps: int, digits: int, q: int) -> None:
    step = float(Decimal(q).scaleb(-digits))
    expected = [float(Decimal(q).scaleb(-digits) * multiple) for multiple in range(first, first + steps + 1)]
    domain = quniform(expected[0], expected[-1], step)
    domain.validate("x")
    assert domain.values() == expected
    assert domain.size == steps + 1
    assert [domain.decode(domain.encode(value)) for value in expected] == expected
    assert all(domain.contains(value) for value in expected)
    assert all(domain.contains(multiple * step) for multiple in range(first, first + steps + 1))
    assert not domain.contains(expected[0] - step)
    assert not domain.contains(expected[-1] + step)
    assert not domain.contains(expected[0] + step / 2)


@given(first=st.integers(-200, 200), width=st.integers(1, 400), q=st.integers(1, 20), log=st.booleans())
def test_every_integer_has_a_bin_of_its_own(first: int, width: int, q: int, log: bool) -> None:
    low = abs(first) + 1 if log else first
    domain = (qlograndint if log else qrandint)(low, low + width, q)
    expected = [value for value in range(low, low + width + (q > 1)) if value % q == 0]
    if not expected:
        return
    domain.validate("x")
    assert domain.values() == expected
    assert domain.size == len(expected)
    assert [domain.decode(domain.encode(value)) for value in expected] == expected
    assert [domain.decode(0), domain.decode(1)] == [expected[0], expected[-1]]


@given(first=st.integers(-200, 200), steps=st.integers(1, 40), q=st.sampled_from([32, 1, 0.25, 0.1, 1e-4]))
def test_every_step_has_an_equal_share_of_the_unit_interval(first: int, steps: int, q: float) -> None:
    domains: list[Domain] = [quniform(first * q, (first + steps) * q, q)]
    if q > 1:
        domains.append(qrandint(int(first * q), int((first + steps) * q), int(q)))
    for domain in domains:
        parts = 20 * int(domain.size)
        drawn = Counter(domain.decode((part + 0.5) / parts) for part in range(parts))
        assert drawn == dict.fromkeys(domain.values(), 20)
        assert domain.snap((np.arange(parts) + 0.5) / parts).tolist() == pytest.approx(
            [domain.encode(value) for value in domain.values() for _ in range(20)]
        )


@given(first=st.integers(1, 50), steps=st.integers(1, 40), q=st.sampled_from([32, 1, 0.25, 0.1, 1e-4]))
def test_a_steps_share_of_a_logarithmic_scale_is_what_lies_nearest_to_it(first: int, steps: int, q: float) -> None:
    parts, last = 4000, first + steps
    for domain in (qloguniform(first * q, last * q, q), qlograndint(first * 3, last * 3, 3)):
        drawn = Counter(domain.decode((part + 0.5) / parts) for part in range(parts))
        for step, value in enumerate(domain.values(), first):
            share = math.log((step + 0.5) / (step - 0.5)) / math.log((last + 0.5) / (first - 0.5))
            assert drawn[value] == pytest.approx(parts * share, abs=1.01)


@given(mean=st.floats(-3, 3), sd=st.floats(0.5, 2), q=st.sampled_from([0.25, 1]))
def test_a_steps_share_of_a_normal_distribution_is_what_lies_nearest_to_it(mean: float, sd: float, q: float) -> None:
    domain, curve, parts = qrandn(mean, sd, q), NormalDist(mean, sd), 2000
    drawn = Counter(domain.decode((part + 0.5) / parts) for part in range(parts))
    for value, count in drawn.items():
        assert count == pytest.approx(parts * (curve.cdf(value + q / 2) - curve.cdf(value - q / 2)), abs=1.01)


@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), units=st.lists(st.floats(0, 1), min_size=2))
def test_a_larger_unit_is_never_a_smaller_value(low: float, width: float, units: list[float]) -> None:
    for domain in (uniform(low, low + width), loguniform(abs(low) + 1, abs(low) + 1 + width), randn(low, width)):
        values = [domain.decode(unit) for unit in sorted(units)]
        assert values == sorted(values)
        assert all(domain.contains(value) for value in values)


def test_bounds_of_floats_that_are_not_clean_are_taken_for_what_was_meant() -> None:
    domain = quniform(0.1 * 3, 0.1 * 9, 0.1)
    assert domain.values() == [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert all(domain.contains(value) for value in domain.values())


def test_conditions_make_a_new_domain_and_leave_the_old_one() -> None:
    domain = loguniform(1e-4, 1e-1)
    conditional = domain.when(optimizer="sgd", layers=[1, 2])
    assert domain.conditions == ()
    assert conditional.conditions == (("optimizer", ("sgd",)), ("layers", (1, 2)))
    assert (conditional.describe(), type(conditional)) == (domain.describe(), type(domain))


def test_an_option_is_given_back_as_the_object_that_was_listed() -> None:
    option = {"layers": [64, 64]}
    assert choice([option, None]).decode(0.1) is option
    assert choice(iter([1, 2])).options == (1, 2)
