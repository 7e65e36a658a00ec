"""The functions of scipy.linalg that models use, loaded without numpy.f2py, which scipy would import with numpy's
names.
"""

from tuner.deferring import deferred

with deferred("numpy.f2py"):
    from scipy.linalg import cho_factor, cho_solve, solve_triangular

__all__ = ["cho_factor", "cho_solve", "solve_triangular"]
