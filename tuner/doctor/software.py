"""Checks of torch, torchvision and the cache."""

from __future__ import annotations

import os
import shutil
import time
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tuner.doctor.checks import REINSTALL, Finding, Subject, failed, ok

SEED = 7  # seed of the data that is stored in the cache


def torch_fits(subject: Subject) -> Finding:
    """Torch and torchvision are of matching releases, and torchvision's own operators load."""
    torch, torchvision = metadata.version("torch"), metadata.version("torchvision")
    wanted = torch_of_torchvision()
    if not wanted.contains(torch, prereleases=True):
        fix = f"pip install 'torch{wanted}' torchvision=={torchvision.split('+')[0]}"
        return failed(f"torchvision {torchvision} needs torch {wanted}, got {torch}", fix)
    try:
        from torch import ones, tensor
        from torchvision.ops import nms

        kept = nms(tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0]]), ones(2), 0.5)
    except Exception as error:
        said = f"torch {torch} and torchvision {torchvision} don't work together ({type(error).__name__}: {error})"
        return failed(said.splitlines()[0], REINSTALL)
    said = f"torch {torch} with torchvision {torchvision}"
    return ok(said) if len(kept) == 1 else failed(f"{said} finds wrong boxes", REINSTALL)


def torch_of_torchvision() -> SpecifierSet:
    """The releases of torch that the installed torchvision says it needs."""
    needs = map(Requirement, metadata.requires("torchvision") or ())
    return next((need.specifier for need in needs if need.name == "torch"), SpecifierSet())


def cache(subject: Subject) -> Finding:
    """What is stored in the cache can be read again."""
    import numpy as np

    from tuner.train.data.cache import ArrayCache, Builder, CacheUnavailable, cache_key

    numbers = np.random.default_rng(SEED).integers(0, 256, (64, 1024), dtype=np.uint8)

    def build(builder: Builder) -> None:
        builder.array("numbers", numbers.shape, numbers.dtype)[:] = numbers

    store, key = ArrayCache(), cache_key("doctor", os.getpid(), time.time())  # a key that doesn't exist yet
    try:
        entry = store.get(key, build, expected_bytes=numbers.nbytes)
        shutil.rmtree(store.folder / key)
        same = bool((entry.arrays["numbers"] == numbers).all())
    except CacheUnavailable as error:
        said, _, fix = str(error).rpartition("; ")  # the message says what to do
        return failed(f"the cache can't be used: {said}", fix)
    except OSError as error:
        return failed(f"the cache can't be used: {error}", "set TUNER_CACHE to a folder that can be written to")
    if not same:
        return failed(
            f"the cache in {store.folder} gave back other numbers", "set TUNER_CACHE to a folder on another disk"
        )
    return ok(str(store.folder))
