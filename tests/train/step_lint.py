"""What a CUDA graph of a whole training step would freeze: operators, and what Python hands them, step by step.

    first, second = steps_of(trainer, 2)
    assert difference(first, second).scalars == ()

A graph replays the same operators with the same scalars on the same memory. Whatever changes from one step to the next
has to come in by a tensor that stays where it is. The operators are those that reach torch's dispatcher, so those of
the backward pass and of torch's own Python code are among them; what a kernel does inside is unseen, as are the seeds
of generators, which Python sets beside the operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tuner.train import Trainer

Scalar = bool | int | float | str


@dataclass(frozen=True)
class Operation:
    """One call of an operator.

    Attributes:
        name: as "aten.add_.Tensor"
        shapes: of the tensors that it was given
        scalars: that it was given
        outside: addresses of those of its tensors whose memory the step didn't allocate itself
        waits: whether Python needs values of a tensor, or the result's size depends on them
        draws: whether it takes numbers from a generator
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    scalars: tuple[Scalar, ...]
    outside: tuple[int, ...]
    waits: bool
    draws: bool


@dataclass(frozen=True)
class Difference:
    """What isn't the same in two steps, and what a graph can't hold in any case; each operator once.

    Attributes:
        sequence: the first operators at which the two go apart; None where they are the same, of the same shapes
        scalars: operators that are given other numbers
        moved: operators that are given other memory from outside of the step
        waits: operators of either step that would make the host wait for a device
        draws: operators of either step that draw random numbers
    """

    sequence: tuple[str, str] | None
    scalars: tuple[str, ...]
    moved: tuple[str, ...]
    waits: tuple[str, ...]
    draws: tuple[str, ...]


class Recorder(TorchDispatchMode):
    """Notes every operation within it.

    Attributes:
        operations: in their order
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._inside: dict[int, Any] = {}  # storages by address, kept so that no address is given twice

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        values = tree_leaves((args, kwargs or {}))
        self.operations.append(self._operation(func, values))
        given = {_storage(value) for value in values if isinstance(value, Tensor)}
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor) and _storage(value) not in given:
                self._inside[_storage(value)] = value.untyped_storage()
        return result

    def _operation(self, func: Any, values: list[Any]) -> Operation:
        tensors = [value for value in values if isinstance(value, Tensor)]
        return Operation(
            name=str(func),
            shapes=tuple(tuple(tensor.shape) for tensor in tensors),
            scalars=tuple(value for value in values if isinstance(value, Scalar)),
            outside=tuple(tensor.data_ptr() for tensor in tensors if _storage(tensor) not in self._inside),
            waits=_waits(func, tensors),
            draws=torch.Tag.nondeterministic_seeded in func.tags,
        )


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _waits(operator: Any, tensors: list[Tensor]) -> bool:
    if operator in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default):
        return any(tensor.dtype == torch.bool for tensor in tensors[1:])  # the others choose by place
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(operator.tags))


def recorded(step: Callable[[], Any]) -> list[Operation]:
    """The operations of a call."""
    with Recorder() as recorder:
        step()
    return recorder.operations


def steps_of(trainer: Trainer, count: int) -> list[list[Operation]]:
    """Let a trainer take its next steps: the operations of each, from images as they are stored to averaged weights."""
    logs: list[list[Operation]] = []
    take = trainer.train_step

    def logged(*given: Any) -> None:
        logs.append(recorded(lambda: take(*given)))

    trainer.train_step = logged  # type: ignore[method-assign]
    try:
        trainer.train(count)
    finally:
        del trainer.train_step  # the class's own is seen again
    return logs


def difference(first: list[Operation], second: list[Operation]) -> Difference:
    """What changes from a step to the next."""
    pairs = list(zip(first, second, strict=False))
    both = [*first, *second]
    apart = next(((one.name, other.name) for one, other in pairs if not _alike(one, other)), None)
    if apart is None and len(first) != len(second):
        longer = max(first, second, key=len)[len(pairs)].name
        apart = ("the end", longer) if len(first) < len(second) else (longer, "the end")
    return Difference(
        sequence=apart,
        scalars=_names(one for one, other in pairs if _alike(one, other) and one.scalars != other.scalars),
        moved=_names(one for one, other in pairs if _alike(one, other) and one.outside != other.outside),
        waits=_names(one for one in both if one.waits),
        draws=_names(one for one in both if one.draws),
    )


def _alike(one: Operation, other: Operation) -> bool:
    return (one.name, one.shapes) == (other.name, other.shapes)


def _names(operations: Any) -> tuple[str, ...]:
    return tuple(sorted({operation.name for operation in operations}))
