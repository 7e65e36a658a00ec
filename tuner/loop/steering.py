"""Obeys users' orders: each is checked, answered by one event, and then carried out.

What an order changes is read from the events (`tuner.history.steered`), so that a driver that goes on with a run does
what an earlier one had accepted but not yet done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from tuner.errors import RunFolderError, StudyError, describe_error, shown
from tuner.history.records import RunRecord, TrialRecord
from tuner.loop.confirming import ASKED_FOR, confirmation, seconds_per_epoch
from tuner.loop.failing import only_confirm, to_retry
from tuner.loop.limits import Limits
from tuner.orders.foresight import cut_short, too_few_trials, trials_begun
from tuner.orders.order import Malformed, Order
from tuner.orders.sending import OF_THEIR_OWN
from tuner.results.wording import short
from tuner.search import Proposals
from tuner.space import Config
from tuner.storage.folder import Folder
from tuner.study.budget import LIMITS, NAMES
from tuner.study.declaration import Study
from tuner.text import command

DRAWS = 100  # tries to sample missing values, until a configuration is found that no trial had
_TRY = 4  # keeps the random stream apart from those of `Proposals`
Reply = tuple[str, dict[str, Any]]  # a sentence for the user, and further fields of the event


class SteeredSearch(Protocol):
    """What orders need of the search that they are sent to, see `SearchLoop`."""

    study: Study
    folder: Folder
    record: RunRecord
    most_at_once: int | None

    @property
    def concurrency(self) -> int: ...

    @property
    def running(self) -> frozenset[str]: ...

    @property
    def stopped(self) -> bool: ...

    def end_by_order(self, *trials: str) -> None: ...

    def change(self, study: Study, concurrency: int | None) -> None: ...

    def expect_more(self, again: Iterable[str] = ()) -> None: ...


class Steering:
    """Answers the orders to one search.

    `emit` writes an event and applies it.
    """

    def __init__(
        self,
        loop: SteeredSearch,
        proposals: Proposals,
        limits: Limits,
        *,
        emit: Callable[..., None],
    ) -> None:
        self._loop, self._proposals, self._limits = loop, proposals, limits
        self._emit = emit
        self._pausing = False  # because this driver was ordered to pause

    def obey(self, order: Order | Malformed, *, late: bool = False) -> None:
        """Answer the order and carry it out, unless it was answered before."""
        if order.id in self._loop.record.steered.answered:
            return
        if isinstance(order, Malformed):
            self._answer("order_refused", order.id, "unknown", {}, f"the file {order.file}", order.problem)
            return
        told = (order.id, order.verb, dict(order.arguments), order.by)
        if late and order.verb in OF_THEIR_OWN:
            now = f"use `python -m tuner {order.verb}` now"
            self._answer("order_refused", *told, f"the search had ended when the order was read; {now}")
            return
        if late and order.verb in ("stop", "pause"):
            self._answer("order_obeyed", *told, "the search had already ended when the order was read", late=True)
            return
        try:
            message, more = self._reply(order)
        except StudyError as error:
            self._answer("order_refused", *told, str(error))
            return
        except Exception as error:  # an error in the study's own functions: it must not end the search
            self._answer("order_refused", *told, f"the order can't be checked ({describe_error(error)}); change it")
            return
        self._answer("order_obeyed", *told, message, **more)
        self._carry_out(order, more)

    def carry_out_what_is_due(self) -> None:
        """Do what an earlier driver had accepted: end trials or the search, and set limits."""
        steered = self._loop.record.steered
        live = [trial for trial in sorted(steered.to_end) if self._is_live(trial)]
        if live or steered.stopped_by is not None:
            self._loop.end_by_order(*live)

    def _answer(
        self, kind: str, order: str, verb: str, arguments: dict[str, Any], by: str, message: str, **more: Any
    ) -> None:
        self._emit(kind, order=order, verb=verb, arguments=arguments, by=by, message=message, **more)

    def _reply(self, order: Order) -> Reply:
        """The answer to the order; raises StudyError if it can't be obeyed."""
        replies = {
            "stop": self._stop,
            "pause": self._pause,
            "set": self._set,
            "try": self._try,
            "retry": self._retry,
            "confirm": self._confirm,
            "note": self._note,
        }
        return replies[order.verb](dict(order.arguments))

    def _carry_out(self, order: Order, more: dict[str, Any]) -> None:
        if order.verb == "stop":
            trial = order.arguments.get("trial")
            self._loop.end_by_order(*(sorted(self._loop.running) if trial is None else [trial]))
        elif order.verb == "set":
            self._loop.change(self._changed(order.arguments), order.arguments.get("concurrency"))
        elif order.verb in ("try", "confirm"):
            self._loop.expect_more()
        elif order.verb == "retry":
            self._loop.expect_more(more["trials"])
        elif order.verb == "pause":
            self._pausing = True

    # What each verb leads to

    def _stop(self, arguments: dict[str, Any]) -> Reply:
        if "trial" not in arguments:
            if self._pausing:
                raise StudyError(
                    "stop needs a search that goes on, got one that pauses now; resume it first, then stop it"
                )
            return "the search ends now; the winner of what was trained is scored, and the report written", {}
        trial = self._trial(arguments["trial"])
        if not trial.live:
            raise StudyError(
                f"only a trial that has not ended can be stopped, got {trial.trial}, which is {trial.status}; "
                "there is nothing to do"
            )
        return f"trial {trial.trial} ends now, after epoch {trial.epoch}", {}

    def _pause(self, arguments: dict[str, Any]) -> Reply:
        return "the search saves and ends; `resume` goes on with it", {}

    def _note(self, arguments: dict[str, Any]) -> Reply:
        if "trial" in arguments:
            self._trial(arguments["trial"])
        return "written down", {}

    def _set(self, arguments: dict[str, Any]) -> Reply:
        if not arguments:
            raise StudyError(
                "set needs a limit or concurrency, got none that options given later have left; order it again"
            )
        study, now = self._changed(arguments), self._loop.study.budget
        parts = []
        for name in NAMES:
            if name in arguments:
                before = getattr(now, name)
                was = "was not limited" if before is None else f"was {short(before)}"
                parts.append(f"{name} is {short(arguments[name])} now, {was}")
        if "concurrency" in arguments:
            parts.append(self._of_concurrency(arguments["concurrency"]))
        return "; ".join([*parts, *self._consequences(study, arguments)]), {}

    def _changed(self, arguments: Any) -> Study:
        """The study with other limits; raises StudyError for impossible ones."""
        limits = {name: arguments[name] for name in NAMES if name in arguments}
        problem = too_few_trials(self._loop.record, limits.get("trials"))
        if problem is not None:
            raise StudyError(problem)
        study = self._loop.study
        if "device_hours" in limits and study.resources.packed:
            raise StudyError(
                "device_hours needs the same amount of devices for each trial, got trials that share them; use hours"
            )
        return study.with_options(**limits)

    def _of_concurrency(self, wanted: int) -> str:
        most, running = self._loop.most_at_once, len(self._loop.running)
        allowed = wanted if most is None else min(wanted, most)
        if allowed != wanted:
            return f"{allowed} trials run at once now, which is all that the devices hold (asked for {wanted})"
        more = f"; the {running} that run go on, and no other starts before" if running > wanted else ""
        return f"{'1 trial runs' if wanted == 1 else f'{wanted} trials run'} at once now{more}"

    def _consequences(self, study: Study, arguments: dict[str, Any]) -> list[str]:
        """Effects of the new limits that the user might not expect."""
        record, space = self._loop.record, study.search_space.size
        told = []
        reached = self._limits.reached_by(study)
        if self._loop.stopped:
            told.append("the search ends all the same, as it was stopped; `resume` goes on within these limits")
        elif reached is not None:
            told.append(f"the search ends, as the run has reached this limit of {reached} already")
        elif arguments.get("trials") == trials_begun(record):
            told.append("no further trial is suggested")
        if arguments.get("trials", 0) > space:
            told.append(f"the space has {space:g} configurations and no more")
        if "trials" in arguments or "hours" in arguments:
            told.append(cut_short(record, study.trials, study.budget.hours) or "")
        return [each for each in told if each]

    def _try(self, arguments: dict[str, Any]) -> Reply:
        study = self._loop.study
        given = study.search_space.check(arguments["config"], "try")
        self._check_room(study)
        config = self._completed(given)
        drawn = study.search_space.flatten(config).keys() - study.search_space.flatten(given).keys()
        sampled = f"; sampled: {', '.join(sorted(drawn))}" if drawn else ""
        return f"the next free worker tries {shown(config)}{sampled}", {"config": config}

    def _retry(self, arguments: dict[str, Any]) -> Reply:
        """What `SearchLoop.retry` does, by one event: the answer itself says which trials run again."""
        try:
            names = to_retry(self._loop.record, arguments.get("trials", ()))
        except RunFolderError as error:
            raise StudyError(str(error)) from error
        added = only_confirm(self._loop.record, names)
        reached = self._limits.ends_confirming() if added else self._limits.reached()
        if reached is not None:
            which = [word for trial in arguments.get("trials", ()) for word in ("--trial", str(trial))]
            limit = next((each for each in LIMITS if each.name == reached), None)
            anew = [] if limit is None else [limit.option, limit.metavar]  # or the same limit would end the run again
            again = command("retry", self._loop.folder.uri, *which, *anew)
            raise StudyError(
                f"a trial needs a search that goes on, got one that ends by {reached}; once it has ended, run: {again}"
            )
        return f"the next free workers run {', '.join(names)} again", {"trials": names}

    def _confirm(self, arguments: dict[str, Any]) -> Reply:
        """The best configurations so far are trained again by the next free workers."""
        study, record = self._loop.study, self._loop.record
        if study.declared_trial.asked_for:
            raise StudyError(ASKED_FOR)
        try:
            found = confirmation(record, study.budget.max_epochs, arguments.get("top"), arguments.get("seeds"))
        except RunFolderError as error:
            raise StudyError(str(error)) from error
        pace = seconds_per_epoch(record)
        return f"the search {found.cost(pace, self._loop.concurrency)}", found.fields

    def _check_room(self, study: Study) -> None:
        """Raise StudyError if the trial would never start."""
        reached, begun = self._limits.reached(), trials_begun(self._loop.record)
        if reached is not None:
            limit = next((limit for limit in LIMITS if limit.name == reached), None)
            fix = "resume the run first"
            if limit is not None:
                again = command("set", self._loop.folder.uri, limit.option, limit.metavar)
                fix = f"set a new one first: {again}"
            raise StudyError(f"a trial needs a search that goes on, got one that ends by {reached}; {fix}")
        if begun >= study.search_space.size:
            raise StudyError(f"a trial needs a configuration that is left, got a space whose {begun} were all tried")
        if study.trials is not None and begun >= study.trials:
            raise StudyError(
                f"a trial needs room in the budget, got {begun} of {study.trials} trials that were begun or ordered; "
                f"raise it with: {command('set', self._loop.folder.uri, '--trials', str(begun + 1))}"
            )

    def _completed(self, given: Config) -> Config:
        """The configuration with missing values sampled; raises StudyError if trials have had all possible ones."""
        study, waiting = self._loop.study, self._loop.record.steered.waiting
        space = study.search_space
        stream = len(self._loop.record.trials), len(self._loop.record.steered.answered)
        generator = np.random.default_rng(np.random.SeedSequence(study.seed, spawn_key=(_TRY, *stream)))
        ordered = {space.key(config) for config in waiting.values()}
        for _ in range(DRAWS):
            config = space.complete(given, generator)
            if self._proposals.is_new(config) and space.key(config) not in ordered:
                return config
        which = next(
            (t.trial for t in self._loop.record.trials.values() if space.key(t.config) == space.key(config)), None
        )
        had = "which is ordered already" if which is None else f"which trial {which} has"
        raise StudyError(f"try needs a configuration that no trial had, got {shown(config)}, {had}; change a value")

    def _trial(self, name: str) -> TrialRecord:
        trials = self._loop.record.trials
        if name not in trials:
            known = f"{next(iter(trials))} to {next(reversed(trials))}" if trials else "none yet"
            raise StudyError(f"a trial is named by its id, got {name!r}; this run has {known}")
        return trials[name]

    def _is_live(self, trial: str) -> bool:
        return trial in self._loop.record.trials and self._loop.record.trials[trial].live
