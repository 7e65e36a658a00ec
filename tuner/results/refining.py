"""`refine`: the good region of a run as the next study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

from tuner.errors import RunFolderError, StudyError
from tuner.history.run_info import STUDY_JSON
from tuner.results.declaring import declared_study
from tuner.results.front import in_order
from tuner.results.importance import FEWEST_TRIALS, importance
from tuner.results.run import RecordedRun
from tuner.results.study_text import study_text
from tuner.search import Grid, MultiFidelityGP, Region, good_region, grid_of
from tuner.space import Choice, GridSearch, Space
from tuner.space.nesting import nest
from tuner.study.declaration import Study
from tuner.text import command

Kind = Literal["grid", "narrowed"]


@dataclass(frozen=True)
class Refinement:
    """The next study, and the region from which it was made."""

    study: Study
    declared: Study  # the run's own
    before: Space
    region: Region
    trials: int
    options: Mapping[str, Any]

    @property
    def summary(self) -> str:
        """Where the region comes from, in sentences."""
        region, upwards = self.region, self.study.mode == "max"
        bound = f"{'at least' if upwards else 'at most'} {region.threshold if upwards else -region.threshold:.4g}"
        second = self.study.second
        by = f"whose {self.study.metric} is {bound}"
        by = f"by the front of {self.study.metric} and {second.metric}" if second else by
        text = f"The region of the best {region.good} of {self.trials} trials, {by}."
        if region.widened:
            text += f" Goes beyond what was searched, as the best lay at its border: {', '.join(region.widened)}."
        return text

    def text(self, path: Path) -> str:
        """The text of the study file for that path; raises StudyError if it can't be written there."""
        return self._text(self.study, path)

    def declared_text(self, path: Path) -> str:
        """The run's own study as text in the same style, so that a comparison shows the changes."""
        return self._text(self.declared, path)

    def _text(self, study: Study, path: Path) -> str:
        changes_trial = {name: value for name, value in self.options.items() if name in ("weights", "data_dir")}
        return study_text(study, fill(self.summary, 110), path, changes_trial)


def refine(
    run: RecordedRun, kind: Kind = "grid", *, quantile: float = 0.25, configurations: int = 30, trust: bool = False
) -> Refinement:
    """The good region of a run, that of its best `quantile` of the trials, as the next study.

    It is a grid of at most `configurations`, or a narrower space for a search that starts from the best one. First
    comes what the run records, which needs no code. Then its `study.py` is run for the rest of the new study, but only
    if the file belongs to the user, or with `trust`.

    Raises:
        RunFolderError: too few trials have reported, the run was not started from a study file, or it is another
            user's.
        StudyError: the run's study can't be loaded, or a setting is out of range.
    """
    if not 0 < quantile <= 1:
        raise StudyError(f"quantile needs a share above 0, 1 at most, got {quantile!r}; use 0.25")
    if run.info["study_file"] is None:
        raise RunFolderError(
            f"refine needs a run of a study file, got {run.path!r}, which was started from Python; put the study into "
            "a file, or take the ranges of the best trials from run.trials"
        )
    if len(run.outcomes()[1]) < FEWEST_TRIALS:
        raise RunFolderError(
            f"refine needs a run with at least {FEWEST_TRIALS} trials that reported {run.metric}, got "
            f"{len(run.outcomes()[1])} in {run.path!r}; let it go on: {command('resume', run.path)} --trials "
            f"{run.record.configurations + 10}"
        )
    study = _declared(run, trust=trust)
    space, sign = study.search_space, 1 if study.mode == "max" else -1
    configs = [space.project(config) for config in run.outcomes()[0]]
    values = [sign * float(value) for value in run.outcomes()[1]]
    if run.second is not None:  # the best are those of the front, spread over it
        found = in_order(run)
        configs = [space.project(point.trial.config) for point in found]
        values = [-float(place) for place in range(len(found))]
    region = good_region(space, configs, values, quantile=quantile, limits=study.value_limits, kept=run.dead)
    if kind == "grid":
        shares = {one.name: one.share for one in importance(space, configs, values, without=run.dead)}
        region = grid_of(region, space, shares, configurations=configurations)
        return Refinement(_as_grid(study, region), study, space, region, len(configs), run.info["options"])
    return Refinement(_as_narrowed(study, region), study, space, region, len(configs), run.info["options"])


def _declared(run: RecordedRun, *, trust: bool) -> Study:
    """The run's study with the options that it was started with."""
    study = declared_study(run, trust=trust).with_options(**run.info["options"])
    return study if run.info["study_file"] == STUDY_JSON else replace(study, source=Path(run.info["study_file"]))


def _as_grid(study: Study, region: Region) -> Study:
    size = Space(nest(region.entries), study.constraint).size
    budget = replace(study.budget, trials=None if size == float("inf") else int(size))
    return replace(
        study, name=f"{study.name}-grid", space=nest(region.entries), search=Grid(), budget=budget, start_from=()
    )


def _as_narrowed(study: Study, region: Region) -> Study:
    entries, search = region.entries, study.search
    if isinstance(search, Grid):  # it can't use ranges
        search = MultiFidelityGP()
        entries = {name: _ungridded(entry) for name, entry in entries.items()}
    space = Space(nest(entries))
    flat = space.flatten(space.project(region.best))
    best = nest({name: value for name, value in flat.items() if name in space.dimensions})
    return replace(study, name=f"{study.name}-narrowed", space=nest(entries), search=search, start_from=(best,))


def _ungridded(entry: Any) -> Any:
    return Choice(entry.options, conditions=entry.conditions) if isinstance(entry, GridSearch) else entry
