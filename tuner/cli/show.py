"""`tuner show`: a run in the terminal, also while it goes on."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tuner.cli.at_service import is_study, located, study_of
from tuner.cli.outcome import SUCCESS, tell_damages
from tuner.cli.parsing import port
from tuner.errors import StudyError
from tuner.machine.installation import check_serves
from tuner.text import printable

if TYPE_CHECKING:
    from tuner.results.run import RecordedRun

WATCH_SECONDS = 0.5
OVER = ("study_ended", "study_interrupted")  # events that the winner's score and the report may follow


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument(
        "run", metavar="RUN", nargs="?", default="runs", help="a run folder (default: the newest run under runs/)"
    )
    parser.add_argument("--trial", metavar="ID", help="one trial: its epochs, and the traceback if it failed")
    parser.add_argument("--log", action="store_true", help="with --trial: the trial's output")
    parser.add_argument("-f", "--follow", action="store_true", help="with --log: print new lines until the trial ends")
    parser.add_argument("--all", action="store_true", help="every trial, not only the best that fit the terminal")
    parser.add_argument("--watch", action="store_true", help="follow a running search to its end, then show it")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    group = parser.add_argument_group("in a browser")
    group.add_argument(
        "--web", action="store_true", help="serve a page that follows the run, only on this machine; Ctrl-C ends it"
    )
    group.add_argument("--port", type=port, metavar="N", help="port of that page (default: any free port)")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.console.tables import print_run
    from tuner.results import load_run
    from tuner.results.summaries import summary_of_run, summary_of_trial

    _check(options)
    if options.web:
        return _show_in_browser(options.run, options.port)
    run = load_run(located(options.run))
    if options.log:
        _show_log(run, options)
        return SUCCESS
    if options.watch:
        _watch(run)
        run = load_run(run.path)
    if options.json:
        trial = run.trial(options.trial) if options.trial else None
        print(json.dumps(summary_of_trial(trial, run.folder) if trial else summary_of_run(run)))
    else:
        print_run(run, traceback_of=options.trial, every=options.all)
        _name_report(run, options)
    tell_damages(run)
    return SUCCESS


def _show_in_browser(run: str, port: int | None) -> int:
    """Serve the page until Ctrl-C; for a service's study, print its page's address. Returns the exit code."""
    if is_study(run):
        study = study_of(run)
        print(f"{study.server}/studies/{study.id}")
        return SUCCESS
    check_serves()
    from tuner.machine.temporary import OwnedFolder, sweep
    from tuner.results import load_run
    from tuner.service.one_run import OneRun
    from tuner.service.web.server import show
    from tuner.service.web.settings import WebSettings

    found = load_run(located(run))
    sweep()
    with OwnedFolder("show") as folder, OneRun(found, folder) as service:
        show(service, WebSettings(port=port or 0), say=lambda text: print(text, flush=True))
    return SUCCESS


def _name_report(run: RecordedRun, options: argparse.Namespace) -> None:
    """Print where the report is; with a winner, its line already says that."""
    from tuner.results.wording import report_of

    report = report_of(run)
    if options.trial is None and run.best is None and report is not None:
        print(printable(f"report: {report}"))


def _check(options: argparse.Namespace) -> None:
    if options.port is not None and not options.web:
        raise StudyError("--port needs --web, got it alone; add --web")
    others = [f"--{name}" for name in ("trial", "log", "all", "watch", "json") if getattr(options, name)]
    if options.web and others:
        raise StudyError(f"--web shows the whole run in a browser, got it with {others[0]}; leave one of them out")
    if options.follow and not options.log:
        raise StudyError("--follow needs --log, got it alone; add --log, or use --watch to follow the whole search")
    if options.log and options.trial is None:
        raise StudyError("--log needs the trial whose output is shown, got none; add --trial ID")
    if options.log and (options.watch or (options.follow and options.json)):
        other = "--watch" if options.watch else "--json and --follow"
        raise StudyError(f"--log shows what one trial printed, got it with {other}; leave one of them out")


def _show_log(run: RecordedRun, options: argparse.Namespace) -> None:
    """Print a trial's whole output; or its last lines, and new ones as they come."""
    from tuner.console.printing import print_log

    trial = run.trial(options.trial).trial
    if options.json:
        print(json.dumps({"trial_id": trial, "log": run.log(trial)}))
    elif options.follow:
        with suppress(KeyboardInterrupt):
            _follow(run, trial)
    elif text := run.log(trial):
        print_log(text if text.endswith("\n") else f"{text}\n")
    else:
        print(f"trial {trial} printed nothing", file=sys.stderr)


def _follow(run: RecordedRun, trial: str) -> None:
    """Print a trial's output until it ends; say so if there is none."""
    from tuner.console.printing import print_log
    from tuner.results import follow_log

    printed = told = False
    for text in follow_log(run, trial):
        print_log(text)
        printed = printed or bool(text)
        if not (printed or told):
            told = True
            print(f"trial {trial} has printed nothing so far; waiting until it does, or ends", file=sys.stderr)
    if not printed:
        print(f"trial {trial} printed nothing", file=sys.stderr)


def _watch(run: RecordedRun) -> None:
    """Show a search that another process runs, until its report is written and run.json says so, or Ctrl-C."""
    from tuner.console.live_table import Plan, display
    from tuner.results import CONCLUDING, EventFollower, load_run

    follower, alive = EventFollower(run.folder), True
    with suppress(KeyboardInterrupt):
        plan = Plan.of_run(run, {})
        with display(plan, sys.stderr, quiet=False, earlier=follower.new(), opening="followed") as shown:
            while alive:
                alive = load_run(run.path).alive  # checked before the last events are read
                for event in follower.new():
                    shown.on_event(event)
                    if alive and event["event"] in OVER:
                        shown.on_event({"event": CONCLUDING, "time": event["time"], "step": "waiting for the report"})
                time.sleep(WATCH_SECONDS if alive else 0)
            left = load_run(run.path)
            if left.status == "interrupted":  # its driver may have been killed before it could write this
                shown.on_event({"event": OVER[1], "time": left.record.last_time or time.time()})
