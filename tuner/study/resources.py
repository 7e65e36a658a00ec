"""The CPUs and GPUs that one trial gets, and how it uses several of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tuner.errors import StudyError, shown
from tuner.space import Space
from tuner.space.values import is_number, is_one_of
from tuner.trial import HYPERPARAMETERS, STRATEGIES, Trial
from tuner.trial.hyperparameters import INT8

AUTO: Literal["auto"] = "auto"
Amount = float | Literal["auto"]
MOST_ON_A_GPU = 32  # the most trials at once with gpus="auto"; MPS serves 48 (60 from Hopper on)
LEAST_SHARE = HYPERPARAMETERS["batch_size"].low  # of a batch, for each device
PLACEMENTS = ("pack", "spread")
ACCELERATOR = "accelerator_type:"  # prefix of the kind of GPU in Ray's resources of a node
ONE_PROCESS = {name for name, strategy in STRATEGIES.items() if not strategy.process_per_device}
WHOLE_BATCHES = {name for name, strategy in STRATEGIES.items() if strategy.whole_batches}


@dataclass(frozen=True)
class Resources:
    """What one trial gets. `gpus` may be a fraction, so that several trials share a device.

    None stands for a default: one CPU; one GPU if the machine or cluster has any and the trial can use it.
    `gpus="auto"` lets as many trials share each GPU as their memory allows and as are faster together, found while the
    search runs; `cpus="auto"` does so on the CPU, a thread for each trial. `strategy` trains an image classifier on all
    of its GPUs, or CPUs if it has none: "ddp" (a process with a copy of the network for each), "pipeline" (a process
    with a part of the network for each), "dp" or "balanced_dp" (one process for all GPUs); a hyperparameter `strategy`
    in the space overrides it. `placement="spread"` spreads the processes of "ddp" and "pipeline" over the nodes of a
    cluster; "pack" keeps them on one. `accelerator="H100"` only uses nodes of a cluster with GPUs of this kind, by
    Ray's name for it.
    """

    cpus: Amount | None = None
    gpus: Amount | None = None
    strategy: str | None = None
    placement: str = "pack"
    accelerator: str | None = None

    def __post_init__(self) -> None:
        """Refuse amounts that Ray could never give."""
        for name, value in (("cpus", self.cpus), ("gpus", self.gpus)):
            if _nearly_auto(value) and not _is_auto(value):
                raise StudyError(f"Resources.{name} needs a number or 'auto', got {value!r}; write 'auto'")
        if self.cpus is not None and not _is_auto(self.cpus) and not (is_number(self.cpus) and self.cpus > 0):
            raise StudyError(
                f"Resources.cpus needs a number above 0, got {shown(self.cpus)}; a trial needs some CPU to run on"
            )
        if not _is_auto(self.gpus):
            self._check_gpus(self.gpus)
        if _is_auto(self.cpus) and self.gpus:
            raise StudyError(
                f"Resources.cpus='auto' packs trials that train on the CPU, got gpus={self.gpus!r} too; "
                "use gpus='auto' alone, or gpus=0"
            )
        if self.strategy is not None and not is_one_of(self.strategy, STRATEGIES):
            raise StudyError(
                f"Resources.strategy needs one of {', '.join(map(repr, STRATEGIES))}, or None for one device, "
                f"got {shown(self.strategy)}"
            )

        if not is_one_of(self.placement, PLACEMENTS):
            raise StudyError(f"Resources.placement needs 'pack' or 'spread', got {shown(self.placement)}; choose one")
        if self.accelerator is not None and not (isinstance(self.accelerator, str) and self.accelerator.strip()):
            raise StudyError(
                "Resources.accelerator needs Ray's name of a kind of GPU, such as 'H100', got "
                f"{shown(self.accelerator)}; write one, or leave it out"
            )

    def _check_gpus(self, gpus: object) -> None:
        if gpus is not None and not (is_number(gpus) and gpus >= 0):
            raise StudyError(f"Resources.gpus needs a number of at least 0, got {shown(gpus)}; use 0.5 for half a GPU")
        if is_number(gpus) and gpus > 1 and gpus != int(gpus):
            raise StudyError(
                f"Resources.gpus above 1 needs a whole number, got {gpus!r}; use {int(gpus)} or {int(gpus) + 1}"
            )

    def resolve(self, *, gpus_present: int, uses_gpu: bool) -> Resources:
        """The resources with numbers for a machine or cluster that has `gpus_present` GPUs.

        "auto" becomes the smallest share that a trial can have.
        """
        default_gpus = 1 if gpus_present and uses_gpu and self.cpus != AUTO else 0
        return replace(
            self,
            cpus=1 if self.cpus in (None, AUTO) else self.cpus,
            gpus=default_gpus if self.gpus is None else 1 / MOST_ON_A_GPU if self.gpus == AUTO else self.gpus,
        )

    @property
    def packed(self) -> str | None:
        """Which devices packed trials share, "gpus" or "cpus"; None if each has a fixed amount."""
        return "gpus" if self.gpus == AUTO else "cpus" if self.cpus == AUTO else None

    @property
    def node_label(self) -> str | None:
        """The resource, in Ray's words, that nodes with the chosen kind of GPU have."""
        return None if self.accelerator is None else f"{ACCELERATOR}{self.accelerator}"

    @property
    def cpu_count(self) -> float:
        """CPUs of a trial, once resolved."""
        return float(self.cpus or 1)

    @property
    def gpu_count(self) -> float:
        """GPUs of a trial, once resolved."""
        return float(self.gpus or 0)

    @property
    def devices(self) -> float:
        """How many devices a trial holds, once resolved: its GPUs, or its CPUs if it has none."""
        return self.gpu_count or self.cpu_count

    def strategies(self, space: Space) -> tuple[str, ...]:
        """The strategies that a trial of the space may use."""
        chosen = space.possible("strategy") or [self.strategy]
        return tuple(str(strategy) for strategy in chosen if strategy is not None)

    def check_alone(self) -> None:
        """Raise StudyError for resources that need a cluster, in a search on one machine."""
        if self.accelerator is not None:
            raise StudyError(
                f"Resources(accelerator=...) chooses among the nodes of a cluster, got {self.accelerator!r} for a "
                "search on this machine; leave it out, or add --address"
            )

    def check_packing(self, space: Space, *, gpus_present: int) -> None:
        """Raise StudyError if "auto" isn't possible, before it is resolved."""
        if self.packed is None:
            return
        setting, strategies = f"{self.packed}='auto'", self.strategies(space)
        if strategies:
            raise StudyError(
                f"strategy={strategies[0]!r} needs a whole number of devices for each trial, got {setting}, by which "
                f"trials share one; use {self.packed}=2, or leave strategy out"
            )
        if self.placement == "spread":
            raise StudyError(f"placement='spread' needs several devices for each trial, got {setting}; leave it out")
        if self.packed == "gpus" and not gpus_present:
            raise StudyError(
                "gpus='auto' needs a GPU that trials can share, got a machine with none; use cpus='auto', which packs "
                "trials on the CPU, or leave gpus out (also --gpus-per-trial)"
            )

    def check_strategies(self, trial: Trial, space: Space) -> None:
        """Raise StudyError if a trial of the space can't use the devices, once resolved, as its strategy would."""
        strategies = self.strategies(space)
        if self.placement == "spread" and (not strategies or set(strategies) & ONE_PROCESS):
            raise StudyError(
                "placement='spread' needs a process for each device, got "
                f"strategy={' or '.join(map(repr, strategies)) or None}; use strategy='ddp' or 'pipeline', or leave "
                "placement out"
            )
        if strategies and INT8 in space.possible("quantization"):
            raise StudyError(
                f"quantization='{INT8}' needs trials on one device, got strategy={strategies[0]!r}; leave out either"
            )
        for strategy in strategies:
            if strategy not in trial.strategies:
                raise StudyError(
                    f"strategy={strategy!r} needs an ImageClassifier, got {trial.described}, {trial.without_strategies}"
                )
            self._check_devices(strategy)
            batch_size = trial.known_hyperparameters.get("batch_size")
            if batch_size and strategy not in WHOLE_BATCHES:
                sizes = filter(is_number, space.possible("batch_size"))
                self._check_shares(strategy, min(sizes, default=batch_size.default))

    def _check_devices(self, strategy: str) -> None:
        if strategy in ONE_PROCESS and not self.gpu_count:
            raise StudyError(
                f"strategy={strategy!r} needs two GPUs or more, as torch's DataParallel does nothing on the CPU, "
                "got none; use strategy='ddp' or 'pipeline'"
            )
        if self.devices < 2 or self.devices != int(self.devices):
            kind = "gpus" if self.gpus else "cpus"
            raise StudyError(
                f"strategy={strategy!r} needs at least two whole devices, got {self.devices:g} {kind} a "
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


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == AUTO


def _nearly_auto(value: object) -> bool:
    return isinstance(value, str) and value.strip().lower() == AUTO
