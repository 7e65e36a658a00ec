"""`tuner doctor`: whether searches will work on this machine."""

from __future__ import annotations

import argparse
import json

from tuner.cli.outcome import NO_WINNER, SUCCESS
from tuner.doctor.checks import CHECKS
from tuner.machine.installation import check_trains


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("--storage", default="runs", metavar="DIR", help="the folder of runs (default: runs)")
    parser.add_argument("--data-dir", default="data", metavar="DIR", help="the folder of data sets (default: data)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=CHECKS,
        metavar="CHECK",
        help="run only this check; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    check_trains("the check of a machine")
    from tuner.console.tables import finding_line, findings_summary
    from tuner.doctor.examination import examine_machine

    tell = (lambda _: None) if options.json else (lambda finding: print(finding_line(finding), flush=True))
    findings = examine_machine(options.storage, options.data_dir, only=options.only, tell=tell)
    print(json.dumps([finding.record() for finding in findings]) if options.json else findings_summary(findings))
    return NO_WINNER if any(finding.status == "failed" for finding in findings) else SUCCESS
