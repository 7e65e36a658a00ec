"""The disk space of runs, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.console.printing import new_console, new_table
from tuner.results.cleaning import PARTS, Holding, size_of
from tuner.results.text import shown_path

TITLES = {"best": "best/", "wandb": "W&B", "ray": "Ray"}
BESIDE = {
    "sessions": "in the temporary folder, left by searches that are dead (--ray)",
    "cache": "in tuner's cache of decoded images (--cache)",
}


def print_holdings(found: Sequence[Holding], beside: Mapping[str, Sequence[Path]]) -> None:
    """A row per run, one for all, and other folders; sizes in MB."""
    console = new_console()
    parts = (*PARTS, "other")
    if found:
        table = new_table("run (sizes in MB)", "status", *(TITLES.get(part, part) for part in parts), "total")
        for each in found:
            sizes = (*(each.parts[part] for part in parts), each.total)
            table.add_row(shown_path(each.run.path), each.run.status, *map(megabytes, sizes))
        if len(found) > 1:
            sums = (*(sum(each.parts[part] for each in found) for part in parts), sum(each.total for each in found))
            table.add_row("all", "", *map(megabytes, sums))
        console.print(table)
    else:
        console.print("no runs")
    for name, paths in beside.items():
        console.print(f"{megabytes(size_of(paths))} MB {BESIDE[name]}")


def megabytes(size: int) -> str:
    """Bytes as MB with one digit: 12.3."""
    return f"{size / 1e6:,.1f}"
