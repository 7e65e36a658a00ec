"""Search spaces: domains, and mappings from names to domains. Imports only numpy."""

from tuner.space.choices import Choice, GridSearch
from tuner.space.constructors import (
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
from tuner.space.domain import Domain
from tuner.space.functions import SampleFrom
from tuner.space.numeric import Float, Integer, Normal
from tuner.space.record import recorded_space, space_record
from tuner.space.space import LARGEST_LISTED, Config, Constraint, NothingDrawn, Space

__all__ = [
    "LARGEST_LISTED",
    "Choice",
    "Config",
    "Constraint",
    "Domain",
    "Float",
    "GridSearch",
    "Integer",
    "Normal",
    "NothingDrawn",
    "SampleFrom",
    "Space",
    "choice",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "recorded_space",
    "sample_from",
    "space_record",
    "uniform",
]
