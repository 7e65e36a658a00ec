"""A trial that is any user's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tuner.errors import StudyError
from tuner.space import Space
from tuner.trial.base import Trial
from tuner.trial.function_source import source_fingerprint


@dataclass(frozen=True)
class FunctionTrial(Trial):
    """`def train(config): ...` that calls `tuner.report(...)` once per epoch."""

    kind: ClassVar[str] = "function"
    implementation: ClassVar[str] = "tuner.worker.function:FunctionCall"
    is_code: ClassVar[bool] = True

    function: Callable[[dict[str, Any]], Any]

    @property
    def name(self) -> str:
        """The function's own name."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def reports(self) -> None:
        """Unknown until it runs."""
        return

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The function."""
        return (self.function,)

    def identity(self) -> dict[str, str]:
        """The function's name only, because its code may be corrected."""
        return {"trial": self.name}

    def source_fingerprint(self) -> str | None:
        """A fingerprint of its source, and of the functions and classes in the same file that it uses."""
        return source_fingerprint(self.function)

    def check(self, space: Space) -> None:
        """Raise StudyError unless the function can be called with one configuration."""
        try:
            inspect.signature(self.function).bind({})
        except TypeError as error:
            raise StudyError(
                f"a trial function takes one argument, the configuration, got {self.name}: {error}; "
                f"write def {self.name}(config): ..."
            ) from error
        except ValueError:  # a built-in without a signature
            return
