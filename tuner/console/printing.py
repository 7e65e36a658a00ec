"""How commands write to the terminal or a pipe: text and tables without markup and without inserted line breaks."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.text import printable


def print_log(text: str) -> None:
    """What a trial printed."""
    print(printable(text), end="", flush=True)


def new_table(*columns: str) -> Table:
    """A table with these heads, without lines."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("trial", "status"))
    return table


class Output(Console):
    """A console that raises BrokenPipeError, where rich would exit with 1, which here means that no trial succeeded.

    All text goes through `printable`, because most of it comes from files that anybody may have written.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """Called by rich for each text, those in tables included."""
        return super().render_str(printable(text), **options)

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error."""
        raise BrokenPipeError


def new_console() -> Console:
    """A console as wide as the terminal; in a pipe as wide as the text, so that no line is broken."""
    console = Output(markup=False, emoji=False, highlight=False)
    return console if console.is_terminal else Output(markup=False, emoji=False, highlight=False, width=100_000)
