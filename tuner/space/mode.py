"""Which of two values of a metric is better."""

from typing import Literal

Mode = Literal["min", "max"]
