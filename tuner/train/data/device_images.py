"""The images of a trial on its GPU: each image once for all its splits, and for the next trial of the process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tuner.train.data.splits import SAMPLE, HeldSplit, Split
from tuner.train.memory.device import is_shared, room_bytes
from tuner.train.memory.errors import is_out_of_memory

SHARE = 0.25  # of the memory that the process may still take, for images; the network gets the rest


@dataclass(frozen=True)
class Needed:
    """The images of a pool that some splits have: `rows` [K] int64 of `pool` [M, ...], in ascending order."""

    pool: Tensor
    rows: Tensor

    @property
    def nbytes(self) -> int:
        """Of these images."""
        return len(self.rows) * self.pool[:1].nbytes

    def copied(self, device: torch.device) -> Tensor:
        """The images [K, ...] on the device, a part of them at a time."""
        images = torch.empty(len(self.rows), *self.pool.shape[1:], dtype=self.pool.dtype, device=device)
        for there, rows in zip(torch.split(images, SAMPLE), torch.split(self.rows, SAMPLE), strict=True):
            there.copy_(self.pool.index_select(0, rows))
        return images

    def is_in(self, copies: Sequence[Copy], device: torch.device) -> bool:
        """Whether one of the copies is of these images, on the device."""
        return any(
            self.pool is other.pool and torch.equal(self.rows, other.rows) and images.device == device
            for other, images in copies
        )


Copy = tuple[Needed, Tensor]  # with the pool on the host, so that no other is taken for it
_KEPT: list[Copy] = []  # by the last trial


def on_device(splits: Sequence[Split], device: torch.device, *, keep: bool = False) -> list[Split]:
    """The splits with their images on `device` if that is a GPU that has room for all of them; else as they are.

    Each image is there once, however many splits have it. Copies to `keep` are those of the last such call if the same
    images are needed; others are forgotten.
    """
    if device.type != "cuda":
        return list(splits)
    needed = needed_images(splits)
    if keep and not (len(_KEPT) == len(needed) and all(each.is_in(_KEPT, device) for each in needed)):
        _KEPT.clear()  # before others are made
        _KEPT.extend(_copies(needed, device))
    copies = _KEPT if keep else _copies(needed, device)
    return [_on_its_copy(split, copies) for split in splits]


def _copies(needed: Sequence[Needed], device: torch.device) -> list[Copy]:
    """All that is needed; nothing if there is no room for it."""
    try:
        if fits(sum(each.nbytes for each in needed), room_bytes(device)):
            return [(each, each.copied(device)) for each in needed]
    except RuntimeError as error:  # others have taken the room meanwhile
        if not is_out_of_memory(error):
            raise
    return []


def forget_images(device: torch.device) -> None:
    """Forget the kept copies if trials share the GPU: others may need the memory before this process's next one."""
    if is_shared(device):
        _KEPT.clear()


def needed_images(splits: Sequence[Split]) -> list[Needed]:
    """What splits that are held in memory need of each of their pools."""
    held = [split for split in splits if isinstance(split, HeldSplit)]
    pools = {id(split.pool): split.pool for split in held}.values()
    return [
        Needed(pool, torch.unique(torch.cat([split.pool_rows for split in held if split.pool is pool])))
        for pool in pools
    ]


def fits(images_bytes: float, room: float) -> bool:
    """Whether images are held on a GPU of which a process may still take `room` bytes."""
    return images_bytes <= SHARE * room


def _on_its_copy(split: Split, copies: Sequence[Copy]) -> Split:
    for needed, images in copies:
        if isinstance(split, HeldSplit) and split.pool is needed.pool:
            rows = torch.searchsorted(needed.rows, split.pool_rows)
            return replace(split, pool=images, rows=rows.to(images.device))
    return split
