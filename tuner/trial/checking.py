"""Checks whether an image classifier can work as declared, and whether a space fits it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import SpaceError, StudyError, shown
from tuner.machine.installation import is_installed
from tuner.space import Choice, Domain, Float, GridSearch, Integer, Normal, Space
from tuner.space.values import is_number
from tuner.trial.hyperparameter import Hyperparameter
from tuner.trial.hyperparameters import INT8
from tuner.trial.image_hyperparameters import CHANGES_IMAGES
from tuner.trial.inference_cost import OF_ONNX
from tuner.trial.model_and_data import DEFAULT_MODEL, ModelAndData
from tuner.trial.models import families_with_stochastic_depth
from tuner.trial.only_the_head import IGNORED, LBFGS, hindrance, needing, unusable
from tuner.trial.pooling import MEAN, Pooling
from tuner.trial.sources import function_name
from tuner.trial.splitting import check_splitting
from tuner.trial.tasks import TASKS, Task

OF_SOME_MODELS = (  # hyperparameters that not every model can have, or not without weights
    *("stochastic_depth", "image_size", "pooling", "blocks", "finetune", "freeze_batch_norm"),
)
LONGEST_SOLUTION = 3  # epochs that lbfgs may need
DRAWS = 50  # configurations, of which one must allow what only some can
USUAL_SIZE = 224  # edge in pixels of most weights' images


def check_space(trial: ModelAndData, space: Space) -> None:
    """Raise StudyError for models that no library has, unknown hyperparameters, and values that they don't take."""
    _check_models(trial, space)
    known = trial.within(space)
    if INT8 in space.possible("quantization") and not isinstance(trial.model, str):
        raise StudyError(
            f"quantization='{INT8}' needs a model by name, got {trial.model_name}; leave it out, or use "
            "export --to int8"
        )
    _check_used(trial.label_task, space)
    for name, value in space.constants.items():
        if row := trial.row(name):
            _check_value(known, row, value, space)
    for name, domain in space.dimensions.items():
        if row := trial.row(name):
            _check_domain(known, row, domain, space)


def check_needs(trial: ModelAndData, space: Space, chosen_of: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Raise StudyError if lbfgs or views lack what they need in all drawn configurations, for the same reason.

    `chosen_of` gives all hyperparameters of a configuration.
    """
    if LBFGS not in space.possible("optimizer") and not {"views"} & {*space.constants, *space.dimensions}:
        return
    reasons: dict[tuple[str, str], StudyError] = {}
    for seed in range(DRAWS):
        with suppress(SpaceError):  # the constraint may allow next to nothing
            config = space.sample(np.random.default_rng(seed))
            chosen = chosen_of(config)
            if (needs := needing(chosen)) is None:
                continue
            if (found := hindrance(trial.of(config), chosen)) is None:
                return
            reasons[needs.partition("=")[0], found.partition("=")[0]] = unusable(needs, found)
    if len(reasons) == 1:
        raise next(iter(reasons.values()))


def check_installed(space: Space) -> None:
    """Raise StudyError if networks are quantised, and what does that isn't installed."""
    if INT8 in space.possible("quantization") and (missing := [name for name in OF_ONNX if not is_installed(name)]):
        raise StudyError(
            f"quantization='{INT8}' needs {', '.join(OF_ONNX)}, got an installation without {', '.join(missing)}; "
            "pip install 'image-tuner[onnx]'"
        )


def check_task(name: object) -> None:
    """Raise StudyError for an unknown task."""
    if name is not None and not (isinstance(name, str) and name in TASKS):
        raise StudyError(f"task must be {', '.join(map(repr, TASKS))} or None, got {shown(name)}; {_meant_task(name)}")


def _meant_task(name: object) -> str:
    plain = re.sub(r"[\W_]", "", str(name).lower())
    meant = next((task.name for task in TASKS.values() if plain in (task.name, *task.called)), None)
    return f"write task={meant!r}" if meant else "leave it out to find it in a table"


def _check_used(task: Task, space: Space) -> None:
    """Raise StudyError for hyperparameters that only mean something for other tasks."""
    own = {row.name for row in task.hyperparameters}
    others = {row.name for each in TASKS.values() for row in each.hyperparameters if row.name not in own}
    for name in {*space.constants, *space.dimensions} & {*task.unused, *others}:
        raise StudyError(f"{name} means nothing for {task.described} for each image; leave it out")


def check_functions(trial: ModelAndData) -> None:
    """Raise StudyError for functions that can't be called with the arguments that they will get."""
    for part, function, arguments in (("data", trial.data, ()), ("model", trial.model, ({},))):
        if isinstance(function, str):
            continue
        if not callable(function):
            raise StudyError(f"{part} must be a name or a function, got {shown(function)}; write {part}=my_{part}")
        if not _takes(function, *arguments):
            name, takes = function_name(function), "the hyperparameters" if arguments else "no argument"
            raise StudyError(f"a {part} function takes {takes}, got {name}{inspect.signature(function)}; change it")


def check_settings(trial: ModelAndData) -> None:
    """Raise StudyError for values that aren't paths, memory that isn't an amount, and impossible splits."""
    check_splitting(trial.source, trial.validation, trial.group)
    memory = trial.data_memory_gb
    if memory is not None and not (is_number(memory) and memory >= 0):
        raise StudyError(f"data_memory_gb must be a number >= 0, got {shown(memory)}; raise it or leave it out")
    if not _is_path(trial.data_dir):
        raise StudyError(f"data_dir must be a folder's path, got {shown(trial.data_dir)}; write data_dir='data'")
    each = trial.weights.values() if isinstance(trial.weights, dict) else [trial.weights]
    for weights in each:
        if weights is not None and not _is_path(weights):
            raise StudyError(
                f"weights must be 'pretrained', a name such as 'IMAGENET1K_V2', None, the path of a saved state_dict, "
                f"or a dict of these by model, got {shown(weights)}; choose one"
            )


def _check_models(trial: ModelAndData, space: Space) -> None:
    """Raise StudyError for models that no library has, or that can't have the weights."""
    each = trial.within(space).each
    for one in each:
        _ = one.model_facts
        if len(each) > 1 and not isinstance(trial.weights, dict) and one.weights_file and one.named_weights is None:
            raise StudyError(
                f"weights of a file fit one model, got '{trial.weights}' for {len(each)} models in the space; "
                f"name those of each: weights={{'{one.model}': '{trial.weights}', '{each[-1].model}': 'pretrained'}}"
            )
    if isinstance(trial.weights, dict):
        _check_keys(trial.weights, [str(one.model) for one in each if isinstance(one.model, str)])


def _check_keys(weights: Mapping[Any, object], models: Sequence[str]) -> None:
    """Raise StudyError if a dict has weights of a model that isn't in the space, or if the model is a function's."""
    unused = [model for model in weights if model not in models]
    if not models:
        raise StudyError(
            f"weights by model need a model with a name, got {shown(weights)} for a function's; name one file, or let "
            "the function load them"
        )
    if unused:
        raise StudyError(
            f"weights must be of models in the space ({', '.join(models)}), got some for {shown(unused[0])}; correct "
            "the name, or leave it out"
        )


def _check_domain(trial: ModelAndData, row: Hyperparameter, domain: Domain, space: Space) -> None:
    if isinstance(domain, Choice | GridSearch):
        for value in domain.values():
            _check_value(trial, row, value, space)
    elif isinstance(domain, Float | Integer):
        _check_numeric(row, domain)
        _check_value(trial, row, domain.low, space)
        _check_value(trial, row, domain.high, space)
    elif isinstance(domain, Normal):
        raise StudyError(f"{row.name} must be {row.rule}, got {domain.describe()}, which has no bounds; use uniform")


def _check_value(trial: ModelAndData, row: Hyperparameter, value: object, space: Space) -> None:
    row.check(value)
    number = value if isinstance(value, int | float) else 0
    for each in _with(trial, row.name, space) if row.name in OF_SOME_MODELS else ():
        if row.name == "stochastic_depth" and number > 0:
            _check_has_stochastic_depth(each)
        elif row.name == "image_size" and number:
            each.model_facts.check_image_size(int(number))
        elif row.name == "pooling":
            each.model_facts.with_head_for(Pooling(str(value)))
        elif row.name == "blocks" and number != row.default:
            _check_blocks(each, int(number), [one.model for one in _with(trial, "pooling", space)], space)
        _check_weights_for(each, row.name, value)


def _check_blocks(trial: ModelAndData, blocks: int, pooled: Sequence[object], space: Space) -> None:
    """Raise StudyError for a model without as many blocks, or that isn't among those whose head sees them."""
    if "pooling" not in {*space.constants, *space.dimensions} or trial.model not in pooled:
        raise StudyError(
            f"blocks={blocks} needs pooling, which says what the head sees of them, got none for {trial.model}; add "
            "pooling='token', or leave blocks out"
        )
    trial.model_facts.with_head_for(Pooling(MEAN, blocks))


def _with(trial: ModelAndData, name: str, space: Space) -> list[ModelAndData]:
    """The trial with each of the models for which a configuration may have the hyperparameter."""
    conditions = dict(space.conditions.get(name, ()))
    return [each for each in trial.each if each.model in conditions.get("model", (each.model,))]


def _check_weights_for(trial: ModelAndData, name: str, value: object) -> None:
    """Raise StudyError for settings that need weights if there are none; a function's model may have its own."""
    if not isinstance(trial.model, str) or trial.weights_file is not None:
        return
    if (name, value) == ("finetune", "lp-ft"):
        raise StudyError(
            f"finetune='lp-ft' needs pretrained weights, whose features its first epochs learn from, got "
            f"{_none(trial)}; use weights='imagenet', or finetune='all'"
        )
    if name == "freeze_batch_norm" and value is True:
        raise StudyError(
            f"freeze_batch_norm=True needs pretrained weights, whose statistics it keeps, got {_none(trial)}; use "
            "weights='imagenet', or leave it out"
        )


def _none(trial: ModelAndData) -> str:
    """In words that the trial's model has no weights."""
    return f"None for '{trial.model}'" if isinstance(trial.weights, dict) else "weights=None"


def _check_has_stochastic_depth(trial: ModelAndData) -> None:
    if isinstance(trial.model, str) and not trial.model_facts.stochastic_depth:
        having = ", ".join(families_with_stochastic_depth())
        raise StudyError(
            f"stochastic_depth needs a model that has it (torchvision's {having}; most of timm's; on the hub those "
            f"with drop_path_rate), got '{trial.model}'; leave it out, or give it a condition on model"
        )


def _takes(function: Callable[..., Any], *arguments: object) -> bool:
    """Whether the function can be called with these arguments; a built-in without a signature is accepted."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _check_numeric(row: Hyperparameter, domain: Float | Integer) -> None:
    """Raise StudyError if the domain gives numbers of another kind than the hyperparameter's."""
    if row.choices or row.kind in ("bool", "text"):
        raise StudyError(f"{row.name} must be {row.rule}, got {domain.describe()}; use choice([...])")
    if row.kind == "int" and isinstance(domain, Float) and not (domain.q and float(domain.q).is_integer()):
        fix = "lograndint" if domain.log else "randint"
        raise StudyError(f"{row.name} must be {row.rule}, got {domain.describe()}; use {fix} or choice")


def _is_path(value: object) -> bool:
    """Whether the value can be a file's path."""
    return isinstance(value, str | Path) and bool(str(value).strip()) and "\0" not in str(value)


def notices(trial: ModelAndData, space: Space, max_epochs: int) -> list[str]:
    """Settings that are allowed but probably not intended: sentences, each with what it costs and what to do instead;
    `trial` knows its space.
    """
    return [
        *_of_the_model(trial, space),
        *_of_the_length(space, max_epochs),
        *_of_the_weights(trial, space),
        *_of_what_learns(trial, space, max_epochs),
        *_of_solved_heads(space, max_epochs),
        *_of_augmentation(space),
        *_of_the_images(trial, space),
    ]


def _of_the_model(trial: ModelAndData, space: Space) -> Iterator[str]:
    if trial.candidates and trial.model not in (DEFAULT_MODEL, *trial.candidates):
        yield f"model='{trial.model}' is never tried: `model` in the space wins over ImageClassifier(model=...)"


def _of_the_length(space: Space, max_epochs: int) -> Iterator[str]:
    longest = max((value for value in space.possible("epochs") if isinstance(value, int | float)), default=0)
    if longest > max_epochs:
        yield (
            f"epochs={longest:g} is cut to the budget's max_epochs={max_epochs}; raise Budget(max_epochs=...), or "
            "lower epochs"
        )


def _of_the_weights(trial: ModelAndData, space: Space) -> Iterator[str]:
    frozen = [value for value in ("head", "gradual") if value in space.possible("finetune")]
    random = [each for each in _with(trial, "finetune", space) if isinstance(each.model, str) and not each.weights_file]
    if random and frozen:
        yield (
            f"finetune='{frozen[0]}' with {_none(random[0])} trains the last layer on features of random weights; use "
            "weights='imagenet', or finetune='all'"
        )


def _of_solved_heads(space: Space, max_epochs: int) -> Iterator[str]:
    optimizers = space.possible("optimizer")
    if optimizers == [LBFGS] and max_epochs > LONGEST_SOLUTION:
        yield (
            f"optimizer='lbfgs' mostly solves a last layer in its first epoch, and changes nothing later; in place of "
            f"max_epochs={max_epochs} write 1, or at most {LONGEST_SOLUTION} where weight_decay is small"
        )
    searched = [name for name in IGNORED if name in space.dimensions]
    drawn = [name for name in searched if LBFGS in dict(space.conditions.get(name, ())).get("optimizer", (LBFGS,))]
    if LBFGS in optimizers and drawn:
        others = [each for each in optimizers if each != LBFGS]
        yield (
            f"optimizer='lbfgs' ignores {' and '.join(drawn)}, so that its trials repeat one another; "
            + (f"give each .when(optimizer={others})" if others else "leave these out")
        )


def _of_what_learns(trial: ModelAndData, space: Space, max_epochs: int) -> Iterator[str]:
    probe = [value for value in space.possible("probe_epochs") if isinstance(value, int | float)]
    if "lp-ft" not in space.possible("finetune"):
        for name in ("probe_epochs", "probe_lr"):
            if space.possible(name):
                yield f"{name} changes nothing without finetune='lp-ft'; leave it out, or set finetune"
    elif max(probe, default=0) >= max_epochs:
        yield (
            f"probe_epochs={max(probe):g} leaves none of max_epochs={max_epochs} to train all layers; lower "
            "probe_epochs, or raise Budget(max_epochs=...)"
        )
    named = [each for each in trial.each if isinstance(each.model, str)]
    without = [each.model_name for each in named if not each.model_facts.batch_norm]
    if without and True in space.possible("freeze_batch_norm"):
        yield f"freeze_batch_norm changes nothing for {', '.join(without)}, which has no batch norm; leave it out"


def _of_augmentation(space: Space) -> Iterator[str]:
    for name in ("rand_augment_operations", "rand_augment_magnitude"):
        if space.possible(name) and "rand" not in space.possible("auto_augment"):
            yield f"{name} changes nothing without auto_augment='rand'; leave it out, or set auto_augment"
    changing = [name for name in CHANGES_IMAGES if any(value not in (0, "none") for value in space.possible(name))]
    views = [value for value in space.possible("views") if value]
    if views and not changing:
        yield f"views={views[0]} keeps features of the same image again, as nothing augments it; leave it out"
    if changing and not views and space.possible("finetune") == ["head"]:
        yield (
            f"{changing[0]} changes the images in every epoch, so finetune='head' runs the whole network each time; "
            "with views=8, or without it, the frozen layers' features are computed once"
        )


def _of_the_images(trial: ModelAndData, space: Space) -> Iterator[str]:
    first, own = trial.each[0], trial.source.native_size
    facts = first.model_facts
    pixels = first.default_image_size
    if pixels is None or space.possible("image_size"):
        return
    if first.published is None and first.weights_file is not None and own is None:
        yield (
            f"it is unknown what {first.weights_file} expects, so images are resized to {pixels} pixels; set "
            "image_size to what it was trained with"
        )
    elif first.published is not None and own and pixels > own:
        yield (
            f"images of {trial.source.name} are enlarged from {own} to {pixels} pixels, as the weights expect; "
            f"image_size={facts.smallest_size(own)} is quicker and less accurate"
        )
    elif facts.step is not None and pixels > USUAL_SIZE:
        yield (
            f"{first.model_name} gets images of {pixels} pixels, as its weights expect; "
            f"image_size={facts.smallest_size(USUAL_SIZE)} is several times quicker and less accurate"
        )
