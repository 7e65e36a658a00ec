"""Earlier runs, from which a search learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.errors import switched_off
from tuner.history.events import finite
from tuner.history.records import TrialRecord
from tuner.loop.first_configurations import describe_own, with_tuners_own
from tuner.results.run import RecordedRun
from tuner.results.run_folders import survey
from tuner.results.wording import plural
from tuner.search import EarlierStudy, EarlierTrial, History, Learned, learn, why_unfit
from tuner.study.declaration import Study

LEARNED, PORTFOLIO = "learned", "portfolio"  # codes of notices
MOST_RUNS = 100  # the newest ones; reading more would hold up the start


@dataclass(frozen=True)
class Lesson:
    """What a study that is about to start can learn from an earlier run.

    Attributes:
        run: its name, as users know it
        trials: how many it has
        why_not: why nothing is learned from it, in words; None if something is
    """

    run: str
    trials: int
    why_not: str | None


def learned(study: Study, storage: str | Path) -> Learned:
    """The configurations that earlier runs under the storage folder suggest to start from, then tuner's own.

    A run that can't be read, for any reason, is left out and counted: it must not prevent the search.
    """
    if study.warm_start is None:
        return Learned()
    found = Learned() if study.warm_start.studies == () else _from_runs(study, study.warm_start, storage)
    return with_tuners_own(study, found)


def _from_runs(study: Study, history: History, storage: str | Path) -> Learned:
    runs, refused = survey(history.path or storage)
    told = [run for run in runs if _why_not_told_of(run, study, history) is None]
    read = [_as_study(run, study) for run in told[:MOST_RUNS]]
    found, left_out = _learned_from([one for one in read if one is not None], study, history.top)
    unread = len(refused) + read.count(None) + left_out
    return replace(found, passed_over=unread)


def lessons(study: Study, storage: str | Path) -> list[Lesson]:
    """Which runs under the storage folder teach the study something, the newest first; empty where it learns nothing.

    Folders that can't be read as runs are left out: `tuner runs` says what is wrong with them.
    """
    if study.warm_start is None or study.warm_start.studies == ():
        return []
    found: list[Lesson] = []
    read = 0
    for run in survey(study.warm_start.path or storage)[0]:
        why_not = _why_not_told_of(run, study, study.warm_start)
        if why_not is None:
            read += 1
            why_not = f"only the newest {MOST_RUNS} are read" if read > MOST_RUNS else _why_unfit(run, study)
        found.append(Lesson(_name(run), _count(run), why_not))
    return found


def _why_unfit(run: RecordedRun, study: Study) -> str | None:
    one = _as_study(run, study)
    if one is None or not _can_be_learned_from(one, study):
        return "it can't be read"
    return why_unfit(study.problem, one)


def _count(run: RecordedRun) -> int:
    """The number of trials according to run.json, so that the events needn't be read."""
    return sum(count for count in run.info["trials"].values() if isinstance(count, int))


def _learned_from(earlier: Sequence[EarlierStudy], study: Study, top: int) -> tuple[Learned, int]:
    """What the studies teach, and how many of them can't be used."""
    try:
        return learn(study.problem, earlier, top), 0
    except Exception:  # the content of foreign files must not end a search before it begins
        sound = [one for one in earlier if _can_be_learned_from(one, study)]
    return (learn(study.problem, sound, top) if len(sound) < len(earlier) else Learned()), len(earlier) - len(sound)


def _can_be_learned_from(one: EarlierStudy, study: Study) -> bool:
    try:
        learn(study.problem, [one], 1)
    except Exception:
        return False
    return True


def said_of(found: Learned) -> list[tuple[str, str]]:
    """The notices for the user, each with its code."""
    told = [(describe(found), LEARNED)] if found.worth_saying else []
    return told + ([(describe_own(found), PORTFOLIO)] if found.defaults or found.portfolio else [])


def describe(found: Learned) -> str:
    """The text of the notice."""
    unread = f"{plural(found.passed_over, 'earlier run')} can't be read: `python -m tuner runs` says why"
    left_out = [unread] * bool(found.passed_over)
    if not found.configs:
        return f"nothing learned from earlier runs: {'; '.join(left_out)}" if left_out else "nothing learned"
    return "; ".join([_describe_learned(found), *left_out])


def _describe_learned(found: Learned) -> str:
    count = plural(len(found.configs), "configuration")
    names = ", ".join(found.studies[:3])
    more = f" and {len(found.studies) - 3} more" if len(found.studies) > 3 else ""
    without = switched_off("--no-history", "history")
    return f"starts with {count} learned from earlier runs ({names}{more}); {without} leaves them out"


def _why_not_told_of(run: RecordedRun, study: Study, history: History) -> str | None:
    """Why a run is left out because of its study, before its trials are read; None if it isn't left out."""
    if history.studies is not None and run.name not in history.studies:
        return f"its study is {run.name!r}, which History.studies leaves out"
    if (run.metric, run.mode) != (study.metric, study.mode):
        return f"it {run.mode}imises {run.metric}"
    if study.declared_trial.is_code and (why_not := _why_other_code(run, study)) is not None:
        return why_not
    return "it is still running" if run.alive else None


def _why_other_code(run: RecordedRun, study: Study) -> str | None:
    """A function learns only from runs of the same function: another one's hyperparameters may mean something else."""
    code, sources = study.declared_trial.source_fingerprint(), run.info["function_sources"]
    if code is None:
        return f"the source of {study.declared_trial.described} can't be read"
    return None if code in sources.values() else "it ran other code"


def _as_study(run: RecordedRun, study: Study) -> EarlierStudy | None:
    """The run as a study to learn from; None if it can't be read."""
    try:
        return _read(run, study)
    except Exception:  # a run that can't be read, for any reason, teaches nothing
        return None


def _read(run: RecordedRun, study: Study) -> EarlierStudy:
    metric, trials, model = study.metric, [], str(run.info["comparable"].get("model"))
    for record in _of_the_same_code(run, study):
        curve = {e.epoch: float(e.metrics[metric]) for e in record.epochs.values() if finite(e.metrics.get(metric))}
        config = with_model(record.config, model, study)
        if record.status != "failed" and curve and config is not None:
            trials.append(EarlierTrial(config, curve))
    longest = max((max(trial.curve) for trial in trials), default=1)
    return EarlierStudy(
        name=_name(run),
        max_epochs=max(longest, run.budget.get("max_epochs") or 1),
        rungs=tuple(run.info["rungs"]),
        trials=tuple(trials),
    )


def with_model(config: Mapping[str, Any], model: str, study: Study) -> Mapping[str, Any] | None:
    """The configuration with its model, if the study's space has `model`; None if it is of another model.

    Configurations of a run with one model may lack it. A study of one model learns nothing from trials of other models.
    """
    domain = study.search_space.dimensions.get("model")
    if domain is not None and "model" not in config and domain.contains(model):
        return {**config, "model": model}
    own = study.declared_trial.identity().get("model")
    return None if domain is None and own is not None and config.get("model", own) != own else config


def _of_the_same_code(run: RecordedRun, study: Study) -> list[TrialRecord]:
    """The run's trials; for a function only those that were started while its code was the same as the study's."""
    trials = list(run.record.trials.values())
    if not study.declared_trial.is_code:
        return trials
    code, sources = study.declared_trial.source_fingerprint(), run.info["function_sources"]
    return [trial for trial in trials if sources.get(str(trial.study_version)) == code]


def _name(run: RecordedRun) -> str:
    return "/".join(run.path.rstrip("/").split("/")[-2:])
