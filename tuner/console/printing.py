"""How commands write to the terminal or a pipe: text and tables in which nothing is markup and nothing is broken."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.foreign_text import printable


def print_log(text: str) -> None:
    """What a trial printed."""
    print(printable(text), end="", flush=True)


def new_table(*columns: str) -> Table:
    """With these heads, and no lines drawn."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("trial", "status"))
    return table


class Output(Console):
    """Raises BrokenPipeError if rich would end the process with 1, which means that no trial succeeded.

    All text passes `printable`, as most of it comes from files that anybody may have written.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """Called by rich for each text, those in tables included."""
        return super().render_str(printable(text), **options)

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error."""
        raise BrokenPipeError


def new_console() -> Console:
    """As wide as the terminal; in a pipe as wide as the text needs, so that no line is broken."""
    console = Output(markup=False, emoji=False, highlight=False)
    return console if console.is_terminal else Output(markup=False, emoji=False, highlight=False, width=100_000)
