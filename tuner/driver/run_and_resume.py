"""`run` and `resume`: they turn a study into a run folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tuner.driver.cluster import Connected, connected, fitting
from tuner.driver.data_look import look, news_of, write_data
from tuner.driver.disk_need import largest_checkpoint, measured_checkpoint, room_checked, worth_a_look
from tuner.driver.gpus import gpus_checked
from tuner.driver.nodes import check_nodes
from tuner.driver.options import DEFAULT, Driving
from tuner.driver.pipelines import check_splits
from tuner.driver.ray_inside.autoscaling import waiting_notice
from tuner.driver.search_under_ray import Search, workers_of
from tuner.driver.thread_work import awaited, meanwhile
from tuner.errors import RunFolderError, StudyError
from tuner.history.data_record import began_before
from tuner.history.events import OPENING, tell
from tuner.history.run_info import new_run_folder
from tuner.lifecycle.description import describe_run, describe_session
from tuner.lifecycle.interruption import Interruption, interruptions
from tuner.lifecycle.notifier import Notifier
from tuner.lifecycle.obedience import opening
from tuner.lifecycle.resumption import Resumption, Wish, decide, tell_of_changes
from tuner.lifecycle.study_changes import study_text, write_study_file
from tuner.lifecycle.targets import given_targets
from tuner.loop.confirming import check_asked
from tuner.loop.earlier_runs import learned
from tuner.loop.shipping import EVENTS, Ships, check_ships, request_of
from tuner.mirrors.process import Mirrors
from tuner.results.run import RecordedRun
from tuner.results.run_folders import load_run
from tuner.results.wording import going_on_by
from tuner.storage.folder import Folder, LocalFolder
from tuner.storage.lease import held
from tuner.storage.locations import check_writable, open_folder
from tuner.study.budget import check_names
from tuner.study.declaration import Study
from tuner.study.file import load_study
from tuner.worker.implementation import implementation_of
from tuner.worker.known_costs import said_of, with_costs


def run(
    study: Study | str | Path,
    changes: Mapping[str, Any],
    driving: Driving = DEFAULT,
    *,
    storage: str | Path = "runs",
) -> RecordedRun:
    """Search: check the study, run its trials, write the run folder; returns the run.

    `changes` are those of `Study.with_options`; None for no change. Ctrl-C, SIGTERM and SIGHUP end the search early;
    the run's status is then "interrupted" and `resume` goes on with it. The same happens if Ray dies.

    Raises StudyError (or a subclass) before anything is started or written if the study can't work.
    """
    mirrors, targets = Mirrors(driving.wandb, driving.mlflow), given_targets(driving.notify)
    declared = load_study(study) if not isinstance(study, Study) else study
    options = {name: value for name, value in changes.items() if value is not None}
    ready = declared.with_options(**options)
    _check(ready, cluster=driving.address is not None)
    ready = replace(ready, trial=ready.declared_trial.resolved())
    ready = replace(ready, trial=ready.declared_trial.pinned(ready.declared_trial.stored()))
    _download(ready, driving)
    check_writable(open_folder(storage))
    ready = _with_costs(ready, driving)
    learning = meanwhile(partial(learned, ready, storage))
    worth_it = worth_a_look(ready, open_folder(storage).disk)
    sizing = meanwhile(partial(largest_checkpoint, ready)) if worth_it else None
    looking = meanwhile(partial(look, ready))
    reads = _tell_what_is_read(ready, driving)
    with (
        gpus_checked(ready, driving.address, driving.listeners) as notices,
        interruptions(driving.grace_seconds) as interrupted,
        connected(ready, driving, interrupted=interrupted) as cluster,
        ExitStack() as leases,
    ):
        of_the_nodes = _of_nodes(ready, driving, cluster, open_folder(storage), interrupted)
        start_from = awaited(learning, interrupted)  # before this run's own folder exists
        of_the_disk: list[str] = []
        if sizing is not None:
            workers = workers_of(cluster, driving.concurrency)
            of_the_disk = room_checked(ready, open_folder(storage), workers, awaited(sizing, interrupted))
        if reads and not looking.done():
            tell(driving.listeners, OPENING, step=f"reading {reads}")
        of_the_data = awaited(looking, interrupted)
        with _room_for_the_start(storage):
            folder = new_run_folder(storage, ready.name)
            lease = leases.enter_context(held(folder))
            telling = Notifier(targets, folder, ready)
            info = {**describe_run(ready, options, cluster.resources, driving.address), **mirrors.recorded}
            write_study_file(folder, declared)
            write_data(folder, of_the_data)
            search = Search(
                *(ready, folder, info, cluster, driving.concurrency),
                *([*driving.listeners, *telling.listeners], interrupted),
                start_from=start_from,
                opening={
                    **{"study_file": study_text(folder).now, "study_version": 1},
                    **opening(options, driving.concurrency),
                },
                lease=lease,
                mirrors=mirrors,
                allotment=driving.allotment,
            )
        driving.begun(folder.uri)
        of_the_images = of_the_data.notices if of_the_data else ()
        of_the_costs = [] if ready.costs is None else [said_of(ready.costs)]
        search.tell(
            [*notices, *cluster.notices, *of_the_nodes, *of_the_disk, *of_the_images, *of_the_costs, *ready.notices]
        )
        with telling.of(search.loop):
            return search.perform()


def resume(
    path: str | Path,
    limits: Mapping[str, float | None],
    driving: Driving = DEFAULT,
    *,
    study: Study | None = None,
    take_over: bool = False,
    retry: Iterable[str] | None = None,
    confirm: Wish | None = None,
    ships: Ships | None = None,
) -> RecordedRun:
    """Go on with an interrupted run, conclude one that was cut off in its conclusion, or extend a finished one.

    `limits` are those of `Budget` by their names, for the whole run; `wandb` and `mlflow` are unchanged by default.
    `study` is needed if the run was started from Python and not from a file. If the run's study file was edited, its
    original is kept next to it and the difference is noted. If another driver works on the run this is refused, unless
    `take_over`. `retry` names failed trials that run again first, from their last checkpoints; without names all except
    those that diverged. `confirm` says how many of the best configurations are trained again first, and with how many
    other seeds; if the run's search has ended, nothing else is trained. `ships` says what `best/` shall have: the
    winner's network trained again on training and validation images together, which is trained in the same way, an
    average of the best trials, or neither any more. Raises RunFolderError if there is nothing to go on with, a driver
    works on the run, or new trials could not be compared with the existing ones, and StudyError for an unknown limit.
    """
    check_names(limits)
    targets = given_targets(driving.notify)
    _check_driven_from_here(load_run(path), to_confirm=confirm is not None, ships=ships)
    with (
        interruptions(driving.grace_seconds) as interrupted,
        held(load_run(path).folder, take_over=take_over) as lease,
    ):
        earlier = load_run(path)  # as the previous driver left it
        earlier.record.close()
        mirrors = Mirrors(driving.wandb or earlier.info["wandb"], driving.mlflow or earlier.info["mlflow"])
        going_on = decide(earlier, limits, study, retry, confirm, ships=ships)
        limit = driving.concurrency or earlier.record.steered.concurrency
        before = earlier.info.get("concurrency") if driving.address else None  # what an autoscaler was asked for
        ready = going_on.study
        _check(ready, cluster=driving.address is not None)
        _download(ready, driving)
        ready = _with_costs(ready, driving)
        old = began_before(earlier.folder)
        looking = meanwhile(partial(look, ready, before=old)) if old or not going_on.conclude_only else None
        if looking is not None:
            _tell_what_is_read(ready, driving)
        with (
            gpus_checked(ready, driving.address, driving.listeners) as notices,
            connected(ready, replace(driving, concurrency=limit or before), interrupted=interrupted) as cluster,
        ):
            limit = limit or (before if cluster.grows else None)
            of_the_nodes = _of_nodes(ready, replace(driving, concurrency=limit), cluster, earlier.folder, interrupted)
            of_the_data = None if looking is None else awaited(looking, interrupted)
            of_the_disk = _room_to_go_on(going_on, workers_of(cluster, limit))
            info = going_on.info | describe_session(ready, driving.address) | mirrors.recorded
            telling = Notifier(targets, earlier.folder, ready, earlier.events)
            with _room_for_the_start(earlier.path):
                search = Search(
                    *(ready, earlier.folder, info, cluster),
                    limit,
                    *([*driving.listeners, *telling.listeners], interrupted),
                    history=earlier.events,
                    start_from=None if earlier.events else learned(ready, _storage_of(earlier)),
                    opening=going_on.opening | opening(going_on.options, driving.concurrency),
                    lease=lease,
                    mirrors=mirrors,
                    allotment=driving.allotment,
                )
                _do_what_was_asked(search, going_on, going_on.given_with(driving.concurrency))
            driving.begun(earlier.folder.uri)
            write_data(earlier.folder, of_the_data)
            of_the_data_now = news_of(of_the_data, earlier.record.notices)
            search.tell([*notices, *cluster.notices, *of_the_nodes, *of_the_disk, *going_on.warnings, *of_the_data_now])
            with telling.of(search.loop):
                return search.perform(conclude_only=going_on.conclude_only)


def _tell_what_is_read(study: Study, driving: Driving) -> str | None:
    """Say what is read while Ray starts; returns a description, None if nothing takes time."""
    reads = study.declared_trial.reads()
    if reads:
        tell(driving.listeners, OPENING, step=f"starting Ray, reading {reads}")
    return reads


def _room_to_go_on(going_on: Resumption, workers: int) -> list[str]:
    """What the user should know about disk space; raises StudyError if a limit is below what a search needs."""
    earlier, study = going_on.earlier, going_on.study
    if going_on.conclude_only or not worth_a_look(study, earlier.folder.disk):
        return []
    checkpoint = measured_checkpoint(earlier.folder, earlier.record) or largest_checkpoint(study)
    return room_checked(study, earlier.folder, workers, checkpoint)


def _do_what_was_asked(search: Search, going_on: Resumption, given: Collection[str]) -> None:
    """The steps before the first trial: a notice about an edited file, failed trials that run again, waiting orders."""
    if going_on.text.changed:
        tell_of_changes(search.loop, going_on.text)
    if going_on.again is not None:
        search.loop.retry(going_on.again)
    if going_on.confirm is not None:
        earlier = going_on.earlier
        request = going_on.confirm.request(earlier.end_reason, ended=earlier.record.ended is not None)
        search.loop.ask_for("confirmation_requested", **request)
    if going_on.ships is not None:
        search.loop.ask_for(EVENTS[going_on.ships], **request_of(going_on.earlier, going_on.ships))
    search.orders.obey_what_waits(search.loop, given, ended=going_on.earlier.record.ended is not None)


@contextmanager
def _room_for_the_start(storage: str | Path) -> Iterator[None]:
    """Raise RunFolderError if not even the first files of a search can be written."""
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"a search needs storage that it can write to, got {str(storage)!r} ({error.strerror or error}); "
            "free some space or choose another storage"
        ) from error


def _storage_of(run: RecordedRun) -> str:
    """The folder of the run's study, next to those of other studies; for a run on object storage its own folder."""
    return str(run.folder.path.parents[1]) if isinstance(run.folder, LocalFolder) else run.path


def _check_driven_from_here(earlier: RecordedRun, *, to_confirm: bool, ships: Ships | None) -> None:
    if to_confirm:
        check_asked(earlier)
    if ships is not None:
        check_ships(earlier, ships)
    if earlier.info["asked"]:
        raise RunFolderError(
            f"resume needs a run whose trials tuner runs, got {earlier.path!r}, whose trials your own program asks "
            f"for; go on with it in Python by: {going_on_by(earlier)}"
        )


def _check(study: Study, *, cluster: bool) -> None:
    if study.declared_trial.asked_for:
        raise StudyError(
            f"run and resume need a trial that a worker can run, got {study.declared_trial.described}; "
            "ask for its trials in your own program with tuner.Search(study)"
        )
    study.check_here(cluster=cluster)
    check_splits(study)


def _of_nodes(
    study: Study, driving: Driving, cluster: Connected, storage: Folder, interrupted: Interruption
) -> list[str]:
    """Notices of a joined cluster's nodes; raises StudyError if one of them can't run the study's trials."""
    if driving.address is None:
        return []
    wanted, present = driving.concurrency or 0, fitting(cluster.resources)
    waits = [waiting_notice(cluster.resources, wanted, present)] if cluster.grows and wanted > present else []
    return [*check_nodes(study, cluster.resources, storage, interrupted), *waits]


def _with_costs(study: Study, driving: Driving) -> Study:
    """Measure what networks cost that the study limits, while nothing trains."""
    return with_costs(study, tell=lambda step: tell(driving.listeners, OPENING, step=step))


def _download(study: Study, driving: Driving) -> None:
    """Fetch data and weights before the search, not in its trials; raises DataError or WeightsError."""
    trial = study.declared_trial
    if missing := trial.missing_downloads():
        tell(driving.listeners, OPENING, step=f"fetching {', '.join(missing)}")
        implementation_of(trial).download(trial)
        trial.check_files()  # the downloaded data may not have the right layout
