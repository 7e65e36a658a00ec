"""`tuner predict`: answers of a run's winner to images."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.outcome import SUCCESS
from tuner.cli.parsing import RUN, add_point, add_trust, check_new
from tuner.errors import DataError, StudyError
from tuner.machine.installation import check_trains
from tuner.text import printable, spreadsheet_cell

if TYPE_CHECKING:
    from tuner.inspection import LoadedModel
    from tuner.inspection.predicting import Answer

SOME_UNREAD = 1
MANY, EVERY = 256, 64  # from how many images on a counter is shown, and its step


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument(
        "images",
        metavar="IMAGE",
        nargs="+",
        help="image files, folders, patterns in quotes, or @LIST, a file with one path per line",
    )
    parser.add_argument("--csv", metavar="FILE.csv", help="write the probabilities of all classes into a new file")
    parser.add_argument(
        "--embeddings",
        metavar="FILE.npz",
        help="write the inputs of the model's last layer into a new NumPy file with images and embeddings",
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_point(parser)
    add_trust(parser)


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code: 1 if some files couldn't be read."""
    check_trains("a prediction", libraries=("torch", "torchvision"))
    from tuner.console.tables import print_predictions
    from tuner.inspection import load_winner
    from tuner.inspection.card import TRAIN
    from tuner.inspection.predicting import answers, image_files

    if options.csv is not None:
        check_new(Path(options.csv), "--csv", force=False)
    if options.embeddings is not None:
        check_new(Path(options.embeddings), "--embeddings", force=False)
    model = load_winner(options.run, trust=options.trust, point=options.point)
    files = image_files(options.images)
    if model.card.trained_on != TRAIN:
        print(f"the model is the winner trained again on {model.card.trained_on}", file=sys.stderr)
    told = answers(model, files, embed=options.embeddings is not None, tell=_tell)
    found = _with_progress(told, len(files))
    rows = list(found if options.csv is None else _with_csv(options.csv, model, found))
    predictions = [row.prediction for row in rows if row.prediction is not None]
    unread = [row.unread for row in rows if row.unread is not None]
    if rows and not predictions:
        raise DataError(unread[0] + (f"; none of {len(unread)} files can be read" if len(unread) > 1 else ""))
    if options.embeddings is not None:
        _write_embeddings(options.embeddings, rows)
    if options.json:
        print(json.dumps([prediction.record() for prediction in predictions], default=str))
    elif options.csv is None and options.embeddings is None:
        print_predictions(predictions, model.answers.columns)
    for reason in unread:
        print(printable(f"left out: {reason}"), file=sys.stderr)
    if options.csv is not None:
        left = f", {len(unread)} left out" if unread else ""
        print(f"{len(predictions):,} images in {printable(options.csv)}{left}", file=sys.stderr)
    return SOME_UNREAD if unread else SUCCESS


def _tell(notice: str) -> None:
    print(printable(notice), file=sys.stderr)


def _write_embeddings(path: str, rows: Sequence[Answer]) -> None:
    """A NumPy file: `images`, the paths [N], and `embeddings`, [N, features] float32, of those that could be read."""
    import numpy as np

    told = [(str(row.path), row.embedding.numpy()) for row in rows if row.embedding is not None]
    try:
        with Path(path).open("xb") as opened:
            np.savez(opened, images=np.array([name for name, _ in told]), embeddings=np.stack([one for _, one in told]))
    except OSError as error:
        raise StudyError(
            f"--embeddings needs a file that can be written, got {path!r} ({error.strerror}); choose another"
        ) from error
    print(f"{len(told):,} embeddings of {len(told[0][1]):,} numbers in {printable(path)}", file=sys.stderr)


def _with_progress(found: Iterable[Answer], total: int) -> Iterator[Answer]:
    """The answers, with a counter on the terminal if there are many."""
    shown = total >= MANY and sys.stderr.isatty()
    for count, answer in enumerate(found, start=1):
        if shown and (count % EVERY == 0 or count == total):
            end = "\n" if count == total else ""
            print(f"\r{count:,} of {total:,} images", end=end, file=sys.stderr, flush=True)
        yield answer


def _with_csv(path: str, model: LoadedModel, rows: Iterable[Answer]) -> Iterator[Answer]:
    """The answers, each written as a row as it comes: image, the answer, every class's probability, why not."""
    columns, names = model.answers.columns, model.classes if model.answers.output == "probabilities" else ()
    try:
        with Path(path).open("x", newline="", encoding="utf-8", errors="backslashreplace") as opened:
            table = csv.writer(opened)
            table.writerow(["image", *columns, *(f"p({name})" for name in names), "unread"])
            for row in rows:
                cells = row.prediction.cells if row.prediction else [""] * len(columns)
                shares = row.probabilities[: len(names)] if row.prediction else [""] * len(names)
                table.writerow(map(_cell, [str(row.path), *cells, *shares, row.unread or ""]))
                yield row
    except OSError as error:
        raise StudyError(
            f"--csv needs a file that can be written, got {path!r} ({error.strerror}); choose another"
        ) from error


def _cell(value: str | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else spreadsheet_cell(value)
