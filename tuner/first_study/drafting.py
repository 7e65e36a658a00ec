"""From the look at the data to a study that fits the minutes: measures models, makes a plan, and fits its budget."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.driver.disk_need import trials_at_once
from tuner.driver.search_cost import (
    CONCLUSION,
    OPENING,
    SearchCost,
    Speeds,
    TrialMeasurers,
    kinds_of,
    search_cost,
    speeds_kind,
)
from tuner.errors import StudyError
from tuner.first_study.candidates import USUAL_PIXELS, Offer
from tuner.first_study.folder_look import FirstLook
from tuner.first_study.plan import Plan, Setting
from tuner.first_study.planning import (
    LENGTHS,
    MOST_TOTAL,
    SHARES_FOR_FEATURES,
    Means,
    Wishes,
    budget_text,
    least_epochs,
    plan,
)
from tuner.machine.hardware import this_machine
from tuner.space import choice, loguniform
from tuner.study.declaration import Study
from tuner.study.file import load_study
from tuner.trial import ImageClassifier
from tuner.trial.models import IMAGENET
from tuner.trial.only_the_head import LBFGS
from tuner.trial.speed import Speed
from tuner.trial.tasks import ONE_LABEL

SHARE = 0.8  # of the minutes for the predicted time; the rest is a reserve for a busier machine
MOST_TRIALS = 60  # with more, the winner is more likely just a lucky one
TRIALS_OF_EACH = 6  # model and image size, at least, where there are several
AS_LITTLE = 1.1  # times the least minutes are no more
MOST_HOURS = 10_000.0  # no limit
PROBE_SECONDS = 1.5  # of steps with each model

Tell = Callable[[str], None]


@dataclass(frozen=True)
class _Fitted:
    """A plan with as many epochs as fit into the minutes.

    Attributes:
        total: epochs of all trials
        needed: minutes for the fewest epochs by which trials can be compared
    """

    plan: Plan
    study: Study
    workers: int
    speeds: Speeds
    notes: tuple[str, ...]
    total: int
    needed: float


@dataclass(frozen=True)
class Draft:
    """A study that is ready to be written.

    Attributes:
        plan: settings and reasons
        study: the plan as an object
        cost: what it is predicted to take; None if nothing could be measured
        means: the measured models, with their speeds
        left_out: models that weren't measured, and why
    """

    plan: Plan
    study: Study
    cost: SearchCost | None
    means: Means
    left_out: tuple[tuple[str, str], ...]


def draft(look: FirstLook, wishes: Wishes, offered: Offer, data: str, tell: Tell = lambda said: None) -> Draft:
    """The study for these images.

    Args:
        look: at the data
        wishes: of the user
        offered: available models
        data: what the file names, such as "folder:photos"
        tell: is called with what is measured

    Raises:
        StudyError: no model can be trained here.
    """
    with TrialMeasurers() as measurers:
        means, left_out = _measured(measurers, look, wishes, offered, tell)
        plans = dict.fromkeys(plan(look, wishes, means, data, share) for share in SHARES_FOR_FEATURES)
        chosen = _affordable((_fitted(each, wishes, means, measurers, tell) for each in plans), wishes.minutes)
    more = next(each.reason for each in chosen.plan.study if each.name == "budget")
    short, notes = chosen.needed > wishes.minutes, list(chosen.notes)
    planned = chosen.plan.with_setting(_budget(chosen, wishes, more, short=short))
    study = _study_of(planned)
    if short:
        least = math.ceil(chosen.needed)
        notes += [f"the minutes may end the search before trials can be compared; use --minutes {least}"]
    cost = search_cost(study, chosen.workers, chosen.speeds, notes)
    return Draft(planned, study, cost, means, (*offered.left_out, *left_out))


def _measured(
    measurers: TrialMeasurers, look: FirstLook, wishes: Wishes, offered: Offer, tell: Tell
) -> tuple[Means, list[tuple[str, str]]]:
    """Each candidate's real speed on some of the images, and the candidates that couldn't be measured."""
    names = [each.model for each in offered.candidates]
    learning: dict[str, Any] = {} if wishes.random else {"finetune": "head"}
    if learning and look.headers.task is ONE_LABEL:
        learning["optimizer"] = LBFGS
    probe = Study(
        "init",
        trial=ImageClassifier(
            look.images.name,
            names[0],
            offered.candidates[0].weights if wishes.random or offered.candidates[0].is_file else IMAGENET,
            validation=(look.cross_validation(wishes.group) if learning else None) or look.validation,
            task=look.headers.task.name,
        ),
        space={"model": choice(names), **_image_sizes(offered), "lr": loguniform(1e-4, 1e-2), **learning},
    )
    workers = trials_at_once(probe)
    sizes = {each.model: {"image_size": each.pixels} for each in offered.candidates if each.pixels}
    configs = [{"model": name, **sizes.get(name, {}), **learning} for name in names]
    found = measurers.of(probe, configs, workers, seconds=PROBE_SECONDS, tell=lambda kind: tell(kind.split()[0][6:]))
    speeds: dict[str, Speed] = {
        name: speed for name, speed in zip(names, found.speeds, strict=True) if speed is not None
    }
    if not speeds:
        raise StudyError(f"init needs a model that can be trained here, got {found.problems[0]}")
    first = next(iter(speeds.values()))
    around = (OPENING + CONCLUSION) * found.ready_seconds + first.look_seconds / this_machine().cpus
    kind = speeds_kind(probe)
    kinds = {kind(config): speeds[config["model"]] for config in configs if config["model"] in speeds}
    kept = tuple(each for each in offered.candidates if each.model in speeds)
    return Means(kept, speeds, kinds, found.ready_seconds, workers, around), [
        (name, "it couldn't be measured: " + (found.problems or [""])[0]) for name in names if name not in speeds
    ]


def _image_sizes(offered: Offer) -> dict[str, Any]:
    """The image size of models that shall have another than their weights have."""
    models = [each.model for each in offered.candidates if each.pixels]
    return {"image_size": choice([USUAL_PIXELS]).when(model=models)} if models else {}


def _speeds(
    measurers: TrialMeasurers, study: Study, workers: int, means: Means, tell: Tell
) -> tuple[Speeds, list[str]]:
    """The speeds of the study's trials: those measured with the models, if the kinds are the same.

    Raises StudyError if no trial can be trained.
    """
    if kinds_of(study)[0].keys() <= means.kinds.keys():
        return Speeds(means.kinds, speeds_kind(study), means.ready_seconds), []
    tell("the study's trials")
    speeds, notes = measurers.speeds(study, workers, seconds=PROBE_SECONDS)
    if speeds is None:
        raise StudyError(f"init needs a trial that can be trained here, got {notes[0]}; choose another with --models")
    return speeds, notes


def _study_of(planned: Plan) -> Study:
    """The study as it will be loaded from the file, with its data's path from here."""
    with tempfile.TemporaryDirectory(prefix="tuner-init-") as folder:
        path = Path(folder) / "study.py"
        path.write_text(planned.text(), encoding="utf-8", errors="backslashreplace")
        return load_study(path)


def _fitted(planned: Plan, wishes: Wishes, means: Means, measurers: TrialMeasurers, tell: Tell) -> _Fitted:
    study = _study_of(planned)
    workers = trials_at_once(study)
    speeds, notes = _speeds(measurers, study, workers, means, tell)
    total = _most_epochs(study, workers, speeds, wishes)
    return _Fitted(planned, study, workers, speeds, tuple(notes), total, _needed_minutes(study, workers, speeds))


def _affordable(plans: Iterable[_Fitted], minutes: float) -> _Fitted:
    """The first of plans, each of which has less to compute than the one before, that fits into the minutes.

    If none does it is the first that needs about as few minutes as any: smaller images may not be what saves time.
    """
    seen = []
    for each in plans:
        seen.append(each)
        if each.needed <= minutes and _compares(each):
            return each
    least = min(each.needed for each in seen)
    return next(each for each in seen if each.needed <= AS_LITTLE * least)


def _compares(fitted: _Fitted) -> bool:
    """Whether models and image sizes, where there are several, are compared by several trials of each."""
    study, speeds = fitted.study, fitted.speeds
    cost = search_cost(study.with_options(total_epochs=fitted.total), fitted.workers, speeds)
    several = len({speeds.of(config).once_for for config in kinds_of(study)[0].values()})
    return cost is None or several == 1 or cost.trials[0] >= TRIALS_OF_EACH * several


def _most_epochs(study: Study, workers: int, speeds: Speeds, wishes: Wishes) -> int:
    """The most epochs that fit into the minutes and are useful."""
    low, high = least_epochs(study.budget.max_epochs), MOST_TOTAL

    def fits(total: int) -> bool:
        cost = search_cost(study.with_options(total_epochs=total), workers, speeds)
        return cost is not None and cost.minutes[1] <= SHARE * wishes.minutes and cost.trials[1] <= MOST_TRIALS

    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _needed_minutes(study: Study, workers: int, speeds: Speeds) -> float:
    """The minutes for the fewest epochs that let trials be compared, with a reserve for a busier machine."""
    least = study.with_options(total_epochs=least_epochs(study.budget.max_epochs), hours=MOST_HOURS)
    cost = search_cost(least, workers, speeds)
    return 0.0 if cost is None else cost.minutes[1] / SHARE


def _budget(fitted: _Fitted, wishes: Wishes, more: str, *, short: bool) -> Setting:
    """The budget with its reason.

    `more`: what more minutes would do; `short`: the minutes are not enough for the fewest epochs.
    """
    study, speeds, total = fitted.study, fitted.speeds, fitted.total
    longest = study.budget.max_epochs
    epoch = max(each.epoch(longest) for each in speeds.by_kind.values())
    length = {
        LENGTHS["solved"]: "it solves a last layer",
        LENGTHS["head"]: "a last layer needs no more",
    }.get(longest, f"the longest takes {epoch:.0f} s")
    further = search_cost(study.with_options(total_epochs=total + longest), fitted.workers, speeds)
    if short:
        why = f"{total} epochs are the fewest by which trials can be compared, and may take longer than the minutes"
    elif further is not None and further.minutes[1] <= SHARE * wishes.minutes:
        why = (
            f"{total} epochs of all trials are as many as are useful: with more than {MOST_TRIALS} trials, the winner "
            f"is more likely just a lucky one; more minutes would {more}"
        )
    else:
        why = f"{total} epochs of all trials are expected to fit {SHARE:.0%} of the minutes"
    most = f"at most {longest} epoch{'s' * (longest > 1)} for a trial: {length}"
    reason = f"{why}; {most}; after the minutes no further epoch begins"
    return Setting("budget", budget_text(wishes, total, longest), reason)
