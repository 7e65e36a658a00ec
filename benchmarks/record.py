"""Real training recorded once: learning curves of random and of searched configurations of the small tasks.

    python benchmarks/record.py TABLE [--data-dir DIR] [--cache DIR] [--rounds 200] [--minutes 35] [--only PATTERN]

TABLE is a file of JSON lines that is added to: a row for each trial, with the validation and the test accuracy after
each epoch, None from where the loss diverged. In a round each task trains one configuration for 9 epochs, by the
trainer itself on one thread: 24 random ones, then by turns a random one and what the default search suggests after
all of the task's trials. So a table of any length is balanced. DIR holds
FashionMNIST/raw, cifar10/train/<class> and photos/{flowers,trash}/<class>. A second call goes on where the first ended.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import small_tasks
import torch
from photo_tasks import RECORDED
from small_tasks import EPOCHS, Task

from tuner import MultiFidelityGP
from tuner.errors import TrialError
from tuner.search import Problem
from tuner.train import Trainer

RANDOM = 24


def trained(task: Task, config: dict[str, Any], seed: int, cache: Path) -> dict[str, list[float | None]]:
    """Validation and test accuracy after each epoch."""
    trainer = Trainer(task.trial(cache), config, epochs=EPOCHS, seed=seed)
    seen: list[float | None] = []
    true: list[float | None] = []
    try:
        while not trainer.finished:
            seen.append(round(trainer.run_epoch().validation["accuracy"], 5))
            true.append(round(trainer.evaluate(trainer.splits.test)["accuracy"], 5))
    except TrialError:  # it diverged
        pass
    missing: list[float | None] = [None] * EPOCHS
    return {"val": (seen + missing)[:EPOCHS], "test": (true + missing)[:EPOCHS]}


def suggested(task: Task, rows: list[dict[str, Any]], number: int) -> dict[str, Any]:
    """What the default search tries after the rows."""
    searcher = MultiFidelityGP().build(Problem(task.space, seed=number, max_epochs=EPOCHS, rungs=(3, 9)))
    for index, row in enumerate(rows):
        searcher.adopt(index, row["config"])
        for epoch, value in enumerate(row["val"], start=1):
            if value is not None:
                searcher.observe(index, epoch, value)
        searcher.end(index, "completed" if row["val"][-1] is not None else "failed")
    found = searcher.suggest(len(rows))
    assert found is not None
    return found


def main() -> None:
    """Record until the rounds or the minutes are over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--cache", type=Path, default=small_tasks.CACHE)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=35.0)
    parser.add_argument("--only", help="a pattern of the names of tasks")
    options = parser.parse_args()
    small_tasks.DATA, small_tasks.CACHE = options.data_dir, options.cache
    torch.set_num_threads(1)
    known = options.table.read_text().splitlines() if options.table.exists() else []
    rows: dict[str, list[dict[str, Any]]] = {task.name: [] for task in RECORDED}
    for line in known:
        row = json.loads(line)
        rows[row["task"]].append(row)
    end = time.monotonic() + 60 * options.minutes
    with options.table.open("a") as table:
        for number in range(options.rounds):
            for index, task in enumerate(RECORDED):
                left_out = options.only is not None and not re.search(options.only, task.name)
                if left_out or number < len(rows[task.name]) or time.monotonic() > end:
                    continue
                searched = number >= RANDOM and number % 2 == 1
                generator = np.random.default_rng([number, index])
                config = suggested(task, rows[task.name], number) if searched else task.space.sample(generator)
                row = {"task": task.name, "searched": searched, "config": config}
                row |= trained(task, config, 1000 * number + index, options.cache)
                rows[task.name].append(row)
                print(json.dumps(row), file=table, flush=True)


if __name__ == "__main__":
    main()
