"""A run that begins, or goes on, for a program that asks for its trials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tuner.ask_tell.driver import AskDriver
from tuner.errors import RunFolderError, StudyError, shown
from tuner.history.events import Listener
from tuner.history.run_info import new_run_folder
from tuner.lifecycle.description import describe_run, describe_session
from tuner.lifecycle.notifier import Notifier
from tuner.lifecycle.obedience import opening
from tuner.lifecycle.resumption import Resumption, decide, tell_of_changes
from tuner.lifecycle.study_changes import study_text, write_study_file
from tuner.lifecycle.targets import given_targets
from tuner.loop.earlier_runs import learned
from tuner.results.run import RecordedRun
from tuner.results.run_folders import load_run
from tuner.storage.lease import held
from tuner.storage.locations import check_writable, open_folder
from tuner.study.budget import check_names
from tuner.study.declaration import Study
from tuner.study.file import load_study
from tuner.text import command


def begin(
    study: Study | str | Path,
    changes: Mapping[str, Any],
    *,
    storage: str | Path,
    concurrency: int | None,
    listeners: Iterable[Listener],
    notify: Iterable[str],
) -> AskDriver:
    """See `Search` for the arguments and exceptions."""
    check_concurrency(concurrency)
    declared = study if isinstance(study, Study) else load_study(study)
    options = {name: value for name, value in changes.items() if value is not None}
    ready = declared.with_options(**options)
    check_asked_for(ready)
    targets = given_targets(notify)
    check_writable(open_folder(storage))
    start_from = learned(ready, storage)  # before this run's own folder exists
    folder = new_run_folder(storage, ready.name)
    first = opening(options, concurrency)
    with _kept_if_sound() as leases:
        lease = leases.enter_context(held(folder))
        info = describe_run(ready, options, ready.resources, None)
        info["study_file"] = write_study_file(folder, declared)
        first |= {"study_file": study_text(folder).now, "study_version": 1}
        driver = AskDriver(
            *(ready, folder, info),
            lease=lease,
            leases=leases,
            telling=Notifier(targets, folder, ready),
            limit=concurrency,
            listeners=listeners,
            learned=start_from,
            opening=first,
        )
        driver.begin()
    return driver


def go_on(
    path: str | Path,
    study: Study | None,
    limits: Mapping[str, float | None],
    *,
    concurrency: int | None,
    take_over: bool,
    retry: Iterable[str] | None,
    listeners: Iterable[Listener],
    notify: Iterable[str],
) -> AskDriver:
    """See `Search.resume`."""
    check_concurrency(concurrency)
    check_names(limits)
    targets = given_targets(notify)
    _check_asked(load_run(path))
    with _kept_if_sound() as leases:
        lease = leases.enter_context(held(load_run(path).folder, take_over=take_over))
        earlier = load_run(path)  # as the previous program left it
        earlier.record.close()
        going_on = decide(earlier, limits, study, retry)
        check_asked_for(going_on.study)
        driver = AskDriver(
            *(going_on.study, earlier.folder, going_on.info | describe_session(going_on.study, None)),
            lease=lease,
            leases=leases,
            telling=Notifier(targets, earlier.folder, going_on.study, earlier.events),
            limit=concurrency or earlier.record.steered.concurrency,
            listeners=listeners,
            history=earlier.events,
            opening=going_on.opening | opening(going_on.options, concurrency),
        )
        with driver.working():
            _tell(driver, going_on)
            if going_on.again is not None:
                driver.loop.retry(going_on.again)
            driver.begin(going_on.given_with(concurrency), ended=earlier.record.ended is not None)
            if going_on.conclude_only:
                driver.close("nothing is left to run")
    return driver


@contextmanager
def _kept_if_sound() -> Iterator[ExitStack]:
    """Context managers that the driver leaves at its end, or this block if it raises."""
    leases = ExitStack()
    try:
        yield leases
    except BaseException:
        leases.close()
        raise


def _tell(driver: AskDriver, going_on: Resumption) -> None:
    """Show what the user should know before the first trial."""
    if going_on.text.changed:
        tell_of_changes(driver.loop, going_on.text)
    for warning in going_on.warnings:
        driver.loop.notice(warning)


def check_concurrency(concurrency: object) -> None:
    """Raise StudyError unless it is a whole number of at least 1, or None."""
    if concurrency is None:
        return
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise StudyError(
            f"concurrency needs a whole number of at least 1, got {shown(concurrency)}; leave it out for no limit"
        )


def check_asked_for(study: Study) -> None:
    """Raise StudyError for a study whose trials tuner would have to run."""
    trial = study.declared_trial
    if not trial.asked_for:
        raise StudyError(
            f"Search hands out trials that your own program runs, got {trial.described}; "
            "declare trial=tuner.External(), or search with tuner.run(study)"
        )
    if study.resources.packed is not None:
        packed = study.resources.packed
        raise StudyError(
            f"Resources.{packed}='auto' needs trials that tuner runs, got {trial.described}; leave it out, "
            f"or say how many {packed} a trial holds, for device_hours"
        )


def _check_asked(earlier: RecordedRun) -> None:
    if not earlier.info["asked"]:
        raise RunFolderError(
            f"Search.resume needs a run whose trials a program asks for, got {earlier.path!r}, whose trials tuner "
            f"runs; go on with it by: {command('resume', earlier.path)}"
        )
