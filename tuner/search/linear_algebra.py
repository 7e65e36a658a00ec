"""What models take from scipy.linalg, loaded without numpy.f2py, which scipy takes with all other names of numpy."""

from tuner.deferring import deferred

with deferred("numpy.f2py"):
    from scipy.linalg import cho_factor, cho_solve, solve_triangular

__all__ = ["cho_factor", "cho_solve", "solve_triangular"]
