"""What can be known of torchvision's classification models without importing torch: `models.json`, shipped as data."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from tuner.errors import StudyError, shown
from tuner.space.values import is_one_of
from tuner.trial.hyperparameters import closest


@dataclass(frozen=True)
class ModelFacts:
    """A model's name, the file of its default ImageNet weights, and the image edge in pixels that it needs.

    The defaults are those of a model that is the user's function, of which nothing is known. `fixed_size` says that it
    takes exactly `min_size`, as vision transformers with their position embedding do.
    """

    name: str
    weights: str = ""
    min_size: int = 1
    fixed_size: bool = False

    def check_image_size(self, pixels: int) -> None:
        """Raise StudyError unless the model works on images of this edge."""
        if self.fixed_size and pixels != self.min_size:
            raise StudyError(
                f"{self.name} takes images of {self.min_size} pixels only, got image_size={pixels}; "
                "leave image_size out"
            )
        if pixels < self.min_size:
            raise StudyError(
                f"{self.name} needs images of at least {self.min_size} pixels, got image_size={pixels}; "
                "raise image_size or leave it out"
            )

    def image_size(self, preferred: int | None) -> int:
        """The edge in pixels to use where the space says nothing: `preferred` unless the model needs another."""
        return self.min_size if self.fixed_size else max(self.min_size, preferred or 0)

    @property
    def weights_path(self) -> Path:
        """Where torchvision looks for the ImageNet weights and keeps them."""
        return hub_folder() / "checkpoints" / self.weights


@cache
def model_facts() -> dict[str, ModelFacts]:
    """All of torchvision's classification models by name."""
    table = json.loads(files("tuner.trial").joinpath("models.json").read_text(encoding="utf-8"))
    return {name: ModelFacts(name, **facts) for name, facts in table.items()}


def find_model(name: str) -> ModelFacts:
    """The facts of the model called `name`.

    Raises:
        StudyError: torchvision has no such classification model; the nearest one is named.
    """
    known = model_facts()
    if is_one_of(name, known):
        return known[name]
    near = closest(name.lower(), known) if isinstance(name, str) else None
    hint = f"did you mean '{near}'?" if near else "for example 'resnet18', 'efficientnet_b0', 'convnext_tiny'"
    raise StudyError(f"model must be one of torchvision's classification models, got {shown(name)}; {hint}")


def hub_folder() -> Path:
    """Torch's hub folder, found as `torch.hub.get_dir()` finds it when nobody has called `set_dir`."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("TORCH_HOME", f"{cache_home}/torch")).expanduser() / "hub"
