"""The verbs of `python -m tuner`: parse, call, print.

Progress goes to stderr, and so does what the user's own code prints; results go to stdout. Exit codes: 0 a winner, 1 no
trial succeeded, 2 bad input (nothing was started, nothing written), 130 interrupted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tuner import budget
from tuner.errors import StudyError, TrialError, one_line
from tuner.resources import AUTO
from tuner.results.foreign_text import printable
from tuner.starting import release_interrupt

if TYPE_CHECKING:
    from tuner.console.progress import Plan
    from tuner.results import Run
    from tuner.study import Study

WATCH_SECONDS = 0.5
SUCCESS, NO_WINNER, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    if options.verb not in (_run, _resume):  # which have nothing to put in order until they show something
        release_interrupt()
    try:
        return int(options.verb(options))
    except (StudyError, TrialError) as error:
        print(printable(f"tuner: {one_line(str(error))}"), file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt as interrupt:
        before = options.verb in (_run, _resume)
        otherwise = "interrupted before the search started; nothing was written" if before else "interrupted"
        print(f"tuner: {interrupt or otherwise}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `tuner show RUN | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SUCCESS


# Verbs


def _run(options: argparse.Namespace) -> int:
    from tuner.console.progress import Plan, display
    from tuner.study_file import load_study

    changes = _study_options(options)
    with redirect_stdout(sys.stderr):
        study = load_study(options.space)
        ready = study.with_options(**changes)
    plan = Plan.of(ready)
    ready.check_here(cluster=options.address is not None)
    from tuner.driver import run, wandb_mode
    from tuner.results.wandb_mirror import HOW_TO_SWITCH_ON

    if options.wandb is None and wandb_mode(None) == "off" and not options.quiet:
        print(HOW_TO_SWITCH_ON, file=sys.stderr)
    release_interrupt()
    with redirect_stdout(sys.stderr), display(plan, sys.stderr, quiet=options.quiet) as shown:
        finished = run(
            study,
            storage=options.storage,
            concurrency=options.concurrency,
            address=options.address,
            wandb=options.wandb,
            nice=options.nice,
            grace=options.grace,
            listeners=[shown],
            **changes,
        )
    return _conclude(finished, options)


def _resume(options: argparse.Namespace) -> int:
    from tuner.console.progress import display
    from tuner.results import load_run

    earlier = load_run(options.run)
    _tell_damages(earlier)
    plan = _plan_of(earlier, **_limits(options))
    from tuner.driver import resume

    release_interrupt()
    with redirect_stdout(sys.stderr), display(plan, sys.stderr, quiet=options.quiet, earlier=earlier.events) as shown:
        finished = resume(
            options.run,
            concurrency=options.concurrency,
            address=options.address,
            wandb=options.wandb,
            nice=options.nice,
            grace=options.grace,
            listeners=[shown],
            take_over=options.take_over,
            **_limits(options),
        )
    return _conclude(finished, options)


def _plan_of(run: Run, **limits: Any) -> Plan:
    """What a run set out to do, with other limits where they are given."""
    from tuner.console.progress import Plan

    given = {name: value for name, value in limits.items() if value is not None}
    longest = {"max_epochs": run.budget.get("max_epochs") or run.longest_trial}
    return Plan.within(run.budget | longest | given, run.name, run.metric, run.mode)


def _tell_damages(*runs: Run) -> None:
    """What of the runs can't be read, on stderr."""
    from tuner.console.tables import print_damages

    for run in runs:
        print_damages(run.damages, sys.stderr, of=f"{run.path}: " if len(runs) > 1 else "")


def _check(options: argparse.Namespace) -> int:
    from tuner.console.tables import print_study
    from tuner.study_file import load_study

    with redirect_stdout(sys.stderr):
        study = load_study(options.space).with_options(**_study_options(options))
        study.check_here()
        if "pipeline" in study.strategies:  # makes the model, which takes torch's two seconds
            from tuner.driver.splitting import check_splits

            check_splits(study)
        first = samples(study, options.samples)
    if options.json:
        print(json.dumps({"study": study.name, "trials": study.trials, "samples": first}))
    else:
        print_study(study, first)
    return SUCCESS


def samples(study: Study, count: int) -> list[dict[str, Any]]:
    """What the study's search would try first, as far as it is known before any result."""
    from tuner.search import Proposals

    searcher = study.search.build(study.problem)
    proposals = Proposals(study.problem, searcher, starting_points=study.starting_points)
    found = (proposals.suggest(number) for number in range(count))
    return [config for config in found if config is not None]


def _runs(options: argparse.Namespace) -> int:
    from tuner.console.tables import print_damages, print_runs
    from tuner.results.run import survey

    runs, refused = survey(options.storage)
    if options.json:
        print(json.dumps([run.summary() for run in runs]))
    else:
        print_runs(runs, options.storage)
    print_damages(refused, sys.stderr, of="left out: ")
    for run in runs:
        print_damages(run.damages, sys.stderr, of=f"{run.path}: ")
    return SUCCESS


def _show(options: argparse.Namespace) -> int:
    from tuner.console.tables import print_run
    from tuner.results import load_run

    run = load_run(options.run)
    if options.watch:
        _watch(run)
        run = load_run(run.path)
    if options.json:
        print(json.dumps(run.trial_summary(options.trial) if options.trial else run.summary()))
    else:
        print_run(run, traceback_of=options.trial)
    _tell_damages(run)
    return SUCCESS


def _watch(run: Run) -> None:
    """Show a search that another process runs, until it ends or Ctrl-C."""
    from tuner.console.progress import display
    from tuner.results import EventFollower, load_run

    follower, alive = EventFollower(run.folder), True
    with suppress(KeyboardInterrupt):
        plan = _plan_of(run)
        with display(plan, sys.stderr, quiet=False, earlier=follower.new(), opening="followed") as shown:
            while alive:
                alive = load_run(run.path).alive  # asked before the last events are read
                for event in follower.new():
                    shown.on_event(event)
                time.sleep(WATCH_SECONDS if alive else 0)


def _report(options: argparse.Namespace) -> int:
    from tuner.results import load_run, write_report

    run = load_run(options.run)
    print(printable(write_report(run)))
    _tell_damages(run)
    return SUCCESS


def _refine(options: argparse.Namespace) -> int:
    from tuner.console.tables import print_refinement
    from tuner.results import load_run, refine

    path = Path(options.output)
    if path.suffix != ".py":
        raise StudyError(f"-o names a study file, which ends in .py, got {options.output!r}; add it")
    _check_new(path, "-o", force=options.force)
    with redirect_stdout(sys.stderr):
        run = load_run(options.run)
        found = refine(
            run, options.kind, quantile=options.quantile, configurations=options.configurations, trust=options.trust
        )
        text = found.text(path)
    _write_new(path, text, "-o", force=options.force)
    print_refinement(found, path)
    _tell_damages(run)
    return SUCCESS


def _check_new(path: Path, option: str, *, force: bool) -> None:
    if path.exists() and not force:
        raise StudyError(f"{option} names a new file, got {str(path)!r}, which exists; choose another, or add --force")


def _write_new(path: Path, text: str, option: str, *, force: bool) -> None:
    _check_new(path, option, force=force)
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise StudyError(f"{option} needs a file that can be written, got {str(path)!r} ({error.strerror})") from error


def _compare(options: argparse.Namespace) -> int:
    from tuner.console.tables import print_comparison
    from tuner.results import compare, comparison_html, load_run

    found = compare([load_run(path) for path in options.runs])
    if options.html is not None:
        _write_new(Path(options.html), comparison_html(found), "--html", force=options.force)
    if options.json:
        print(found.table.to_json(orient="records"))
    else:
        print_comparison(found)
    _tell_damages(*found.runs)
    return SUCCESS


def _export(options: argparse.Namespace) -> int:
    from tuner.results import export, load_run

    run = load_run(options.run)
    for file in export(run, options.kind, options.path):
        print(printable(file))
    _tell_damages(run)
    return SUCCESS


def _predict(options: argparse.Namespace) -> int:
    from tuner.console.tables import print_predictions
    from tuner.inspection import load_winner

    predictions = load_winner(options.run, trust=options.trust).predict(options.images)
    if options.json:
        print(json.dumps([asdict(prediction) for prediction in predictions], default=str))
    else:
        print_predictions(predictions)
    return SUCCESS


def _conclude(run: Run, options: argparse.Namespace) -> int:
    """Print the outcome of a search; the exit code it deserves."""
    from tuner.console.tables import print_failure, print_winner
    from tuner.results.quoting import command

    summary = run.summary()
    if options.json:
        print(json.dumps(summary))
    elif run.best is not None:
        print_winner(run)
    if run.status == "interrupted":
        by_itself = run.end_reason == "error"
        what = f"the search was cut off by an error: {run.info['interrupted_by']}" if by_itself else None
        what = what or f"interrupted ({run.end_reason})"
        print(printable(f"{what}; go on with:\n{command('resume', run.path)}"), file=sys.stderr)
        return NO_WINNER if by_itself else INTERRUPTED
    if run.best is None:
        print_failure(run, sys.stderr)
        return NO_WINNER
    return SUCCESS


# Arguments


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line and the way to the help, rather than the whole usage."""
        print(f"tuner: {message}; see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(BAD_INPUT)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m tuner", description="Hyperparameter search for image classifiers, on Ray Tune.")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=_Parser)
    _add_search_verbs(verbs)
    _add_result_verbs(verbs)
    return parser


def _add_search_verbs(verbs: argparse._SubParsersAction[Any]) -> None:
    """What declares, starts and continues a search."""
    run = verbs.add_parser("run", help="run the search that a study file declares")
    run.set_defaults(verb=_run)
    run.add_argument("space", metavar="SPACE.py", help="a file that declares `study = Study(...)`")
    _add_study_options(run)
    run.add_argument("--storage", default="runs", metavar="DIR|s3://…", help="where run folders lie (default: runs)")
    _add_driver_options(run)

    check = verbs.add_parser("check", help="check a study file and show what would be tried; starts nothing")
    check.set_defaults(verb=_check)
    check.add_argument("space", metavar="SPACE.py")
    _add_study_options(check)
    check.add_argument("--samples", type=_count, default=5, metavar="N", help="configurations to show (default: 5)")
    check.add_argument("--json", action="store_true", help="one JSON object on stdout")

    resume = verbs.add_parser("resume", help="go on with an interrupted run, or extend a finished one")
    resume.set_defaults(verb=_resume)
    resume.add_argument("run", metavar="RUN", help="a run folder, or a storage folder for its newest run")
    _add_limits(resume.add_argument_group("limits", "for the run in all, what it has spent included"))
    resume.add_argument("--take-over", action="store_true", help="go on here though another driver works on the run")
    _add_driver_options(resume)


def _add_result_verbs(verbs: argparse._SubParsersAction[Any]) -> None:
    """What reads runs."""
    runs = verbs.add_parser("runs", help="list the runs under a storage folder, newest first")
    runs.set_defaults(verb=_runs)
    runs.add_argument("--storage", default="runs", metavar="DIR|s3://…")
    runs.add_argument("--json", action="store_true", help="one JSON list on stdout")

    show = verbs.add_parser("show", help="a run's trials, winner, and failures by cause")
    show.set_defaults(verb=_show)
    show.add_argument("run", metavar="RUN", nargs="?", default="runs", help="default: the newest run under runs/")
    show.add_argument("--trial", metavar="ID", help="one trial: its epochs, and the traceback if it failed")
    show.add_argument("--watch", action="store_true", help="follow a search that another process runs, then show it")
    show.add_argument("--json", action="store_true", help="one JSON object on stdout")

    report = verbs.add_parser("report", help="write report.html into a run's folder, also while the run goes on")
    report.set_defaults(verb=_report)
    report.add_argument("run", metavar="RUN", nargs="?", default="runs", help="default: the newest run under runs/")

    refine = verbs.add_parser("refine", help="write a new study file around the good region of a run")
    refine.set_defaults(verb=_refine)
    refine.add_argument("run", metavar="RUN")
    refine.add_argument("-o", "--output", metavar="FILE.py", required=True)
    refine.add_argument(
        "--as",
        choices=["grid", "narrowed"],
        default="grid",
        dest="kind",
        help="a grid (default), or narrower ranges for the search algorithm",
    )
    refine.add_argument(
        "--quantile", type=_positive, default=0.25, metavar="SHARE", help="of the trials that count as good"
    )
    refine.add_argument(
        "--configurations", type=_count, default=30, metavar="N", help="of a grid, at most (default: 30)"
    )
    refine.add_argument("--force", action="store_true", help="replace the file if it exists")
    _add_trust(refine)

    compare = verbs.add_parser("compare", help="runs side by side, at equal cost")
    compare.set_defaults(verb=_compare)
    compare.add_argument("runs", metavar="RUN", nargs="+")
    compare.add_argument("--html", metavar="FILE", help="write the comparison as a page with its plots")
    compare.add_argument("--force", action="store_true", help="replace the file if it exists")
    compare.add_argument("--json", action="store_true", help="one JSON list on stdout")

    export = verbs.add_parser("export", help="write a run's trials for other tools")
    export.set_defaults(verb=_export)
    export.add_argument("run", metavar="RUN")
    export.add_argument("--to", choices=["csv", "parquet", "optuna", "tensorboard"], required=True, dest="kind")
    export.add_argument("path", metavar="PATH", help="a folder for tables; for optuna a new SQLite file")

    predict = verbs.add_parser("predict", help="classify images with a run's winner")
    predict.set_defaults(verb=_predict)
    predict.add_argument("run", metavar="RUN")
    predict.add_argument("images", metavar="IMAGE", nargs="+")
    predict.add_argument("--json", action="store_true", help="one JSON list on stdout")
    _add_trust(predict)


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust", action="store_true", help="run the study.py of a run that belongs to somebody else, if it is needed"
    )


def _add_study_options(parser: argparse.ArgumentParser) -> None:
    """What changes the study; `Study.with_options` takes the same."""
    group = parser.add_argument_group("study")
    _add_limits(group)
    group.add_argument(
        "--cpus-per-trial", type=_cpus, metavar="N|auto", dest="cpus", help="auto: a thread each, as many as fit"
    )
    group.add_argument(
        "--gpus-per-trial", type=_gpus, metavar="N|auto", dest="gpus", help="may be a fraction; auto: shared"
    )
    group.add_argument("--strategy", metavar="ddp|pipeline|dp|balanced_dp", help="how one trial uses several devices")
    group.add_argument("--placement", metavar="pack|spread", help="a trial's devices on one node, or over several")
    group.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="fix a hyperparameter")
    group.add_argument("--weights", metavar="imagenet|none|PATH", help="what training starts from")
    group.add_argument("--data-dir", metavar="DIR", help="where data sets lie or are downloaded to")
    group.add_argument("--seed", type=_natural, metavar="N")
    group.add_argument(
        "--no-history", action="store_const", const=False, dest="history", help="learn nothing from earlier runs"
    )
    group.add_argument("--name", metavar="NAME", help="the study's name, which is its folder's")


def _add_limits(group: argparse._ArgumentGroup) -> None:
    for limit in budget.LIMITS:
        reader = partial(_read, limit.quantity)
        group.add_argument(limit.option, type=reader, metavar=limit.metavar, help=limit.help)


def _add_driver_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it runs")
    group.add_argument("--concurrency", type=_count, metavar="N", help="trials at once, at most")
    group.add_argument("--address", metavar="HOST:PORT", help="an existing Ray cluster ('auto' to find it)")
    group.add_argument(
        "--wandb", choices=["off", "offline", "online"], help="Weights & Biases (default: online where logged in)"
    )
    group.add_argument("--nice", type=_natural, metavar="N", help="lower the workers' priority (0 to 19, default: 0)")
    group.add_argument("--grace", type=_amount, metavar="SECONDS", help="to end in order once told to (default: 25)")
    group.add_argument("--quiet", action="store_true", help="no progress on stderr")
    group.add_argument("--json", action="store_true", help="one JSON object on stdout")


def _study_options(options: argparse.Namespace) -> dict[str, Any]:
    names = (*budget.NAMES, "name", "cpus", "gpus", "strategy", "placement", "seed", "weights", "data_dir", "history")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    fixed = dict(_assignment(text) for text in options.set)
    return {**given, "fixed": fixed} if fixed else given


def _limits(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in budget.NAMES}


def _assignment(text: str) -> tuple[str, Any]:
    """`lr=0.1` as ("lr", 0.1); a value that is no Python literal is a string."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise StudyError(f"--set needs NAME=VALUE, got {text!r}; write --set lr=0.001")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return name, value


def _read(quantity: budget.Quantity, text: str) -> float:
    try:
        return quantity.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _read_or_auto(quantity: budget.Quantity, text: str) -> float | str:
    return text if text.strip().lower() == AUTO else _read(quantity, text)


_count = partial(_read, budget.COUNT)
_natural = partial(_read, budget.NATURAL)
_positive = partial(_read, budget.POSITIVE)
_amount = partial(_read, budget.AMOUNT)
_cpus = partial(_read_or_auto, budget.POSITIVE)
_gpus = partial(_read_or_auto, budget.AMOUNT)
