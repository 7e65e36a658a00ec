"""A trial that the user's own program runs: on another cluster, in a simulator, in a laboratory, in any language."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from tuner.errors import StudyError, shown
from tuner.space import Space
from tuner.trial.base import Trial


@dataclass(frozen=True)
class External(Trial):
    """A trial that is handed out by `tuner.Search` and run by the program that asks for it.

    `name` says what is run: a search only learns from earlier runs of the same name. Raises StudyError for a name that
    isn't text, or is empty.
    """

    kind: ClassVar[str] = "external trial"
    implementation: ClassVar[str] = "tuner.worker.external:RunElsewhere"
    is_code: ClassVar[bool] = True
    asked_for: ClassVar[bool] = True

    name: str = "external"

    def __post_init__(self) -> None:
        """Check the name."""
        if not isinstance(self.name, str) or not self.name.strip():
            raise StudyError(
                f"External needs a name for what is run, got {shown(self.name)}; write External('furnace')"
            )

    @property
    def reports(self) -> None:
        """Unknown until the first report."""
        return

    def identity(self) -> dict[str, str]:
        """The name of what is run."""
        return {"trial": self.name}

    def source_fingerprint(self) -> str:
        """A fingerprint of the name: nothing else is known about the code."""
        return hashlib.sha256(f"external:{self.name}".encode()).hexdigest()[:16]

    def check(self, space: Space) -> None:
        """Every space is valid."""
        return
