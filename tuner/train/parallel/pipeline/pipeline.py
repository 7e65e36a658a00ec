"""`strategy="pipeline"`: the network split into stages on different devices, micro-batches streamed through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tuner.errors import StudyError, TrialOutOfMemory
from tuner.train.data.splits import Batch, Split
from tuner.train.fine_tuning import LP_FT
from tuner.train.memory.errors import first_line, is_out_of_memory
from tuner.train.models.network import Network
from tuner.train.optimisation.precision import Precision
from tuner.train.parallel.group import Group
from tuner.train.parallel.pipeline.balance import balanced, measure
from tuner.train.parallel.pipeline.chain import Chain, find_chain
from tuner.train.parallel.pipeline.stage import Link, Stage
from tuner.train.parallel.strategy import LEAST_BATCH, Images, Normalise, Strategy
from tuner.train.step import SMALLER, WHOLE_BATCH, TrainingStep, micro_batches
from tuner.train.tasks.objective import Objective

if TYPE_CHECKING:
    from tuner.train.evaluation import Evaluator

MICRO_BATCHES_PER_STAGE = 4  # by default: (p - 1) / (5 p - 1) of the time is then idle, a ninth to a fifth
MEASURED_IMAGES = 16  # the most images with which the cost of a block is measured
MICRO_BATCHES = "micro-batches"


class Pipeline(Strategy):
    """Each process holds one of the successive stages of the network; the rest takes no memory ("meta" tensors).

    Names, and which parameters learn, are those of the whole network everywhere, so that optimizers, checkpoints and
    fine-tuning need not know of the split.
    """

    keeps_features = False

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.draws = group.rank == 0
        self._parts: dict[nn.Module, nn.Module] = {}
        self._micro_batches = MICRO_BATCHES_PER_STAGE * group.size

    @property
    def least_batch(self) -> int:
        """The least number of images in a batch."""
        return LEAST_BATCH

    def part_of(self, batch_size: int) -> int:
        """The number of images in a micro-batch."""
        return max(min(LEAST_BATCH, batch_size), batch_size // self._micro_batches)

    def place(
        self, network: Network, device: torch.device, images: Images, precision: Precision, chosen: dict[str, Any]
    ) -> tuple[str, ...]:
        """See `Strategy.place`: find blocks, measure them, keep this process's stage."""
        self._chain = chain = find_chain(network.module, "the model")
        self._micro_batches = chosen["pipeline_micro_batches"] or self._micro_batches
        examples = images(min(MEASURED_IMAGES, max(LEAST_BATCH, self.part_of(chosen["batch_size"]))))
        starts, links = self._agree(chain, examples, precision, chosen)
        ends = (*starts[1:], len(chain.blocks))
        self._first, self._last = starts[self.group.rank], ends[self.group.rank]
        keep_only(network.module, chain.tensors(self._first, self._last), device)
        parameters = dict(network.module.named_parameters())
        self._stages = [
            [parameters[name] for name in chain.tensors(start, end) if name in parameters]
            for start, end in zip(starts, ends, strict=True)
        ]
        self.stage = Stage(
            self._part(network.module),
            self.group.rank,
            self.group.size,
            device,
            precision.arithmetic,
            before=links[self._first],
            after=links[self._last],
        )
        names = ", ".join(chain.names[start] for start in starts)
        size = self.part_of(chosen["batch_size"])
        count = len(micro_batches(chosen["batch_size"], size))
        return (
            f"strategy='pipeline' splits the model into stages that begin with {names}, a batch of "
            f"{chosen['batch_size']} images into {count} of {size}",
            *self._of_frozen(chosen),
        )

    def batches(self, split: Split, batches: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        """See `Strategy.batches`: all images on the first stage, none elsewhere."""
        if self.draws:
            yield from split.batches(batches, device)
        else:
            yield from ((torch.empty(0), batch) for batch in batches)

    def make_step(
        self, module: nn.Module, objective: Objective, precision: Precision, *, batch_size: int, clip_norm: float
    ) -> TrainingStep:
        """See `Strategy.make_step`."""
        if objective.weighted:
            self._soft, self._not_always = True, False
        return PipelineStep(
            module, objective, precision, batch_size=self.part_of(batch_size), clip_norm=clip_norm, pipeline=self
        )

    def forward(self, module: nn.Module, precision: Precision) -> Callable[[Tensor], Tensor]:
        """The module itself: a stage isn't compiled alone, because the others wait for it."""
        return module

    def logits(self, evaluator: Evaluator, module: nn.Module, split: Split, normalise: Normalise) -> Tensor:
        """See `Strategy.logits`: while a stage works on a batch, the one before it works on the next.

        Raises:
            TrialOutOfMemory: a batch is too large for a stage.
        """
        module.eval()
        size = evaluator.batch_size(split)
        parts = torch.split(torch.arange(len(split)), size)
        drawn = (normalise(images) for images, _ in split.batches(parts, evaluator.device)) if self.draws else None
        try:
            found = self.stage.stream(self._part(module), drawn or [len(part) for part in parts])
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            remedy = SMALLER if size > 1 else None
            raise TrialOutOfMemory(f"{size} images to validate don't fit ({first_line(error)})", remedy) from error
        logits = torch.cat(found) if found else torch.empty(len(split), *self._logits, device=evaluator.device)
        torch.distributed.broadcast(logits, self.group.size - 1)
        return logits

    def gathered(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """See `Strategy.gathered`."""
        own = super().gathered({name: tensor for name, tensor in tensors.items() if not tensor.is_meta})
        found = self.group.gathered(own)
        everything = {name: tensor for part in found for name, tensor in part.items()}
        names = [name for name in tensors if name in everything]
        return {name: everything[name] for name in [*names, *sorted(everything.keys() - tensors.keys())]}

    def learning(self) -> tuple[bool, bool]:
        """Whether parameters learn in the stages before this one, and in this one."""
        learns = [any(parameter.requires_grad for parameter in stage) for stage in self._stages]
        return any(learns[: self.group.rank]), learns[self.group.rank]

    def handed_over(self, targets: Tensor) -> Tensor:
        """The targets of a batch on the last stage, where losses are computed; they come from the first stage.

        Args:
            targets: [B] int64 or [B, classes] float32 on the first stage; elsewhere any B values on the device
        """
        last = self.group.size - 1
        if self.stage.first:
            if self._not_always:
                torch.distributed.send(torch.tensor([targets.ndim], device=targets.device), last)
            torch.distributed.send(targets, last)
        if not self.stage.last:
            return targets
        soft = self._soft
        if self._not_always:
            axes = torch.empty(1, dtype=torch.int64, device=self.stage.device)
            torch.distributed.recv(axes, 0)
            soft = int(axes) == 2
        shape, dtype = ((len(targets), *self._logits), torch.float32) if soft else ((len(targets),), torch.int64)
        received = torch.empty(shape, dtype=dtype, device=self.stage.device)
        torch.distributed.recv(received, 0)
        return received

    def _agree(
        self, chain: Chain, examples: Tensor, precision: Precision, chosen: dict[str, Any]
    ) -> tuple[tuple[int, ...], list[Link]]:
        """Agree on where stages start, and what is passed on before each block and at the end.

        Process 0 measures, and tells the others.
        """
        agreed: list[Any] = [None]
        if self.group.rank == 0:
            costs = measure(chain, examples, precision.arithmetic, backward=chosen["finetune"] != "head")
            seconds = [cost.seconds for cost in costs]
            starts = split_at(chain, chosen["pipeline_split"], self.group.size) or balanced(seconds, self.group.size)
            links = [Link(tuple(examples.shape[1:]), examples.dtype), *(Link(cost.shape, cost.dtype) for cost in costs)]
            agreed = [(starts, links)]
        ((starts, links),) = self.group.told(agreed)
        self._logits, self._soft = links[-1].shape, bool(chosen["mixup"] or chosen["cutmix"])
        self._not_always = self._soft and chosen["finetune"] == LP_FT  # its first epochs mix no images
        return starts, links

    def _part(self, module: nn.Module) -> nn.Module:
        """The stage of the network, or of a copy of it, that this process has."""
        if module not in self._parts:
            self._parts[module] = self._chain.part(self._first, self._last, module)
        return self._parts[module]

    def _of_frozen(self, chosen: dict[str, Any]) -> tuple[str, ...]:
        if chosen["finetune"] == "all":
            return ()
        return (
            "strategy='pipeline' runs the frozen layers in every epoch; on one device, or with strategy='ddp', "
            "what a frozen backbone computes is kept",
        )


class PipelineStep(TrainingStep):
    """Takes steps whose micro-batches stream through the stages; each process steps its own parameters."""

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        precision: Precision,
        *,
        batch_size: int,
        clip_norm: float,
        pipeline: Pipeline,
    ) -> None:
        super().__init__(module, objective, precision, batch_size=batch_size, clip_norm=clip_norm, group=pipeline.group)
        self._pipeline = pipeline

    def __call__(
        self,
        optimizer: Optimizer,
        batch: Callable[[], tuple[Tensor, Tensor]],
        seeded: Callable[[], None],
        count: int,
        relieve: Callable[[str], bool] = lambda _: False,
    ) -> Tensor:
        """One step; on the last stage the mean loss, elsewhere 0."""
        stage, size = self._pipeline.stage, self.micro_batch_size
        try:
            seeded()
            images, targets = batch()
            optimizer.zero_grad(set_to_none=True)
            total = self._backward(images, self._pipeline.handed_over(targets.to(stage.device)))
            self._precision.step(optimizer, self._clip_norm, self._group.sum)
        except (RuntimeError, MemoryError) as error:
            cause = error.__cause__ if "failed to run forward" in str(error) and error.__cause__ else error
            if is_out_of_memory(cause):
                reason = first_line(cause)
                raise TrialOutOfMemory(f"{size} images at once don't fit into memory ({reason})", SMALLER) from error
            raise cause from None  # without torch's own message, which only has shapes
        return total

    def _backward(self, images: Tensor, targets: Tensor) -> Tensor:
        stage = self._pipeline.stage
        weight = self._objective.weight(targets) if stage.last else 1
        total = torch.zeros((), device=stage.device)
        learns_before, learns = self._pipeline.learning()
        runs = equal_runs(len(targets), self.micro_batch_size)
        mixed = sum(chunks for _, _, chunks in runs) > 1
        self.batch_norm = MICRO_BATCHES if mixed and self._norms.learning else WHOLE_BATCH

        def loss(logits: Tensor, of: Tensor) -> Tensor:
            mean = self._objective.total(logits, of) / weight
            total.add_(mean.detach())
            return self._precision.scaled(mean)

        self._precision.scaled(total)  # every stage then knows the scale from the first step on
        for part, size, chunks in runs:
            stage.train(
                images[part] if stage.first else None,
                targets[part] if stage.last else None,
                loss,
                size=size,
                chunks=chunks,
                learns_before=learns_before,
                learns=learns,
            )
        return total


def equal_runs(images: int, size: int) -> list[tuple[slice, int, int]]:
    """Micro-batches of at most about `size` images, those of equal length together: slice, length, number."""
    runs: list[tuple[slice, int, int]] = []
    for part in micro_batches(images, size):
        length = part.stop - part.start
        if runs and runs[-1][1] == length:
            before, _, chunks = runs.pop()
            runs.append((slice(before.start, part.stop), length, chunks + 1))
        else:
            runs.append((part, length, 1))
    return runs


def split_at(chain: Chain, names: str | None, stages: int) -> tuple[int, ...] | None:
    """Where stages start, by the names of the first blocks of all stages except the first one; None without names.

    Raises:
        StudyError: the numbers of blocks or stages differ, or there are no such blocks in this order.
    """
    if len(chain.blocks) < stages:
        raise StudyError(
            f"strategy='pipeline' needs a block for each device, got {stages} devices and {len(chain.blocks)} blocks "
            f"({', '.join(chain.names)}); use fewer devices"
        )
    if names is None:
        return None
    given = names.replace(",", " ").split()
    places = [chain.names.index(name) for name in given if name in chain.names]
    if len(places) < len(given) or len(given) != stages - 1 or 0 in places or sorted(set(places)) != places:
        raise StudyError(
            f"pipeline_split needs a block for each of the {stages - 1} stages after the first to begin with, in the "
            f"network's order, got {names!r}; choose among {', '.join(chain.names[1:])}"
        )
    return (0, *places)


def keep_only(module: nn.Module, names: frozenset[str], device: torch.device) -> None:
    """Move parameters and buffers with these dotted names to a device; free the others ("meta" tensors)."""
    own = {id(tensor) for name, tensor in _tensors(module) if name in names}
    for layer in module.modules():
        for name, parameter in list(layer.named_parameters(recurse=False)):
            if id(parameter) in own:
                parameter.data = _on(device, parameter.data)
            else:
                layer.register_parameter(name, nn.Parameter(parameter.to("meta"), parameter.requires_grad))
        for name, buffer in list(layer.named_buffers(recurse=False)):
            persistent = name not in layer._non_persistent_buffers_set
            kept = _on(device, buffer) if id(buffer) in own else buffer.to("meta")
            layer.register_buffer(name, kept, persistent=persistent)


def _on(device: torch.device, tensor: Tensor) -> Tensor:
    if device.type == "cuda" and tensor.ndim == 4:
        return tensor.to(device, memory_format=torch.channels_last)
    return tensor.to(device)


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
