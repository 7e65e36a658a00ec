"""The base class of trials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tuner.errors import StudyError, did_you_mean
from tuner.space import Space
from tuner.space.mode import Mode
from tuner.trial.hyperparameter import Hyperparameter

if TYPE_CHECKING:
    from tuner.trial.folder_headers import FolderHeaders
    from tuner.trial.stored import StoredFacts


class Trial(ABC):
    """The declaration of a study's trials; it is frozen and starts nothing.

    A new kind of trial is a frozen dataclass with this base class, which says what can be known without doing any work,
    and a class that does the work, a `tuner.worker.implementation.Implementation`. Nothing else has to be changed: each
    method has a default, for a trial about which nothing is known.

    Attributes:
        kind: what messages call such a trial, as in "the function 'train'"
        implementation: "module:Class" that does the work; only imported where work is done, so that a declaration loads
            neither torch nor Ray
        uses_gpu: whether a trial gets a GPU by default, if there is one
        is_code: whether it only does what the user's code says: then only runs of the same code, by
            `source_fingerprint`, say anything about its hyperparameters
        asked_for: whether the user's own program runs it and asks for it with `tuner.Search`, so that no worker can run
            it
    """

    kind: ClassVar[str] = "trial"
    implementation: ClassVar[str]
    uses_gpu: ClassVar[bool] = False
    is_code: ClassVar[bool] = False
    asked_for: ClassVar[bool] = False

    @property
    @abstractmethod
    def name(self) -> str:
        """The trial's name for people: in tables and messages."""

    @property
    @abstractmethod
    def reports(self) -> tuple[str, ...] | None:
        """The metrics reported after every epoch; None if that is only known when it runs."""

    @property
    def reproduced(self) -> tuple[str, ...] | None:
        """Metrics that the same configuration and seed reproduce, on the CPU bit for bit.

        None if nothing is promised.
        """
        return None

    @property
    def measures_networks(self) -> bool:
        """Whether what a configuration's network costs when it answers can be measured before it is trained."""
        return False

    @property
    def has_soups(self) -> bool:
        """Whether some of its networks begin from the same published weights, so that their mean is one, too."""
        return False

    @property
    def folds(self) -> int:
        """How many networks its cross-validation trains; 0 without one."""
        return 0

    @property
    def strategies(self) -> tuple[str, ...]:
        """The `STRATEGIES` by which a trial can use several devices."""
        return ()

    @property
    def without_strategies(self) -> str:
        """Why a trial without strategies has none, and the fix, for messages."""
        return "which has to use several devices by itself; leave strategy out"

    @property
    def refit_share(self) -> float | None:
        """About the time of an epoch on training and validation images together, as a share of a trial's epoch.

        None if the winner can't be trained on both.
        """
        return None

    def refitted(self) -> Self:
        """The same trial on training and validation images together; only called if `refit_share` is known."""
        raise StudyError(f"refit needs an ImageClassifier, got {self.described}; leave refit out")

    def instead_of(self, metric: str) -> str:
        """The end of a message about a metric that isn't reported: what to write."""
        return did_you_mean(metric, self.reports or ())

    @property
    def usual_metric(self) -> str:
        """The metric of a study that names none."""
        return "val_accuracy"

    @property
    def described(self) -> str:
        """Kind and name, for messages."""
        return f"the {self.kind} {self.name!r}"

    @property
    def directions(self) -> Mapping[str, Mode | None]:
        """Which metrics are better high ("max") or low ("min"), or are no aim (None); unknown metrics are missing."""
        return {}

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The parts of the declaration that are the user's code, which other processes can't import: a user's class."""
        return () if type(self).__module__.startswith("tuner.") else (type(self),)

    @property
    def known_hyperparameters(self) -> Mapping[str, Hyperparameter]:
        """The known hyperparameters of a configuration, by name, with ranges and defaults; unknown ones are missing."""
        return {}

    @property
    def portfolio(self) -> tuple[str, ...]:
        """The kinds of the studies that come with tuner which tell something about such trials.

        A kind is what its trials start from, "random" weights or pretrained "weights". Studies of random weights tell
        trials that start from pretrained ones something, too, but not the other way round.
        """
        return ("random", "weights")

    @property
    def started_from(self) -> str | None:
        """The weights that every trial starts from, for people: figures are comparable only between the same."""
        return None

    @abstractmethod
    def check(self, space: Space) -> None:
        """Raise StudyError if a configuration of `space` can't work."""

    def within(self, space: Space) -> Self:
        """The same trial, which then knows the space from which its configurations come."""
        return self

    def narrowed(self, space: Space) -> Self:
        """The same trial without settings that only matter for what `--set` has taken out of its space."""
        return self

    def notices(self, space: Space, max_epochs: int) -> list[str]:
        """Sentences about settings that are allowed but probably unintended, for `check` and a search's start."""
        return []

    def check_installed(self, space: Space) -> None:
        """Raise StudyError if a library that only some spaces need isn't installed."""
        return

    def check_files(self) -> None:
        """Raise DataError or WeightsError for files that are damaged, or missing and not downloadable."""
        return

    def check_metric(self, metric: str) -> None:
        """Raise StudyError if trials can't report the study's metric with their data."""
        return

    def missing_downloads(self, *, stored: bool = True) -> list[str]:
        """What would have to be downloaded before the first trial, in words; empty if nothing is missing.

        Without `stored` only what workers don't fetch by themselves: nothing from object stores.
        """
        return []

    def stored(self) -> list[StoredFacts]:
        """What object stores have now of the trial's data and weights; this asks them, and downloads nothing.

        Raises DataError or WeightsError if it doesn't exist or can't be read.
        """
        return []

    def pinned(self, facts: Sequence[StoredFacts]) -> Self:
        """The same trial, fixed to the data and weights that object stores have now; see `stored`."""
        return self

    def pinned_again(self, data: str | None, weights: str | None) -> tuple[Self, str | None]:
        """Like `pinned`, for a run that began with data and weights of these fingerprints.

        If a store can't be asked, the trial is fixed to this machine's copies, and a sentence for the user is returned
        with it. Raises DataError or WeightsError if there is no complete copy.
        """
        return self, None

    def at_commits(self, weights: str | None) -> Self:
        """The same trial, fixed to the repositories' commits that a run's fingerprint of its weights names."""
        return self

    def check_stored(self) -> None:
        """Raise DataError or WeightsError if this machine can't get the data or weights of `pinned`.

        That is so if it has no copy of them, and the store has others now, can't be read, or has more than there is
        room for.
        """
        return

    def look(self) -> FolderHeaders | None:
        """What the headers of the trial's images show, within seconds; None if the images aren't separate files.

        Raises DataError if they aren't laid out as they must be.
        """
        return None

    def reads(self) -> str | None:
        """What data is read before the first trial, in words; None if that takes no time."""
        return None

    def fingerprint(self) -> str | None:
        """16 hexadecimal digits that change with the data; None if the data isn't known."""
        return None

    def data_changed_since(self, moment: float) -> list[Path] | None:
        """The files of the data that were written after a moment, in seconds since 1970; None if that isn't known."""
        return None

    def weights_fingerprint(self) -> str | None:
        """A text that changes with the weights that training starts from, such as 16 hexadecimal digits.

        None if it starts from random or published weights that no hub keeps in commits, or from a function's.
        """
        return None

    def source_fingerprint(self) -> str | None:
        """16 hexadecimal digits that change with the code of a trial that consists only of the user's code.

        None if the code can't be read, and for trials that can be compared by their hyperparameters.
        """
        return None

    def identity(self) -> dict[str, str]:
        """The properties that must be equal for two trials of one configuration to be comparable, in words by name."""
        return {}

    def with_options(self, *, weights: str | None = None, data_dir: str | None = None) -> Self:
        """The trial changed by the command line's options that aren't None; StudyError for one that it doesn't have.

        `weights` is "imagenet", "none" or a path.
        """
        given = [option for option, value in (("--weights", weights), ("--data-dir", data_dir)) if value is not None]
        raise StudyError(
            f"{' and '.join(given)} need{'s' if len(given) == 1 else ''} an ImageClassifier, got {self.described}; "
            f"read the setting inside the {self.kind} instead"
        )

    def resolved(self, folder: Path | None = None) -> Self:
        """The same trial with absolute paths (relative to `folder`, or the working directory), for other processes."""
        return self


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory of a trial on one device, without what the libraries take for themselves.

    Attributes:
        peak_bytes: the most that it holds at once as configured; None if that isn't known
        least_bytes: the least that it needs, one image at a time; None if that isn't known
        alike: a key that configurations share if they need the same memory, and the same time per image
        unknown: why the memory isn't known, as a part of a sentence; empty if it is known
    """

    peak_bytes: int | None = None
    least_bytes: int | None = None
    alike: str = ""
    unknown: str = ""
