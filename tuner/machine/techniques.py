"""Training techniques that may not work on a machine; training asks here whether it may use them.

A search on a GPU switches off the techniques that failed its first checks of the machine (`tuner.doctor.readiness`);
workers get the list in their environment.
"""

from __future__ import annotations

import os

VARIABLE = "TUNER_SWITCHED_OFF"  # names of techniques, separated by commas; a user may set it, too
TECHNIQUES = {
    "compile": "torch.compile",
    "graph": "CUDA graphs",
    "bf16": "bfloat16, in single precision instead,",
    "fp16": "half precision, in single precision instead,",
}


def allowed(technique: str) -> bool:
    """Whether training on a GPU may use one of `TECHNIQUES`; raises KeyError for another name."""
    return bool(TECHNIQUES[technique]) and technique not in switched_off()


def switched_off() -> tuple[str, ...]:
    """The techniques that are switched off in this process."""
    return tuple(name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip())
