"""`tuner predict`: classify images with a run's winner."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from tuner.cli.outcome import SUCCESS
from tuner.cli.parsing import RUN, add_trust
from tuner.cli.verbs import Verbs
from tuner.installation import check_trains


def add(verbs: Verbs) -> None:
    """Its arguments."""
    parser = verbs.add_parser("predict")
    parser.set_defaults(perform=perform)
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument("images", metavar="IMAGE", nargs="+", help="image files")
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_trust(parser)


def perform(options: argparse.Namespace) -> int:
    """Do it; returns the exit code."""
    check_trains("a prediction", libraries=("torch", "torchvision"))
    from tuner.console.tables import print_predictions
    from tuner.inspection import load_winner

    predictions = load_winner(options.run, trust=options.trust).predict(options.images)
    if options.json:
        print(json.dumps([asdict(prediction) for prediction in predictions], default=str))
    else:
        print_predictions(predictions)
    return SUCCESS
