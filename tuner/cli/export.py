"""`tuner export`: trials for other tools, and the winner for other programs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tuner.cli.at_service import located
from tuner.cli.outcome import SUCCESS, tell_damages
from tuner.cli.parsing import RUN_OR_STUDY, add_point, add_trust, amount
from tuner.errors import StudyError
from tuner.machine.installation import check_trains
from tuner.text import printable

MODELS = (
    "onnx",
    "int8",
    "openvino",
    "torch-export",
    "safetensors",
    "hub",
)  # forms of the winner; other forms are of the trials


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    from tuner.results.export import EXPORTS

    parser.add_argument("run", metavar="RUN", help=RUN_OR_STUDY)
    parser.add_argument("--to", choices=[*EXPORTS, *MODELS], required=True, dest="kind", help="the format")
    parser.add_argument(
        "path", metavar="PATH", help="a folder for tables; a new folder for a model; a new SQLite file for optuna"
    )
    parser.add_argument(
        "--max-drop",
        type=amount,
        default=0.01,
        metavar="SHARE",
        help="accuracy on validation images that int8 and openvino may lose (default: 0.01)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_point(parser)
    add_trust(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.results import export, load_run

    run, measured = load_run(located(options.run)), []
    if options.kind in MODELS:
        check_trains("an export of a model", libraries=("torch", "torchvision"))
        from tuner.inspection.shipping import ship

        how = {"trust": options.trust, "max_drop": options.max_drop, "point": options.point}
        files = ship(run, options.kind, options.path, **how)
        measured = json.loads((Path(options.path) / "model.json").read_text(encoding="utf-8"))["measured"]
    else:
        if options.point is not None:
            raise StudyError(
                f"--point names a network, got --to {options.kind}, which has all trials; use --to {MODELS[0]}"
            )
        files = export(run, options.kind, options.path)
    if options.json:
        print(json.dumps({"run": run.path, "files": [str(file) for file in files], "measured": measured}))
    for file in () if options.json else files:
        print(printable(file))
    for sentence in measured:
        print(printable(sentence), file=sys.stderr)
    tell_damages(run)
    return SUCCESS
