"""What `check` says about a folder of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from tuner.console.printing import new_console, new_table
from tuner.foreign_text import printable
from tuner.results.text import plural

if TYPE_CHECKING:
    from tuner.trial.folder_headers import FolderHeaders

SHOWN_CLASSES = 20
SHOWN_LEFT_OUT = 10


def print_data(found: FolderHeaders, *, decoded: bool = False) -> None:
    """Print classes with their images, sizes, kinds, what would be left out, and what the user should know.

    `decoded`: all images were decoded, so the list of left-out files is complete.
    """
    console = new_console()
    splits = list(dict.fromkeys(part for each in found.counts.values() for part in each))
    console.print(f"data: {plural(found.images, 'image file')} of {len(found.counts)} classes{_look(found)}")
    table = new_table("class", *(splits if len(splits) > 1 else ["images"]))
    for name, counts in list(found.counts.items())[:SHOWN_CLASSES]:
        table.add_row(printable(name), *(f"{counts[part]:,}" for part in splits))
    console.print(table)
    if len(found.counts) > SHOWN_CLASSES:
        console.print(f"and {len(found.counts) - SHOWN_CLASSES:,} more classes; all with --json")
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
