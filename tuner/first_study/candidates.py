"""Models that a first study may have: those whose weights are on this machine or can be downloaded by it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tuner.errors import StudyError, WeightsError
from tuner.storage.hub import cached_repositories
from tuner.trial.models import IMAGENET, ModelFacts, PublishedWeights, find_model, model_facts

SECONDS = 4.0  # for the server to answer

# Accuracy in percent on ImageNet: torchvision's table of weights, https://docs.pytorch.org/vision/stable/models.html;
# the cards of timm's weights, at 224 pixels; for DINOv2, whose backbone is frozen there, M. Oquab et al., "DINOv2:
# Learning Robust Visual Features without Supervision", arXiv 2304.07193, table 4
ACCURACY = {
    "mobilenet_v3_small": {"IMAGENET1K_V1": 67.7},
    "resnet18": {"IMAGENET1K_V1": 69.8},
    "mobilenet_v2": {"IMAGENET1K_V2": 72.2, "IMAGENET1K_V1": 71.9},
    "mobilenet_v3_large": {"IMAGENET1K_V2": 75.3, "IMAGENET1K_V1": 74.0},
    "efficientnet_b0": {"IMAGENET1K_V1": 77.7},
    "resnet50": {"IMAGENET1K_V2": 80.9, "IMAGENET1K_V1": 76.1},
    "convnext_tiny": {"IMAGENET1K_V1": 82.5},
    "timm:convnext_tiny": {"in12k_ft_in1k": 84.2},
    "timm:vit_small_patch14_dinov2": {"lvd142m": 81.1},
    "timm:vit_base_patch14_dinov2": {"lvd142m": 84.5},
    "timm:vit_large_patch14_dinov2": {"lvd142m": 86.3},
    "hf:facebook/dinov2-small": {"main": 81.1},
    "hf:facebook/dinov2-base": {"main": 84.5},
    "hf:facebook/dinov2-large": {"main": 86.3},
}
MEGABYTES = {  # of the default weights of each model that is offered to everybody
    "mobilenet_v3_small": 10,
    "resnet18": 45,
    "mobilenet_v2": 14,
    "mobilenet_v3_large": 21,
    "efficientnet_b0": 20,
    "resnet50": 98,
    "convnext_tiny": 109,
    "timm:convnext_tiny": 114,
    "timm:vit_small_patch14_dinov2": 88,
}
USUAL_PIXELS = 224  # edge of images with which these accuracies were measured, also where weights have larger images
ANY_USE = ("", "unknown", "apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0")  # licences; torchvision names none


@dataclass(frozen=True)
class Candidate:
    """A model with its weights.

    Attributes:
        model: the library's name
        weights: as `ImageClassifier.weights` has them; None for random ones
        accuracy: on ImageNet, in percent; None if it isn't known here
        cached: whether the weights are on this machine
        pixels: edge of images that suits the model better than that of its weights; None for that
        is_file: whether the weights are a file of the user's, of which nothing else is known
    """

    model: str
    weights: str | None
    accuracy: float | None = None
    cached: bool = True
    pixels: int | None = None
    is_file: bool = False

    @property
    def published(self) -> PublishedWeights:
        """The weights; for a file's, those that the model has by default."""
        return find_model(self.model).find_weights(IMAGENET if self.is_file else str(self.weights))


@dataclass(frozen=True)
class Offer:
    """The models that a first study may use.

    Attributes:
        candidates: in the order of their accuracy, the lowest first
        left_out: models, and why not
    """

    candidates: tuple[Candidate, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def offer(asked: Sequence[str] = (), *, random: bool = False, file: str | None = None) -> Offer:
    """The models whose weights are cached or can be downloaded, among the named ones or those that tuner knows.

    Args:
        asked: names; empty for the usual ones
        random: whether all are trained from random weights
        file: the path of the weights of the only model that is named

    Raises:
        StudyError: no library has a model of that name, or a file of weights isn't for one model.
        WeightsError: no weights are available.
    """
    if random:
        return Offer(tuple(Candidate(name, None) for name in asked or ("resnet18",)))
    if file is not None:
        return Offer((_with_file(asked, file),))
    out: dict[str, str] = {}
    names = list(asked)
    if not names:
        names, out = _allowed([*MEGABYTES, *_further()])
    found = [candidate for name in names if (candidate := _cached(name)) is not None]
    missing = [name for name in names if name not in {each.model for each in found}]
    default = {name: find_model(name).find_weights(IMAGENET) for name in missing}
    problems = {server: unreachable(server) for server in sorted({weights.server for weights in default.values()})}
    had = [name for name in missing if problems[default[name].server] is None]
    found += [_candidate(name, IMAGENET, cached=False) for name in had]
    missing = [name for name in missing if name not in had]
    if not found:
        first = default[missing[0]]
        raise WeightsError(
            f"init needs the weights of one of {', '.join(missing)}, got none in {first.path.parent} and no connection "
            f"to {_host(first.server)} ({problems[first.server]}); copy a file of {find_model(missing[0]).library}'s "
            f"there, name a file with its model, such as --models {missing[0]} --weights FILE, or add --weights none "
            "for random weights, which reach far less"
        )
    left_out = {name: _why(default[name], problems) for name in missing} | out
    return Offer(tuple(_in_order(found)), tuple(left_out.items()))


def _with_file(asked: Sequence[str], file: str) -> Candidate:
    if not Path(file).is_file():  # first: it may be a misspelt name of weights
        raise WeightsError(f"--weights needs imagenet, none or the path of a file, got {file!r}; correct it")
    if len(asked) != 1:
        raise StudyError(
            f"a file of weights is for one model, got --weights {file} with {len(asked) or 'no'} models; name the "
            f"model that it is for, such as --models {_named_by(file)}"
        )
    facts = find_model(asked[0])
    return Candidate(asked[0], file, pixels=facts.find_weights(IMAGENET).preprocessing.framing.pixels, is_file=True)


def _named_by(file: str) -> str:
    """The model whose name begins the file's, as in mobilenet_v2-b0353104.pth; else one that many use."""
    stem = Path(file).name
    return max((name for name in MEGABYTES if stem.startswith(name)), key=len, default="resnet18")


def described(model: str) -> str:
    """A model that isn't here, with what its download would bring: "resnet18 (69.8 % on ImageNet, 45 MB)"."""
    if model not in MEGABYTES:
        return model
    return f"{model} ({_accuracy(model, IMAGENET)} % on ImageNet, {MEGABYTES[model]} MB)"


def _further() -> list[str]:
    """Models whose weights are on this machine, though they aren't offered to everybody."""
    of_the_hub = (f"hf:{repository}" for repository in cached_repositories())
    return [
        *(name for name in model_facts() if name not in MEGABYTES and _cached(name) is not None),
        *(name for name in of_the_hub if _is_known(name)),
    ]


def _is_known(name: str) -> bool:
    """Whether a cached repository of the hub is an image model that a trial can have, with its weights."""
    try:
        return _cached(name) is not None
    except (StudyError, WeightsError):
        return False


def _allowed(names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """The models of installed libraries whose licence allows any use, as far as it is known; why not the others."""
    allowed: list[str] = []
    out: dict[str, str] = {}
    for name in names:
        facts = find_model(name)
        licence = facts.find_weights(_weights_here(facts) or IMAGENET).licence
        try:
            facts.check_installed()
        except StudyError as error:
            if name in MEGABYTES:
                out[name] = str(error).partition("; ")[2]
            continue
        if licence in ANY_USE or licence.startswith("see "):
            allowed.append(name)
        else:
            out[name] = f"the licence of its weights, {licence}, may not allow what you want; see it, and use --models"
    return allowed, out


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
    weights = _weights_here(find_model(name))
    return None if weights is None else _candidate(name, weights)


def _weights_here(facts: ModelFacts) -> str | None:
    here = [each.name for each in facts.published.values() if each.path.is_file()]
    return IMAGENET if facts.default in here else here[0] if here else None


def _candidate(name: str, weights: str, *, cached: bool = True) -> Candidate:
    facts = find_model(name)
    own = facts.find_weights(weights).preprocessing.framing.pixels
    smaller = facts.step is not None and own > USUAL_PIXELS and not USUAL_PIXELS % facts.step
    return Candidate(name, weights, _accuracy(name, weights), cached, USUAL_PIXELS if smaller else None)


def _accuracy(name: str, weights: str) -> float | None:
    return ACCURACY.get(name, {}).get(find_model(name).default if weights == IMAGENET else weights)


def _in_order(found: Iterable[Candidate]) -> list[Candidate]:
    return sorted(found, key=lambda each: (each.accuracy or 0.0, each.model))
