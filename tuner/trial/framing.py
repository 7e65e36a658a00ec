"""How an image of any size becomes one of the size that a network takes: a declaration, which needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Interpolation = Literal["bilinear", "bicubic"]


@dataclass(frozen=True)
class Framing:
    """The image is resized, and its centre is cut out.

    Attributes:
        pixels: edge of the square that the network takes
        resize: length of the shorter side before the centre is cut out; None: the central square of the whole image is
            resized, so that nothing of the shorter side is lost
        interpolation: how it is resized, with antialiasing
        squash: whether both sides are brought to `resize`, so that the image's shape is lost instead of its margins
        pillow: whether Pillow resizes it, whose values differ from torch's by a level or two
    """

    pixels: int
    resize: int | None = None
    interpolation: Interpolation = "bilinear"
    squash: bool = False
    pillow: bool = False

    @property
    def key(self) -> str:
        """A text that changes with it, for caches."""
        if self == Framing(self.pixels):
            return f"{self.pixels}"
        more = "-squash" * self.squash + "-pillow" * self.pillow
        return f"{self.resize}-{self.pixels}-{self.interpolation}{more}"


@dataclass(frozen=True)
class Preprocessing:
    """What published weights expect of images, according to their library.

    Attributes:
        framing: size, crop and interpolation
        mean: of red, green and blue, for pixels in [0, 1]
        sd: their standard deviations
    """

    framing: Framing
    mean: tuple[float, ...]
    sd: tuple[float, ...]
