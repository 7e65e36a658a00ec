"""How a study's images are split: a share for validation, the data's own split, groups kept together."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import DataError, StudyError, shown
from tuner.space.values import is_number
from tuner.trial.data_source import ImageFiles, Source
from tuner.trial.sources import FunctionSource

OWN = "folder"  # the data's own validation split
MOST_FOLDS = 50
REFIT = "train+validation"  # the images on which a winner is trained again


@dataclass(frozen=True)
class Folds:
    """K-fold cross-validation as one trial: `count` networks, each validated on the part on which it wasn't trained.

    Every epoch of the trial trains an epoch of each, and reports the means over the parts with their standard errors.
    Classes are spread evenly over the parts; identical images, and those of a `group`, are in the same part.

    Attributes:
        count: 2 to 50
        part: the only part that is meant; None for all
    """

    count: int
    part: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise StudyError for an impossible number of parts."""
        if type(self.count) is not int or not 2 <= self.count <= MOST_FOLDS:
            raise StudyError(
                f"Folds needs a whole number from 2 to {MOST_FOLDS}, got {shown(self.count)}; write Folds(5)"
            )

    def only(self, part: int) -> Folds:
        """The fold in which one part, counted from 0, is for validation, and the others for training."""
        one = Folds(self.count)
        object.__setattr__(one, "part", part)
        return one


@dataclass(frozen=True)
class Joined:
    """No validation: its images, which `cut` defines, are also used for training, as in a winner's refit."""

    cut: float | str | Folds | None


Validation = float | str | Folds | Joined | None


def refit_share(validation: Validation) -> float:
    """Images of training and validation together, as a share of those that the networks of a trial are trained on."""
    folds = validation.count if isinstance(validation, Folds) else 0
    held_out = float(validation) if isinstance(validation, int | float) else 1 / (folds or 5)
    return 1 / (1 - min(held_out, 0.9)) / max(1, folds)


def check_splitting(source: Source, validation: object, group: object) -> None:
    """Raise StudyError for a share or a pattern that can't work, or data that isn't split."""
    if validation is None and group is None:
        return
    if isinstance(source, FunctionSource):
        raise StudyError(
            f"validation and group are for data that tuner cuts, got the function {source.name}, which returns the "
            "splits itself; leave them out"
        )
    if not (validation is None or validation == OWN or isinstance(validation, Folds) or _is_share(validation)):
        raise StudyError(
            f"validation must be a share of the training images between 0 and 1, 'folder' or Folds(5), got "
            f"{shown(validation)}; write validation=0.2"
        )
    if group is not None:
        _check_group(source, group)


def check_given(validation: Validation, name: str, *, has_own: bool) -> None:
    """Raise DataError if the data has its own validation split and another is asked for, or the reverse."""
    if isinstance(validation, Joined):
        validation = validation.cut
    if validation == OWN and not has_own:
        raise DataError(
            f"validation='folder' needs a folder val/ beside train/, got {name} without one; add it, or give a share, "
            "such as validation=0.2"
        )
    if validation not in (None, OWN) and has_own:
        raise DataError(
            f"validation={validation} is cut from the training images, got {name}, which has a validation split of its "
            "own; write validation='folder', or move val/ away"
        )


def check_files(
    source: Source, images: ImageFiles | None, validation: Validation, group: str | None, data_dir: Path
) -> None:
    """`check_given`, as far as possible before files are read; `images` is given if they are separate files."""
    if images is not None:
        found = images.look()
        check_given(validation, source.name, has_own="validation" in found.splits)
        check_groups(
            group, source.name, has_own=group is not None and any(item.group is not None for item in found.items)
        )
    elif source.is_present(data_dir):
        check_given(validation, source.name, has_own=False)


def check_groups(group: str | None, name: str, *, has_own: bool) -> None:
    """Raise DataError if the data has groups of its own and a pattern for others is given."""
    if group is not None and has_own:
        raise DataError(
            f"group= is a pattern of file names for data without groups of its own, got {group!r} for {name}, which "
            "has a column of them; leave group= out"
        )


def _is_share(validation: object) -> bool:
    return is_number(validation) and 0 < float(validation) < 1


def _check_group(source: Source, group: object) -> None:
    if not isinstance(source, ImageFiles):
        raise StudyError(
            f"group is a pattern of file names, got data={source.name!r}, which isn't a folder; leave it out"
        )
    try:
        if not isinstance(group, str) or not group:
            raise TypeError("no text")
        re.compile(group)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise StudyError(
            f"group must be a regular expression for names of files, got {shown(group)} ({error}); "
            "correct it, as in group=r'^([^_]+)_'"
        ) from error
