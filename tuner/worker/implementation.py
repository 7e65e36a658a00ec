"""The base class of the code that does a trial's work; only imported where work is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tuner.errors import StudyError, describe_error
from tuner.space.values import without_number
from tuner.study.file import STUDY_MODULE
from tuner.trial import MemoryEstimate, Trial
from tuner.trial.speed import Speed

if TYPE_CHECKING:
    from tuner.history.combination import Candidate
    from tuner.trial.inference_cost import InferenceCost, Latency
    from tuner.worker.assignment import Assignment
    from tuner.worker.reporting import WorkerSession

T = TypeVar("T", bound=Trial)

WORKER = ("ray.tune",)  # what every worker imports to run a trial


@dataclass(frozen=True)
class DataLook:
    """The findings about a study's data before its first trial.

    Attributes:
        record: as `data.json` in the run's folder has it
        notices: sentences for the user
    """

    record: Mapping[str, Any]
    notices: tuple[str, ...]


class Implementation(ABC, Generic[T]):
    """The work of one kind of trial, whose `Trial.implementation` names it; made without arguments, it keeps no state.

    The driver imports it too, and shouldn't wait for torch: heavy imports belong into the methods.
    """

    @property
    def modules(self) -> tuple[str, ...]:
        """Installed modules that `train` imports and that take a while, so that workers load them as they start."""
        return WORKER

    @abstractmethod
    def train(self, trial: T, assignment: Assignment, session: WorkerSession) -> None:
        """Run one trial of `assignment.config` on a worker, and report each of its `assignment.epochs` to the session.

        It goes on from the first of `session.checkpoints()` that it can read, and saves what it reports if the
        assignment asks for it. `session.report_epoch` returns only if the trial is to go on; the user sees what
        `session.notes` gets. Raises TrialError, or any other exception, if the trial fails.
        """

    def download(self, trial: T) -> None:
        """Fetch what `trial.missing_downloads()` names, in the driver before Ray; raises DataError or WeightsError."""
        return

    def look(self, trial: T, config: dict[str, Any], *, split_seed: int, before: bool = False) -> DataLook | None:
        """The findings about the data that trials with settings like `config` read; None if nothing is known.

        Runs in the driver, while Ray starts; raises DataError if no trial can use the data. If the run began `before`
        deep images had one scale, a notice names images that are read otherwise since.
        """
        return None

    def check_splits(self, trial: T, config: dict[str, Any], *, stages: int, splits: Sequence[Any]) -> None:
        """Raise StudyError if a pipeline can't split the model of `config` into `stages`, for one of `splits`."""
        return

    def memory_estimator(
        self, trial: T, *, epochs: int, split_seed: int, device: str, free_bytes: float
    ) -> Callable[[dict[str, Any]], MemoryEstimate]:
        """The object that estimates the memory of a configuration on a device before it is tried; runs on a worker.

        Args:
            trial: whose configurations they are
            epochs: the budget's length of a trial
            split_seed: the study's seed
            device: "cuda" or "cpu"
            free_bytes: of the device
        """
        return lambda _: MemoryEstimate(unknown=f"the memory that {trial.described} needs is unknown")

    def together(self, trial: T, config: Mapping[str, Any]) -> str | None:
        """A key that configurations share if a worker can train them together; None if it can't. Read by the driver."""
        return None

    def checkpoint_bytes(
        self, trial: T, configs: Sequence[dict[str, Any]], *, epochs: int
    ) -> tuple[int, dict[str, Any]] | None:
        """Bytes of the largest checkpoint that a trial of these configurations saves, and the configuration.

        None if that isn't known; `epochs` is the budget's length of a trial. This trains and downloads nothing.
        """
        return None

    def cost_kind(self, trial: T, config: dict[str, Any]) -> str:
        """A name for configurations whose trials cost the same, in words; empty if that isn't known."""
        return ""

    def prepare(self, threads: int) -> None:
        """Let libraries use so many threads in this process, for `speed`, `score` and `combine`, and load them."""
        return

    def speed(
        self, trial: T, config: dict[str, Any], *, epochs: int, split_seed: int, device: str, seconds: float
    ) -> Speed | None:
        """The cost of a trial of this configuration, measured in this process for about `seconds`.

        `epochs` is the budget's length of a trial, `device` "cuda" or "cpu". This downloads nothing. None if it can't
        be known.
        """
        return None

    def network_of(self, trial: T, config: dict[str, Any]) -> str:
        """A text that configurations share whose winner's networks cost the same when they answer."""
        return ""

    def inference_cost(
        self, trial: T, config: dict[str, Any], *, latency: Latency, often: bool
    ) -> InferenceCost | None:
        """What the winner's network would cost when it answers, measured in this process; None if that isn't known.

        `often`: its time is measured in several processes, which takes a while, and not only in one.

        Raises TrialError if that can't be measured.
        """
        return None

    @property
    def scores(self) -> bool:
        """Whether the winner is scored; otherwise its checkpoint is only copied."""
        return type(self).score is not Implementation.score

    def score(
        self,
        trial: T,
        config: dict[str, Any],
        checkpoint: Path,
        best: Path,
        *,
        record: Mapping[str, Any],
        split_seed: int,
        device: str,
    ) -> None:
        """Score the winner's checkpoint on the test split, if there is one, and write the folder `best`.

        `metrics.json` in it holds the `record` ("trial", "epoch", "metrics") with the test figures among its metrics.
        Runs on a worker, with a trial's resources; `device` is "cuda" or "cpu", `split_seed` the study's seed.
        """
        raise NotImplementedError

    def combine(
        self,
        trial: T,
        candidates: Sequence[Candidate],
        best: Path,
        *,
        record: Mapping[str, Any],
        split_seed: int,
        device: str,
    ) -> None:
        """Write the folder `best` with the average of several trials, the winner first, as `score` does for one.

        `record["combined"]["asked"]` says whether it is to pay.
        """
        raise NotImplementedError

    def beside_own(
        self, trial: T, config: dict[str, Any], *, refitted: Path, own: Path, split_seed: int, device: str
    ) -> dict[str, Any] | None:
        """The results of the winner's `own` network and its refit on the same test images; None if nothing is known.

        Runs as `score` does, if the winner was trained again on training and validation images together.
        """
        return None


def implementation_of(trial: Trial) -> Implementation[Any]:
    """The object that does the trial's work; raises StudyError if `Trial.implementation` names no such class."""
    named = getattr(trial, "implementation", None)
    try:
        found = resolve_name(named or "") if not str(named).startswith(STUDY_MODULE) else None
    except Exception as error:  # the module may be the user's
        raise StudyError(f"{_rule(trial, named)} ({describe_error(error)})") from error
    if not (isinstance(found, type) and issubclass(found, Implementation)):
        raise StudyError(_rule(trial, named))
    return found()


def _rule(trial: Trial, named: object) -> str:
    named = without_number(named) if isinstance(named, str) else named
    return (
        'a trial needs implementation = "module:Class" of a tuner.worker.implementation.Implementation, '
        f"got {named!r} in {type(trial).__name__}; name one in a module of its own, which workers import"
    )
