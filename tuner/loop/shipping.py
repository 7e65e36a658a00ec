"""Which network `best/` shall have, as a user asks of a run: by `tuner refit`, `tuner combine`, and their `--undo`."""

from __future__ import annotations

from typing import Any, Literal

from tuner.errors import RunFolderError
from tuner.history.combination import pool
from tuner.loop.refitting import check_refittable, check_undoable, refit_cost
from tuner.results.run import RecordedRun
from tuner.study.declaration import (
    AUTO,
    DISTILLED,
    ENSEMBLE,
    ONE_NETWORK,
    REFIT,
    SOUP,
    Study,
    check_combine,
    check_refit,
)
from tuner.text import command

Ships = Literal["refit", "no-refit", "auto", "ensemble", "soup", "distilled", "no-combination"]
EVENTS: dict[Ships, str] = {
    "refit": "refit_requested",
    "no-refit": "refit_undone",
    "auto": "combination_requested",
    "ensemble": "combination_requested",
    "soup": "combination_requested",
    "distilled": "combination_requested",
    "no-combination": "combination_undone",
}
FEWEST = 2  # networks that can be averaged


def check_ships(run: RecordedRun, ships: Ships, study: Study | None = None) -> None:
    """Raise RunFolderError if the run can't ship this; StudyError if the study's trials can't."""
    if ships == "refit":
        if study is not None:
            check_refit(REFIT, study.declared_trial)
        check_refittable(run)
    elif ships == "no-refit":
        check_undoable(run)
    elif ships == "no-combination":
        _check_combined(run)
    else:
        if study is not None:
            check_combine(ships, study.declared_trial, study.search_space)
        if run.costs is not None and ships not in ONE_NETWORK:
            raise RunFolderError(
                f"combine averages several networks, which cost more than one, got a run that measures "
                f"{' and '.join(run.costs.asked)} in {run.path!r}; ask for {SOUP!r}, or combine in one without that"
            )
        _check_combinable(run)


def in_words(run: RecordedRun, ships: Ships) -> str:
    """What is done for it, for the user who waits; raises as `check_ships`."""
    check_ships(run, ships)
    if ships == "refit":
        return f"refit {refit_cost(run)}; starting Ray"
    if ships == "no-refit":
        return f"best/ gets the winner's own network in place of that of trial {check_undoable(run).trial}"
    if ships == "no-combination":
        return "best/ gets the winner's own network, neither combined nor scaled"
    answers, weights = "the average of their answers", "a network with the mean of their weights"
    either = f"{answers} or {weights}, or the winner with scaled outputs, whichever pays by validation images"
    student = f"a network that learns from {answers}"
    mean = {ENSEMBLE: answers, SOUP: weights, DISTILLED: student, AUTO: either}[ships]
    return f"best/ gets of the best {len(pool(run.record))} trials {mean}; starting Ray"


def trains(ships: Ships | None) -> bool:
    """Whether a trial has to be trained for it."""
    return ships == "refit"


def request_of(run: RecordedRun, ships: Ships) -> dict[str, Any]:
    """Fields of the event that asks for it; if the search has ended, nothing else is trained."""
    ended_by = run.end_reason or run.record.confirming.ended_by  # the last driver may have been killed meanwhile
    alone = {} if run.record.ended is None else {"alone": True, "ended_by": ended_by}
    return alone | ({"how": ships} if EVENTS[ships] == "combination_requested" else {})


def _check_combinable(run: RecordedRun) -> None:
    if run.info["asked"]:
        raise RunFolderError(
            "combine needs trials that tuner trains, got a search whose trials your own program asks for; "
            "average their answers there"
        )
    if run.record.ended is not None and len(found := pool(run.record)) < FEWEST:
        raise RunFolderError(
            f"combine needs the networks of {FEWEST} trials or more that were trained to their end, got a run that "
            f"has kept {len(found)}; write combine={AUTO!r} into a new study, which keeps those of the best"
        )


def _check_combined(run: RecordedRun) -> None:
    if not (run.average or {}).get("in"):
        raise RunFolderError(
            f"combine --undo needs a run whose best/ has combined trials or a scaled winner, got {run.path!r}, whose "
            f"hasn't; see it with: {command('show', run.path)}"
        )
