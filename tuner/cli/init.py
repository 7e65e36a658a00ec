"""`tuner init`: a first study file for a folder of images, or a table of them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tuner.cli.outcome import SUCCESS
from tuner.cli.parsing import check_new, positive, write_new
from tuner.errors import DataError, StudyError
from tuner.machine.installation import check_trains
from tuner.text import printable
from tuner.trial.data_source import TABLE_SUFFIXES, Folder, ImageFiles, readable, tables_in
from tuner.trial.models import DEFAULTS
from tuner.trial.sources import find_source
from tuner.trial.stored import is_stored
from tuner.trial.table import PREFIX, Table, TableOfImages
from tuner.trial.tasks import TASKS

if TYPE_CHECKING:
    from tuner.first_study.drafting import Draft
    from tuner.first_study.folder_look import FirstLook

MINUTES = 30.0
NAMED = (*DEFAULTS, "none")  # weights


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="a folder of images with a subfolder per class, or with train/, val/ and test/ that have these; or a CSV "
        "or Parquet file with a row for each image, also as table:labels.csv?image=COLUMN&label=COLUMN",
    )
    parser.add_argument("--task", choices=[*TASKS], help="what a table's labels are, instead of what they look like")
    parser.add_argument(
        "-o", "--output", metavar="FILE.py", default="study.py", help="the study file to write (default: study.py)"
    )
    parser.add_argument(
        "--minutes", type=positive, default=MINUTES, metavar="M", help="time that the search may take (default: 30)"
    )
    parser.add_argument(
        "--ask", action="store_true", help="ask about what the images can't show, before the study is written"
    )
    parser.add_argument(
        "--models",
        type=_names,
        default=(),
        metavar="A,B",
        help="models to choose from, of torchvision, or as timm:NAME or hf:OWNER/NAME, instead of tuner's own list",
    )
    parser.add_argument(
        "--weights",
        default="imagenet",
        metavar="imagenet|none|PATH",
        help="published weights (the default), random ones, or a file with those of the one model that --models names",
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    check_trains("init")
    path = Path(options.output)
    if path.suffix != ".py":
        raise StudyError(f"-o names a study file, which ends in .py, got {options.output!r}; add it")
    images = _images(options.data, options.task)
    check_new(path, "-o", force=options.force)
    from tuner.console.first_study import print_look
    from tuner.first_study.candidates import offer
    from tuner.first_study.drafting import draft
    from tuner.first_study.folder_look import look
    from tuner.first_study.planning import Wishes
    from tuner.first_study.questions import asked
    from tuner.trial.models import find_model

    for name in options.models:
        find_model(name)  # raises for unknown names, before the images are examined for minutes
    offered = None  # a file is looked for before the images are examined for minutes
    if options.weights not in NAMED:
        offered = offer(options.models, file=_weights_file(options.weights, path))
    _say(f"looking at the images in {images.place}")
    random = options.weights == "none"
    seen = look(images, _progress, random=random)
    if not options.json:
        print_look(seen)
    offered = offered or offer(options.models, random=random)
    wishes = Wishes(minutes=options.minutes, models=options.models, random=random)
    if options.ask:
        wishes, offered = asked(wishes, seen, offered, _ask)
    found = draft(seen, wishes, offered, _as_named(images, path), lambda what: _say(f"measuring {what}"))
    write_new(path, found.plan.text(), "-o", force=options.force)
    _tell(path, seen, found, as_json=options.json)
    return SUCCESS


def _names(text: str) -> tuple[str, ...]:
    """Names with commas between them, each once."""
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not names:
        raise argparse.ArgumentTypeError(f"needs names of models, such as resnet18,efficientnet_b0, got {text!r}")
    return names


@readable()
def _images(given: str, task: str | None) -> ImageFiles:
    """The images of a table or a folder, which may hold a table; DataError if it is neither."""
    if is_stored(given):
        raise DataError(
            f"init examines images on this machine, got {given!r}; copy them here, or write a study of your own"
        )
    path = Path(given.removeprefix("folder:")).expanduser()
    if given.startswith(PREFIX) or path.suffix.lower() in TABLE_SUFFIXES:
        return TableOfImages(Table.of(given), task)
    if not path.is_dir():
        raise DataError(f"init needs a folder of images or a table, got {given!r}, which is neither; correct the path")
    tables = [table for file in tables_in(path) if (table := TableOfImages(Table(file), task)).has_columns]
    return tables[0] if len(tables) == 1 else cast(Folder, find_source(f"folder:{path}", task=task))


def _as_named(images: ImageFiles, output: Path) -> str:
    """The data as the study file names it: as the user typed it, if the file will be run from here."""
    here = output.resolve().parent == Path.cwd() and not images.place.startswith("~")
    if isinstance(images, TableOfImages):
        return str(images.table if here else replace(images.table, path=images.file.resolve()))
    return f"folder:{images.path if here else images.path.resolve()}"


def _weights_file(given: str, output: Path) -> str:
    """The file of weights as the study file names it, see `_as_named`."""
    file = Path(given).expanduser()
    return str(file if output.resolve().parent == Path.cwd() else file.absolute())


def _tell(path: Path, look: FirstLook, draft: Draft, *, as_json: bool) -> None:
    if as_json:
        models: list[dict[str, Any]] = [
            {
                "model": each.model,
                "weights": each.weights,
                "accuracy": each.accuracy,
                "cached": each.cached,
                "images_per_second": round(draft.means.speeds[each.model].images_per_second, 2),
            }
            for each in draft.means.candidates
        ]
        told = {
            "file": str(path),
            "data": look.record(),
            "models": models,
            "left_out": [{"model": model, "reason": why} for model, why in draft.left_out],
            "settings": [
                {"name": each.name, "value": each.value, "reason": each.reason} for each in draft.plan.settings
            ],
            "cost": None if draft.cost is None else draft.cost.record(),
        }
        print(json.dumps(told))
        return
    from tuner.console.first_study import next_steps, print_cost, print_models
    from tuner.text import command

    print_models(draft)
    if draft.cost is not None:
        print_cost(draft.cost)
    run, export = command("run", str(path)), command("export", "runs", "--to", "onnx", "model")
    print(printable(next_steps(str(path), run, export)))


def _ask(question: str) -> str:
    """Ask on the terminal; answers are lines of standard input."""
    print(printable(question), end="", file=sys.stderr, flush=True)
    return input()


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


def _progress(done: int, total: int) -> None:
    """Shows on a terminal how many images were decoded."""
    if sys.stderr.isatty():
        print(f"\r{done:,} of {total:,} images", end="\n" if done == total else "", file=sys.stderr, flush=True)
