"""What one trial gets: CPUs, GPUs, and how it uses several of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tuner.errors import StudyError, shown
from tuner.space import Choice, GridSearch, Space
from tuner.space.values import is_number, is_one_of
from tuner.trial import HYPERPARAMETERS, STRATEGIES, Trial

LEAST_SHARE = HYPERPARAMETERS["batch_size"].low  # of a batch, for each device
GPUS_ALONE = ("dp", "balanced_dp")
PLACEMENTS = ("pack", "spread")
WHOLE_BATCHES = ("pipeline",)  # each device sees every image


@dataclass(frozen=True)
class Resources:
    """What one trial gets. `gpus` may be a fraction, so that several trials share a device.

    None stands for a default: one CPU; one GPU where the machine or cluster has any and the trial can use it.
    `strategy` trains an image classifier on all of its GPUs, or CPUs where it has none: "ddp" (a process with a copy of
    the network for each), "pipeline" (a process with a part of the network for each), "dp" or "balanced_dp" (one
    process for all GPUs); the hyperparameter of that name in the space goes before it. `placement="spread"` spreads the
    processes of "ddp" and "pipeline" over the nodes of a cluster; "pack" keeps them on one.
    """

    cpus: float | None = None
    gpus: float | None = None
    strategy: str | None = None
    placement: str = "pack"

    def __post_init__(self) -> None:
        """Refuse amounts that Ray could never grant."""
        if self.cpus is not None and not (is_number(self.cpus) and self.cpus > 0):
            raise StudyError(
                f"Resources.cpus needs a number above 0, got {shown(self.cpus)}; a trial needs some CPU to run on"
            )
        if self.gpus is not None and not (is_number(self.gpus) and self.gpus >= 0):
            raise StudyError(
                f"Resources.gpus needs a number of at least 0, got {shown(self.gpus)}; use 0.5 for half a GPU"
            )
        if self.gpus is not None and self.gpus > 1 and self.gpus != int(self.gpus):
            raise StudyError(
                f"Resources.gpus above 1 needs a whole number, got {self.gpus!r}; "
                f"use {int(self.gpus)} or {int(self.gpus) + 1}"
            )
        if self.strategy is not None and not is_one_of(self.strategy, STRATEGIES):
            raise StudyError(
                f"Resources.strategy needs one of {', '.join(map(repr, STRATEGIES))}, or None for one device, "
                f"got {shown(self.strategy)}"
            )

        if not is_one_of(self.placement, PLACEMENTS):
            raise StudyError(f"Resources.placement needs 'pack' or 'spread', got {shown(self.placement)}; choose one")

    def resolve(self, *, gpus_present: int, uses_gpu: bool) -> Resources:
        """The same with the defaults filled in for a machine or cluster that has `gpus_present` GPUs."""
        default_gpus = 1 if gpus_present and uses_gpu else 0
        return replace(
            self,
            cpus=1 if self.cpus is None else self.cpus,
            gpus=default_gpus if self.gpus is None else self.gpus,
        )

    @property
    def devices(self) -> float:
        """What a trial holds, once resolved: its GPUs, or its CPUs where it has none."""
        return self.gpus or self.cpus or 1

    def strategies(self, space: Space) -> tuple[str, ...]:
        """Those that a trial of the space may use."""
        domain = space.dimensions.get("strategy")
        if isinstance(domain, Choice | GridSearch):
            return tuple(map(str, domain.values()))
        chosen = space.constants.get("strategy", self.strategy)
        return () if chosen is None else (str(chosen),)

    def check_strategies(self, trial: Trial, space: Space) -> None:
        """Raise StudyError where a trial of the space can't use the devices, once resolved, as its strategy would."""
        strategies = self.strategies(space)
        if self.placement == "spread" and (not strategies or set(strategies) & set(GPUS_ALONE)):
            raise StudyError(
                "placement='spread' needs a process for each device, got "
                f"strategy={' or '.join(map(repr, strategies)) or None}; use strategy='ddp' or 'pipeline', or leave "
                "placement out"
            )
        for strategy in strategies:
            if strategy not in trial.strategies:
                raise StudyError(
                    f"strategy={strategy!r} needs an ImageClassifier, got {trial.described}, which would "
                    "have to share out its work itself; leave strategy out"
                )
            self._check_devices(strategy)
            batch_size = trial.known_hyperparameters.get("batch_size")
            if batch_size and strategy not in WHOLE_BATCHES:
                self._check_shares(strategy, _smallest(space, "batch_size", batch_size.default))

    def _check_devices(self, strategy: str) -> None:
        if strategy in GPUS_ALONE and not self.gpus:
            raise StudyError(
                f"strategy={strategy!r} needs two GPUs or more, as torch's DataParallel does nothing on the CPU, "
                "got none; use strategy='ddp' or 'pipeline'"
            )
        if self.devices < 2 or self.devices != int(self.devices):
            kind = "gpus" if self.gpus else "cpus"
            raise StudyError(
                f"strategy={strategy!r} needs two devices or more, each whole, got {self.devices:g} {kind} a "
                f"trial; use Resources({kind}=2, strategy={strategy!r}) (also --{kind}-per-trial), or leave "
                "strategy out"
            )

    def _check_shares(self, strategy: str, smallest: float) -> None:
        devices = int(self.devices)
        if smallest < LEAST_SHARE * devices:
            raise StudyError(
                f"strategy={strategy!r} needs {LEAST_SHARE} images of a batch or more for each of the {devices} "
                f"devices, got a batch_size of {smallest:g}; raise it to {LEAST_SHARE * devices}, or use fewer devices"
            )


def _smallest(space: Space, name: str, default: float) -> float:
    """The smallest number that a hyperparameter can be; the default where the space doesn't name it."""
    domain = space.dimensions.get(name)
    if isinstance(domain, Choice | GridSearch):
        options: Collection[object] = domain.values()
        return float(min(option for option in options if isinstance(option, int | float)))
    return float(getattr(domain, "low", space.constants.get(name, default)))
