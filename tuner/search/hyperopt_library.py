"""The parts of hyperopt that tuner uses, imported without slow modules that aren't needed, or that only the model
needs.

scipy.stats is only used by hyperopt's adaptive TPE; scipy.special only by the model, not by the random configurations
at a search's start; networkx to check that hyperopt's expressions have no cycle. Ours have none, and hyperopt's own
depth-first order is topological, too. tqdm draws a progress bar for hyperopt's own loop.
"""

from tuner.deferring import deferred

with deferred("scipy.stats", "networkx", functions={"scipy.special": "erf", "tqdm": "tqdm"}):
    from hyperopt import Domain, Trials, hp, pyll, rand, tpe, vectorize

pyll.toposort = vectorize.toposort = pyll.dfs

__all__ = ["Domain", "Trials", "hp", "rand", "tpe"]
