"""Downloads missing data and weights of a trial: from the servers of their publishers, and from object stores."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import torch

from tuner.errors import DataError, WeightsError
from tuner.storage.copies import Copy, fetch
from tuner.trial import ImageClassifier
from tuner.trial.data_source import Source
from tuner.trial.models import PublishedWeights
from tuner.trial.sources import find_source
from tuner.trial.stored import (
    StoredFiles,
    check_unchanged,
    errors_about_data,
    errors_about_hub,
    errors_about_weights,
    weights_at,
)

_looked_through: set[StoredFiles] = set()  # copies whose files this process has checked for their sizes
SILENCE_SECONDS = 10.0  # a server that sends nothing for this long counts as unreachable


def download_missing(trial: ImageClassifier) -> None:
    """Fetch data and weights that the trial needs and this machine doesn't have.

    Raises:
        DataError: the data set can't be fetched.
        WeightsError: the weights can't be fetched.
    """
    for each in trial.each:
        if each.named_weights is not None:
            fetch_weights(each.model_name, each.named_weights)
        fetch_stored_weights(each)
    fetch_data(trial.source, trial.data_folder)


def fetch_stored_weights(trial: ImageClassifier) -> Path | None:
    """The file of weights from which training starts, copied from an object store into the cache unless it is there.

    None for random weights. Raises WeightsError if it can't be copied.
    """
    uri, version = trial.stored_weights, dict(trial.copies).get(trial.stored_weights or "")
    if uri is None or Copy(uri, version).is_whole:
        return trial.weights_file
    listing = weights_at(uri)
    check_unchanged(listing, version)
    with errors_about_weights(uri):
        return fetch(listing).file


def fetch_images(images: StoredFiles) -> Source:
    """Copy images of an object store into this machine's cache unless they are there: once, completely or not at all.

    Returns the images with the version that was copied. Raises DataError if they can't be copied, or if the store has
    other ones now.
    """
    if images in _looked_through or images.copy.is_whole:
        _looked_through.add(images)
        return images
    listing = images.listing()
    check_unchanged(listing, images.version)
    with errors_about_data(images.uri):
        fetch(listing)
    return find_source(images.name, ((images.uri, listing.version),))


def fetch_weights(model: str, weights: PublishedWeights) -> Path:
    """The file of a model's published weights, downloaded into torch's or the hub's cache unless it is there.

    Raises:
        WeightsError: it is missing and can't be fetched.
    """
    path = weights.path
    if path.is_file():
        return path
    if weights.hub_file is not None:
        with errors_about_hub(model, weights.hub_file):
            return weights.hub_file.fetch()
    hash_prefix = re.search(r"-([0-9a-f]{8,})\.", path.name)
    try:
        with existing(path.parent), bounded_silence():
            torch.hub.download_url_to_file(weights.url, str(path), hash_prefix and hash_prefix[1], progress=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise WeightsError(
            f"weights of {model} need {path}, which isn't there, and {weights.url} can't be fetched "
            f"({_reason(error)}); copy the file there, or use --weights PATH, or --weights none for random weights"
        ) from error
    return path


def fetch_data(source: Source, data_dir: Path) -> Source:
    """Download a known data set into `data_dir` unless it is there; one process at a time, completely or not at all.

    Data in an object store is copied into the cache instead. Returns the data set as it is read.

    Raises:
        DataError: it is missing and can't be fetched.
    """
    if isinstance(source, StoredFiles):
        return fetch_images(source)
    if source.is_present(data_dir):
        return source
    try:
        with locked(data_dir), existing(data_dir):
            if not source.is_present(data_dir):
                _download(source, data_dir)
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(
            f"data='{source.name}' isn't under {data_dir.absolute()} and can't be fetched ({_reason(error)}); "
            f"name the folder that has it with --data-dir, or put it there: {'; '.join(source.missing(data_dir))}"
        ) from error
    return source


def _download(source: Source, data_dir: Path) -> None:
    """Download into another folder, then move: a download that was cut off leaves nothing that looks like data."""
    from tuner.train.data.by_name import DATA_SETS  # its package imports this module

    download = DATA_SETS[source.name].download
    if download is None:
        raise RuntimeError("tuner has no address of it")
    with tempfile.TemporaryDirectory(prefix=".download-", dir=data_dir) as beside, bounded_silence():
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # progress bars
            download(Path(beside))
        for path in source.files(Path(beside)):
            target = data_dir / path.relative_to(beside)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)


@contextmanager
def bounded_silence(seconds: float = SILENCE_SECONDS) -> Iterator[None]:
    """Let sockets opened within the block fail after `seconds` without an answer, which urllib alone never does."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@contextmanager
def existing(folder: Path) -> Iterator[None]:
    """Let the folder exist within the block; folders created for it that are empty afterwards are deleted."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for path in created:
            with suppress(OSError):
                path.rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process of this user and machine at a time within the block; the lock is outside of the folder."""
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"tuner-{os.getuid()}-{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _reason(error: Exception) -> str:
    """The last line of an error, in which torchvision says what went wrong, without urllib's brackets."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].removeprefix("<urlopen error ").removesuffix(">")
