"""What tuner takes from hyperopt, imported without what takes half a second and isn't used.

That is scipy.stats, of hyperopt's adaptive TPE, and numpy.f2py, which scipy takes along with all other names of numpy.
"""

from tuner.deferring import deferred

with deferred("scipy.stats", "numpy.f2py"):
    from hyperopt import Domain, Trials, hp, rand, tpe

__all__ = ["Domain", "Trials", "hp", "rand", "tpe"]
