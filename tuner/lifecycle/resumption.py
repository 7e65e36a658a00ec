"""How another driver goes on with a run: decided from its folder, before anything is started or written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.errors import RunFolderError, setting
from tuner.history.run_info import FORMAT
from tuner.lifecycle.conclusion import is_concluded
from tuner.lifecycle.description import function_sources
from tuner.lifecycle.obedience import extending, foreseen_study, given_later, with_orders
from tuner.lifecycle.study_changes import StudyText, check_comparable, study_text
from tuner.loop.confirming import Confirmation, confirmation
from tuner.loop.failing import to_run_again
from tuner.loop.limits import Limits
from tuner.loop.refitting import due_refit
from tuner.loop.search_loop import SearchLoop
from tuner.loop.shipping import Ships, check_ships, trains
from tuner.orders.foresight import cut_short
from tuner.results.declaring import declared_study
from tuner.results.run import RecordedRun
from tuner.study.declaration import Study

Wish = tuple[int | None, int | None]  # numbers of configurations to confirm and of seeds; None for the default


@dataclass(frozen=True)
class Resumption:
    """How a driver goes on with a run.

    Attributes:
        earlier: the run as the previous driver left it
        study: with all changes
        options: these changes: the run's, those of orders, and those of this driver
        text: the study file's text, now and before
        again: failed trials that run again first; None if none was asked for
        confirm: the configurations that are trained again with other seeds; None if that wasn't asked for
        conclude_only: whether no trial is left to train
        anew: whether it goes on although an order had ended the search
        search_on: whether the search itself goes on, not only what `tuner confirm` adds to an ended one
        ships: what `best/` shall have in place of what it has; None if that wasn't asked for
        given: the limits that this driver was given as options
        warnings: sentences for the user
    """

    earlier: RecordedRun
    study: Study
    options: Mapping[str, Any]
    text: StudyText
    again: list[str] | None
    confirm: Confirmation | None
    conclude_only: bool
    anew: bool
    search_on: bool = False
    ships: Ships | None = None
    given: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()

    @property
    def info(self) -> dict[str, Any]:
        """The part of run.json that doesn't depend on the machine."""
        info = self.earlier.info
        return {
            **info,
            "format": 2 if self.study.search_space.in_json else FORMAT,
            "options": dict(self.options),
            "sessions": info["sessions"] + 1,
            "function_sources": function_sources(self.study, self.text.version, info["function_sources"]),
        }

    def given_with(self, concurrency: int | None) -> frozenset[str]:
        """The names of all that this driver was given as options."""
        return self.given | {"concurrency"} if concurrency else self.given

    @property
    def opening(self) -> dict[str, Any]:
        """Fields of the driver's first event."""
        texts = {"study_file": self.text.now, "study_version": self.text.version}
        more = {"anew": self.anew, "search_on": self.search_on}
        return texts | {name: True for name, holds in more.items() if holds}


def decide(
    earlier: RecordedRun,
    limits: Mapping[str, float | None],
    study: Study | None,
    retry: Iterable[str] | None,
    confirm: Wish | None = None,
    *,
    ships: Ships | None = None,
) -> Resumption:
    """See `tuner.driver.resume` for the arguments and exceptions."""
    steered = earlier.record.steered
    given = {name: value for name, value in limits.items() if value is not None}
    options = with_orders(earlier.info["options"], steered) | given
    ready, without_store = as_driven(earlier, study or declared_study(earlier), options)
    text = study_text(earlier.folder, earlier.events)
    check_comparable(ready, earlier.info, "the study" if study else f"{earlier.path}/{text.name}")
    ready = replace(ready, costs=earlier.costs if ready.measured else None)
    again = (
        None if retry is None else to_run_again(earlier.record, retry, Limits(ready, earlier.record, earlier.devices))
    )
    found = None if confirm is None else confirmation(earlier.record, ready.budget.max_epochs, *confirm)
    if ships is not None:
        check_ships(earlier, ships, ready)
    waiting = [given_later(order, given) for order in extending(earlier.folder)]
    added = found is not None or trains(ships)
    only_ships = ships is not None and not trains(ships) and earlier.record.ended is not None
    over = only_ships or (
        again is None
        and not added
        and _only_the_conclusion_is_left(earlier, foreseen_study(ready, waiting), may_wait=bool(waiting))
    )
    stopped = steered.stopped_by is not None
    stays_stopped = stopped and not (given or waiting) and again is None and not is_concluded(earlier)
    stays_stopped = stays_stopped and not added
    warning = cut_short(earlier.record, given.get("trials"), ready.budget.hours)
    return Resumption(
        *(earlier, ready, options, text, again, found),
        conclude_only=over or stays_stopped,
        anew=stopped and not (over or stays_stopped or added),
        search_on=bool(given or waiting or again is not None) and not added,
        ships=ships,
        given=frozenset(given),
        warnings=tuple(one for one in (without_store, warning) if one),
    )


def as_driven(run: RecordedRun, study: Study, options: Mapping[str, Any]) -> tuple[Study, str | None]:
    """The study of a run with its options and absolute paths, and a warning if it needs copies of a store's files."""
    changed = study.with_options(**options)
    resolved = changed.declared_trial.resolved(Path(run.info["working_directory"]))
    trial, warning = resolved.pinned_again(run.info["data_fingerprint"], run.info["weights_fingerprint"])
    return replace(changed, trial=trial), warning


def tell_of_changes(loop: SearchLoop, text: StudyText) -> None:
    """Keep the study file as it was before somebody edited it, and tell the user."""
    kept = text.keep_before(loop.folder)
    loop.notice(
        f"{text.name} was edited after the run began. New trials use the edited file (see `study_version` in the "
        f"tables); the earlier file is kept as {kept}. The difference:\n{text.difference}",
        code="study_changed",
    )


def _only_the_conclusion_is_left(earlier: RecordedRun, study: Study, *, may_wait: bool) -> bool:
    """Whether the run's search is done but not concluded.

    Raises RunFolderError if both are done, unless orders wait that are obeyed first.
    """
    problem = _nothing_left_to_search(earlier, study)
    if problem is None:
        return False
    if is_concluded(earlier) and not may_wait:
        raise RunFolderError(problem)
    return True


def _nothing_left_to_search(earlier: RecordedRun, study: Study) -> str | None:
    """Why no trial is left to train, with the option that would change it; None if some are."""
    record = earlier.record
    if record.confirming.waiting or any(trial.live for trial in record.trials.values()):
        return None
    limits = Limits(study, record, earlier.devices)
    if due_refit(study, record, limits) is not None:
        return None
    done, wanted = record.configurations, study.trials
    if wanted is not None and done >= wanted:
        space = study.search_space.size
        if done >= space:
            return f"the run tried all {done} configurations of its space; widen the space in a new study"
        return (
            f"{setting('--trials')} is the total number of trials and must be above {done}, which the run already has, "
            f"got {wanted}; use {setting('--trials', done + 10)}"
        )
    return limits.refusal()
