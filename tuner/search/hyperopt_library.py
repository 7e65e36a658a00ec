"""The parts of hyperopt that tuner uses, imported without modules that load slowly and aren't used, or only by the
model.

Unused is scipy.stats, of hyperopt's adaptive TPE. scipy.special serves the model alone, which the random configurations
at a search's start do without. networkx serves hyperopt's check that its expressions have no circle, as ours have none:
its own depth-first order is topological, too. tqdm draws a bar for the loop of hyperopt's own.
"""

from tuner.deferring import deferred

with deferred("scipy.stats", "networkx", functions={"scipy.special": "erf", "tqdm": "tqdm"}):
    from hyperopt import Domain, Trials, hp, pyll, rand, tpe, vectorize

pyll.toposort = vectorize.toposort = pyll.dfs

__all__ = ["Domain", "Trials", "hp", "rand", "tpe"]
