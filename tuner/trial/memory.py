"""The memory that a configuration needs, estimated before it is tried."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory of a trial on one device, without what the libraries take for themselves.

    Attributes:
        peak_bytes: the most that it holds at once as configured; None if that isn't known
        least_bytes: the least that it needs, one image at a time; None if that isn't known
        alike: a key that configurations share if they need the same memory, and the same time per image
        unknown: why the memory isn't known, as a part of a sentence; empty if it is known
    """

    peak_bytes: int | None = None
    least_bytes: int | None = None
    alike: str = ""
    unknown: str = ""
