"""Search strategies on simulated learning curves: regret after 25, 50 and 100 % of the budget, and time per suggestion.

    python benchmarks/search.py --lcbench DIR [--quick] [--seeds 10] [--tasks development|others] [--only default,bohb]

DIR holds LCBench's surrogate with its `simulator.py`, which needs numpy and onnxruntime (`pip install .[bench]`): 8
development tasks (or the 26 others, for checking what was chosen on those), 4 workers, 1,040 epochs in all. It measures
the classes that a real search uses: `Proposals` over a searcher, and the early stopper of a scheduler, asked and told
in the order in which `SearchLoop` does. Each task has seeds of its own, and errors are clustered: the mean of a task's
searches counts as one value, and the standard error is that of these means. Beside them other libraries, from
`peers.py`, each in its own environment, made at first use under `.peers/`.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import pickle
import platform
import re
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from peers import EPOCHS, PEERS, load_simulator, seed_of, unit_of

from tuner import (
    ASHA,
    BOHB,
    Budget,
    External,
    History,
    HyperBand,
    HyperOpt,
    MultiFidelityGP,
    Random,
    Study,
    lograndint,
    loguniform,
    randint,
    uniform,
)
from tuner.loop.first_configurations import of_portfolio
from tuner.machine.hardware import this_machine
from tuner.schedule import Decision, Scheduler
from tuner.search import EarlierStudy, EarlierTrial, Problem, Proposals, SearchAlgorithm, learn
from tuner.space import Config, Space

SPACE = Space(
    {
        "batch_size": lograndint(16, 513),
        "learning_rate": loguniform(1e-4, 1e-1),
        "momentum": uniform(0.1, 0.99),
        "weight_decay": uniform(1e-5, 1e-1),
        "num_layers": randint(1, 6),
        "max_units": lograndint(64, 1025),
        "max_dropout": uniform(0.0, 1.0),
    }
)


class Product:
    """A study of ours as the simulator's strategy: the search algorithm and the scheduler of a study file."""

    def __init__(
        self,
        search: SearchAlgorithm,
        scheduler: Scheduler,
        seed: int,
        earlier: Sequence[EarlierStudy] = (),
        known: Sequence[Config] = (),
    ) -> None:
        self._rungs = tuple(scheduler.rungs(EPOCHS))
        problem = Problem(SPACE, seed=seed, max_epochs=EPOCHS, rungs=self._rungs)
        learned = [*learn(problem, earlier, History().top).configs, *known]
        self._proposals = Proposals(problem, search.build(problem), learned=learned)
        self._configs: dict[str, Config] = {}
        self._curves: dict[str, dict[int, float]] = {}
        self._scheduler, self._most = scheduler, math.inf
        self._stopper = scheduler.build(mode="max", max_epochs=EPOCHS, can_pause=True, trials=None)
        self._started = 0
        self.seconds = self.decisions = 0.0

    def limit(self, trials: int) -> None:
        """Start this many trials at most, and know it."""
        self._most = trials
        self._stopper = self._scheduler.build(mode="max", max_epochs=EPOCHS, can_pause=True, trials=trials)

    def ask(self) -> tuple[str, Any] | None:
        """A paused trial that goes on, or a new one; None if neither is left."""
        trial = self._stopper.resumable()
        if trial is not None:
            return trial, None
        if self._started >= self._most:
            return None
        began = time.perf_counter()
        config = self._proposals.suggest(self._started)
        self.seconds += time.perf_counter() - began
        self.decisions += 1
        trial = f"{self._started:05d}"
        self._started += 1
        assert config is not None
        self._configs[trial], self._curves[trial] = config, {}
        self._stopper.start(trial)
        if self._proposals.is_learned(config):
            self._stopper.trust(trial)
        return trial, unit_of(lcbench(), [config[name] for name, *_ in lcbench().DIMENSIONS])

    def report(self, trial: str, epoch: int, value: float) -> str:
        """One epoch's validation accuracy."""
        self._curves[trial][epoch] = value
        self._proposals.observe(int(trial), epoch, value)
        decision = self._stopper.report(trial, epoch, value)
        if epoch >= EPOCHS or decision is Decision.STOP:
            self._proposals.end(int(trial), "completed" if epoch >= EPOCHS else "stopped")
            self._stopper.end(trial)
            return "stop"
        return decision.value

    def remembered(self, name: str) -> EarlierStudy:
        """What a later study finds of this one."""
        trials = tuple(EarlierTrial(self._configs[trial], curve) for trial, curve in self._curves.items())
        return EarlierStudy(name, EPOCHS, self._rungs, trials)


def lcbench() -> Any:
    """LCBench's simulator, from the folder that the environment names."""
    return load_simulator(os.environ["LCBENCH"])


def other_tasks() -> list[str]:
    """The 26 tasks of LCBench on which nothing was tuned."""
    every = json.loads(Path(os.environ["LCBENCH"], "reference.json").read_text())
    return [task for task in every if task not in lcbench().DEVELOPMENT_TASKS]


PROMOTE, STOP = ASHA(rule="promote"), ASHA(rule="stop")
DEFAULT = partial(Product, MultiFidelityGP(), PROMOTE)


def portfolio_of(space: Space, seed: int, budget: Budget) -> tuple[Config, ...]:
    """What the product starts a study from whose trial is a function with these hyperparameters."""
    trial = External("lcbench")
    return of_portfolio(Study("lcbench", trial=trial, space=space, budget=budget, seed=seed))


def with_portfolio(seed: int) -> Product:
    """The default as a user has it: it starts from the portfolio that comes with tuner."""
    budget = Budget(trials=None, total_epochs=20 * EPOCHS, max_epochs=EPOCHS)
    return DEFAULT(seed, known=portfolio_of(SPACE, seed, budget))


def with_history(task: str, number: int, *, studies: int) -> Product:
    """The default, after this many studies of other tasks, which are drawn and run again for each seed."""
    others = [study for study in earlier_studies()[number] if study.name != task]
    drawn = np.random.default_rng([number, int(task)]).permutation(len(others))[:studies]
    return DEFAULT(seed_of(task, number), [others[index] for index in sorted(drawn)])


def misled(task: str, number: int) -> Product:
    """The default, after one study of the same task in which the worst counted as the best."""
    return DEFAULT(seed_of(task, number), [study_of((task, number), sign=-1)])


def study_of(job: tuple[str, int], *, sign: int = 1) -> EarlierStudy:
    """One default run on a task, as it is remembered; of other seeds than those that are measured."""
    task, number = job
    strategy = DEFAULT(seed_of(task, 1000 + number))
    told = strategy.report
    strategy.report = lambda trial, epoch, value: told(trial, epoch, sign * value)  # type: ignore[method-assign]
    lcbench().simulate(strategy, task)
    return strategy.remembered(task)


@cache
def earlier_studies() -> list[list[EarlierStudy]]:
    """For each seed a default run of each task, from the file that the main process wrote."""
    return pickle.loads(Path(os.environ["EARLIER_STUDIES"]).read_bytes())  # type: ignore[no-any-return]


def alone(strategy: Callable[[int], Product]) -> Callable[[str, int], Product]:
    """A strategy that knows nothing of the task."""
    return partial(_alone, strategy)


def _alone(strategy: Callable[[int], Product], task: str, number: int) -> Product:
    return strategy(seed_of(task, number))


STRATEGIES: dict[str, Callable[[str, int], Product]] = {
    "default": alone(DEFAULT),
    "portfolio": alone(with_portfolio),
    "history33": partial(with_history, studies=33),
    "history10": partial(with_history, studies=10),
    "history1": partial(with_history, studies=1),
    "history_misleading": misled,
    "gp_stop": alone(partial(Product, MultiFidelityGP(), STOP)),
    "bohb": alone(partial(Product, BOHB(), PROMOTE)),
    "bohb_hyperband": alone(partial(Product, BOHB(), HyperBand())),
    "random_hyperband": alone(partial(Product, Random(sobol=False), HyperBand())),
    "hyperopt_asha": alone(partial(Product, HyperOpt(), STOP)),
    "default_grace1": alone(partial(Product, MultiFidelityGP(), ASHA(grace_epochs=1))),
    "hyperopt_asha_grace1": alone(partial(Product, HyperOpt(), ASHA(grace_epochs=1, rule="stop"))),
    "hyperopt_promote": alone(partial(Product, HyperOpt(), PROMOTE)),
    "random_asha": alone(partial(Product, Random(sobol=False), STOP)),
    "sobol_promote": alone(partial(Product, Random(), PROMOTE)),
}


def measure(job: tuple[str, str, int]) -> tuple[np.ndarray, float]:
    """One strategy on one task, its search of that number: regret [80], milliseconds per suggestion."""
    name, task, number = job
    strategy = STRATEGIES[name](task, number)
    regret = lcbench().simulate(strategy, task)
    return regret, 1000 * strategy.seconds / max(strategy.decisions, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lcbench", type=Path, default=Path("../shared/lcbench"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", choices=["development", "others"], default="development")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*STRATEGIES, *PEERS])
    parser.add_argument("--quick", action="store_true", help="two of ours on one task: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.only = 2, ["default", "bohb"]
    os.environ["LCBENCH"] = str(options.lcbench.resolve())
    os.environ["OMP_NUM_THREADS"] = "1"
    development, others = lcbench().DEVELOPMENT_TASKS, other_tasks()
    tasks, all_tasks = development if options.tasks == "development" else others, [*development, *others]
    tasks = tasks[:1] if options.quick else tasks
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "hyperopt", "onnxruntime"))
    print(f"{this_machine().cpus} CPUs, Python {platform.python_version()}, {versions}; {len(tasks)} tasks")
    print(f"{'strategy':20} {'runs':>4} {'25 %':>13} {'50 %':>13} {'100 %':>13} {'ms':>6}   beside default")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EARLIER_STUDIES"] = str(Path(folder) / "studies")
        measure_all(options, tasks, all_tasks)


def measure_all(options: argparse.Namespace, tasks: list[str], all_tasks: list[str]) -> None:
    """Each strategy on each task with each seed; a line for each strategy, then all as JSON."""
    results: dict[str, dict[str, float]] = {}
    regrets: dict[str, np.ndarray] = {}
    with multiprocessing.get_context("spawn").Pool() as pool:
        if any(name.startswith("history") for name in options.only):
            jobs = [(task, seed) for seed in range(options.seeds) for task in all_tasks]
            studies = pool.map(study_of, jobs, chunksize=1)
            by_seed = [studies[start : start + len(all_tasks)] for start in range(0, len(jobs), len(all_tasks))]
            Path(os.environ["EARLIER_STUDIES"]).write_bytes(pickle.dumps(by_seed))
        for name in options.only:
            if name in PEERS:
                curves, milliseconds = measure_peer(name, tasks, options.seeds)
            else:
                runs = [(name, task, seed) for task in tasks for seed in range(options.seeds)]
                curves, milliseconds = zip(*pool.map(measure, runs, chunksize=1), strict=True)
            regrets[name] = np.array(curves)
            results[name] = row = summary(regrets[name], float(np.mean(milliseconds)), len(tasks))
            cells = "  ".join(f"{row[f'r{share}']:.3f} ±{row[f'se{share}']:.3f}" for share in (25, 50, 100))
            print(
                f"{name:20} {len(curves):4} {cells} {row['ms']:6.1f}   {paired(regrets, name, len(tasks))}", flush=True
            )
    if "default" in options.only and not options.quick:
        print("milliseconds a suggestion of the default after so many trials:", milliseconds_by_trials())
    print(json.dumps(results))


def measure_peer(name: str, tasks: list[str], seeds: int) -> tuple[list[list[float]], list[float]]:
    """Another library's regret curves [runs, 80] and milliseconds a suggestion [runs], measured in its environment."""
    command = [environment(PEERS[name][0]), Path(__file__).with_name("peers.py"), "--lcbench", os.environ["LCBENCH"]]
    command += ["--only", name, "--tasks", ",".join(tasks), "--seeds", str(seeds)]
    output = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    runs = [json.loads(line) for line in output.splitlines() if line.startswith("{")]  # some print hints of their own
    assert len(runs) == len(tasks) * seeds, f"{name} made {len(runs)} runs"
    return [run["regret"] for run in runs], [run["ms"] for run in runs]


def environment(requirement: str) -> Path:
    """The Python of an environment that has the library, made under `.peers/` where it isn't there yet."""
    folder = Path(".peers").resolve() / re.sub(r"[^a-z0-9.]+", "-", requirement)
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", requirement, "onnxruntime"], check=True)
        (folder / "complete").touch()
    return python


def milliseconds_by_trials() -> dict[int, float]:
    """Milliseconds of one suggestion of the default after this many trials, a third of each rung promoted."""
    rungs = tuple(PROMOTE.rungs(EPOCHS))
    problem = Problem(SPACE, max_epochs=EPOCHS, rungs=rungs)
    searcher = MultiFidelityGP().build(problem)
    generator = np.random.default_rng(0)
    found = {}
    for number in range(5000):
        searcher.adopt(number, SPACE.sample(generator))
        for index, rung in enumerate(rungs):
            if number % 3**index == 0:
                searcher.observe(number, rung, float(generator.random()))
        searcher.end(number, "stopped")
        if number + 1 in (100, 500, 1000, 2000, 5000):
            searcher.suggest(number + 1)
            began = time.perf_counter()
            for trial in range(10):
                searcher.suggest(number + 2 + trial)
            found[number + 1] = round(100 * (time.perf_counter() - began), 1)
    return found


def summary(curves: np.ndarray, milliseconds: float, tasks: int) -> dict[str, float]:
    """Mean regret [runs, 80] with its standard error at a quarter, half and all of the budget."""
    row = {}
    for share in (25, 50, 100):
        row[f"r{share}"], row[f"se{share}"] = clustered(curves[:, round(share / 100 * curves.shape[1]) - 1], tasks)
    return {**row, "ms": round(milliseconds, 2)}


def clustered(values: np.ndarray, tasks: int) -> tuple[float, float]:
    """Mean of runs, ordered by tasks, and its standard error over the tasks' means; of one task over its runs."""
    means = values.reshape(tasks, -1).mean(axis=1) if tasks > 1 else values
    return round(float(values.mean()), 4), round(float(means.std(ddof=1) / len(means) ** 0.5), 4)


def paired(regrets: dict[str, np.ndarray], name: str, tasks: int) -> str:
    """The difference in final regret to `default`, run by run: mean ± standard error, clustered too."""
    if "default" not in regrets or name == "default":
        return ""
    mean, error = clustered(regrets[name][:, -1] - regrets["default"][:, -1], tasks)
    return f"{mean:+.3f} ±{error:.3f}"


if __name__ == "__main__":
    main()
