"""What the commands print about runs, as tables of plain text that are also readable in a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.console.printing import new_console, new_table
from tuner.errors import one_line
from tuner.history.logs import end_of_log
from tuner.history.records import TrialRecord, flat_config
from tuner.history.similar_failures import failure_groups
from tuner.history.trial_record import FILES
from tuner.results.cleaning import PARTS, Holding, size_of
from tuner.results.comparison import ComparedRuns
from tuner.results.front import second_of
from tuner.results.run import RecordedRun
from tuner.results.seeds import repeated, verdict
from tuner.results.time_left import features_told
from tuner.results.trial_rows import Cells, second_cell
from tuner.results.trial_texts import ended_how, epochs_told, why_stopped
from tuner.results.wording import (
    best_so_far,
    duration,
    ending,
    epochs_spent,
    front_in_words,
    plural,
    report_of,
    settings,
    shipped,
    short,
    shown_path,
    trials_and_repeats,
    valued,
)
from tuner.text import command, printable

if TYPE_CHECKING:
    from tuner.doctor.checks import Finding
    from tuner.inspection import Prediction

SHOWN_DAMAGES = 3
SHOWN_FAILURES = 4  # kinds of failures that are shown in addition to the most frequent
FEWEST_ROWS, BESIDE = 5, 3  # trials shown on the smallest terminal; lines of the table's head and the prompt
GAP = 2  # characters between two columns of a table
NARROWEST_NAME, USUAL_NAME = 8, 16  # width of the metric's name: at least, and to leave room for settings
LEAST_MISSED = ("at", "time", "epochs", "status", "seeds")  # columns that a narrow terminal drops, in this order
TITLES = {"best": "best/", "wandb": "W&B", "ray": "Ray"}
PLACES = {
    "sessions": "in the temporary folder, left by searches that are dead (--ray)",
    "cache": "in tuner's cache of decoded images (--cache)",
}


def print_comparison(found: ComparedRuns) -> None:
    """A row per run, a row per group of runs if there are groups, and which is better at equal cost."""
    console = new_console()
    for columns in (found.table, *[found.by_group] * found.has_groups):
        table = new_table(*map(str, columns.columns))
        for _, row in columns.iterrows():
            table.add_row(*("" if value is None or value != value else short(value) for value in row))  # noqa: PLR0124 -- NaN
        console.print(table)
    console.print(found.conclusion)


def print_runs(runs: Sequence[RecordedRun], storage: str) -> None:
    """A row per run, newest first."""
    if not runs:
        print(printable(f"no runs under {storage}"))
        return
    named = any(run.title != run.name for run in runs)
    table = new_table("run", *["name"] * named, "status", "trials", "metric", "best", "time")
    for run in runs:
        found = run.record.standing_of(run.best.trial) if run.best else None
        value = valued(found) if found else ""
        name = [run.title if run.title != run.name else ""] * named
        trials, seconds = str(run.record.configurations), duration(run.record.wall_seconds)
        table.add_row(run.path, *name, run.status, trials, run.metric, value, seconds)
    new_console().print(table)


def print_run(run: RecordedRun, traceback_of: str | None = None, *, every: bool = False) -> None:
    """The trials, the best first, as many as fit on a screen or `every` one; failures, winner. Or one trial in full."""
    if traceback_of is not None:
        _print_trial(run, traceback_of)
        return
    console, record = new_console(), run.record
    trials = record.rows()
    wall, count = duration(record.wall_seconds), trials_and_repeats(record)
    heading, below = f"{run.title} in {run.path}: {run.status}, {count}, {wall}", [*_told(run), *_winner(run)]
    shown = trials
    if console.is_terminal and not every:
        _, names, hidden = _columns_that_fit(run, trials[: console.size.height], console.width)
        beside = (heading, *_left_out(run, len(trials), names, hidden), *below)
        room = console.size.height - BESIDE - sum(len(Text(line).wrap(console, console.width)) for line in beside)
        shown = trials[: max(FEWEST_ROWS, room)]
    columns, names, hidden = _columns_that_fit(run, shown, console.width)
    console.print(heading)
    console.print(_trials_table(run.metric, columns, console.width))
    for line in (*_left_out(run, len(trials) - len(shown), names, hidden), *below):
        console.print(line)


def _told(run: RecordedRun) -> list[str]:
    """Features that are computed now, failures, notices and notes, a line each."""
    lines = [f"trial {trial} is {said}" for trial, said in features_told(run.record, time.time()).items()]
    lines += [
        f"{plural(len(group.trials), 'trial')} failed, as trial {group.first.trial}: {group.described}"
        for group in failure_groups(run.record)
    ]
    lines += [f"note: {notice}" for notice in run.record.notices]
    for written in run.record.steered.notes:
        about = f"trial {written.trial}: " if written.trial else ""
        lines.append(f"note by {written.by}: {about}{written.text}")
    if run.best is None and run.end_reason == "failures":
        lines.append(f"the search ended as {ending(run)}")
    return lines


def _columns_that_fit(
    run: RecordedRun, trials: Sequence[TrialRecord], width: int
) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """The cells of the columns, settings included, that fit into a row without line breaks; and the columns left out.
    `value` is the metric's column: its name may be broken into lines, its values may not.
    """
    cells, second = Cells(run.record, run.longest_trial), second_of(run)
    bests = [cells.worth(trial) for trial in trials]
    several = any(best is not None and best.seeds > 1 for best in bests)
    columns = {
        "trial": [cells.trial(trial).text for trial in trials],
        "status": [cells.status(trial).text for trial in trials],
        "epochs": [cells.epochs(trial).text for trial in trials],
        "value": [cells.value(trial).text for trial in trials],
        **({second.metric: [second_cell(run, second, trial).text for trial in trials]} if second else {}),
        **({"seeds": [str(best.seeds) if best else "" for best in bests]} if several else {}),
        "at": [str(best.epoch) if best else "" for best in bests],
        "time": [cells.time(trial).text for trial in trials],
    }
    name, hidden = cell_len(printable(run.metric)), []
    for column in (each for each in LEAST_MISSED if each in columns):
        if width - _width(columns, min(name, NARROWEST_NAME)) >= 0:
            break
        del columns[column]
        hidden.append(column)
    names = _settings_that_fit(run, trials, width - _width(columns, min(name, USUAL_NAME)) - GAP)
    if names or not any(trial.config for trial in trials):
        flat = [flat_config(trial.config) for trial in trials]
        columns["settings"] = [settings({name: c[name] for name in names if name in c}) for c in flat]
    return columns, names, hidden


def _width(columns: dict[str, list[str]], name: int) -> int:
    """The width of a table of trials in characters, of which the metric's name takes `name`."""
    wide = [
        max([name if column == "value" else len(column), *map(cell_len, cells)]) for column, cells in columns.items()
    ]
    return sum(wide) + GAP * (len(wide) - 1)


def _trials_table(metric: str, columns: dict[str, list[str]], width: int) -> Table:
    """The table; only the metric's name may be broken into lines."""
    table = new_table(*(metric if column == "value" else column for column in columns))
    name = cell_len(printable(metric))
    for column, described in zip(columns, table.columns, strict=True):
        described.no_wrap = column != "value"
        if column == "value":
            cells = max(map(cell_len, columns[column]), default=0)
            described.width = max(cells, 1, min(name, width - _width(columns, 0) + cells))
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def _settings_that_fit(run: RecordedRun, trials: Sequence[TrialRecord], room: int) -> list[str]:
    """Names of the settings that fit into so many characters: if not all fit, the most important ones."""
    configs = [flat_config(trial.config) for trial in trials]
    every = list(dict.fromkeys(name for config in configs for name in config))
    needed = {name: max(len(settings({name: c[name]})) for c in configs if name in c) + 1 for name in every}
    if sum(needed.values()) <= room:
        return every
    mattering = [one.name for one in run.importances if one.name in needed]
    kept = []
    for name in dict.fromkeys([*mattering, *(name for name in every if name not in run.space.constants)]):
        if needed[name] <= room:
            room -= needed[name]
            kept.append(name)
    return [name for name in every if name in kept]


def _left_out(run: RecordedRun, trials: int, names: Sequence[str], hidden: Sequence[str]) -> list[str]:
    """How many trials and settings, and which columns, aren't shown, and how to see them."""
    every = {name for trial in run.record.trials.values() for name in flat_config(trial.config)}
    lines = [f"and {plural(trials, 'more trial')}; all with: {command('show', run.path, '--all')}"] if trials else []
    missing = [f"column {name!r}" for name in hidden]
    if len(names) < len(every):
        missing.append(f"{plural(len(every) - len(names), 'setting')} of each trial")
    if missing:
        lines.append(
            f"{', '.join(missing)} not shown, as the terminal is too narrow: --trial ID shows one trial, a pipe all"
        )
    return lines


def print_winner(run: RecordedRun) -> None:
    """The best trial, its scores, and where its files are."""
    console = new_console()
    for line in _winner(run):
        console.print(line)


def _winner(run: RecordedRun) -> list[str]:
    """The lines of `print_winner`; none without a winner."""
    if run.best is None:
        return []
    lines = [f"best: {best_so_far(run.record, run.validation_images)}"]
    told = verdict(run, repeated(run))
    lines += [told] if told else []
    tests = ", ".join(f"{name} {short(value)}" for name, value in run.best_metrics.items() if name.startswith("test_"))
    if tests:
        weights = run.info.get("started_from")
        lines.append(f"on the test split: {tests}" + (f" (started from {weights})" if weights else ""))
    lines += shipped(run)
    told = front_in_words(run)
    lines += [told] if told else []
    lines.append(epochs_spent(run.record))
    why, report = ending(run), report_of(run)
    lines += [f"the search ended as {why}"] if why else []
    lines.append(f"run folder: {run.path}")
    return [*lines, *([f"report: {report}"] if report else [])]


def print_failure(run: RecordedRun, stream: IO[str]) -> None:
    """Why a search has no winner."""
    groups = failure_groups(run.record)
    if not groups:
        print(printable(f"no trial reported {run.metric}; see {run.path}"), file=stream)
        return
    total = trials_and_repeats(run.record)
    first, *others = groups
    print(printable(f"no trial succeeded: {len(first.trials)} of {total} failed, {first.described}"), file=stream)
    for group in others[:SHOWN_FAILURES]:
        print(printable(f"{len(group.trials)} of {total} failed, {group.described}"), file=stream)
    if len(others) > SHOWN_FAILURES:
        print(f"{len(others) - SHOWN_FAILURES} more kinds of failures", file=stream)
    if run.end_reason == "failures":
        print(printable(f"the search ended as {ending(run)}"), file=stream)
    what = "for its traceback" if first.first.traceback else "to see it"
    print(printable(f"{what}: {command('show', run.path, '--trial', first.first.trial)}"), file=stream)


def print_damages(damages: Sequence[str], stream: IO[str], *, of: str = "") -> None:
    """The first few damaged parts, and how many more there are; `of` names their run."""
    for damage in damages[:SHOWN_DAMAGES]:
        print(printable(f"note: {of}{damage}"), file=stream)
    if len(damages) > SHOWN_DAMAGES:
        more = len(damages) - SHOWN_DAMAGES
        print(printable(f"note: {of}{more} more of this kind, {len(damages)} in total"), file=stream)


def print_predictions(predictions: Iterable[Prediction], columns: Sequence[str]) -> None:
    """A row per image, with the answer in these columns."""
    table = new_table("image", *columns)
    for prediction in predictions:
        table.add_row(str(prediction.path), *prediction.shown)
    new_console().print(table)


def _print_trial(run: RecordedRun, trial_id: str) -> None:
    trial = run.trial(trial_id)
    console = new_console()
    first = f"trial {trial.trial}: {ended_how(trial)}, seed {trial.seed}, {duration(trial.running_seconds)}"
    why = why_stopped(run.record).get(trial.trial) or features_told(run.record, time.time()).get(trial.trial)
    console.print(f"{first}; {why}" if why else first)
    for stay in trial.stays:
        console.print(f"on {stay.described}")
    if trial.worker is not None:
        console.print(f"by worker {printable(trial.worker)}, which has what it printed")
    others = [other.trial for other in run.record.same_configuration(trial) if other is not trial]
    if others:
        console.print(f"the same configuration under other seeds: {', '.join(others)}")
    for name, value in flat_config(trial.config).items():
        console.print(f"  {name} = {value!r}")
    names, rows = epochs_told(trial)
    table = new_table(*names)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for written in run.record.steered.notes_of(trial.trial):
        console.print(f"note by {written.by}: {written.text}")
    for attempt in trial.attempts.tried_again:
        console.print(f"tried again after epoch {attempt.epoch}, {attempt.cause}: {attempt.message}")
        if attempt.traceback and not trial.traceback:
            console.print(attempt.traceback)
    if trial.message:
        console.print(trial.message)
    if trial.traceback:
        console.print(trial.traceback)
    _print_output(run, trial, console)
    if written_bytes := run.folder.held_bytes(f"{FILES}/{trial.trial}"):
        console.print(f"its files: {run.folder.child(f'{FILES}/{trial.trial}').uri} ({megabytes(written_bytes)} MB)")


def _print_output(run: RecordedRun, trial: TrialRecord, console: Console) -> None:
    """The last lines of a failed trial's output; for others the place of the output."""
    end = end_of_log(run.folder, trial.trial)
    if not end:
        return
    whole = command("show", run.path, "--trial", trial.trial, "--log")
    if trial.status == "failed":
        console.print(f"the last lines that it printed; for all of them: {whole}")
        console.print(end)
    else:
        console.print(f"for what it printed: {whole}")


def finding_line(finding: Finding) -> str:
    """The finding_line of a finding: `failed     CPU: cache: there is no room; free some`."""
    fix = f"; {finding.fix}" if finding.fix else ""
    return printable(f"{finding.status:<10} {finding.where}: {finding.check}: {one_line(finding.said + fix)}")


def findings_summary(findings: Sequence[Finding]) -> str:
    """The last finding_line."""
    broken = sum(finding.status == "failed" for finding in findings)
    noticed = sum(finding.status == "notice" for finding in findings)
    if broken:
        return f"{plural(broken, 'check')} failed: searches won't work here until this is fixed"
    return f"searches will work here ({plural(noticed, 'notice') if noticed else 'nothing to fix'})"


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
        console.print(f"{megabytes(size_of(paths))} MB {PLACES[name]}")


def megabytes(size: int) -> str:
    """Bytes as MB with one digit: 12.3."""
    return f"{size / 1e6:,.1f}"
