"""What a trial is, to the rest of tuner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from tuner.space import Space

Direction = Literal["min", "max"]


class Trial(ABC):
    """What every trial of a study does with its configuration; a frozen declaration that starts nothing."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For people: tables, messages."""

    @property
    @abstractmethod
    def metrics(self) -> tuple[str, ...] | None:
        """The metrics reported after every epoch; None where only running it tells."""

    @property
    def directions(self) -> Mapping[str, Direction | None]:
        """Which metrics are better high ("max"), low ("min"), or no aim (None); those that aren't known are missing."""
        return {}

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """What of the declaration is the user's code, which other processes can't import."""
        return ()

    @abstractmethod
    def check(self, space: Space) -> None:
        """Raise StudyError if a configuration of `space` can't work."""

    def check_files(self) -> None:
        """Raise DataError or WeightsError for files that are damaged, or missing where no download can help."""
        return

    def missing_downloads(self) -> list[str]:
        """What would have to be downloaded before the first trial, in words; empty when everything is there."""
        return []

    def fingerprint(self) -> str | None:
        """16 hexadecimal digits that change with the data; None where it isn't known what data there is."""
        return None

    def identity(self) -> dict[str, str]:
        """What has to be the same for two trials of one configuration to be comparable, in words by name."""
        return {}

    def resolved(self, folder: Path | None = None) -> Self:
        """The same trial with paths made absolute (from `folder`, or the working directory), for other processes."""
        return self
