"""The hyperparameters of `ImageClassifier`: one table that checks, messages, trainer and README read."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tuner.errors import StudyError

Kind = Literal["int", "float", "categorical"]


@dataclass(frozen=True)
class Hyperparameter:
    """One row of the table: what a value may be, what it is when the space leaves it out, and what it does.

    `low` and `high` are inclusive and belong to the kinds `int` and `float`; `choices` belongs to `categorical`.
    `default` is None where the data or the budget decides. `log` says that a search does well on a log scale.
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    log: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def range(self) -> str:
        """What it may be, for people: `1 to 10000`, `adam or sgd`."""
        if self.kind == "categorical":
            return " or ".join(self.choices)
        return f"{self.low:g} to {self.high:g}"

    def accepts(self, value: object) -> bool:
        """Whether `value` is of the kind and in the range; an integral float such as 32.0 is an int."""
        if self.kind == "categorical":
            return value in self.choices
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        return self.low <= value <= self.high and (self.kind == "float" or float(value).is_integer())

    def check(self, value: object) -> None:
        """Raise StudyError unless `value` is of the kind and in the range."""
        if not self.accepts(value):
            raise StudyError(f"{self.name} must be {self.rule}, got {value!r}; {self.fix}")

    @property
    def rule(self) -> str:
        """The first part of a message: `an int from 1 to 10000`."""
        if self.kind == "categorical":
            return self.range
        return f"{'an int' if self.kind == 'int' else 'a float'} from {self.low:g} to {self.high:g}"

    @property
    def fix(self) -> str:
        """The last part of a message: what to write instead."""
        if self.kind == "categorical":
            return f"choose among {', '.join(map(repr, self.choices))}"
        return "move it into that range"

    def coerce(self, value: Any) -> Any:
        """The value as the kind's own Python type.

        Raises:
            StudyError: the value isn't of the kind, or out of the range.
        """
        self.check(value)
        return {"int": int, "float": float, "categorical": str}[self.kind](value)


TABLE: tuple[Hyperparameter, ...] = (
    Hyperparameter(
        "epochs",
        "int",
        None,
        "Length of this trial; shortens the budget's `max_epochs`, never lengthens it.",
        low=1,
        high=10_000,
        aliases=("epoch", "num_epochs", "n_epochs", "max_epochs"),
    ),
    Hyperparameter(
        "lr",
        "float",
        1e-3,
        "Learning rate, constant over the trial.",
        low=1e-8,
        high=10,
        log=True,
        aliases=("learning_rate", "learningrate", "eta", "step_size"),
    ),
    Hyperparameter(
        "batch_size",
        "int",
        64,
        "Images per step; batch norm needs at least two.",
        low=2,
        high=65_536,
        log=True,
        aliases=("batch", "bs", "batchsize"),
    ),
    Hyperparameter(
        "optimizer",
        "categorical",
        "adam",
        "Adam, or stochastic gradient descent with momentum.",
        choices=("adam", "sgd"),
        aliases=("opt", "optim", "optimiser"),
    ),
    Hyperparameter(
        "momentum",
        "float",
        0.9,
        "Momentum of `sgd`; `adam` leaves it aside.",
        low=0,
        high=0.9999,
        aliases=("beta", "mom"),
    ),
    Hyperparameter(
        "weight_decay",
        "float",
        0.0,
        "L2 penalty that is added to the gradient.",
        low=0,
        high=1,
        log=True,
        aliases=("wd", "l2", "decay"),
    ),
    Hyperparameter(
        "finetune",
        "categorical",
        "all",
        "`all` layers learn, or the `head` alone: the last layer and whatever else was replaced, with the rest frozen, "
        "its batch-norm statistics included.",
        choices=("all", "head"),
        aliases=("fine_tune", "freeze"),
    ),
    Hyperparameter(
        "label_smoothing",
        "float",
        0.0,
        "Share of the target that is spread over all classes; in the training loss only.",
        low=0,
        high=0.9,
        aliases=("smoothing",),
    ),
    Hyperparameter(
        "image_size",
        "int",
        None,
        "Edge in pixels that images are resized to, by default the data's own: 28 for fashion-mnist, 32 for cifar10; "
        "digits (8 pixels) are enlarged to 24 and images of a folder brought to 64. Never less than the model needs.",
        low=8,
        high=1024,
        aliases=("img_size", "imagesize", "size", "resolution", "input_size"),
    ),
)

HYPERPARAMETERS: dict[str, Hyperparameter] = {row.name: row for row in TABLE}


def find(name: str, owner: str = "ImageClassifier") -> Hyperparameter:
    """The row called `name`.

    Raises:
        StudyError: no hyperparameter has this name; the nearest one is named.
    """
    if name in HYPERPARAMETERS:
        return HYPERPARAMETERS[name]
    near = nearest(name)
    hint = f"did you mean '{near}'?" if near else f"it has {', '.join(HYPERPARAMETERS)}"
    raise StudyError(f"'{name}' is not a hyperparameter of {owner}; {hint}")


def nearest(name: str) -> str | None:
    """The hyperparameter that `name` most likely means, by alias or spelling; of a dotted name the last part counts."""
    spellings = {spelling: row.name for row in TABLE for spelling in (row.name, *row.aliases)}
    found = closest(name.lower().rpartition(".")[2], spellings)
    return spellings[found] if found else None


def closest(word: str, words: Iterable[str]) -> str | None:
    """The one of `words` that is spelt most like `word`, or None if none is near."""
    return next(iter(difflib.get_close_matches(word, list(words), n=1)), None)


def markdown() -> str:
    """The table as Markdown, for the README."""
    head = "| hyperparameter | kind | range | default | meaning |\n|---|---|---|---|---|"
    return "\n".join([head, *(_markdown_row(row) for row in TABLE)])


def _markdown_row(row: Hyperparameter) -> str:
    default = "–" if row.default is None else f"{row.default}"  # noqa: RUF001 -- a dash, as in a printed table
    scale = ", log" if row.log else ""
    return f"| `{row.name}` | {row.kind} | {row.range}{scale} | {default} | {row.meaning} |"
