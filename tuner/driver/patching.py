"""Changes in this process for the length of a block; they are undone at its end."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` within the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def environment(defaults: Mapping[str, str], *, also_restored: Iterable[str] = ()) -> Iterator[None]:
    """Variables that aren't set get these values within the block.

    At its end these are restored, and all variables whose names begin with one of `also_restored`.
    """
    prefixes = tuple(also_restored)

    def concerned() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name in defaults or name.startswith(prefixes)}

    before = concerned()
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name in concerned().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def quiet_loggers(names: Iterable[str]) -> Iterator[None]:
    """Within the block loggers only pass on errors."""
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level, propagate, handlers in before:
            logger.setLevel(level)
            logger.propagate, logger.handlers = propagate, handlers
