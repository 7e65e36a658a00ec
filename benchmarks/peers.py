"""Other libraries' strategies on the simulated learning curves of `search.py`, each run in its own environment.

    ENVIRONMENT/bin/python benchmarks/peers.py --lcbench DIR --only hypertune --tasks 3945,7593 [--seeds 10]

`search.py` makes the environments and calls this file; it imports nothing of tuner, so that a peer may need any
versions of what it stands on. A line of JSON for each run: task, seed, regret [80], milliseconds per suggestion.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import sys
import time
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

EPOCHS, GRACE, ETA = 52, 3, 3
SYNE_TUNE = "syne-tune[kde]==0.16.0"
SYNE_TUNE_GP = "syne-tune[gpsearchers]==0.13.0"  # the last one that has MOBSTER and HyperTune
OPTUNA = "optuna==5.0.0"
HYPEROPT = "hyperopt>=0.3,<0.4"


def load_simulator(folder: str) -> Any:
    """LCBench's simulator in that folder."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import simulator

    return simulator


def seed_of(task: str, number: int) -> int:
    """A task's own seed for its search of that number: tasks that share seeds share start points, and so luck."""
    return zlib.crc32(task.encode()) % 100_000 * 10_000 + number


def unit_of(simulator: Any, values: list[float]) -> np.ndarray:
    """The simulator's place [7] of a configuration."""
    scaled = np.where(simulator._LOG, np.log(np.maximum(values, 1e-12)), values)
    return np.clip((scaled - simulator._LOW) / (simulator._HIGH - simulator._LOW), 0, 1)


class Peer(ABC):
    """A strategy that the simulator asks and tells; `seconds` were spent on `suggestions`."""

    seconds = 0.0
    suggestions = 0

    def ask(self) -> tuple[Any, Any]:
        """A trial and its place, None for one that goes on."""
        began = time.perf_counter()
        found = self.suggest()
        if found[1] is not None:
            self.seconds += time.perf_counter() - began
            self.suggestions += 1
        return found

    @abstractmethod
    def suggest(self) -> tuple[Any, Any]:
        """What `ask` returns."""


class RandomSearch(Peer):
    """Uniform configurations, each trained to its end."""

    def __init__(self, simulator: Any, seed: int) -> None:
        self._generator, self._dimensions = np.random.default_rng(seed), len(simulator.DIMENSIONS)

    def suggest(self) -> tuple[Any, Any]:
        return self.suggestions, self._generator.random(self._dimensions)

    def report(self, trial: Any, epoch: int, value: float) -> str:
        """One epoch."""
        return "continue"


class HyperOptTPE(Peer):
    """HyperOpt as its `fmin` asks it, with its defaults (20 start-up trials); each configuration trained to its end."""

    def __init__(self, simulator: Any, seed: int) -> None:
        import hyperopt
        from hyperopt.base import Domain

        self._hyperopt, self._simulator, self._generator = hyperopt, simulator, np.random.default_rng(seed)
        space = {name: hyperopt.hp.uniform(name, 0, 1) for name, *_ in simulator.DIMENSIONS}
        self._domain, self._trials = Domain(lambda config: 0.0, space), hyperopt.Trials()

    def suggest(self) -> tuple[Any, Any]:
        numbers = self._trials.new_trial_ids(1)
        self._trials.refresh()
        documents = self._hyperopt.tpe.suggest(numbers, self._domain, self._trials, self._generator.integers(2**31 - 1))
        self._trials.insert_trial_docs(documents)
        self._trials.refresh()
        place = documents[0]["misc"]["vals"]
        return numbers[0], np.array([place[name][0] for name, *_ in self._simulator.DIMENSIONS])

    def report(self, trial: int, epoch: int, value: float) -> str:
        """One epoch."""
        if epoch >= EPOCHS:
            document = next(document for document in self._trials._dynamic_trials if document["tid"] == trial)
            document["state"], document["result"] = self._hyperopt.JOB_STATE_DONE, {"loss": -value, "status": "ok"}
            self._trials.refresh()
        return "continue"


class OptunaTPE(Peer):
    """Optuna's TPE, multivariate and with a constant liar as it advises for several workers; pruned or not."""

    def __init__(self, simulator: Any, seed: int, *, pruned: bool) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")
        pruner = optuna.pruners.HyperbandPruner(min_resource=GRACE, max_resource=EPOCHS, reduction_factor=ETA)
        self._optuna, self._simulator = optuna, simulator
        self._study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True),
            pruner=pruner if pruned else optuna.pruners.NopPruner(),
        )

    def suggest(self) -> tuple[Any, Any]:
        trial = self._study.ask()
        values = [
            trial.suggest_int(name, low, high, log=log) if integer else trial.suggest_float(name, low, high, log=log)
            for name, low, high, log, integer in self._simulator.DIMENSIONS
        ]
        return trial, unit_of(self._simulator, values)

    def report(self, trial: Any, epoch: int, value: float) -> str:
        """One epoch."""
        trial.report(value, epoch)
        if epoch >= EPOCHS:
            self._study.tell(trial, value)
            return "stop"
        if trial.should_prune():
            self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
            return "stop"
        return "continue"


class SyneTune(Peer):
    """A scheduler of Syne Tune 0.16: ASHA's stopping rule over one of its searchers."""

    def __init__(self, simulator: Any, seed: int, *, scheduler: str) -> None:
        from syne_tune.backend.trial_status import Trial
        from syne_tune.optimizer import baselines

        self._simulator, self._trial = simulator, Trial
        self._trials: list[Any] = []
        self._scheduler = getattr(baselines, scheduler)(
            syne_space(simulator),
            metric="value",
            time_attr="epoch",
            max_t=EPOCHS,
            do_minimize=False,
            random_seed=seed,
            grace_period=GRACE,
            reduction_factor=ETA,
        )
        np.random.seed(seed)

    def suggest(self) -> tuple[Any, Any]:
        config = self._scheduler.suggest().config
        trial = self._trial(trial_id=len(self._trials), config=config, creation_time=None)
        self._trials.append(trial)
        self._scheduler.on_trial_add(trial)
        return trial.trial_id, unit_of(self._simulator, [config[name] for name, *_ in self._simulator.DIMENSIONS])

    def report(self, trial: int, epoch: int, value: float) -> str:
        """One epoch."""
        return str(self._scheduler.on_trial_result(self._trials[trial], {"value": value, "epoch": epoch})).lower()


class SyneTuneGP(Peer):
    """A Gaussian-process scheduler of Syne Tune 0.13, with promotion, in one bracket: with four HyperTune did worse."""

    def __init__(self, simulator: Any, seed: int, *, scheduler: str) -> None:
        from syne_tune.backend.trial_status import Trial
        from syne_tune.optimizer import baselines

        self._simulator, self._trial = simulator, Trial
        self._trials: list[Any] = []
        self._scheduler = getattr(baselines, scheduler)(
            {**syne_space(simulator), "epochs": EPOCHS},
            metric="value",
            resource_attr="epoch",
            max_resource_attr="epochs",
            mode="max",
            type="promotion",
            grace_period=GRACE,
            reduction_factor=ETA,
            random_seed=seed,
            search_options={"debug_log": False},
        )

    def suggest(self) -> tuple[Any, Any]:
        number = len(self._trials)
        suggestion = self._scheduler.suggest(number)
        if not suggestion.spawn_new_trial_id:
            return int(suggestion.checkpoint_trial_id), None
        trial = self._trial(trial_id=number, config=suggestion.config, creation_time=None)
        self._trials.append(trial)
        self._scheduler.on_trial_add(trial)
        return number, unit_of(self._simulator, [trial.config[name] for name, *_ in self._simulator.DIMENSIONS])

    def report(self, trial: int, epoch: int, value: float) -> str:
        """One epoch."""
        result = {"value": value, "epoch": epoch}
        decision = str(self._scheduler.on_trial_result(self._trials[trial], result)).lower()
        if epoch >= EPOCHS:
            self._scheduler.on_trial_complete(self._trials[trial], result)
        return decision


def syne_space(simulator: Any) -> dict[str, Any]:
    """The search space in Syne Tune's terms."""
    from syne_tune.config_space import lograndint, loguniform, randint, uniform

    kinds = {(True, True): lograndint, (True, False): loguniform, (False, True): randint, (False, False): uniform}
    return {name: kinds[log, integer](low, high) for name, low, high, log, integer in simulator.DIMENSIONS}


PEERS: dict[str, tuple[str, Callable[[Any, int], Peer]]] = {
    "hypertune": (SYNE_TUNE_GP, partial(SyneTuneGP, scheduler="HyperTune")),
    "mobster": (SYNE_TUNE_GP, partial(SyneTuneGP, scheduler="MOBSTER")),
    "syne_tune_asha": (SYNE_TUNE, partial(SyneTune, scheduler="ASHA")),
    "syne_tune_bohb": (SYNE_TUNE, partial(SyneTune, scheduler="BOHB")),
    "optuna_tpe_hyperband": (OPTUNA, partial(OptunaTPE, pruned=True)),
    "optuna_tpe": (OPTUNA, partial(OptunaTPE, pruned=False)),
    "hyperopt": (HYPEROPT, HyperOptTPE),
    "random": ("numpy", RandomSearch),
}


def measure(job: tuple[str, str, str, int]) -> dict[str, Any]:
    """One strategy on one task, its search of that number."""
    folder, name, task, number = job
    seed = seed_of(task, number)
    logging.disable(logging.WARNING)
    simulator = load_simulator(folder)
    strategy = PEERS[name][1](simulator, seed)
    regret = simulator.simulate(strategy, task)
    milliseconds = 1000 * strategy.seconds / max(strategy.suggestions, 1)
    return {"task": task, "seed": seed, "regret": regret.tolist(), "ms": milliseconds}


def main() -> None:
    """Measure one strategy and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lcbench", type=Path, required=True)
    parser.add_argument("--only", choices=PEERS, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", required=True, type=lambda text: text.split(","))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    folder = str(options.lcbench.resolve())
    jobs = [(folder, options.only, task, seed) for task in options.tasks for seed in range(options.seeds)]
    with multiprocessing.get_context("spawn").Pool() as pool:
        for result in pool.imap(measure, jobs):
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
