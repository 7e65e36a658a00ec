"""The memory that a configuration needs, estimated before it is tried."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory of a trial on one device, apart from what the libraries take for themselves.

    Attributes:
        peak_bytes: the most that it holds at once as it is configured; None if that isn't known
        least_bytes: the least that it can do with, one image at a time; None if that isn't known
        alike: what configurations have in common that take as much memory, and as long for an image
        unknown: why it isn't known, in a sentence's part; empty where it is
    """

    peak_bytes: int | None = None
    least_bytes: int | None = None
    alike: str = ""
    unknown: str = ""
