"""`tuner export`: trials for other tools, and the winner for other programs."""

from __future__ import annotations

import argparse
import json

from tuner.cli.at_service import located
from tuner.cli.outcome import SUCCESS, tell_damages
from tuner.cli.parsing import RUN_OR_STUDY, add_trust
from tuner.machine.installation import check_trains
from tuner.text import printable

MODELS = ("onnx", "torch-export", "safetensors")  # forms of the winner; other forms are of the trials


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    from tuner.results.export import EXPORTS

    parser.add_argument("run", metavar="RUN", help=RUN_OR_STUDY)
    parser.add_argument("--to", choices=[*EXPORTS, *MODELS], required=True, dest="kind", help="the format")
    parser.add_argument(
        "path", metavar="PATH", help="a folder for tables; a new folder for a model; a new SQLite file for optuna"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_trust(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.results import export, load_run

    run = load_run(located(options.run))
    if options.kind in MODELS:
        check_trains("an export of a model", libraries=("torch", "torchvision"))
        from tuner.inspection.shipping import ship

        files = ship(run, options.kind, options.path, trust=options.trust)
    else:
        files = export(run, options.kind, options.path)
    if options.json:
        print(json.dumps({"run": run.path, "files": [str(file) for file in files]}))
    for file in () if options.json else files:
        print(printable(file))
    tell_damages(run)
    return SUCCESS
