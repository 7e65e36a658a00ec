"""What `init` and `check` print: data, models with their speeds, and what a search will take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from tuner.console.printing import new_console, new_table
from tuner.results.wording import plural
from tuner.text import printable

if TYPE_CHECKING:
    from tuner.driver.search_cost import SearchCost
    from tuner.first_study.drafting import Draft
    from tuner.first_study.folder_look import FirstLook
    from tuner.trial.folder_headers import FolderHeaders

GB, MB = 1e9, 1e6
SHOWN_CLASSES = 20
SHOWN_LEFT_OUT = 10


def print_look(look: FirstLook) -> None:
    """Print what is known about the images."""
    print_data(replace(look.headers, notices=tuple(look.notices)), decoded=True)


def print_models(draft: Draft) -> None:
    """A row for each model, with its measured speed on this machine; below, the models that were left out."""
    from tuner.first_study.candidates import described

    console, chosen = new_console(), {each.value for each in draft.plan.settings if each.name == "model"}
    table = new_table("model", "weights", "on ImageNet", "images a second", "chosen")
    for each in draft.means.candidates:
        accuracy = "" if each.accuracy is None else f"{each.accuracy} %"
        weights = "random" if each.weights is None else f"{each.weights}, {'here' if each.cached else 'to download'}"
        rate = f"{draft.means.speeds[each.model].images_per_second:.3g}"
        taken = any(f"'{each.model}'" in value or f'"{each.model}"' in value for value in chosen)
        table.add_row(each.model, weights, accuracy, rate, "yes" if taken else "")
    console.print(table)
    reasons: dict[str, list[str]] = {}
    for model, why in draft.left_out:
        reasons.setdefault(why, []).append(model)
    for why, models in reasons.items():
        console.print(printable(f"left out: {', '.join(map(described, models))}: {why}"))


def print_cost(cost: SearchCost) -> None:
    """Epochs, minutes and memory, each as an interval where it is one."""
    print(printable(f"epochs: {_span(*cost.epochs)} in {_span(*cost.trials)} trials, {cost.workers} at once"))
    low, middle, high = cost.minutes
    print(
        printable(f"time: about {_minutes(middle)} min ({_minutes(low)} to {_minutes(high)}), measured on this machine")
    )
    train, validation, test = cost.images
    print(f"images: about {train:,} for training, {validation:,} for validation, {test:,} for test")
    each, whole = cost.memory_bytes, cost.memory_bytes * cost.workers
    together = f", {_bytes(whole)} for {cost.workers} at once," if cost.workers > 1 else ""
    print(f"memory: up to about {_bytes(each)} a trial{together} of {_bytes(cost.machine_bytes)}")
    if cost.cache_bytes:
        print(f"cache: {_bytes(cost.cache_bytes)} of decoded images")
    for note in cost.notes:
        print(printable(f"note: {note}"))


def next_steps(path: str, run: str, export: str) -> str:
    """Print the commands to type next."""
    return f"{path} is written; go on with:\n{run}\n{export}"


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _minutes(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _bytes(size: float) -> str:
    return f"{size / GB:.1f} GB" if size >= GB / 10 else plural(round(size / MB), "MB").replace("MBs", "MB")


def print_data(found: FolderHeaders, *, decoded: bool = False) -> None:
    """Print the classes, labels or ranges of images, sizes, modes, what would be left out, and what users should know.

    `decoded`: all images were decoded, so the list of left-out files is complete.
    """
    console = new_console()
    splits = list(dict.fromkeys(part for each in found.counts.values() for part in each))
    console.print(f"data: {plural(found.images, 'image file')} {found.content}{_look(found)}")
    table = new_table(found.task.stratum[0], *(splits if len(splits) > 1 else ["images"]))
    for name, counts in list(found.counts.items())[:SHOWN_CLASSES]:
        table.add_row(printable(name), *(f"{counts[part]:,}" for part in splits))
    console.print(table)
    if len(found.counts) > SHOWN_CLASSES:
        console.print(f"and {len(found.counts) - SHOWN_CLASSES:,} more {found.task.stratum[1]}; all with --json")
    _print_left_out(found, console, "left out:" if decoded else "left out, as far as headers show:")
    for notice in found.notices:
        console.print(printable(f"note: {notice}"))


def _look(found: FolderHeaders) -> str:
    if found.sizes is None:
        return ""
    least, middle, most = (f"{width} x {height}" for width, height in found.sizes)
    sizes = f"all of {middle} pixels" if least == most else f"{least} to {most} pixels, {middle} in the middle"
    modes = ", ".join(f"{count:,} {mode}" for mode, count in found.modes.items())
    of = f" (a sample of {found.opened:,})" if found.opened < found.images else ""
    return f"; {sizes}; {modes}{of}"


def _print_left_out(found: FolderHeaders, console: Console, heading: str) -> None:
    if not found.left_out:
        return
    console.print(heading)
    for each in found.left_out[:SHOWN_LEFT_OUT]:
        console.print(printable(f"  {each}"))
    if len(found.left_out) > SHOWN_LEFT_OUT:
        console.print(f"  and {len(found.left_out) - SHOWN_LEFT_OUT:,} more; all with --json")
