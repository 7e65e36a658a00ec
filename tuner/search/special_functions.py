"""The functions of scipy.special that models use, loaded without numpy.f2py, which scipy would import with numpy's
names.

A search loads it while Ray starts; otherwise it is loaded with the model's first suggestion.
"""

from tuner.deferring import deferred

with deferred("numpy.f2py"):
    from scipy.special import erf, ndtr, ndtri

__all__ = ["erf", "ndtr", "ndtri"]
