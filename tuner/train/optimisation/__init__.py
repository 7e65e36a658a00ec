"""How a step is taken: loss, optimizer, learning rate, precision, averaged weights."""

from tuner.train.optimisation.average import AveragedWeights
from tuner.train.optimisation.mixing import Mixing
from tuner.train.optimisation.optimizer import build_optimizer, parameter_groups, set_learning_rate
from tuner.train.optimisation.precision import Precision
from tuner.train.optimisation.schedule import Schedule

__all__ = [
    "AveragedWeights",
    "Mixing",
    "Precision",
    "Schedule",
    "build_optimizer",
    "parameter_groups",
    "set_learning_rate",
]
