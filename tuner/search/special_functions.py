"""What models take from scipy.special, loaded without numpy.f2py, which scipy takes with all other names of numpy.

A search loads it beforehand, while Ray starts; else it comes with the model's first suggestion.
"""

from tuner.deferring import deferred

with deferred("numpy.f2py"):
    from scipy.special import erf, ndtr, ndtri

__all__ = ["erf", "ndtr", "ndtri"]
