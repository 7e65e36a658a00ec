"""The facts that a check finds about a study, as plain data, which may come from untrusted code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.errors import StudyError
from tuner.service.errors import Code, ServiceError
from tuner.service.model import EXTERNAL, Demand, Device
from tuner.service.scheduling import devices_in_words

MOST = 10**6  # devices of one trial


@dataclass(frozen=True)
class Facts:
    """The facts about a study.

    Attributes:
        name: of the study
        metric: that it optimises
        mode: "min" or "max"
        trials: how many it can run; None for no limit
        max_epochs: of a trial
        budget: limits by their names
        space: each hyperparameter's domain or constant, as run.json records it
        search: its algorithm, as the study file has it
        scheduler: the early stopping, as the study file has it
        trial: what a trial is, in words
        kind: of the devices that a trial holds, "gpu" or "cpu"; EXTERNAL for trials that workers ask for
        each: how many of these devices a trial holds; less than 1 for a share
        packed: whether as many trials as fit share a device
        missing: data and weights that it needs and the server lacks, by name
    """

    name: str
    metric: str
    mode: str
    trials: int | None
    max_epochs: int
    budget: Mapping[str, float | None]
    space: Mapping[str, Any]
    search: str
    scheduler: str
    trial: str
    kind: str
    each: float
    packed: bool = False
    missing: Sequence[str] = field(default_factory=tuple)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Facts:
        """The facts that the child wrote. Raises StudyError for anything else: the study's own code may write there,
        too.
        """
        try:
            facts = cls(**told)
        except TypeError as error:
            raise _odd() from error
        texts = (facts.name, facts.metric, facts.mode, facts.search, facts.scheduler, facts.trial)
        counts = (facts.max_epochs, *([] if facts.trials is None else [facts.trials]))
        sound = (
            all(isinstance(text, str) for text in texts)
            and all(isinstance(count, int) and count >= 0 for count in counts)
            and isinstance(facts.budget, dict)
            and isinstance(facts.space, dict)
            and facts.kind in ("gpu", "cpu", EXTERNAL)
            and isinstance(facts.each, int | float)
            and 0 < facts.each < MOST
            and isinstance(facts.missing, list)
            and all(isinstance(one, str) for one in facts.missing)
        )
        if not sound:
            raise _odd()
        return facts


def demand_of(facts: Facts, devices: Sequence[Device], wanted: int | None, concurrency: int | None) -> Demand:
    """How many devices a study gets: as many as were `wanted`, else from what one trial needs to all it can use.

    Raises ServiceError if a trial needs more than there are, or than were wanted.
    """
    if facts.kind == EXTERNAL:
        return Demand(EXTERNAL, fixed=True)
    present = sum(device.kind == facts.kind for device in devices)
    least = max(1, math.ceil(facts.each - 1e-9))
    if least > present:
        raise ServiceError(
            Code.REFUSED,
            "a trial can have at most the devices of the server",
            f"one that needs {devices_in_words(least, facts.kind)} where there are {present}",
            "lower Resources, or run it elsewhere",
        )
    if wanted is not None:
        if not least <= wanted <= present:
            needs = devices_in_words(least, facts.kind)
            raise ServiceError(
                Code.REFUSED,
                f"devices needs at least what a trial gets ({needs}), and at most what the server has ({present})",
                str(wanted),
                f"use {min(max(least, wanted), present)}",
            )
        return Demand(facts.kind, wanted, wanted, fixed=True)
    at_once = min(concurrency or MOST, facts.trials or MOST)
    fit = min(at_once, int(present / facts.each + 1e-9))
    most = present if facts.packed else math.ceil(fit * facts.each - 1e-9)
    return Demand(facts.kind, max(least, most), least, fixed=facts.packed and facts.kind == "gpu")


def refuse_missing(facts: Facts) -> None:
    """Raise ServiceError if the server lacks data or weights: no driver would wait for a download."""
    if facts.missing:
        raise ServiceError(
            Code.REFUSED,
            "a study needs data and weights that the server has",
            f"one that lacks {', '.join(facts.missing)}",
            "put them there, or name another --data-dir or --weights",
        )


def _odd() -> StudyError:
    return StudyError("a check needs the study's facts, got something else; the study file must not write to its files")
