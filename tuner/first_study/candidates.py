"""Models that a first study may have: those whose weights are on this machine or can be downloaded by it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from tuner.errors import WeightsError
from tuner.machine.installation import is_installed
from tuner.trial.models import IMAGENET, ModelFacts, PublishedWeights, find_model, model_facts

SECONDS = 4.0  # for the server to answer

# Accuracy in percent on ImageNet, from torchvision's table of weights:
# https://docs.pytorch.org/vision/stable/models.html
ACCURACY = {
    "mobilenet_v3_small": {"IMAGENET1K_V1": 67.7},
    "resnet18": {"IMAGENET1K_V1": 69.8},
    "mobilenet_v2": {"IMAGENET1K_V2": 72.2, "IMAGENET1K_V1": 71.9},
    "mobilenet_v3_large": {"IMAGENET1K_V2": 75.3, "IMAGENET1K_V1": 74.0},
    "efficientnet_b0": {"IMAGENET1K_V1": 77.7},
    "resnet50": {"IMAGENET1K_V2": 80.9, "IMAGENET1K_V1": 76.1},
    "convnext_tiny": {"IMAGENET1K_V1": 82.5},
}


@dataclass(frozen=True)
class Candidate:
    """A model with its weights.

    Attributes:
        model: the library's name
        weights: as `ImageClassifier.weights` has them; None for random ones
        accuracy: on ImageNet, in percent; None if it isn't known here
        cached: whether the weights are on this machine
    """

    model: str
    weights: str | None
    accuracy: float | None = None
    cached: bool = True


@dataclass(frozen=True)
class Offer:
    """The models that a first study may use.

    Attributes:
        candidates: in the order of their accuracy, the lowest first
        left_out: models, and why not
    """

    candidates: tuple[Candidate, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def offer(asked: Sequence[str] = (), *, random: bool = False) -> Offer:
    """The models whose weights are cached or can be downloaded, among the named ones or those that tuner knows.

    Args:
        asked: names; empty for the usual ones
        random: whether all are trained from random weights

    Raises:
        StudyError: no library has a model of that name.
        WeightsError: no weights are available.
    """
    if random:
        return Offer(tuple(Candidate(name, None) for name in asked or ("resnet18",)))
    names = asked or [*ACCURACY, *(name for name, facts in model_facts().items() if _is_offered(name, facts))]
    found = [candidate for name in names if (candidate := _cached(name)) is not None]
    missing = [name for name in asked or ACCURACY if name not in {each.model for each in found}]
    default = {name: find_model(name).find_weights(IMAGENET) for name in missing}
    problems = {server: unreachable(server) for server in sorted({weights.server for weights in default.values()})}
    had = [name for name in missing if problems[default[name].server] is None]
    found += [Candidate(name, IMAGENET, _accuracy(name, IMAGENET), cached=False) for name in had]
    missing = [name for name in missing if name not in had]
    if not found:
        first = default[missing[0]]
        raise WeightsError(
            f"init needs the weights of one of {', '.join(missing)}, got none in {first.path.parent} and no connection "
            f"to {_host(first.server)} ({problems[first.server]}); copy a file of {find_model(missing[0]).library}'s "
            "there, or add --weights none for random weights, which reach far less"
        )
    return Offer(tuple(_in_order(found)), tuple((name, _why(default[name], problems)) for name in missing))


def _is_offered(name: str, facts: ModelFacts) -> bool:
    """Whether a model that nobody asked for is offered if its weights are here."""
    return name not in ACCURACY and is_installed(facts.library)


def _why(weights: PublishedWeights, problems: Mapping[str, str | None]) -> str:
    problem = problems[weights.server]
    return f"no weights in {weights.path.parent}, and {_host(weights.server)} can't be reached ({problem})"


def _host(server: str) -> str:
    return urlsplit(server).netloc


def unreachable(server: str) -> str | None:
    """Why a server, such as torchvision's, can't be asked for weights; None if it can."""
    try:
        urllib.request.urlopen(urllib.request.Request(server, method="HEAD"), timeout=SECONDS).close()
    except urllib.error.HTTPError:  # it answered
        return None
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__
    return None


def _cached(name: str) -> Candidate | None:
    """The model with its default weights if they are cached, else with other cached weights of it."""
    facts = find_model(name)
    here = [each.name for each in facts.published.values() if each.path.is_file()]
    if facts.default in here:
        return Candidate(name, IMAGENET, _accuracy(name, IMAGENET))
    return Candidate(name, here[0], _accuracy(name, here[0])) if here else None


def _accuracy(name: str, weights: str) -> float | None:
    return ACCURACY.get(name, {}).get(find_model(name).default if weights == IMAGENET else weights)


def _in_order(found: Iterable[Candidate]) -> list[Candidate]:
    return sorted(found, key=lambda each: (each.accuracy or 0.0, each.model))
