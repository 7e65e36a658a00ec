"""`tuner check`: whether a study file can work, and what it would try."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tuner.cli.outcome import SUCCESS
from tuner.cli.parsing import add_study_options, count, study_options
from tuner.machine.installation import check_trains
from tuner.text import printable

if TYPE_CHECKING:
    from tuner.driver.disk_need import DiskNeed
    from tuner.driver.search_cost import SearchCost
    from tuner.replay.same_seed import SameSeed
    from tuner.study.declaration import Study


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("space", metavar="SPACE.py", help="a file that declares `study = Study(...)`")
    add_study_options(parser)
    parser.add_argument("--samples", type=count, default=5, metavar="N", help="configurations to show (default: 5)")
    parser.add_argument(
        "--cost", action="store_true", help="measure what a trial takes here: epochs, minutes, memory, disk"
    )
    parser.add_argument(
        "--same-seed",
        action="store_true",
        help="train an epoch with each hyperparameter changed alone, and say which changed nothing",
    )
    parser.add_argument(
        "--storage", default="runs", metavar="DIR|s3://…", help="earlier runs, to learn from (default: runs)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    from tuner.console.first_study import print_cost, print_data
    from tuner.console.studies import print_earlier, print_study
    from tuner.loop.earlier_runs import learned, lessons, said_of
    from tuner.loop.wide_ranges import wide_ranges
    from tuner.space.values import recorded
    from tuner.study.file import load_study
    from tuner.worker.known_costs import remembered

    with redirect_stdout(sys.stderr):
        study = load_study(options.space).with_options(**study_options(options))
        study.check_here()
        stored = study.declared_trial.stored()
        study = replace(study, trial=study.declared_trial.pinned(stored)) if stored else study
        if "pipeline" in study.strategies:  # makes the model, for which importing torch takes two seconds
            from tuner.driver.pipelines import check_splits

            check_splits(study)
        study = remembered(study)
        starts = learned(study, options.storage)
        first = samples(study, options.samples, starts.starts)
        data = study.declared_trial.look()
        disk = _disk(study) if options.cost else None
        cost, unknown = _cost(study) if options.cost else (None, [])
        earlier = lessons(study, options.storage)
        changes = _same_seed(study) if options.same_seed else None
    if options.json:
        runs = [{"run": one.run, "trials": one.trials, "why_not": one.why_not} for one in earlier]
        told: dict[str, Any] = {} if disk is None else {"disk": disk.record()}
        told |= {} if changes is None else {"same_seed": changes.record()}
        told |= {} if cost is None else {"cost": cost.record()}
        told |= {"cost_unknown": unknown} if unknown else {}
        told |= {"notes": notes} if (notes := [*study.notices, *wide_ranges(study)]) else {}
        told |= {} if study.costs is None else {"costs": study.costs.record()}
        told |= {} if data is None else {"data": data.record()}
        told |= {"stored": [one.record() for one in stored]} if stored else {}
        told |= {"second": asdict(study.second)} if study.second else {}
        about = {
            "study": study.name,
            "metric": study.metric,
            "trials": study.trials,
            "samples": recorded(first),
            "earlier_runs": runs,
        }
        print(json.dumps({**about, **told}))
    else:
        print_study(study, first, [*wide_ranges(study), *(sentence for sentence, _ in said_of(starts))])
        for sentence in (*_of_costs(study), *(one.sentence() for one in stored)):
            print(printable(sentence))
        if data is not None:
            print_data(data)
        if cost is not None:
            print_cost(cost)
        for why in unknown:
            print(printable(f"time: unknown: {why}"))
        if disk is not None:
            print(f"disk: {disk.sentence()}")
        for sentence in () if changes is None else changes.sentences:
            print(printable(sentence))
        if earlier:
            print_earlier([(one.run, one.trials, one.why_not) for one in earlier])
    return SUCCESS


def _of_costs(study: Study) -> list[str]:
    """A sentence about which networks keep the study's limits, as far as they are measured; none without limits."""
    if not study.measured:
        return []
    from tuner.worker.known_costs import limits_in_words, said_of

    return [limits_in_words(study) if study.costs is None else said_of(study.costs)]


def _cost(study: Study) -> tuple[SearchCost | None, list[str]]:
    """What the search takes, measured by real steps on this machine, or why that can't be known."""
    from tuner.driver.disk_need import trials_at_once
    from tuner.driver.search_cost import measured_cost

    return measured_cost(study, trials_at_once(study), tell=lambda kind: print(printable(f"measuring {kind}")))


def _same_seed(study: Study) -> SameSeed:
    """What a change of each hyperparameter changes in an epoch with the same seed."""
    check_trains("check --same-seed")
    from tuner.replay.same_seed import same_seed

    return same_seed(study, tell=lambda what: print(printable(f"training {what}")))


def _disk(study: Study) -> DiskNeed:
    """The disk space of the search's checkpoints; raises StudyError if its limit is below the least."""
    from tuner.driver.disk_need import disk_need, largest_checkpoint, trials_at_once

    need = disk_need(study, trials_at_once(study), largest_checkpoint(study))
    need.check(study.budget.disk_gb)
    return need


def samples(study: Study, count: int, starts: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """The configurations that the search would try first, as far as they are known before any result.

    `starts` are those of earlier runs and of tuner's own studies, which come after the study's own.
    """
    from tuner.search import Proposals

    searcher = study.search.build(study.problem)
    proposals = Proposals(study.problem, searcher, starting_points=study.starting_points, learned=starts)
    found = (proposals.suggest(number) for number in range(count))
    return [config for config in found if config is not None]
