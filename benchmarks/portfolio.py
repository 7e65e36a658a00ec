"""Write the studies that tuner ships, `tuner/search/portfolio.json`, from the recorded tables of `record.py`.

    python benchmarks/portfolio.py benchmarks/curves.jsonl.xz [--out tuner/search/portfolio.json]

What counts is the accuracy on the test images, which are many, at the epochs at which early stopping compares trials.
A task whose network is the last layer on a frozen backbone's features is one with `finetune="head"`.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path
from typing import Any

from small_tasks import EPOCHS, FEATURES, PRETRAINED, SCRATCH, TASKS, Task

from tuner.space import Domain

SPACES = {"scratch": SCRATCH, "head": FEATURES, "pretrained": PRETRAINED}
RUNGS = (3, EPOCHS)
SCALE = 10_000
OUT = Path(__file__).parent.parent / "tuner" / "search" / "portfolio.json"


def rows_of(table: Path) -> dict[str, list[dict[str, Any]]]:
    """The recorded trials of each task."""
    text = lzma.decompress(table.read_bytes()).decode() if table.suffix == ".xz" else table.read_text()
    rows: dict[str, list[dict[str, Any]]] = {task.name: [] for task in TASKS}
    for line in text.splitlines():
        row = json.loads(line)
        rows[row["task"]].append(row)
    return rows


def portfolio(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """What `tuner.search.portfolio` reads."""
    return {
        "made_by": "benchmarks/portfolio.py",
        "epochs": EPOCHS,
        "rungs": RUNGS,
        "scale": SCALE,
        "spaces": {name: {n: declared(d) for n, d in space.dimensions.items()} for name, space in SPACES.items()},
        "studies": [study(task, rows[task.name]) for task in TASKS],
    }


def declared(domain: Domain) -> dict[str, Any]:
    """A domain as its constructor's name and arguments, with its condition."""
    name, _, arguments = domain.describe().partition("(")
    found: dict[str, Any] = {"kind": name, "arguments": list(eval(f"({arguments[:-1]},)"))}
    return found | ({"when": {other: list(values) for other, values in domain.conditions}} if domain.conditions else {})


def study(task: Task, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One task's trials."""
    space = next(name for name, one in SPACES.items() if one is task.space)
    return {
        "name": task.name,
        "source": task.source,
        "kind": "random" if space == "scratch" else "weights",
        "space": space,
        "constants": {"finetune": "head"} if space == "head" else {},
        "configs": [[rounded(row["config"].get(name)) for name in task.space.dimensions] for row in rows],
        "values": [
            [None if (v := row["test"][rung - 1]) is None else round(SCALE * v) for rung in RUNGS] for row in rows
        ],
    }


def rounded(value: Any) -> Any:
    """Four digits of a number are enough."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    """Read, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    options.out.write_text(json.dumps(portfolio(rows_of(options.table)), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
