"""The model and the data that an image classifier declares, and what follows from them without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

from tuner.errors import StudyError, shown
from tuner.space import Space
from tuner.storage.copies import Copy
from tuner.trial import hyperparameters
from tuner.trial.data_source import Source
from tuner.trial.framing import Framing
from tuner.trial.hyperparameter import Hyperparameter
from tuner.trial.hyperparameters import HYPERPARAMETERS, OF_A_LIBRARYS_MODEL
from tuner.trial.models import DEFAULTS, ModelFacts, PublishedWeights, find_model, looks_published
from tuner.trial.sources import find_source, function_name
from tuner.trial.splitting import Validation
from tuner.trial.stored import Copies, is_stored
from tuner.trial.table import Table
from tuner.trial.tasks import Task

DEFAULT_MODEL = "resnet18"
Weights = str | Path | None
DataFunction = Callable[[], tuple[Any, Any, Any]]
ModelFunction = Callable[[dict[str, Any]], Any]


def of_each(weights: Any, change: Callable[[Any], Any]) -> Any:
    """The weights, or those of each model in a dict, changed."""
    return {model: change(each) for model, each in weights.items()} if isinstance(weights, dict) else change(weights)


class ModelAndData:
    """The part of `ImageClassifier` that is about its model, weights and data; see there for the fields."""

    data: str | Table | DataFunction
    model: str | ModelFunction
    weights: Weights | dict[str, Weights]
    data_dir: str | Path
    data_memory_gb: float | None
    validation: Validation
    group: str | None
    task: str | None
    candidates: tuple[str, ...]
    copies: Copies

    @property
    def source(self) -> Source:
        """Where the images come from; StudyError for an unknown data set."""
        return find_source(self.data, self.copies, self.task)

    @property
    def label_task(self) -> Task:
        """What labels are: as declared, else as the data's own labels show."""
        return self.source.task

    @property
    def data_folder(self) -> Path:
        """`data_dir` as a path, `~` resolved."""
        return Path(self.data_dir).expanduser()

    @property
    def model_name(self) -> str:
        """The library's name, or the function's with brackets."""
        return self.model if isinstance(self.model, str) else f"{function_name(self.model)}()"

    @property
    def each(self) -> tuple[Self, ...]:
        """The trial with each of the models that the space has, or as it is."""
        return tuple(self.of({"model": model}) for model in self.candidates) or (self,)

    def of(self, config: Mapping[str, Any]) -> Self:
        """The trial with a configuration's model, if the space decides on the model."""
        if not isinstance(self.model, str) or ("model" not in config and not self.candidates):
            return self
        changed: Self = replace(cast(Any, self), model=config.get("model", self.model), candidates=())
        return changed

    def within(self, space: Space) -> Self:
        """See `Trial.within`."""
        changed: Self = replace(cast(Any, self), candidates=self.models_in(space))
        return changed

    def models_in(self, space: Space) -> tuple[str, ...]:
        """The models that trials of a space may have, if it decides on them."""
        if not isinstance(self.model, str):
            return ()
        return tuple(dict.fromkeys([*space.possible("model"), *[self.model] * bool(space.conditions.get("model"))]))

    def narrowed(self, space: Space) -> Self:
        """See `Trial.narrowed`: without weights of models that the space had before."""
        if not isinstance(self.weights, dict):
            return self
        gone = {*self.candidates} - {*self.models_in(space)}
        left = {model: weights for model, weights in self.weights.items() if model not in gone}
        changed: Self = replace(cast(Any, self), weights=left)
        return changed

    @property
    def own_weights(self) -> Weights:
        """The weights of the trial's model; StudyError if the declaration names some for others only."""
        if not isinstance(self.weights, dict):
            return self.weights
        if self.model_name not in self.weights:
            raise StudyError(
                f"weights must name those of each model, got {shown(list(self.weights))} without '{self.model_name}'; "
                f"add '{self.model_name}': 'pretrained', a file, or None"
            )
        return self.weights[self.model_name]

    @property
    def model_facts(self) -> ModelFacts:
        """What is known of the model, with its weights, without torch; StudyError for an unknown one."""
        facts = self._of_library
        return ModelFacts(self.model_name) if facts is None else facts.with_weights(self.published)

    @property
    def named_weights(self) -> PublishedWeights | None:
        """The library's weights from which training starts, by name; StudyError if the model has none of that name."""
        facts, name = self._of_library, str(self.own_weights)
        if facts is None or not (name in DEFAULTS or looks_published(name)):
            return None
        found = facts.find_weights(name)
        return replace(found, commit=dict(self.copies).get(found.repository)) if found.repository else found

    @property
    def published(self) -> PublishedWeights | None:
        """The library's weights from which training starts, by name or as a file with their file's name."""
        facts = self._of_library
        if facts is None or self.named_weights is not None:
            return self.named_weights
        weights = str(self.own_weights)
        name = Path(weights.partition("?")[0] if self.stored_weights else weights).name
        known = (one for one in facts.published.values() if not one.repository)  # on the hub all files have one name
        return next((one for one in known if one.file == name), None)

    @property
    def _of_library(self) -> ModelFacts | None:
        return find_model(self.model, dict(self.copies)) if isinstance(self.model, str) else None

    @property
    def stored_weights(self) -> str | None:
        """The URI of weights in an object store; None for others."""
        weights = self.own_weights
        return str(weights) if is_stored(weights) else None

    @property
    def weights_file(self) -> Path | None:
        """The file that training starts from; None for random weights."""
        if self.named_weights is not None:
            return self.named_weights.path
        if uri := self.stored_weights:
            return Copy(uri, dict(self.copies).get(uri)).file
        weights = self.own_weights
        return None if weights in (None, "none", *DEFAULTS) else Path(str(weights)).expanduser()

    @property
    def starts_from_weights(self) -> bool:
        """Whether it is a library's model with weights: its layers before the head are the same in every process."""
        return isinstance(self.model, str) and self.weights_file is not None

    @property
    def default_image_size(self) -> int | None:
        """Edge in pixels of the model's images if the space has no image size; None for the images' own size."""
        framing = self.framing(None)
        return None if framing is None else framing.pixels

    def framing(self, image_size: int | None) -> Framing | None:
        """How images are brought to `image_size`; without one as published weights expect, else as data and model need.

        None for images in their own size, as a function's are unless the model needs another size.
        """
        if image_size is not None:
            return Framing(image_size)
        facts, preferred = self.model_facts, self.source.default_size
        if self.published is not None and preferred:
            return self.published.preprocessing.framing
        return Framing(facts.image_size(preferred)) if preferred or facts.min_size > 1 else None

    def asked_size(self, config: Mapping[str, Any]) -> int | None:
        """The image size that a configuration has; None if it leaves it to data and weights."""
        return None if config.get("image_size") is None else int(config["image_size"])

    def row(self, name: str) -> Hyperparameter | None:
        """The hyperparameter called `name`; None for one that only a function's model knows.

        Raises:
            StudyError: there is none, or the name is an alias.
        """
        if isinstance(self.model, str):
            return hyperparameters.find(name)
        meant = name if name in HYPERPARAMETERS else hyperparameters.means(name)
        return None if meant in (None, *OF_A_LIBRARYS_MODEL) else hyperparameters.find(name)
