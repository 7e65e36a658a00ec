"""Data sets as in their files: decoded once per machine into a cache that all trials map into their memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tuner.train.data.by_name import DATA_SETS, Arrays
from tuner.train.data.cache import Builder, cache_key
from tuner.train.data.folder_reading import read_folder
from tuner.train.data.images import pixel_key
from tuner.train.data.pool import IMAGES, KEYS, LABELS, PART, Pool, from_cache
from tuner.trial.data_source import Source
from tuner.trial.framing import Framing


def read_pool(source: Source, folder: Path, framing: Framing, memory_bytes: float) -> Pool:
    """The data set from the machine's cache, into which it is decoded first if necessary.

    Args:
        source: the data set
        folder: holds the known data sets
        framing: how images of folders, which differ in size, are brought to one size
        memory_bytes: if a folder's images would take more, `images` is None

    Raises:
        DataError: files are missing, damaged, or not laid out as a class per subfolder; or most of a class's images
            can't be read.
    """
    if (images := source.image_folder(folder)) is not None:
        return read_folder(images, framing, memory_bytes)
    key, read = cache_key("pool", source.fingerprint(folder)), DATA_SETS[source.name].read
    return from_cache(key, lambda builder: _put(builder, read(source, folder)))


def _put(builder: Builder, arrays: Arrays) -> None:
    builder.put(IMAGES, arrays.images)
    builder.put(LABELS, arrays.labels)
    builder.put(KEYS, np.array([pixel_key(image) for image in arrays.images], dtype=np.uint64))
    builder.put(PART, np.zeros(len(arrays.labels), np.int8) if arrays.parts is None else arrays.parts)
    builder.facts["classes"] = list(arrays.classes)
