"""Which hyperparameters of a training function are the usual ones, by their names and ranges."""

from __future__ import annotations

import re
from typing import Any

from tuner.space import Choice, Domain, Float, Integer, Space
from tuner.space.values import is_number

RATE = "lr"
USUAL = {  # names without separators, in lower case
    **dict.fromkeys(("lr", "learningrate"), RATE),
    **dict.fromkeys(("batchsize", "bs"), "batch_size"),
    **dict.fromkeys(("weightdecay", "wd"), "weight_decay"),
    **dict.fromkeys(("dropout", "dropoutrate"), "dropout"),
    **dict.fromkeys(("optimizer", "optimiser"), "optimizer"),
    "momentum": "momentum",
    "labelsmoothing": "label_smoothing",
}
FEWEST = 2  # of them that a space needs
SHARED = 0.5  # share of the space's dimensions that have to be among them


def named_alike(space: Space, known: Space) -> dict[str, str]:
    """The names of a space's hyperparameters and constants -> those that they have in the `known` space.

    Empty if they are too few, or the learning rate isn't among them: then the function trains something else. One whose
    values lie outside of the known ones is left out, because it means something else, such as an exponent.
    """
    found: dict[str, str] = {}
    for name, held in [*space.dimensions.items(), *space.constants.items()]:
        usual = USUAL.get(re.sub("[^a-z]", "", name.rpartition(".")[2].lower()))
        if usual is not None and _may_be(held, known.dimensions[usual]):
            found[name] = usual
    unique = {name: usual for name, usual in found.items() if list(found.values()).count(usual) == 1}
    searched = sum(name in space.dimensions for name in unique)
    enough = searched >= max(FEWEST, SHARED * len(space.dimensions))
    return unique if enough and RATE in unique.values() else {}


def _may_be(held: Any, known: Domain) -> bool:
    """Whether a domain, or a constant, has values among the known ones."""
    if isinstance(held, Float | Integer):
        low, high = _range(known)
        return bool(held.low <= high and held.high >= low)
    options = held.options if isinstance(held, Choice) else () if isinstance(held, Domain) else (held,)
    return any(_is_among(option, known) for option in options)


def _is_among(value: Any, known: Domain) -> bool:
    if is_number(value):
        low, high = _range(known)
        return bool(low <= value <= high)
    return known.contains(value)


def _range(known: Domain) -> tuple[float, float]:
    """The lowest and the highest number, of options without the first; none is between them if it has none.

    A range that only has the lowest batch size in common with the known ones may be one of exponents.
    """
    numbers = [known.low, known.high] if isinstance(known, Float | Integer) else []
    if isinstance(known, Choice):
        numbers = sorted(option for option in known.options if is_number(option))[1:]
    return (min(numbers), max(numbers)) if numbers else (float("inf"), float("-inf"))
