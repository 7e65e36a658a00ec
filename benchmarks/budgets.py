"""Compares a budget given as a number of trials with one given as epochs, for as many trials as fit into them.

    python benchmarks/budgets.py --lcbench DIR [--seeds 12] [--first-seed 400] [--quick]

DIR holds LCBench's surrogate with its `simulator.py` (`pip install .[bench]`), as for `search.py`. The default search
runs on 8 tasks, two trials at a time, and sees of an epoch the share of 1,000 images that are right. "trials=N" is what
`Budget(trials=N, max_epochs=E)` does: early stopping leaves a part of the N · E epochs over. "finished" spends these on
the trials that early stopping had paused, the best first. "total_epochs" is `Budget(total_epochs=N · E, max_epochs=E)`.
The regret is the true regret of the winner's network: 0 for the best configuration, 1 for a median random one.
Differences are by task and seed, their errors standard errors over tasks. The last line is one JSON object.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics

import choice
import numpy as np
import search
from peers import seed_of

IMAGES = 1000
SETTINGS = [(10, 9), (20, 9), (10, 30)]
Outcome = tuple[float, int, int, int]  # regret; epochs; trials; trials trained to their end


def finished(found: choice.Searched, task: str, seed: int, budget: int) -> choice.Searched:
    """The paused trials trained to their end, the one with the best last value first, as long as the budget pays."""
    true, seen = ({trial: list(values) for trial, values in part.items()} for part in (found.true, found.seen))
    draw = np.random.default_rng([seed, int(task), IMAGES, 1])
    left = budget - sum(map(len, seen.values()))
    while short := [t for t in seen if 0 < found.epochs - len(seen[t]) <= left]:
        trial = max(short, key=lambda t: seen[t][-1])
        left -= found.epochs - len(seen[trial])
        true[trial] = [float(value) for value in found.curves[trial]]
        more = true[trial][len(seen[trial]) :]
        seen[trial] += [draw.binomial(IMAGES, min(max(value, 0.0), 1.0)) / IMAGES for value in more]
    return choice.Searched(true, seen, found.epochs)


def outcomes(job: tuple[str, int, tuple[int, int]]) -> dict[str, Outcome]:
    """One search of each kind."""
    task, seed, (trials, epochs) = job
    budget = trials * epochs
    few = choice.play(task, seed, epochs, IMAGES, trials=trials)
    kinds = {
        "trials=N": few,
        "the same, finished": finished(few, task, seed, budget),
        "total_epochs=N · E": choice.play(task, seed, epochs, IMAGES, total_epochs=budget),
    }
    return {kind: outcome(task, found) for kind, found in kinds.items()}


def outcome(task: str, found: choice.Searched) -> Outcome:
    """What the winner is worth in truth, and what it took."""
    reference = search.lcbench().reference(task)
    trial, epoch = choice.product(found)
    regret = (reference["best"] - 100 * found.true[trial][epoch]) / (reference["best"] - reference["med"])
    return regret, sum(map(len, found.seen.values())), len(found.seen), len(found.whole)


def main() -> None:
    """Measure and print."""
    options, tasks = choice.asked_for(__doc__, 400)
    settings, seeds = (SETTINGS[:1], 2) if options.quick else (SETTINGS, options.seeds)
    results: dict[str, dict[str, list[float]]] = {}
    with multiprocessing.get_context("spawn").Pool() as pool:
        for trials, epochs in settings:
            first = options.first_seed
            numbers = range(first, first + seeds)
            jobs = [(task, seed_of(task, number), (trials, epochs)) for task in tasks for number in numbers]
            found = pool.map(outcomes, jobs, chunksize=2)
            name = f"N = {trials}, E = {epochs}, {len(found)} searches each"
            print(name, flush=True)
            results[name] = {kind: summary(found, kind, seeds) for kind in found[0]}
            for kind, (regret, less, error, used, begun, whole) in results[name].items():
                told = f"regret {regret:.3f}, {less:+.3f} ± {error:.3f}"
                print(
                    f"  {kind:20} {told}; {used:.0f} epochs, {begun:.1f} trials, {whole:.1f} to their end", flush=True
                )
    print(json.dumps(results))


def summary(found: list[dict[str, Outcome]], kind: str, seeds: int) -> list[float]:
    """Mean regret, its difference from "trials=N" with its error, and means of what it took."""
    first = next(iter(found[0]))
    less = [one[kind][0] - one[first][0] for one in found]
    by_task = [statistics.fmean(less[start : start + seeds]) for start in range(0, len(less), seeds)]
    error = statistics.stdev(by_task) / len(by_task) ** 0.5 if len(by_task) > 1 else 0.0
    means = [statistics.fmean(one[kind][index] for one in found) for index in range(4)]
    return [round(value, 4) for value in (means[0], statistics.fmean(by_task), error, *means[1:])]


if __name__ == "__main__":
    main()
