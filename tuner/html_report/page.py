"""The pages of a run and of a comparison: the content of their sections, put into `run.html` or `comparison.html`."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Sequence
from typing import Any

from tuner.errors import RunFolderError
from tuner.history.data_record import files_left_out
from tuner.history.logs import end_of_log
from tuner.history.records import flat_config, saved_epochs, saved_share
from tuner.html_report.elements import Table, cell, figures_of, packed, render, table_of
from tuner.html_report.first_screen import copies, history
from tuner.html_report.trial_data import trial_data
from tuner.plots import Plot, curves, mistakes, of_tasks, progress, space
from tuner.plots.configurations import tried
from tuner.plots.groups import comparison_against
from tuner.plots.tradeoff import front_growth, tradeoff
from tuner.results.comparison import ComparedRuns
from tuner.results.courses import Against
from tuner.results.findings import findings_of
from tuner.results.gains import gains
from tuner.results.importance import FEWEST_TRIALS
from tuner.results.run import RecordedRun
from tuner.results.seeds import repeated, verdict
from tuner.results.trial_rows import searched, trial_rows
from tuner.results.winner_metrics import class_gains, epoch_metrics, first_test_metric, test_metrics
from tuner.results.wording import (
    REPORT,
    best_so_far,
    ending,
    epochs_spent,
    going_on_by,
    repeats_of,
    share_interval,
    shipped,
    short,
    trained_again,
    usual_metric,
)
from tuner.text import command, in_utf8, printable

SHOWN_DAMAGES = 3
MOST_TRIALS = 1000  # in the table of trials
LATER_AXES: tuple[Against, ...] = ("epochs", "time")
SPENT = (progress.timeline, progress.savings, progress.costs)
GOING = (
    *(progress.optimisation_history, tradeoff, front_growth, curves.learning_curves, progress.distribution),
    curves.winner_curves,
)
LEARNED = (space.parallel_coordinates, space.slices, space.contour, space.ranks)
COSTS: tuple[Against, ...] = ("epochs", "time", "trials")


def write_report(run: RecordedRun) -> str:
    """Write the run's `report.html`, replacing an older one; returns its path or URI.

    Raises RunFolderError if the folder can't be written to.
    """
    page = in_utf8(report_html(run)).encode()
    try:
        run.folder.write(REPORT, page)
    except OSError as error:
        raise RunFolderError(
            f"a report is written into the run's folder, got {run.path!r} ({error.strerror}); copy the run to "
            "where you can write"
        ) from error
    return run.folder.child(REPORT).uri


def report_html(run: RecordedRun) -> str:
    """The page: HTML that needs no other file and no network."""
    best, images, found, seeded = run.best, run.validation_images, findings_of(run), repeated(run)
    worth = run.record.standing_of(best.trial) if best else None
    enough = len(run.record.reported()) >= FEWEST_TRIALS
    names, shown = searched(run), run.record.rows()[:MOST_TRIALS]
    metrics = run.record.metric_names()
    trained, saved = run.record.epochs(), saved_epochs(run.record.trials.values(), run.longest_trial)
    return render(
        "run.html",
        run=run,
        best=best,
        worth=worth,
        repeated=seeded,
        repeats=repeats_of(run.record),
        shipped=shipped(run),
        trained_again=trained_again(run.record),
        verdict=verdict(run, seeded),
        confirm_command=None if run.info["asked"] else going_on_by(run, confirm=0),
        certainty=found.certainty,
        runner_up=next(iter(run.record.ranked()[1:]), None),
        test=test_metrics(run),
        first_test=first_test_metric(run),
        epoch_metrics=epoch_metrics(run),
        class_gains=class_gains(run),
        winner_settings=in_utf8(flat_config(best.config)) if best else {},
        incumbent=best_so_far(run.record, images),
        usual=usual_metric(run.record, best, worth) if best and worth else None,
        share_interval=lambda metric, value: share_interval(metric, value, images),
        ending=ending(run),
        trained=trained,
        spent_on=epochs_spent(run.record),
        saved=saved,
        saved_share=saved_share(run.record.trials.values(), run.longest_trial),
        dimensions=_dimensions(run),
        constants=run.space.constants,
        failures=found.failures,
        outputs={one.first.trial: printable(end_of_log(run.folder, one.first.trial)) for one in found.failures},
        advice=found.advice,
        trials=trial_rows(run, shown),
        searched=names,
        left_out=run.record.configurations - len(shown),
        trial_data=packed(trial_data(run, [one for trial in shown for one in run.record.same_configuration(trial)])),
        metrics=metrics,
        first_metric=next((name for name in metrics if name != run.metric), run.metric),  # whose curves are above
        gains=gains(run),
        copies=copies(run),
        history=history(run),
        report_command=command("report", run.path),
        images=mistakes.shown_mistakes(run),
        going=figures_of(draw(run) for draw in GOING if draw is not progress.distribution or enough),
        more_histories=figures_of(progress.optimisation_history(run, axis) for axis in LATER_AXES),
        learned=figures_of(_learned(run, alone=len(names) <= 1) if enough else ()),
        spent=figures_of(draw(run) for draw in SPENT if draw is not progress.savings or saved),
        wrong=figures_of(draw(run) for draw in of_tasks().values()),
        unsure=mistakes.shown_least_sure(run),
        facts=_facts(run),
        not_read=files_left_out(run.folder),
        damages=run.damages[:SHOWN_DAMAGES],
        more_damages=max(0, len(run.damages) - SHOWN_DAMAGES),
    )


# Inside


def _learned(run: RecordedRun, *, alone: bool) -> list[Plot | None]:
    """The figures of hyperparameters; `alone` if there is only one, without others to compare with."""
    found = tried(run)
    if alone:
        return [space.slices(run, found)]
    return [space.importances(run), *(draw(run, found) for draw in LEARNED)]


def _dimensions(run: RecordedRun) -> list[tuple[str, str, str]]:
    """Name, domain and condition of each hyperparameter."""
    return [
        (name, domain.describe(), ", ".join(f"{other} is {_any_of(values)}" for other, values in domain.conditions))
        for name, domain in run.space.dimensions.items()
    ]


def _command(arguments: Sequence[str]) -> str:
    """The user's command, quoted so that it can be typed again."""
    if arguments and arguments[0].endswith("__main__.py"):
        return shlex.join(["python", "-m", "tuner", *arguments[1:]])
    return shlex.join(arguments)


def _any_of(values: Sequence[Any]) -> str:
    return " or ".join(map(str, values))


def _facts(run: RecordedRun) -> list[tuple[str, str]]:
    """The facts that are needed to repeat the search."""
    info = run.info
    machine = info.get("machine") or {}
    versions = ", ".join(f"{name} {found}" for name, found in (info.get("versions") or {}).items() if found)
    facts = {
        "study": info.get("study_file") or "declared in Python",
        "command": _command(info.get("command") or []),
        "seed": info.get("seed"),
        "what a trial is": _without_address(info.get("trial")),
        "weights": info.get("started_from"),
        "data fingerprint": info.get("data_fingerprint"),
        "weights fingerprint": info.get("weights_fingerprint"),
        "search": info.get("search"),
        "scheduler": info.get("scheduler"),
        "learned from": info.get("warm_start"),
        "trials at once": info.get("concurrency"),
        "a trial's resources": ", ".join(f"{short(v)} {k}" for k, v in (info.get("resources") or {}).items() if v),
        "machine": ", ".join(_machine_part(name, value) for name, value in machine.items() if value),
        "versions": versions + (f", Python {info['python']}" if info.get("python") else ""),
        "git commit": info.get("git_commit"),
        "begun": info.get("started"),
        "ended": info.get("ended"),
        "run folder": run.path,
        "report written by": f"Python {platform.python_version()}",
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def _without_address(described: Any) -> Any:
    """The `repr` of a function or an object, without its memory address."""
    if not isinstance(described, str):
        return described
    bare = re.sub(r" at 0x[0-9a-fA-F]+", "", described)
    return bare[1:-1] if bare != described and bare.startswith("<") and bare.endswith(">") else bare


def _machine_part(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, int | float):
        return f"{name.removesuffix('_bytes')} {value / 1e9:.1f} GB"
    return f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"


def comparison_html(comparison: ComparedRuns) -> str:
    """Runs side by side: HTML that needs no other file and no network."""
    conclusion = comparison.conclusion
    return render(
        "comparison.html",
        names=comparison.names,
        conclusion=conclusion[0].upper() + conclusion[1:],
        runs=table_of(comparison.table),
        groups=table_of(comparison.by_group) if comparison.has_groups else None,
        going=figures_of(comparison_against(comparison, against) for against in COSTS),
        importances=_importances_of_runs(comparison),
        winners=_winners_of_runs(comparison),
    )


def _importances_of_runs(comparison: ComparedRuns) -> Table:
    """A row per hyperparameter, a column per run: the share of the variance that it explains, with its error."""
    shares = [
        {one.name: f"{one.share:.0%} ± {one.deviation:.0%}" for one in run.importances} for run in comparison.runs
    ]
    names = dict.fromkeys(name for of_run in shares for name in of_run)
    rows = [(name, *(of_run.get(name, "") for of_run in shares)) for name in names]
    return Table(("hyperparameter", *comparison.names), tuple(rows))


def _winners_of_runs(comparison: ComparedRuns) -> Table:
    """A row per hyperparameter, a column per run: the winner's value."""
    configs = [flat_config(run.best.config) if run.best else {} for run in comparison.runs]
    names = dict.fromkeys(name for config in configs for name in config)
    rows = [(name, *(cell(config.get(name)) for config in configs)) for name in names]
    return Table(("hyperparameter", *comparison.names), tuple(rows))
