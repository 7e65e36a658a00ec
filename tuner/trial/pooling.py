"""What the classification head of a vision transformer sees: which tokens, of how many blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TOKEN, MEAN, BOTH = "token", "mean", "token+mean"
POOLINGS = (TOKEN, MEAN, BOTH)
BLOCKS = (1, 4)  # as DINOv2's linear evaluation tries them


@dataclass(frozen=True)
class Pooling:
    """The vectors that a head sees, one after the other: of the last `blocks` blocks the class token, or the mean of
    the patches; with "token+mean" the class tokens of these blocks, then the mean of the last one's patches.
    """

    kind: str
    blocks: int = 1

    @classmethod
    def of(cls, chosen: Mapping[str, Any]) -> Pooling | None:
        """What hyperparameters ask for; None for what the library's head does."""
        return cls(chosen["pooling"], chosen.get("blocks", 1)) if chosen.get("pooling") else None

    @property
    def vectors(self) -> int:
        """How many vectors of a token's width these are."""
        return self.blocks + (self.kind == BOTH)

    @property
    def needs_class_token(self) -> bool:
        """Whether one of them is a class token."""
        return self.kind != MEAN


@dataclass(frozen=True)
class Tokens:
    """The tokens of a vision transformer.

    Attributes:
        blocks: how many of the last blocks give patches of one width, between which and the head there is no other
            layer but norms; a transformer whose blocks get wider towards the output has 1
        class_token: whether there is a token for the class, besides the patches
    """

    blocks: int
    class_token: bool = False
