"""The base class of tasks: what labels are, which metrics are reported, and where the rest of a task is."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from tuner.errors import StudyError, did_you_mean, shown
from tuner.space.mode import Mode
from tuner.trial.hyperparameter import Hyperparameter
from tuner.trial.metrics import EVERY_EPOCH, STANDARD_ERROR, ChosenMetric

Label = str | tuple[str, ...] | float
NO_LABEL = frozenset({"", "nan", "null", "<na>", "#n/a"})  # in lower case; others are labels as they are written


def is_name(text: str) -> bool:
    """Whether a text can be the name of a class or label."""
    return (len(text) >= 5 or text.casefold() not in NO_LABEL) and "\0" not in text


class LabelError(Exception):
    """A text that can't be a label: the rule, the text, and the fix."""

    def __init__(self, rule: str, value: str, fix: str) -> None:
        super().__init__(rule)
        self.rule, self.value, self.fix = rule, value, fix


@dataclass(frozen=True)
class Strata:
    """The kinds of images that are counted, and that a cut spreads evenly: classes, labels, or ranges of a number.

    Attributes:
        names: of the kinds, in their order
        of: the kinds of an image with this label, as indices into `names`
    """

    names: tuple[str, ...]
    of: Callable[[Label], tuple[int, ...]]


class Task(ABC):
    """What an image's label is, and what follows from it.

    Attributes:
        name: as `ImageClassifier(task=...)` has it
        called: other words for it, for messages
        described: what an image has, for messages
        of_columns: whether several columns of a table can say the labels
        needed: what a table's labels need to have, for messages
        seen_by: how the cells of a table show the task, for messages
        metric: what a study optimises unless it says otherwise
        metric_reason: why, for the first study that `tuner init` writes
        metrics: what every epoch reports of the validation images, without `val_`, and whether it is better high or low
        shares: those of `metrics` that are shares of images
        paired: the one of `metrics` by which two networks are compared image by image, see `Targets.goodness`
        named: further metrics that a user can choose, by name
        other_words: names that other libraries have for these metrics
        stratum: what strata are called, one and several
        alike, differing: how two images stand there that are the same, and have the same label, or different ones
        has_classes: whether strata are classes: each needs training images, and metrics can be about one
        when_uneven: what helps if classes have very different numbers of images, as a part of a sentence
        fewest: strata that data needs to have, that some of its training images are of, and others aren't
        hyperparameters: those that only this task has
        proposed: what a first study tries of these by name, as Python text, and why
        unused: hyperparameters of all image classifiers that mean nothing here
        training: "module:Class" with the arithmetic, a `tuner.train.tasks.Targets`
        inspection: "module:Class" for a winner's answers, a `tuner.inspection.tasks.Answers`
        facts_file: the file of `best/` with what a winner's answers need besides its weights; None for nothing
        plots: "module:function" of each plot that the report shows of the winner
    """

    name: ClassVar[str]
    called: ClassVar[tuple[str, ...]]
    described: ClassVar[str]
    of_columns: ClassVar[bool] = False
    needed: ClassVar[str]
    seen_by: ClassVar[str] = ""
    metric: ClassVar[str]
    metric_reason: ClassVar[str]
    metrics: ClassVar[Mapping[str, Mode]]
    shares: ClassVar[tuple[str, ...]] = ()
    paired: ClassVar[str]
    named: ClassVar[Mapping[str, ChosenMetric]] = {}
    other_words: ClassVar[Mapping[str, str]] = {}
    stratum: ClassVar[tuple[str, str]]
    alike: ClassVar[str] = "with the same label"
    differing: ClassVar[str] = "with different labels"
    has_classes: ClassVar[bool] = True
    when_uneven: ClassVar[str] = ""
    fewest: ClassVar[int] = 2
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = ()
    proposed: ClassVar[Mapping[str, tuple[str, str]]] = {}
    unused: ClassVar[tuple[str, ...]] = ()
    training: ClassVar[str]
    inspection: ClassVar[str]
    facts_file: ClassVar[str | None] = None
    plots: ClassVar[tuple[str, ...]] = ()

    def is_of(self, cells: Sequence[str]) -> bool:
        """Whether the cells of a table's column of labels show that they are of this task, and no other."""
        return False

    def may_be_of(self, outputs: Sequence[str]) -> bool:
        """Whether these classes could be meant as labels of this task."""
        return False

    @abstractmethod
    def label(self, cells: Sequence[str], columns: Sequence[str]) -> Label:
        """The label that the cells of a table's row say, in columns with these names; raises LabelError."""

    @abstractmethod
    def outputs(self, labels: Iterable[Label], columns: Sequence[str]) -> tuple[str, ...]:
        """The names of a network's outputs, in their order, for images with these labels in columns of these names."""

    @abstractmethod
    def strata(self, labels: Counter[Label]) -> Strata:
        """The kinds of images with these labels, of which there are so many."""

    def content(self, labels: Iterable[Label], columns: Sequence[str]) -> str:
        """What images with these labels have, in words after their number, such as `of 5 classes`."""
        count = len(self.outputs(labels, columns))
        return f"of {count:,} {self.stratum[count != 1]}"

    @property
    def counts_images(self) -> bool:
        """Whether `metric` is a share of images: then few images make it coarse, and large classes decide it."""
        return self.metric.removeprefix("val_") in self.shares

    # Metrics

    def chosen_metrics(self, given: object) -> tuple[ChosenMetric, ...]:
        """The metrics of `ImageClassifier(metrics=...)`, each once; StudyError for an unknown name."""
        if type(given) not in (list, tuple):
            example = next(iter(self.named))
            raise StudyError(f"metrics needs a list of names, got {shown(given)}; write metrics=['{example}']")
        found = {metric.name: metric for metric in map(self._chosen, cast("Sequence[object]", given))}
        return tuple(found.values())

    def directions(self, chosen: Iterable[ChosenMetric], *, with_errors: bool = False) -> dict[str, Mode | None]:
        """Every metric that is reported with these chosen ones, and whether it is better high or low.

        `with_errors`: with the standard error of each metric of the validation images, as `val_accuracy_se`.
        """
        of_images: dict[str, Mode | None] = {f"val_{name}": better for name, better in self.metrics.items()}
        found = of_images | EVERY_EPOCH | {f"val_{metric.name}": metric.direction for metric in chosen}
        validated = [name for name in found if name.startswith("val_")] if with_errors else []
        return found | dict.fromkeys([f"{name}{STANDARD_ERROR}" for name in validated], None)

    def how_to_report(self, metric: str) -> str | None:
        """The end of a message about a metric that is known, but wasn't chosen; None if it isn't known."""
        name = _plain(metric)
        name = self.other_words.get(name, name)
        if name in self.metrics:
            return f"write 'val_{name}'"
        return (
            f"add metrics=['{name}'] to ImageClassifier, and write metric='val_{name}'" if name in self.named else None
        )

    def _chosen(self, one: object) -> ChosenMetric:
        if isinstance(one, ChosenMetric):
            if not (self.has_classes or one.name in self.named):
                what = type(one).__name__
                raise StudyError(f"{what} needs classes, got {self.described} for each image; leave it out")
            return one
        if not isinstance(one, str):
            raise StudyError(
                f"metrics needs names or RecallAtPrecision(...), got {shown(one)}; there are {', '.join(self.named)}"
            )
        name = _plain(one)
        if name in self.named:
            return self.named[name]
        meant = self.other_words.get(name, name)
        if meant in self.metrics:
            raise StudyError(
                f"metrics has what isn't always reported, got {shown(one)}; leave it out, it is there as 'val_{meant}'"
            )
        fix = f"did you mean {meant!r}?" if meant in self.named else did_you_mean(name, self.named)
        raise StudyError(f"metrics needs names of metrics, got {shown(one)}; {fix}")


def _plain(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower()).removeprefix("val_").removeprefix("test_")
