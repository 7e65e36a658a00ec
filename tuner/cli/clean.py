"""`tuner clean`: shows the disk space of runs, and deletes what is asked for."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from tuner.cli.outcome import BAD_INPUT, SUCCESS
from tuner.errors import RunFolderError, StudyError
from tuner.text import command

if TYPE_CHECKING:
    from pathlib import Path

    from tuner.results.cleaning import Holding, Request

HELP = {
    "checkpoints": "delete checkpoints; unfinished trials then start again from their beginning",
    "files": "delete what functions wrote into their trials' folders",
    "logs": "delete the output of trials",
    "wandb": "delete the files of W&B's client",
    "ray": "delete Ray's own files, and what dead searches left in the temporary folder",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="run folders (default: all runs under --storage)")
    parser.add_argument(
        "--storage", default="runs", metavar="DIR|s3://…", help="the folder of all runs (default: runs)"
    )
    group = parser.add_argument_group(
        "what is deleted", "nothing by default; never files of a run whose search is still running"
    )
    for part, text in HELP.items():
        group.add_argument(f"--{part}", action="store_true", help=text)
    group.add_argument("--cache", action="store_true", help="delete tuner's own cache of decoded images")
    group.add_argument("--run", action="store_true", help="delete whole runs with all their files")
    group.add_argument("--older", type=_age, metavar="AGE", help="only what is older than this, such as 30d, 12h or 2w")
    group.add_argument("--keep-best", action="store_true", help="keep the winner's checkpoint; best/ always stays")
    group.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")
    group.add_argument("--yes", action="store_true", help="don't ask")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.console.tables import print_damages, print_holdings
    from tuner.results.cleaning import cache_entries, chosen_runs, holding, sessions

    request = _request(options)
    runs, left_out = chosen_runs(options.runs, options.storage)
    found = [holding(run) for run in runs]
    beside = {"sessions": sessions(), "cache": cache_entries()}
    if not options.json:
        print_holdings(found, beside)
    print_damages(left_out, sys.stderr, of="left out: ")
    chosen = [each for each in found if (request.parts or request.whole) and request.applies(each.run)]
    extra = _extra(options)
    freed = _delete(options, request, found, chosen, extra)
    if options.json:
        print(json.dumps(_summary(found, beside, freed)))
    return BAD_INPUT if None in freed.values() else SUCCESS


def _request(options: argparse.Namespace) -> Request:
    from tuner.results.cleaning import DELETABLE, Request

    parts = tuple(part for part in DELETABLE if getattr(options, part))
    if options.keep_best and options.run:
        raise StudyError("--run deletes whole runs, got --keep-best too; use --checkpoints --keep-best")
    if options.run and not options.runs and options.older is None:
        raise StudyError(
            "--run needs the runs to delete, or --older, got neither, which would delete every run; name them"
        )
    return Request(parts, options.run, options.keep_best, options.older)


def _extra(options: argparse.Namespace) -> list[Path]:
    """Folders to delete that belong to no run."""
    from tuner.results.cleaning import cache_entries, sessions

    return [*(sessions() if options.ray else []), *(cache_entries(options.older) if options.cache else [])]


def _delete(
    options: argparse.Namespace, request: Request, found: list[Holding], chosen: list[Holding], extra: list[Path]
) -> dict[str, int | None]:
    """Bytes that were freed, or would be, for each run and in total; None for a run that couldn't be cleaned."""
    from tuner.results.cleaning import clean, delete_paths, size_of, would_free
    from tuner.text import printable

    planned = {each.run.path: would_free(each, request) for each in chosen}
    expected = sum(planned.values()) + size_of(extra)
    if not chosen and not extra:
        if request.parts or request.whole or options.ray or options.cache:
            print(f"nothing is to be deleted: {_why_nothing(request, found)}", file=sys.stderr)
        return {"all": 0}
    what = f"{_told(request, len(chosen))}{' and ' if chosen and extra else ''}{_told_beside(extra)}"
    size = f"{expected / 1e6:,.1f} MB"
    if options.dry_run:
        print(f"would delete {what}: {size}", file=sys.stderr)
        return {**planned, "all": expected}
    if not options.yes and not _asked(f"delete {what}: {size}?"):
        print("nothing was deleted", file=sys.stderr)
        return {"all": 0}
    freed: dict[str, int | None] = {}
    for each in chosen:
        try:
            freed[each.run.path] = clean(each.run, request)
        except (RunFolderError, OSError) as error:
            freed[each.run.path] = None
            print(printable(f"note: left alone: {error}"), file=sys.stderr)
    total = sum(filter(None, freed.values())) + delete_paths(extra)
    if len(chosen) > list(freed.values()).count(None) or extra:
        print(f"deleted {what}: {total / 1e6:,.1f} MB", file=sys.stderr)
    return {**freed, "all": total}


def _why_nothing(request: Request, found: list[Holding]) -> str:
    driven = [each.run.path for each in found if each.run.alive]
    if driven:
        return f"a search works on {', '.join(driven)}; wait until it ends, or end it: {command('stop', driven[0])}"
    return "no run is that old" if found and request.older_seconds is not None else "there is no run"


def _told(request: Request, count: int) -> str:
    if not count:
        return ""
    runs = f"{count} run{'s' * (count > 1)}"
    return runs if request.whole else f"{', '.join(_names(request))} of {runs}"


def _names(request: Request) -> list[str]:
    names = {"files": "trials' files", "ray": "Ray's files", "wandb": "W&B's files"}
    if request.keep_best:
        names["checkpoints"] = "checkpoints but the winner's"
    return [names.get(part, part) for part in request.parts]


def _told_beside(extra: list[Path]) -> str:
    return f"{len(extra)} folders beside runs" if extra else ""


def _asked(question: str) -> bool:
    """Whether the user says yes. Raises StudyError if nobody can be asked."""
    if not sys.stdin.isatty():
        raise StudyError("clean asks before it deletes, got no terminal to ask at; add --yes, or --dry-run to look")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _summary(found: list[Holding], beside: dict[str, list[Path]], freed: dict[str, int | None]) -> dict[str, Any]:
    from tuner.results.cleaning import size_of

    return {
        "runs": [
            {
                "run": each.run.path,
                "status": each.run.status,
                "bytes": {**each.parts, "total": each.total},
                "freed_bytes": freed.get(each.run.path, 0),
            }
            for each in found
        ],
        **{f"{name}_bytes": size_of(paths) for name, paths in beside.items()},
        "freed_bytes": freed["all"],
    }


def _age(text: str) -> float:
    from tuner.results.cleaning import parse_age

    try:
        return parse_age(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
