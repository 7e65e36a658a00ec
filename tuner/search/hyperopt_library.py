"""What tuner takes from hyperopt, without scipy.stats: half a second, for an algorithm that isn't used."""

from tuner.deferring import deferred

with deferred("scipy.stats"):  # of hyperopt.atpe
    from hyperopt import Domain, Trials, hp, rand, tpe

__all__ = ["Domain", "Trials", "hp", "rand", "tpe"]
