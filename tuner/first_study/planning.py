"""Makes a plan from the data, the machine and the minutes; each setting has its reason."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.first_study.candidates import Candidate
from tuner.first_study.folder_look import FEW_IMAGES, TOLD, FirstLook
from tuner.first_study.plan import Plan, Setting, quoted
from tuner.trial.folder_headers import FEW
from tuner.trial.models import find_model
from tuner.trial.sources import find_source
from tuner.trial.speed import Speed
from tuner.trial.splitting import Folds
from tuner.trial.tasks import ONE_LABEL

FINE_TUNED = 600  # from so many training images on all layers may learn; with fewer, training the head was as good
FINE_EPOCHS = 45  # of all trials together that fine-tuning needs: about six trials of 7
BACKWARD = 3.5  # time per image for training all layers, as a multiple of the forward pass
SHARES_FOR_FEATURES = (0.6, 0.4, 0.25, 0.15)  # of the time, for frozen backbones: the next where too few trials fit
MOST_MODELS = 3
MOST_TOTAL = 4_000  # epochs of all trials
LENGTHS = {"solved": 1, "head": 20, "gradual": 8, "all": 12}  # of a trial
SURE_FROM = 200  # validation images for which accuracy distinguishes heads: with 60, choosing by the loss is better
UNEVEN = 3.0  # largest to smallest class, from which ratio on all classes count equally
SIZES = (160, 128, 96, 64)  # pixels of images if the weights' own size takes too long
RANDOM_SIZES = (32, 64, 96, 128)
LARGER = 1.29  # images, as a multiple of the weights' own size
MULTIPLE = 32  # of pixels: what a network's strides divide
NOTHING = "change nothing"
SHORTEST = 0.75  # of the weights' own size: images that are shorter gain nothing from larger ones


@dataclass(frozen=True)
class Wishes:
    """The user's wishes.

    Attributes:
        minutes: for the whole search
        models: by name; empty to choose what suits the machine
        random: whether to train from random weights
        mirrored: whether a mirrored image keeps its label; None if that isn't known
        evenly: whether all classes or labels matter equally, even with few images; None to decide by their sizes
        group: pattern of file names that belong together; None for the one that was found
    """

    minutes: float = 30.0
    models: tuple[str, ...] = ()
    random: bool = False
    mirrored: bool | None = None
    evenly: bool | None = None
    group: str | None = None


@dataclass(frozen=True)
class Means:
    """What is available for the search.

    Attributes:
        candidates: available models that were measured
        speeds: by model, of a trial with a frozen backbone (with random weights: of a full trial)
        kinds: speeds by `Implementation.cost_kind`
        ready_seconds: time in which libraries load
        workers: trials at once
        around: seconds before the first trial and after the last
    """

    candidates: Sequence[Candidate]
    speeds: Mapping[str, Speed]
    kinds: Mapping[str, Speed]
    ready_seconds: float
    workers: int
    around: float

    def forward(self, model: str) -> float:
        """Seconds per image through the network."""
        return 1 / self.speeds[model].images_per_second

    def features(self, model: str) -> float:
        """Seconds per image through the frozen network."""
        return 1 / self.speeds[model].features_per_second


@dataclass(frozen=True)
class _Choice:
    """The models, and which layers learn.

    Attributes:
        models: the best first
        kind: a key of `LENGTHS`
        why: layers and not others learn, in words
        pixels: of models that don't have their weights' own size, the edges of images to try
        more: what more minutes would do, in words
    """

    models: tuple[Candidate, ...]
    kind: str
    why: str
    pixels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    more: str = NOTHING

    @property
    def finetune(self) -> str:
        """As the study has it."""
        return "head" if self.kind == "solved" else self.kind


def plan(look: FirstLook, wishes: Wishes, means: Means, data: str, share: float = SHARES_FOR_FEATURES[0]) -> Plan:
    """The plan; its budget is the largest for a search of this kind, and is then fitted to the minutes.

    Args:
        look: at the data
        wishes: of the user
        means: candidates and their speeds
        data: what the file names, such as "folder:photos"
        share: of the time that frozen backbones may take
    """
    chosen = _choose(look, wishes, means, share)
    images = sum(map(look.count, look.splits))
    return Plan(
        name=re.sub(r"[^\w.-]+", "-", look.images.path.resolve().name).strip("-._")[:60] or "photos",
        opening=(
            f"{images:,} images {look.headers.content}, for {_minutes(wishes)} of search on this machine. "
            "Written by `tuner init`, with the reason of each line above it: change what you like."
        ),
        trial=tuple(_trial(look, wishes, means, chosen, data)),
        space=tuple(_space(look, wishes, chosen)),
        study=tuple(_study(look, wishes, chosen)),
    )


def _minutes(wishes: Wishes) -> str:
    return "1 minute" if wishes.minutes == 1 else f"{wishes.minutes:g} minutes"


# Models, and which of their layers learn


def _choose(look: FirstLook, wishes: Wishes, means: Means, share: float) -> _Choice:
    seconds = max(10.0, 60 * wishes.minutes * 0.85 - means.around)
    train = _training_images(look)
    if wishes.random:
        return _from_random_weights(look, means)
    best_first = sorted(means.candidates, key=lambda each: (-(each.accuracy or 0.0), each.model))
    affordable = {
        each.model: means.workers * seconds / (train * BACKWARD * means.forward(each.model)) for each in best_first
    }
    if train >= FINE_TUNED:
        for each in best_first:
            if affordable[each.model] >= FINE_EPOCHS:
                more = NOTHING if each is best_first[0] else "allow a more accurate model"
                own = {each.model: (each.pixels,)} if each.is_file and each.pixels else {}
                return _Choice((each,), "gradual", f"about {affordable[each.model]:.0f} epochs of it fit", own, more)
    features = {each.model: _all_images(look) * means.features(each.model) for each in best_first}
    room = share * seconds
    fitting: list[Candidate] = []
    for each in best_first:
        if sum(features[one.model] for one in (*fitting, each)) <= room:
            fitting.append(each)
    few = train < FINE_TUNED
    why = (
        f"all layers learn where there are at least {FINE_TUNED} training images, and there are about {train:,}"
        if few
        else f"fewer than {FINE_EPOCHS} epochs of all layers fit into the time"
    )
    more = NOTHING if few else "let all layers learn"
    kind = "solved" if look.headers.task is ONE_LABEL else "head"
    if fitting:
        models = tuple(fitting[:MOST_MODELS])
        if few and list(models) != best_first[:MOST_MODELS]:
            more = "allow more accurate models"
        larger, left = _larger(look, models, features, room) if kind == "solved" else ({}, False)
        if left and more == NOTHING:
            more = "allow larger images"
        return _Choice(models, kind, why, {each.model: (each.pixels,) for each in models if each.pixels} | larger, more)
    quickest = min(best_first, key=lambda each: features[each.model])
    sizes = find_model(quickest.model).sizes_like(SIZES)
    allowed = room / features[quickest.model]
    pixels = [size for size in sizes if (size / _edge(quickest)) ** 2 <= allowed][:1] or sizes[-1:]
    return _Choice((quickest,), kind, why, {quickest.model: tuple(pixels)} if pixels else {}, "allow larger images")


def _edge(one: Candidate) -> int:
    """Pixels of the images that a model has unless it has others for want of time, or to see more."""
    return one.pixels or one.published.preprocessing.framing.pixels


def _larger(
    look: FirstLook, models: Sequence[Candidate], features: Mapping[str, float], room: float
) -> tuple[dict[str, tuple[int, ...]], bool]:
    """The usual size and a larger one for the models that have time for both, and whether time is all that others lack.

    A space has one domain for all image sizes: the models that have one share it.
    """
    found: dict[str, tuple[int, ...]] = {}
    room -= sum(features[each.model] for each in models)
    left = False
    own = [each for each in models if each.pixels is None]
    for together in filter(None, [[each for each in models if each.pixels], *([each] for each in own)]):
        sizes, seconds = set(found.values()), 0.0
        for each in together:
            edge = _edge(each)
            larger = find_model(each.model).sizes_like([round(LARGER * edge / MULTIPLE) * MULTIPLE])
            sizes.add((edge, *(size for size in larger if size > edge and look.shorter >= SHORTEST * edge)))
            seconds += features[each.model] * (max(larger, default=edge) / edge) ** 2
        ((_, *more), *others) = sizes
        if more and not others and seconds <= room:
            room -= seconds
            found |= dict.fromkeys([each.model for each in together], next(iter(sizes)))
            continue
        left = left or bool(more and not others)
        if together[0].pixels:  # and these alone
            break
    return found, left


def _from_random_weights(look: FirstLook, means: Means) -> _Choice:
    pixels = next((size for size in RANDOM_SIZES if size >= look.shorter), RANDOM_SIZES[-1])
    one = means.candidates[0]
    return _Choice((one,), "all", "random weights have to learn everything", {one.model: (pixels,)})


def _all_images(look: FirstLook) -> int:
    return sum(map(look.count, look.splits))


def _training_images(look: FirstLook) -> int:
    share = look.validation
    held = (0.0 if isinstance(share, str) else share) + (0.0 if "test" in look.splits else 0.1)
    return max(1, round(look.count("train") * (1 - held)))


def _validation_images(look: FirstLook, folds: Folds | None) -> int:
    share = look.validation
    if folds is not None:
        return round(look.count("train") * (1.0 if "test" in look.splits else 0.9))
    return look.count("validation") if isinstance(share, str) else round(float(share) * look.count("train"))


# Settings


def _trial(look: FirstLook, wishes: Wishes, means: Means, chosen: _Choice, data: str) -> list[Setting]:
    folds = _folds(look, wishes, chosen)
    held = quoted(look.validation) if folds is None else f"Folds({folds.count})"
    found = [
        Setting("data", quoted(data), _data_reason(look)),
        *_task(look),
        Setting("model", quoted(chosen.models[0].model), _model_reason(means, chosen)),
        Setting("weights", quoted(_weights(chosen.models)), _weights_reason(chosen.models)),
        Setting("validation", held, _validation_reason(look, folds)),
    ]
    group = wishes.group or look.group
    if group is not None:
        asked = "as was asked for" if wishes.group else "as near duplicates have such names"
        reason = f"files whose names begin alike stay on one side of a cut, {asked}"
        found.append(Setting("group", _raw(group), reason))
    return found


def _folds(look: FirstLook, wishes: Wishes, chosen: _Choice) -> Folds | None:
    return look.cross_validation(wishes.group) if chosen.kind == "solved" else None


def _task(look: FirstLook) -> list[Setting]:
    task = look.headers.task
    known = task is ONE_LABEL and find_source(look.images.name).task is ONE_LABEL
    return [] if known else [Setting("task", quoted(task.name), f"each image has {task.described}")]


def _raw(pattern: str) -> str:
    """A raw string if possible."""
    return repr(pattern) if '"' in pattern or pattern.endswith("\\") or "\n" in pattern else f'r"{pattern}"'


def _data_reason(look: FirstLook) -> str:
    told = [f"{look.count(part):,} for {TOLD[part]}" for part in look.splits]
    counts = ", ".join(told) if len(told) > 1 else f"{look.count('train'):,} in all"
    grey = "; they are grey, and are read as RGB, as the weights expect" if look.is_grey else ""
    left = len(look.headers.left_out)
    out = f"; {left:,} {'file is' if left == 1 else 'files are'} left out" if left else ""
    return f"images: {counts}; the shorter side has {look.shorter} pixels in the middle{grey}{out}"


def _model_reason(means: Means, chosen: _Choice) -> str:
    one = chosen.models[0]
    rate = f"{means.speeds[one.model].images_per_second:.0f} images a second on each of {means.workers} workers"
    if one.weights is None:
        return f"trains quickly: {rate}"
    accuracy = "" if one.accuracy is None else f"{one.accuracy} % on ImageNet, "
    more = "the most accurate of those that fit the time" if len(means.candidates) > 1 else "the one that can be had"
    return f"{more}: {accuracy}{rate}"


def _weights(models: Sequence[Candidate]) -> str | dict[str, str | None] | None:
    """One name where all models have it."""
    each = {one.model: one.weights for one in models}
    return models[0].weights if len(set(each.values())) == 1 else each


def _weights_reason(models: Sequence[Candidate]) -> str:
    if models[0].weights is None:
        return "random, as was asked for; published weights would reach far more"
    if models[0].is_file:
        return "a file, as was asked for"
    owners = " and ".join(f"{library}'s" for library in dict.fromkeys(find_model(one.model).library for one in models))
    here = (
        "on this machine already" if all(each.cached for each in models) else "downloaded once when the search begins"
    )
    licences = dict.fromkeys(one.published.licence for one in models)
    told = " and ".join(filter(None, licences))
    return f"{owners}, {here}" + (f"; licence: {told}" if told else "")


def _validation_reason(look: FirstLook, folds: Folds | None) -> str:
    share, own = look.validation, look.images.names_of_splits
    test = f"{own['test']} is used once, for the winner"
    if "test" not in look.splits:
        test = f"a tenth of {look.count('train'):,} training images is held out as test split, for the winner alone"
    if share == "folder":
        return f"{own['validation']} is the user's own; {test}"
    held = _validation_images(look, folds)
    coarse = f"{held} still can't tell good trials apart: more images would help most"
    if folds is not None:
        all_of_them = f"all {held:,} images" if held >= FEW else f"all images, of which {coarse}"
        return (
            f"each image is validated by one of {folds.count} networks, which hasn't learned from it, so that choice "
            f"and interval rest on {all_of_them}; {test}"
        )
    coarse = f", of which {coarse}" if held < FEW else ""
    few = f"there are fewer than {FEW_IMAGES:,} images" if share == 0.2 else "there are many images"
    return f"{'a fifth' if share == 0.2 else 'a tenth'} of the training images, as {few}{coarse}; {test}"


def _space(look: FirstLook, wishes: Wishes, chosen: _Choice) -> list[Setting]:
    found: list[Setting] = []
    if len(chosen.models) > 1:
        names = ", ".join(f'"{each.model}"' for each in chosen.models)
        reason = "which one suits these images is seen by trying: the features of each are computed once"
        found.append(Setting("model", f"choice([{names}])", reason))
    found += _image_size(look, chosen)
    kinds = {"solved": _solved, "head": _head, "gradual": _gradual, "all": _all_layers}
    found += kinds[chosen.kind](look, wishes, chosen)
    if _evenly(look, wishes):
        found.append(Setting("class_weights", 'choice(["none", "balanced"])', unevenness(look)))
    task = look.headers.task
    found += [Setting(name, *proposed) for name, proposed in task.proposed.items()]
    return [each for each in found if each.name not in task.unused]


def unevenness(look: FirstLook) -> str:
    """How uneven the classes or labels are, in words."""
    return f"the largest {look.headers.task.stratum[0]} has {look.uneven:.0f} times the images of the smallest"


def _image_size(look: FirstLook, chosen: _Choice) -> list[Setting]:
    if not chosen.pixels:
        return []
    first = next(each for each in chosen.models if each.model in chosen.pixels)
    sizes = chosen.pixels[first.model]
    value = f"choice({list(sizes)})"
    if len(chosen.pixels) < len(chosen.models):
        of = quoted(first.model) if len(chosen.pixels) == 1 else [*chosen.pixels]
        value += f".when(model={of})"
    elif len(sizes) == 1:
        value = str(sizes[0])
    if first.weights is None:
        reason = f"pixels; the images have {look.shorter} on their shorter side"
    elif first.is_file and sizes == (_edge(first),):
        reason = "pixels, as the model's published weights expect them; the file doesn't say what it expects"
    elif sizes[0] != _edge(first):
        reason = "pixels: less than the weights were trained with, and less accurate, as that would take too long"
    else:
        told = [
            "pixels",
            "with which the accuracy on ImageNet was measured; the weights' own are larger, and take longer"
            if first.pixels
            else "of which the smaller are the weights' own",
            "larger images often tell classes apart better: on photos of 224 pixels by 1 to 2 points of accuracy",
        ]
        reason = f"{told[0]}, {told[1]}" + (f"; {told[2]}" if len(sizes) > 1 else "")
    return [Setting("image_size", value, reason)]


def _only_the_head(chosen: _Choice, time: str) -> Setting:
    return Setting(
        "finetune",
        '"head"',
        f"only the last layer learns: {chosen.why}. The rest runs once for every image, and later trials take "
        f"{time}; so there is no augmentation, which would change the images",
    )


def _solved(look: FirstLook, wishes: Wishes, chosen: _Choice) -> list[Setting]:
    return [
        _only_the_head(chosen, "less than a second"),
        Setting("optimizer", '"lbfgs"', "solves the last layer: no learning rate, batch size or dropout is to choose"),
        Setting("weight_decay", "loguniform(1e-3, 1)", "against overfitting; on photos, 0.01 to 0.1 was best"),
        _label_smoothing(),
    ]


def _head(look: FirstLook, wishes: Wishes, chosen: _Choice) -> list[Setting]:
    return [
        _only_the_head(chosen, "seconds"),
        Setting("optimizer", '"adamw"', "works well with all of the learning rates below"),
        Setting("lr", "loguniform(3e-4, 3e-2)", "of a last layer on features that stay the same"),
        Setting("batch_size", _batches(look, (16, 32, 64)), "small batches take more steps of an epoch"),
        Setting("weight_decay", "loguniform(1e-5, 1e-1)", "against overfitting few images"),
        Setting("dropout", "choice([0.0, 0.3])", "likewise"),
        _label_smoothing(),
    ]


def _gradual(look: FirstLook, wishes: Wishes, chosen: _Choice) -> list[Setting]:
    return [
        Setting(
            "finetune",
            '"gradual"',
            f"the last layer learns first, then one more stage each epoch, which keeps most of what "
            f"the weights know: {chosen.why}",
        ),
        Setting("optimizer", '"adamw"', "works well with all of the learning rates below"),
        Setting("lr", "loguniform(2e-4, 5e-3)", "of the last layer"),
        Setting("backbone_lr_scale", "loguniform(0.03, 1)", "stages with published weights learn more slowly"),
        Setting("schedule", '"cosine"', "the rate falls to zero over a trial"),
        Setting("batch_size", _batches(look, (16, 32)), "small batches take more steps of an epoch"),
        Setting("weight_decay", "loguniform(1e-4, 1e-1)", "against overfitting few images"),
        _label_smoothing(),
        _flip(wishes),
    ]


def _all_layers(look: FirstLook, wishes: Wishes, chosen: _Choice) -> list[Setting]:
    return [
        Setting("optimizer", '"adamw"', "works well with all of the learning rates below"),
        Setting("lr", "loguniform(3e-4, 1e-2)", f"all layers learn: {chosen.why}"),
        Setting("schedule", '"cosine"', "the rate falls to zero over a trial"),
        Setting("batch_size", _batches(look, (16, 32, 64)), "small batches take more steps of an epoch"),
        Setting("weight_decay", "loguniform(1e-4, 1e-1)", "against overfitting few images"),
        _flip(wishes),
    ]


def _label_smoothing() -> Setting:
    return Setting(
        "label_smoothing", "choice([0.0, 0.1])", "against overfitting, too, and for calibrated probabilities"
    )


def _flip(wishes: Wishes) -> Setting:
    if wishes.mirrored is None:
        return Setting("flip", "choice([0.0, 0.5])", "mirrored images help unless left and right change the label")
    if wishes.mirrored:
        return Setting("flip", "0.5", "half of the images are mirrored, as that doesn't change their label")
    return Setting("flip", "0.0", "no image is mirrored, as that may change its label")


def _batches(look: FirstLook, sizes: Sequence[int]) -> str:
    train = _training_images(look)
    fitting = [size for size in sizes if size <= max(sizes[0], train // 4)]
    return str(fitting[0]) if len(fitting) == 1 else f"choice({fitting})"


def _evenly(look: FirstLook, wishes: Wishes) -> bool:
    return look.uneven >= UNEVEN if wishes.evenly is None else wishes.evenly


def _study(look: FirstLook, wishes: Wishes, chosen: _Choice) -> list[Setting]:
    budget = Setting("budget", budget_text(wishes, MOST_TOTAL, LENGTHS[chosen.kind]), chosen.more)
    return [_metric(look, wishes, chosen), *_in_the_end(look, wishes, chosen), budget]


def _metric(look: FirstLook, wishes: Wishes, chosen: _Choice) -> Setting:
    task = look.headers.task
    if task.counts_images and _evenly(look, wishes):
        return Setting("metric", '"val_f1"', "every class counts alike, however few images it has")
    held = _validation_images(look, _folds(look, wishes, chosen))
    if task.counts_images and held < SURE_FROM and chosen.finetune == "head":
        reason = (
            f"right and wrong answers to about {held} images hardly tell trials apart; the loss also counts how sure "
            "each answer is"
        )
        return Setting("metric", '"val_loss"', reason)
    return Setting("metric", quoted(task.metric), task.metric_reason)


def _in_the_end(look: FirstLook, wishes: Wishes, chosen: _Choice) -> list[Setting]:
    """What ships of a search over heads; other networks' training varies, and luck may be worth more than a refit.

    An average of folds' networks of several backbones has 2 to 3 points more than a refit of the winner on photos, and
    refits of its members gain nothing: see docs/explanation/measured.md.
    """
    if chosen.finetune != "head":
        return []
    if len(chosen.models) > 1 and _folds(look, wishes, chosen) is not None:
        reason = "heads on different models are often wrong on different images, so their average ships if it pays"
        return [Setting("combine", '"auto"', reason)]
    return [Setting("refit", '"train+validation"', "the winner learns from all images but those for test, in the end")]


def budget_text(wishes: Wishes, total_epochs: int, longest: int) -> str:
    """The budget as Python text."""
    return f"Budget(total_epochs={total_epochs}, max_epochs={longest}, minutes={wishes.minutes:g})"


def least_epochs(longest: int) -> int:
    """The fewest epochs with which a search can compare trials: some trials to the first rung, one to its end."""
    return longest + 3 * min(3, math.ceil(longest / 2))
