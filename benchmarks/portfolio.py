"""Write the studies that tuner ships, `tuner/search/portfolio.json`, from the recorded tables of `record.py`.

    python benchmarks/portfolio.py benchmarks/curves.jsonl.xz [--out tuner/search/portfolio.json]

It uses the accuracy on the (many) test images after the last epoch. A task whose network is the last layer on a frozen
backbone's features is one with `finetune="head"`, one from random weights one with "all". The kernel's lengths are the
likeliest ones. A line for each task says how well the model, fitted without the data set, predicts which of the task's
trials are good.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from photo_tasks import RECORDED
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.stats import spearmanr
from small_tasks import FEATURES, PRETRAINED, SCRATCH, Task

from tuner.search.gaussian_process import matern
from tuner.search.portfolio import Kernel, Portfolio, columns_of, read
from tuner.space import Domain

SETS = {id(SCRATCH): {"finetune": "all"}, id(FEATURES): {"finetune": "head"}, id(PRETRAINED): {}}
WORST = 1.5
OUT = Path(__file__).parent.parent / "tuner" / "search" / "portfolio.json"
Rows = dict[str, list[dict[str, Any]]]


def rows_of(table: Path) -> Rows:
    """The recorded trials of each task."""
    text = lzma.decompress(table.read_bytes()).decode() if table.suffix == ".xz" else table.read_text()
    rows: Rows = {task.name: [] for task in RECORDED}
    for line in text.splitlines():
        row = json.loads(line)
        rows[row["task"]].append(row)
    return rows


def scale(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Accuracy of the best recorded configuration, and of a random one in the middle."""
    ends = [row["test"][-1] or 0.0 for row in rows]
    return max(ends), statistics.median(end for end, row in zip(ends, rows, strict=True) if not row["searched"])


def regret(row: dict[str, Any], rows: list[dict[str, Any]]) -> float:
    """How far a trial stays behind."""
    best, middle = scale(rows)
    return min((best - (row["test"][-1] or 0.0)) / (best - middle), WORST)


def kind(task: Task) -> str:
    """What its trials start from."""
    return "random" if task.space is SCRATCH else "weights"


def portfolio(rows: Rows, kernel: dict[str, Any]) -> dict[str, Any]:
    """What `tuner.search.portfolio` reads."""
    trials = [(number, task, row) for number, task in enumerate(RECORDED) for row in rows[task.name]]
    return {
        "made_by": "benchmarks/portfolio.py",
        "space": {name: declared(domain) for name, domain in PRETRAINED.dimensions.items()},
        "kernel": kernel,
        "studies": [task.name for task in RECORDED],
        "sources": [task.source for task in RECORDED],
        "kinds": [kind(task) for task in RECORDED],
        "study": [number for number, *_ in trials],
        "configs": [
            [rounded((SETS[id(task.space)] | row["config"]).get(name)) for name in PRETRAINED.dimensions]
            for _, task, row in trials
        ],
        "regrets": [round(regret(row, rows[task.name]), 3) for _, task, row in trials],
    }


def declared(domain: Domain) -> dict[str, Any]:
    """A domain as its constructor's name and arguments, with its condition."""
    name, _, arguments = domain.describe().partition("(")
    found: dict[str, Any] = {"kind": name, "arguments": list(eval(f"({arguments[:-1]},)"))}
    return found | ({"when": {other: list(values) for other, values in domain.conditions}} if domain.conditions else {})


def rounded(value: Any) -> Any:
    """Four digits of a number are enough."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


# The kernel

FIRST = {"shared": 0.5, "own": 0.5, "noise": 0.3}


def kernel_of(values: np.ndarray) -> dict[str, Any]:
    """The kernel of logarithms: its three variances, then a length for each hyperparameter."""
    found = [round(float(np.exp(value)), 6) for value in values]
    return {
        **dict(zip(FIRST, found[:3], strict=True)),
        "lengths": dict(zip(PRETRAINED.dimensions, found[3:], strict=True)),
    }


def likeliest(rows: Rows) -> dict[str, Any]:
    """The kernel that the trials are likeliest under, with a weak prior that hyperparameters matter little."""
    start = np.log([*FIRST.values(), *[1.5] * len(PRETRAINED.dimensions)])
    made = read(portfolio(rows, kernel_of(np.zeros(len(start)))))  # lengths of 1
    points = made.points(made.configs)

    def surprise(values: np.ndarray) -> float:
        kernel = Kernel(**kernel_of(values))
        scaled = points / columns_of(made.space, kernel.lengths)
        return unlikely(kernel, scaled, made) + 0.5 * float(((values - start) ** 2).sum())

    bounds, options = [(-5, 3)] * len(start), {"maxiter": 25, "eps": 1e-3}
    found = minimize(surprise, start, method="L-BFGS-B", bounds=bounds, options=options)
    return kernel_of(found.x)


def unlikely(kernel: Kernel, points: np.ndarray, made: Portfolio) -> float:
    """The negative logarithm of the likelihood of a portfolio's trials, which are at points."""
    same = made.study[:, None] == made.study
    covariance = matern(points, points) * (kernel.shared + kernel.own * same) + kernel.noise * np.eye(len(points))
    factor = cho_factor(covariance, lower=True)
    rest = made.regrets - made.regrets.mean()
    return float(0.5 * rest @ cho_solve(factor, rest) + np.log(np.diag(factor[0])).sum())


def foretold(rows: Rows, kernel: dict[str, Any]) -> None:
    """Print what the model without a data set says of its trials."""
    whole = read(portfolio(rows, kernel))
    for number, task in enumerate(RECORDED):
        trials = np.flatnonzero(whole.study == number)
        if not len(trials):
            continue
        others = whole.without(task.source)
        expected = others.expected([whole.configs[index] for index in trials], {kind(task)}).mean(axis=0)
        agree = spearmanr(expected, whole.regrets[trials]).statistic
        first = np.minimum.accumulate(whole.regrets[trials[np.argsort(expected)]])[[0, 1, 2, 4]]
        print(f"{task.name:20} {len(trials):3} trials, rank correlation {agree:5.2f}; best of 1, 2, 3, 5: {first}")


def main() -> None:
    """Read, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rows = rows_of(options.table)
    kernel = likeliest(rows)
    print(kernel)
    foretold(rows, kernel)
    options.out.write_text(json.dumps(portfolio(rows, kernel), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
