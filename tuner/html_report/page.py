"""The page: what it says in its sections, put into `run.html` with its style, its script and plotly's."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuner.errors import RunFolderError
from tuner.foreign_text import in_utf8, printable
from tuner.history.logs import end_of_log
from tuner.history.records import flat_config, saved_epochs, saved_share
from tuner.html_report.elements import Table, cell, figures_of, render
from tuner.plots import calibration, classes, curves, mistakes, progress, space
from tuner.results import findings
from tuner.results.text import best_so_far, ending, outcome, short

if TYPE_CHECKING:
    from tuner.results.run import Run

REPORT = "report.html"
SHOWN_DAMAGES = 3
MOST_TRIALS = 1000  # of the table of trials
LATER_AXES: tuple[progress.Against, ...] = ("epochs", "time")
OF_THE_WINNER = (mistakes.confusion_matrix, classes.class_scores, calibration.reliability, curves.winner_curves)
LEARNED = (space.importances, space.parallel_coordinates, space.slices, space.contour, space.ranks)


def write_report(run: Run) -> str:
    """Write the run's `report.html`, replacing an older one; returns its path or URI.

    Raises RunFolderError where the folder can't be written to.
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


def report_html(run: Run) -> str:
    """The page: HTML that needs no other file and no network."""
    best, failed = run.best, findings.failures(run)
    trained, saved = run.record.epochs(), saved_epochs(run.record.trials.values(), run.longest_trial)
    return render(
        "run.html",
        run=run,
        best=best,
        certainty=findings.certainty(run),
        runner_up=findings.runner_up(run),
        test=_test_metrics(run),
        winner_settings=flat_config(best.config) if best else {},
        incumbent=best_so_far(run.record),
        ending=ending(run),
        trained=trained,
        saved=saved,
        saved_share=saved_share(run.record.trials.values(), run.longest_trial),
        dimensions=_dimensions(run),
        constants=run.space.constants,
        failures=failed,
        outputs={one.first.trial: printable(end_of_log(run.folder, one.first.trial)) for one in failed},
        advice=findings.advice(run),
        trials=_trials(run),
        images=mistakes.shown_mistakes(run),
        going=figures_of(
            draw(run) for draw in (progress.optimisation_history, curves.learning_curves, progress.distribution)
        ),
        more_histories=figures_of(progress.optimisation_history(run, axis) for axis in LATER_AXES),
        learned=figures_of(draw(run) for draw in LEARNED) if len(run.outcomes()[1]) else [],
        spent=figures_of(draw(run) for draw in (progress.timeline, progress.savings, progress.costs)),
        wrong=figures_of(draw(run) for draw in OF_THE_WINNER),
        unsure=mistakes.shown_least_sure(run),
        facts=_facts(run),
        damages=run.damages[:SHOWN_DAMAGES],
        more_damages=max(0, len(run.damages) - SHOWN_DAMAGES),
    )


# Inside


def _trials(run: Run) -> Table:
    """A row per trial, the best first."""
    record = run.record
    names = list(dict.fromkeys(name for trial in record.trials.values() for name in flat_config(trial.config)))
    searched = [name for name in names if name not in run.space.constants]
    notes = {trial: "; ".join(note.text for note in record.steered.notes_of(trial)) for trial in record.trials}
    noted = ["notes"] if any(notes.values()) else []

    order = list(({trial.trial: trial for trial, _ in record.ranked()} | record.trials).values())
    rows = []
    for trial in order[:MOST_TRIALS]:
        found, flat = record.best_of(trial.trial), flat_config(trial.config)
        cells = [trial.trial, outcome(trial), trial.epoch, found[1] if found else None]
        cells += [round(trial.running_seconds, 1), *(flat.get(name) for name in searched)]
        cells += [notes[trial.trial] for _ in noted]
        rows.append(tuple(map(cell, cells)))
    columns = ("trial", "status", "epochs", run.metric, "seconds", *searched, *noted)
    return Table(columns, tuple(rows), max(0, len(order) - MOST_TRIALS))


def _test_metrics(run: Run) -> list[tuple[str, str]]:
    """What the winner scored on the test split, a share with its standard error."""
    images = run.images.get("test")
    told = []
    for name, value in run.best_metrics.items():
        if name.startswith("test_") and isinstance(value, int | float):
            share = images and name.endswith("_accuracy")
            error = f" ± {findings.share_error(value, images):.2g}" if share and images else ""
            told.append((name, short(value) + error))
    return told


def _dimensions(run: Run) -> list[tuple[str, str, str]]:
    """Name, domain and condition of each hyperparameter."""
    return [
        (name, domain.describe(), ", ".join(f"{other} is {_any_of(values)}" for other, values in domain.conditions))
        for name, domain in run.space.dimensions.items()
    ]


def _command(arguments: Sequence[str]) -> str:
    """What was typed, as it can be typed again."""
    if arguments and arguments[0].endswith("__main__.py"):
        return shlex.join(["python", "-m", "tuner", *arguments[1:]])
    return shlex.join(arguments)


def _any_of(values: Sequence[Any]) -> str:
    return " or ".join(map(str, values))


def _facts(run: Run) -> list[tuple[str, str]]:
    """What it takes to do the search again."""
    info = run.info
    machine = info.get("machine") or {}
    versions = ", ".join(f"{name} {found}" for name, found in (info.get("versions") or {}).items() if found)
    facts = {
        "study": info.get("study_file") or "declared in Python",
        "command": _command(info.get("command") or []),
        "seed": info.get("seed"),
        "what a trial is": info.get("trial"),
        "weights": info.get("started_from"),
        "data fingerprint": info.get("data_fingerprint"),
        "search": info.get("search"),
        "scheduler": info.get("scheduler"),
        "learned from": info.get("warm_start"),
        "trials at once": info.get("concurrency"),
        "a trial's resources": ", ".join(f"{short(v)} {k}" for k, v in (info.get("resources") or {}).items() if v),
        "machine": ", ".join(f"{name} {value}" for name, value in machine.items() if value),
        "versions": versions + (f", Python {info['python']}" if info.get("python") else ""),
        "git commit": info.get("git_commit"),
        "begun": info.get("started"),
        "ended": info.get("ended"),
        "run folder": run.path,
        "report written by": f"Python {platform.python_version()}",
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]
