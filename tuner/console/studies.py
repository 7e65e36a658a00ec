"""What the commands print about studies: what a file declares, what it learns from, and what `refine` changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.console.printing import new_console, new_table
from tuner.results import Refinement
from tuner.results.wording import plural, settings
from tuner.space import Space
from tuner.study.budget import endings_beside_trials
from tuner.study.declaration import Study
from tuner.text import command, printable

SHOWN_EARLIER = 10


def print_study(study: Study, samples: Sequence[dict[str, Any]], starts: Sequence[str] = ()) -> None:
    """The parsed study, and the first configurations; `starts` are sentences about what suggests them."""
    console = new_console()
    size = study.search_space.size
    of = "" if size == float("inf") else f" of {plural(int(size), 'configuration')}"
    trials = "no limit of trials" if study.trials is None else plural(study.trials, "trial") + of
    console.print(
        f"{study.name}: {study.declared_trial.name}, {trials}, at most {plural(study.budget.max_epochs, 'epoch')} each"
    )
    sooner = endings_beside_trials(study.budget, study.metric)
    if sooner:
        console.print(f"ends sooner after {' or '.join(sooner)}")
    second = f" and {study.second.mode}imise {study.second.metric}" if study.second else ""
    by = f"with {study.search!r} and {study.scheduler!r}, seed {study.seed}"
    console.print(f"{study.mode}imise {study.metric}{second} {by}")
    advice = study.scheduler.advice(study.budget.max_epochs)
    for note in [*([advice] if advice else []), *study.notices]:
        console.print(f"note: {note}")
    table = new_table("dimension", "domain", "when")
    for name, domain in study.search_space.dimensions.items():
        when = ", ".join(f"{other} in {list(values)}" for other, values in domain.conditions)
        table.add_row(name, domain.describe(), when)
    for name, value in study.search_space.constants.items():
        table.add_row(name, f"{value!r} (constant)", "")
    console.print(table)
    for sentence in starts:
        console.print(f"note: {sentence}")
    console.print(f"the first {plural(len(samples), 'configuration')}:")
    for config in samples:
        console.print("  " + settings(config))


def print_earlier(runs: Sequence[tuple[str, int, str | None]]) -> None:
    """A row for each earlier run: name, trials, and why nothing is learned from it (None if something is)."""
    table = new_table("earlier run", "trials", "teaches")
    for name, trials, why_not in runs[:SHOWN_EARLIER]:
        table.add_row(printable(name), str(trials), "where to start" if why_not is None else f"nothing: {why_not}")
    new_console().print(table)
    rest = [why_not is None for _, _, why_not in runs[SHOWN_EARLIER:]]
    if rest:
        new_console().print(
            f"and {plural(len(rest), 'older run')}, of which {sum(rest)} teach where to start; all with --json"
        )


def print_refinement(found: Refinement, path: Path) -> None:
    """How each hyperparameter changed, and how to run the new study."""
    console = new_console()
    console.print(found.summary)
    new = found.study.search_space
    table = new_table("hyperparameter", "was", "is now")
    for name in found.before.names:
        table.add_row(name, _entry(found.before, name), _entry(new, name) if name in new.names else "left out")
    console.print(table)
    trials = "" if found.study.trials is None else f" ({plural(found.study.trials, 'trial')})"
    asked = found.study.declared_trial.asked_for
    how = f"tuner.Search({str(path)!r})" if asked else command("run", str(path))
    console.print(f"written to {path}; run it{trials} with:\n{how}")


def _entry(space: Space, name: str) -> str:
    domain = space.dimensions.get(name)
    return repr(space.constants[name]) if domain is None else domain.describe()
