"""Pages that MkDocs builds from the code and from the files at the root, so that no copy of either is committed.

MkDocs loads this file as a hook and calls `on_files` and `on_page_markdown`.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from html import escape
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import tuner
from tuner.cli.main import parser as command_parser
from tuner.schedule import Scheduler
from tuner.search import SearchAlgorithm
from tuner.trial.hyperparameter import Hyperparameter
from tuner.trial.hyperparameters import TABLE, markdown

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
USAGE_WIDTH = 78  # characters that fit beside the navigation
AT_THE_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")

HYPERPARAMETERS_OPENING = """# Hyperparameters

A space of `ImageClassifier` takes these names. A name that is left out of the space has its default value. A dash means
that the data or the budget decides. "Log" means that a logarithmic scale suits the hyperparameter: use `loguniform` or
`lograndint`. A model that is a function may have hyperparameters of its own; tuner hands them on unchanged.

This page is made from the table in `tuner/trial/hyperparameters.py`.
"""

COMMANDS_OPENING = """# Commands

`tuner VERB …` and `python -m tuner VERB …` are the same. Progress and notes go to stderr, results go to stdout.
`RUN` is a run folder, or a storage folder such as `runs`: then its newest run is meant.

| exit code | meaning |
|---|---|
| 0 | success; for `run` and `resume`: there is a winner |
| 1 | no trial succeeded, or an error ended the search; `doctor`: searches will not work here; `replay`: another curve |
| 2 | bad input: nothing was started, nothing was written |
| 130 | interrupted, and saved |

Ctrl-C, SIGTERM and SIGHUP save and end a search within `--grace` seconds (25 by default). A second Ctrl-C skips the
work that `resume` can do later; a third one leaves at once. See [Resume and extend](../how-to/resume.md).

This page is made from the parsers in `tuner/cli/`.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those that lie in docs/."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what a page in docs/ takes from the code."""
    return filled(markdown)


def pages() -> dict[str, str]:
    """Path below docs/ -> Markdown, of every generated page."""
    return {
        "reference/hyperparameters.md": hyperparameters_page(),
        "reference/commands.md": commands_page(),
        **{name.lower(): from_the_root(name) for name in AT_THE_ROOT},
    }


def from_the_root(name: str) -> str:
    """A file at the root as a page: its links to docs/ and to the other files at the root lead to their pages."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    for other in AT_THE_ROOT:
        text = text.replace(f"]({other}", f"]({other.lower()}")
    return text


# Search algorithms and early stopping, for the places of the pages that ask for them


def filled(text: str) -> str:
    """A page with a table, or a full description, of each search algorithm or scheduler where a comment asks for it."""
    for kind, name in ((SearchAlgorithm, "search algorithms"), (Scheduler, "schedulers")):
        if f"<!-- {name}" in text:
            found = exported(kind)
            text = text.replace(f"<!-- {name}: table, made from the code -->", _table(found))
            text = text.replace(f"<!-- {name}: each in full, made from the code -->", _in_full(found))
    return text


def exported(kind: type) -> list[type]:
    """What tuner has of a kind, the default of a study first."""
    public = [getattr(tuner, name) for name in tuner.__all__]
    defaults = {field.default_factory for field in fields(tuner.Study)}
    found = [one for one in public if isinstance(one, type) and issubclass(one, kind)]
    return sorted(found, key=lambda one: (one not in defaults, one.__name__))


def _table(found: list[type]) -> str:
    rows = (f"| `{_call(one)}` | {_first_sentence(one)} |" for one in found)
    return "\n".join(["| class, with its defaults | what it does |", "|---|---|", *rows])


def _call(one: type) -> str:
    settings = (field for field in fields(one) if field.init)  # type: ignore[arg-type]
    return f"{one.__name__}({', '.join(f'{field.name}={_value(field)}' for field in settings)})"


def _value(field: Field[object]) -> str:
    value = field.default if field.default_factory is MISSING else field.default_factory()
    return f"{value:.3g}" if isinstance(value, float) else repr(value).replace("'", '"')


def _first_sentence(one: type) -> str:
    return (inspect.getdoc(one) or "").partition("\n\n")[0].replace("\n", " ").removesuffix(".")


def _in_full(found: list[type]) -> str:
    return "\n\n".join(f"::: tuner.{one.__name__}\n    options: {{members: []}}" for one in found)


# Hyperparameters


def hyperparameters_page() -> str:
    """The table, then a section for each row with the other names that messages recognise."""
    return "\n".join([HYPERPARAMETERS_OPENING, markdown(), "", *map(_hyperparameter_section, TABLE)])


def _hyperparameter_section(row: Hyperparameter) -> str:
    facts = [f"{row.kind}: {row.range}", "log scale" if row.log else "", _default(row)]
    other = f"\n\nOther names for it, which messages recognise: {_codes(row.aliases)}." if row.aliases else ""
    return f"\n## `{row.name}` {{ #{row.name} }}\n\n*{'; '.join(filter(None, facts))}*\n\n{row.meaning}{other}"


def _default(row: Hyperparameter) -> str:
    return "no fixed default" if row.default is None else f"default {row.default}"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# Commands


def commands_page() -> str:
    """A section for each verb, with its usage and a table for each group of its arguments."""
    parser = command_parser()
    options = "\n".join(_argument_row(action) for action in parser._actions if action.option_strings)
    sections = [_verb_section(name, verb, summary) for name, verb, summary in verbs(parser)]
    return "\n".join([COMMANDS_OPENING, "| option | meaning |\n|---|---|", options, *sections])


def verbs(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Name, parser and one-line summary of each verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, verb in action.choices.items():
                yield name, verb, summaries[name]


def _verb_section(name: str, verb: argparse.ArgumentParser, summary: str) -> str:
    usage = fill(" ".join(verb.format_usage().split()[1:]), USAGE_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    groups = (_group_table(group) for group in verb._action_groups)
    opening = f"\n## `{name}` {{ #{name} }}\n\n{summary[:1].upper()}{summary[1:]}.\n\n```text\n{usage}\n```\n"
    return "\n".join([opening, *filter(None, groups)])


def _group_table(group: argparse._ArgumentGroup) -> str:
    rows = [_argument_row(action) for action in group._group_actions if action.dest != "help"]
    if not rows:
        return ""
    title = {"positional arguments": "argument", "options": "option"}.get(group.title or "", f"option: {group.title}")
    note = f"\n{group.description[:1].upper()}{group.description[1:]}.\n" if group.description else ""
    return f"{note}\n| {title} | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"


def _argument_row(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {_placeholder(action)}"
    name = ", ".join(f"{option}{value}" for option in action.option_strings) or _placeholder(action)
    return f"| <code>{_cell(escape(name))}</code> | {_cell(action.help or '')} |"


def _placeholder(action: argparse.Action) -> str:
    if action.metavar is None and action.choices:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def _cell(text: str) -> str:
    return text.replace("|", "&#124;").replace("%%", "%")
