"""What has changed since a run was made: versions, study file, function, data and hardware."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from tuner.history.data_record import began_before
from tuner.history.records import TrialRecord
from tuner.machine.hardware import this_machine
from tuner.machine.installation import version_of
from tuner.replay.declared_study import Declared
from tuner.replay.stays import Setting
from tuner.results.run import RecordedRun
from tuner.trial.earlier_pixels import OTHERWISE
from tuner.worker.implementation import implementation_of

# recorded packages with which a trial computes
PACKAGES = ("tuner", "torch", "torchvision", "timm", "transformers", "numpy")


def differences(
    run: RecordedRun, trial: TrialRecord, declared: Declared, *, gpus: float, cpus: int | None
) -> list[str]:
    """A sentence for each difference between then and now, the most important first."""
    return [
        *_of_versions(run),
        *_of_the_study(run, trial, declared),
        *_of_the_data(run, trial, declared),
        *_of_hardware(run, gpus),
        *(_of_threads(run, trial, cpus) if declared.study.declared_trial.reproduced is not None else ()),
        *_of_micro_batches(trial),
        *_of_its_stays(trial),
    ]


def _of_versions(run: RecordedRun) -> Iterator[str]:
    recorded = {"python": run.info["python"], **{name: run.info["versions"].get(name) for name in PACKAGES}}
    for name, before in recorded.items():
        now = platform.python_version() if name == "python" else version_of(name)
        if before is not None and before != now:
            yield f"{name} was {before}, and is {now or 'not installed'}"


def _of_the_study(run: RecordedRun, trial: TrialRecord, declared: Declared) -> Iterator[str]:
    if declared.edited_since:
        yield "the study file was edited since; the trial is trained with the text that it was started with"
    if len(declared.versions) > 1:
        yield "the study file was edited while the trial was trained; all of it is trained with the last text"
    before = run.info["function_sources"].get(str(trial.study_version))
    if before is not None and before != declared.code:
        yield f"the code of {declared.study.declared_trial.described} is another one"
    longest = run.budget.get("max_epochs")
    if declared.given and longest is not None and longest != declared.study.budget.max_epochs:
        yield f"max_epochs was {longest}, and is {declared.study.budget.max_epochs} in the study that was given"


def _of_the_data(run: RecordedRun, trial: TrialRecord, declared: Declared) -> Iterator[str]:
    before, now = run.info["data_fingerprint"], declared.study.declared_trial.fingerprint()
    if before is not None and before != now:
        yield f"the data are other files: their fingerprint was {before}, and is {now or 'unknown'}"
    before, now = run.info["weights_fingerprint"], declared.study.declared_trial.weights_fingerprint()
    if before is not None and before != now:
        yield f"the weights are another file: their fingerprint was {before}, and is {now or 'unknown'}"
    said = run.record.notices  # a run that has gone on since names the images that an earlier version read otherwise
    if began_before(run.folder):
        images = declared.study.declared_trial
        found = implementation_of(images).look(images, trial.config, split_seed=declared.study.seed, before=True)
        said = [*said, *(() if found is None else found.notices)]
    yield from dict.fromkeys(one for one in said if OTHERWISE in one)


def _of_hardware(run: RecordedRun, gpus: float) -> Iterator[str]:
    here, before = this_machine().record(), run.info["machine"]
    if before.get("processor") is not None and before["processor"] != here["processor"]:
        yield f"the processor was {before['processor']!r}, and is {here['processor']!r}"
    if _had_gpus(run) and not gpus:
        yield "the trial was trained on a GPU, and is trained on the CPU, as there is no GPU here"


def _of_threads(run: RecordedRun, trial: TrialRecord, cpus: int | None) -> Iterator[str]:
    had = {Setting.of(epoch).threads for epoch in trial.epochs.values()} - {None}
    before = had or {int(run.info["resources"].get("cpus") or 1)}
    if cpus is not None and before != {cpus}:
        yield f"the trial had {' and '.join(map(str, sorted(filter(None, before))))} CPU threads, and gets {cpus}"


def _of_micro_batches(trial: TrialRecord) -> Iterator[str]:
    """Halved within an epoch, at a step that the run doesn't record. (A killed worker begins its epoch again.)"""
    retries = max((epoch.metrics.get("oom_retries") or 0 for epoch in trial.epochs.values()), default=0)
    if retries > trial.memory_losses:
        yield "memory ran out within an epoch; the replay takes smaller micro-batches from the beginning of that epoch"


def _of_its_stays(trial: TrialRecord) -> Iterator[str]:
    if any(stay.together > 1 for stay in trial.stays):
        yield "the trial was trained as one with others, and is trained alone: its sums are added up in another order"


def replayed_gpus(run: RecordedRun) -> float:
    """The GPUs that a replay of the run's trials gets: as many as the trials had, if there are so many."""
    wanted = float(run.info["resources"].get("gpus") or 0) or float(_had_gpus(run))
    present = this_machine().gpus
    return wanted if wanted <= present else 0.0


def _had_gpus(run: RecordedRun) -> bool:
    return bool(run.info["resources"].get("gpus") or run.info["shared_gpus"])
