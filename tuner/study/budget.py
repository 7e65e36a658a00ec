"""What a search may spend, and the limits that end it; only `disk_gb` doesn't end it, see `tuner.loop.room`.

Each limit is one object: its name, its option, what is spent of it, when it is reached, and its sentences. The command
line, `Study.with_options`, `resume`, the search, report and terminal use LIMITS: a new limit is a field of `Budget` and
a row there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import InitVar, dataclass, replace
from typing import Any, Protocol

import numpy as np

from tuner.errors import StudyError, did_you_mean, setting, shown
from tuner.space.mode import Mode
from tuner.space.values import is_number

DEFAULT_MAX_EPOCHS = 10
SECONDS_PER_HOUR = 3600
MINUTES_PER_HOUR = 60
MOST_COUNTED = 1e9  # larger numbers are written with a power of ten


class _LeftOut(int):
    """A number that the user didn't write, so that other settings override it."""


DEFAULT_TRIALS: int = _LeftOut(20)


@dataclass(frozen=True)
class Budget:
    """How much a search may spend; it ends at whichever limit comes first.

    `trials` counts configurations, None means as many as the space or the other limits allow. If it is left out it is
    20, or None with `total_epochs`: then as many trials start as fit into these epochs. `max_epochs` is the length of a
    trial. Once one of these is reached no trial goes on beyond its running epoch: `hours` of wall-clock time;
    `device_hours`, in which each running trial counts with its GPUs, or its CPUs if it has none; `total_epochs` of all
    trials together; `target`, a value of the metric. `min_improvement`, in units of the metric: no more trials start
    once no configuration is expected to improve on the best by more; this needs a search with a model of the metric,
    such as `MultiFidelityGP()`. `disk_gb`, in units of 10^9 bytes, limits the run folder. It doesn't end the search:
    the least useful checkpoints are deleted, and if the needed ones take more, the search pauses. `minutes` is an
    alternative to `hours`, and `full_trainings` to `total_epochs`: as many epochs as so many trials of `max_epochs`.
    """

    trials: int | None = DEFAULT_TRIALS
    max_epochs: int = DEFAULT_MAX_EPOCHS
    hours: float | None = None
    device_hours: float | None = None
    total_epochs: int | None = None
    target: float | None = None
    min_improvement: float | None = None
    disk_gb: float | None = None
    minutes: InitVar[float | None] = None
    full_trainings: InitVar[int | None] = None

    def __post_init__(self, minutes: float | None, full_trainings: int | None) -> None:
        """Refuse limits that leave nothing to do."""
        for name, value in vars(self).items():
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())
        COUNT.check("Budget.max_epochs", self.max_epochs)
        if self.max_epochs > LONGEST_TRIAL:
            raise StudyError(
                f"Budget.max_epochs needs at most {LONGEST_TRIAL:,}, got {shown(self.max_epochs)}; report less often"
            )
        if minutes is not None:
            POSITIVE.check("Budget.minutes", minutes)
            self._take("hours", hours_of(minutes), "minutes", minutes)
        if isinstance(full_trainings, np.generic):
            full_trainings = full_trainings.item()
        if full_trainings is not None:
            COUNT.check("Budget.full_trainings", full_trainings)
            self._take("total_epochs", full_trainings * self.max_epochs, "full_trainings", full_trainings)
        if isinstance(self.trials, _LeftOut):  # later options override it like any other field
            object.__setattr__(self, "trials", int(self.trials) if self.total_epochs is None else None)
        for limit, value in limits_of(vars(self)):
            limit.quantity.check(f"Budget.{limit.name}", value)

    def _take(self, name: str, value: float, other: str, given: float) -> None:
        """Set a limit that the user gave under another name."""
        if (known := getattr(self, name)) is not None:
            raise StudyError(
                f"Budget takes {name} or {other}, got {name}={shown(known)} and {other}={shown(given)}; "
                "leave one of them out"
            )
        object.__setattr__(self, name, value)


def hours_of(minutes: float) -> float:
    """Minutes in hours, rounded to a readable number of digits."""
    return float(f"{minutes / MINUTES_PER_HOUR:.4g}")


# What a limit is


@dataclass(frozen=True)
class Quantity:
    """The numbers that a limit may have."""

    rule: str
    fix: str
    allowed: Callable[[float], bool]
    whole: bool = False

    def check(self, name: str, value: object) -> None:
        """Raise StudyError, which names the setting, for anything else than such a number."""
        if not is_number(value) or (self.whole and not isinstance(value, int)) or not self.allowed(value):
            raise StudyError(f"{name} needs {self.rule}, got {shown(value)}; {self.fix}")

    def parse(self, text: str) -> float:
        """The number in a command line's text. Raises ValueError with rule and value."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not self.allowed(value) or (self.whole and value != int(value)):
            raise ValueError(f"needs {self.rule}, got {text!r}")
        return int(value) if self.whole else value


LONGEST_TRIAL = 1_000_000  # epochs: early stopping that compares trials after every epoch makes a list of them
COUNT = Quantity("a whole number of at least 1", "use 1 or more", lambda value: value >= 1, whole=True)
NATURAL = Quantity("a whole number of at least 0", "use 0", lambda value: value >= 0, whole=True)
AMOUNT = Quantity("a number of at least 0", "use 0", lambda value: value >= 0)
POSITIVE = Quantity("a number above 0", "leave it out for no limit", lambda value: value > 0)
OF_THE_METRIC = Quantity("a value of the metric", "leave it out for no limit", lambda _: True)


class Record(Protocol):
    """What limits ask of a run's record."""

    @property
    def configurations(self) -> int: ...
    @property
    def best_value(self) -> float | None: ...
    def search_epochs(self) -> int: ...
    def device_hours(self, devices: float, now: float | None = None) -> float: ...


@dataclass(frozen=True)
class Spending:
    """What a run has spent when its limits are looked at.

    `seconds` is how long drivers have worked on it, `now` is in seconds since 1970; `epochs` and `value` are of a
    report that the record doesn't hold yet. `kept_epochs` and `kept_seconds` are reserved for work after the search.
    """

    record: Record
    devices: float
    seconds: float
    now: float
    mode: Mode
    epochs: int = 0
    value: float | None = None
    kept_epochs: int = 0
    kept_seconds: float = 0.0

    @property
    def best_value(self) -> float:
        """The best value of the metric, NaN for none."""
        values = [v for v in (self.value, self.record.best_value) if v is not None and math.isfinite(v)]
        return (max if self.mode == "max" else min)(values, default=math.nan)


@dataclass(frozen=True)
class Limit:
    """One limit of a budget, by the name of its field.

    `ending` says that it ended a search ("the search ended as …") and `sooner` that it would; both contain {limit}, in
    the form of `told`, and {metric}. `beyond` is what another value needs to be for a run that has reached it.
    `reached` takes the limit and what was spent; None if it doesn't end running trials.
    """

    name: str
    quantity: Quantity
    metavar: str
    help: str
    ending: str
    sooner: str | None = None
    beyond: str = "above"
    spent: Callable[[Spending], float] | None = None
    reached: Callable[[float, Spending], bool] | None = None
    flag: str | None = None
    told: Callable[[Any], str] = str

    @property
    def option(self) -> str:
        """Its command-line option."""
        return self.flag or "--" + self.name.replace("_", "-")

    def refusal(self, limit: float, spending: Spending) -> str:
        """Why a run that has reached the limit can't go on, and what would let it."""
        spent = math.nan if self.spent is None else self.spent(spending)
        without = math.nan if self.spent is None else self.spent(replace(spending, kept_epochs=0, kept_seconds=0.0))
        kept = ", with what is kept to train the winner again" if spent > without else ""
        option = setting(self.option, name=self.name)
        return (
            f"{option} counts the whole run and must be {self.beyond} the {self.told(_read_well(spent))} that it has "
            f"already used{kept}, got {self.told(_read_well(limit))}; use {self._another(spent)}"
        )

    def _another(self, spent: float) -> str:
        """The option with a value for as much again; for a target, whose value only the user can know, without one."""
        if self.beyond != "above" or not spent > 0:
            return f"{setting(self.option, name=self.name)} with another value"
        again = str(math.ceil(2 * spent)) if self.quantity is COUNT else f"{float(f'{2 * spent:.2g}'):g}"
        return f"{setting(self.option, again, self.name)} for as much again"


def _read_well(value: float) -> float:
    """A number with a readable number of digits."""
    return int(value) if abs(value) < MOST_COUNTED and float(value).is_integer() else float(f"{value:.4g}")


# The limits


def _hours(spending: Spending) -> float:
    return (spending.seconds + spending.kept_seconds) / SECONDS_PER_HOUR


def _in_hours(limit: Any) -> str:
    """The time in a user's words: 5 minutes, not 0.08333 hours."""
    if not is_number(limit) or limit >= 1 or limit == 0:
        return f"{limit} hours"
    return f"{MINUTES_PER_HOUR * limit:.3g} minutes"


def _device_hours(spending: Spending) -> float:
    kept = spending.devices * spending.kept_seconds / SECONDS_PER_HOUR
    return spending.record.device_hours(spending.devices, spending.now) + kept


def _total_epochs(spending: Spending) -> float:
    return spending.record.search_epochs() + spending.epochs + spending.kept_epochs


def _as_good_as(target: float, spending: Spending) -> bool:
    best = spending.best_value
    return best >= target if spending.mode == "max" else best <= target


LIMITS: tuple[Limit, ...] = (
    Limit(
        "trials",
        COUNT,
        "N",
        "number of configurations to try",
        ending="every trial was run",
        spent=lambda spending: spending.record.configurations,
    ),
    Limit(
        "hours",
        POSITIVE,
        "H",
        "wall-clock time of the search",
        ending="the limit of {limit} was reached",
        sooner="{limit}",
        told=_in_hours,
        spent=_hours,
        reached=lambda limit, spending: _hours(spending) >= limit,
    ),
    Limit(
        "device_hours",
        POSITIVE,
        "H",
        "hours of all trials together, times their GPUs (or CPUs, without a GPU)",
        ending="the limit of {limit} device hours was reached",
        sooner="{limit} device hours",
        spent=_device_hours,
        reached=lambda limit, spending: _device_hours(spending) >= limit,
    ),
    Limit(
        "total_epochs",
        COUNT,
        "N",
        "epochs of all trials together",
        ending="the limit of {limit} epochs was reached",
        sooner="{limit} epochs in all",
        spent=_total_epochs,
        reached=lambda limit, spending: _total_epochs(spending) >= limit,
    ),
    Limit(
        "target",
        OF_THE_METRIC,
        "VALUE",
        "end the search when the metric reaches this value",
        ending="{metric} reached the target of {limit}",
        sooner="{metric} {limit}",
        beyond="better than",
        spent=lambda spending: spending.best_value,
        reached=_as_good_as,
    ),
    Limit(
        "min_improvement",
        POSITIVE,
        "DELTA",
        "end the search when no configuration is expected to improve the metric by more",
        ending="no configuration was expected to improve {metric} by {limit} or more",
        sooner="no expected improvement of at least {limit}",
    ),
    Limit(
        "disk_gb",
        POSITIVE,
        "GB",
        "disk space that the run folder may take; ends no search",
        ending="the limit of {limit} GB of disk was reached",
        flag="--disk",
    ),
)
GB = 10**9  # bytes
NAMES = tuple(limit.name for limit in LIMITS)


def limits_of(budget: Mapping[str, Any]) -> Iterator[tuple[Limit, Any]]:
    """The limits that a budget sets, with their values; given as its fields, or as the run folder keeps them."""
    return ((limit, budget[limit.name]) for limit in LIMITS if budget.get(limit.name) is not None)


def check_names(limits: Mapping[str, object]) -> None:
    """Raise StudyError for a name that is not a limit's."""
    for name in limits:
        if name not in NAMES:
            raise StudyError(f"a search has no limit {name!r}; {did_you_mean(name, NAMES)}")


def ending(reason: str, budget: Mapping[str, Any], metric: str) -> str | None:
    """The words for a limit that ended the search, as in "the search ended as …"; None for any other reason."""
    found = next((limit for limit in LIMITS if limit.name == reason), None)
    return None if found is None else found.ending.format(limit=found.told(budget.get(reason)), metric=metric)


def endings_beside_trials(budget: Budget, metric: str) -> list[str]:
    """What would end the search before all trials have run: "2.0 hours", "40 epochs in all"."""
    return [
        limit.sooner.format(limit=limit.told(value), metric=metric)
        for limit, value in limits_of(vars(budget))
        if limit.sooner
    ]
