"""Options that several verbs have, and how their values are read."""

from __future__ import annotations

import argparse
import ast
from functools import partial
from pathlib import Path
from typing import Any

from tuner.errors import StudyError
from tuner.study import budget
from tuner.study.resources import AUTO
from tuner.trial import STRATEGIES

RUN = "a run folder, or a storage folder for its newest run"
RUN_OR_STUDY = f"{RUN}, or @17 for a study of a service"
HIGHEST_PORT = 65_535


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add `--trust`."""
    parser.add_argument("--trust", action="store_true", help="run the study.py of another user's run if it is needed")


def add_point(parser: argparse.ArgumentParser) -> None:
    """Add `--point`."""
    parser.add_argument(
        "--point",
        metavar="POINT",
        help="another network than the winner's, on the front of two metrics: knee, cheapest, a trial, or the best "
        "within a limit, as 'latency_ms<=5'",
    )


def add_study_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that change the study; `Study.with_options` takes the same."""
    group = parser.add_argument_group("study")
    add_limits(group)
    group.add_argument(
        "--cpus-per-trial",
        type=_cpus,
        metavar="N|auto",
        dest="cpus",
        help="CPUs of one trial; auto: one thread for each, as many trials as fit",
    )
    group.add_argument(
        "--gpus-per-trial",
        type=_gpus,
        metavar="N|auto",
        dest="gpus",
        help="GPUs of one trial, also a fraction; auto: trials share them",
    )
    group.add_argument("--strategy", metavar="|".join(STRATEGIES), help="how one trial uses several devices")
    group.add_argument(
        "--placement", metavar="pack|spread", help="all devices of a trial on one node, or spread over several nodes"
    )
    group.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="fix a hyperparameter")
    group.add_argument("--weights", metavar="pretrained|none|PATH", help="the weights that training starts from")
    group.add_argument("--data-dir", metavar="DIR", help="the folder of data sets; missing ones are downloaded into it")
    group.add_argument("--seed", type=natural, metavar="N", help="the same seed makes the same suggestions")
    group.add_argument(
        "--no-history", action="store_const", const=False, dest="history", help="learn nothing from earlier runs"
    )
    group.add_argument(
        "--portfolio",
        action=argparse.BooleanOptionalAction,
        help="start with the trainer's defaults, and configurations that did well in tuner's own studies",
    )
    group.add_argument("--name", metavar="NAME", help="the name of the study and of its folder")


def add_limits(group: argparse._ArgumentGroup) -> None:
    """Add an option for each limit of the budget; `--minutes` is an alternative to `--hours`, as in a study file."""
    for limit in budget.LIMITS:
        either = group.add_mutually_exclusive_group()
        reader = partial(_read, limit.quantity)
        either.add_argument(limit.option, dest=limit.name, type=reader, metavar=limit.metavar, help=limit.help)
        if limit.name == "hours":
            either.add_argument("--minutes", dest="hours", type=_minutes, metavar="M", help="the same in minutes")


def add_take_over(parser: argparse.ArgumentParser) -> None:
    """Add `--take-over`."""
    parser.add_argument(
        "--take-over", action="store_true", help="take the run over from a driver that still works on it"
    )


def add_driver_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where a search runs and how it is shown."""
    group = parser.add_argument_group("how it runs")
    group.add_argument("--concurrency", type=count, metavar="N", help="the most trials at once")
    group.add_argument("--address", metavar="HOST:PORT", help="an existing Ray cluster ('auto' to find it)")
    group.add_argument(
        "--wandb", choices=["off", "offline", "online"], help="Weights & Biases (default: online if logged in)"
    )
    group.add_argument(
        "--mlflow", metavar="URI", help="an MLflow server, e.g. http://127.0.0.1:5000; 'off' leaves it out on resume"
    )
    group.add_argument("--nice", type=natural, metavar="N", help="lower the workers' priority (0 to 19, default: 0)")
    group.add_argument(
        "--grace", type=amount, metavar="SECONDS", help="time to save and end after Ctrl-C or a signal (default: 25)"
    )
    group.add_argument(
        "--notify",
        action="append",
        default=[],
        metavar="CMD|URL",
        help="gets a message at the end and at each new best value; may be repeated (default: lines of $TUNER_NOTIFY)",
    )
    group.add_argument("--quiet", action="store_true", help="no progress on stderr")
    group.add_argument("--json", action="store_true", help="one JSON object on stdout")


def driver_options(options: argparse.Namespace) -> dict[str, Any]:
    """The given options, as `Driving` takes them."""
    names = ("concurrency", "address", "wandb", "mlflow", "nice", "grace", "notify")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def study_options(options: argparse.Namespace) -> dict[str, Any]:
    """The given options, as `Study.with_options` takes them."""
    names = (
        *budget.NAMES,
        "name",
        "cpus",
        "gpus",
        "strategy",
        "placement",
        "seed",
        "weights",
        "data_dir",
        "history",
        "portfolio",
    )
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    fixed = dict(assignment(text) for text in options.set)
    return {**given, "fixed": fixed} if fixed else given


def limits(options: argparse.Namespace) -> dict[str, Any]:
    """The limits of the budget, None if one was not given."""
    return {name: getattr(options, name) for name in budget.NAMES}


def check_new(path: Path, option: str, *, force: bool) -> None:
    if path.exists() and not force:
        raise StudyError(f"{option} names a new file, got {str(path)!r}, which exists; choose another, or add --force")
    if not path.parent.is_dir():
        raise StudyError(f"{option} names a file in a folder that is there, got {str(path)!r}; make the folder first")


def write_new(path: Path, text: str, option: str, *, force: bool) -> None:
    check_new(path, option, force=force)
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise StudyError(f"{option} needs a file that can be written, got {str(path)!r} ({error.strerror})") from error


def port(text: str) -> int:
    """A port to listen at; 0 for any that is free."""
    found = int(natural(text))
    if found > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"needs a port up to {HIGHEST_PORT}, got {text}")
    return found


def assignment(text: str, before: str = "--set ") -> tuple[str, Any]:
    """`lr=0.1` as ("lr", 0.1); a value that is not a Python literal is a string. `before` is the option, for
    messages.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise StudyError(f"{before}needs NAME=VALUE, got {text!r}; write {before}lr=0.001")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return name, value


def _read(quantity: budget.Quantity, text: str) -> float:
    try:
        return quantity.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _minutes(text: str) -> float:
    return budget.hours_of(_read(budget.POSITIVE, text))


def _read_or_auto(quantity: budget.Quantity, text: str) -> float | str:
    return text if text.strip().lower() == AUTO else _read(quantity, text)


count = partial(_read, budget.COUNT)
natural = partial(_read, budget.NATURAL)
positive = partial(_read, budget.POSITIVE)
amount = partial(_read, budget.AMOUNT)
_cpus = partial(_read_or_auto, budget.POSITIVE)
_gpus = partial(_read_or_auto, budget.AMOUNT)
