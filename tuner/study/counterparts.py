"""What a study has for schedulers, search algorithms and settings of other libraries; for messages that refuse them.

Classes are recognised by name and module, so that none of the libraries is imported.
"""

from __future__ import annotations

LIBRARIES = {"ray", "optuna", "hyperopt", "syne_tune", "keras_tuner"}
HALVING = "scheduler=ASHA(grace_epochs={}, reduction_factor={}) with budget=Budget(max_epochs={})"
BANDS = "scheduler=HyperBand(reduction_factor=REDUCTION_FACTOR) with budget=Budget(max_epochs={})"
CLASSES = {
    "AsyncHyperBandScheduler": HALVING.format("GRACE_PERIOD", "REDUCTION_FACTOR", "MAX_T"),
    "HyperBandScheduler": BANDS.format("MAX_T"),
    "HyperBandForBOHB": "scheduler=HyperBand() with search=BOHB()",
    "MedianStoppingRule": "scheduler=MedianStopping()",
    "FIFOScheduler": "scheduler=NoEarlyStopping()",
    "SuccessiveHalvingPruner": HALVING.format("MIN_RESOURCE", "REDUCTION_FACTOR", "EPOCHS"),
    "HyperbandPruner": BANDS.format("MAX_RESOURCE"),
    "MedianPruner": "scheduler=MedianStopping()",
    "NopPruner": "scheduler=NoEarlyStopping()",
    "HyperOptSearch": "search=HyperOpt()",
    "TuneBOHB": "search=BOHB()",
    "OptunaSearch": "search=Optuna()",
    "TPESampler": "search=Optuna()",
    "BasicVariantGenerator": "search=Random(), or search=Grid() for grid_search",
    "RandomSampler": "search=Random()",
    "GridSampler": "search=Grid()",
    "GPSampler": "search=MultiFidelityGP(), which is the default",
}
ARGUMENTS = {
    **dict.fromkeys(("num_samples", "n_trials", "max_trials"), "budget=Budget(trials=...)"),
    **dict.fromkeys(("time_budget_s", "timeout"), "budget=Budget(hours=...)"),
    **dict.fromkeys(("param_space", "parameters", "config"), "space={...}"),
    **dict.fromkeys(("search_alg", "searcher", "sampler", "method"), "search=..., such as HyperOpt()"),
    **dict.fromkeys(("pruner", "early_terminate"), "scheduler=..., such as ASHA()"),
    **dict.fromkeys(("trainable", "objective", "function"), "trial=..."),
    **dict.fromkeys(("direction", "goal"), "mode='min' or mode='max'"),
    "resources_per_trial": "resources=Resources(cpus=..., gpus=...)",
    "max_concurrent_trials": "--concurrency N behind `tuner run`",
}  # of the class or call that starts a search


def counterpart(value: object) -> str | None:
    """How to write what an object of another library is; None if it is no such object, or has no counterpart."""
    kinds = value.__mro__ if isinstance(value, type) else type(value).__mro__
    theirs = [kind.__name__ for kind in kinds if kind.__module__.partition(".")[0] in LIBRARIES]
    return CLASSES.get(theirs[0]) if theirs else None  # a class may do something else than the one that it extends
