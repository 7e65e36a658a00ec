"""Predictions for many image files: finds the files, and goes on after unreadable ones."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tuner.errors import DataError
from tuner.inspection.best import LoadedModel
from tuner.inspection.tasks import Prediction
from tuner.trial.data_source import IMAGE_SUFFIXES
from tuner.trial.pixels import DeepScale

AT_ONCE = 64
LIST = "@"  # before the name of a file with a path in each line


@dataclass(frozen=True)
class Answer:
    """A model's answer for an image file: a prediction with the probability of each class, or why there is none.

    `embedding` [features] float32, the input of the model's last layer, is there if it was requested.
    """

    path: Path
    prediction: Prediction | None = None
    probabilities: tuple[float, ...] = ()
    unread: str | None = None
    embedding: Tensor | None = None


def image_files(given: Iterable[str]) -> list[Path]:
    """The files meant by paths, folders (images in them and below), patterns such as `*.jpg`, and `@LIST`, once each.

    Raises:
        DataError: a folder or pattern has no images, or a list can't be read.
    """
    found = [path for one in given for path in _meant(one)]
    return list(dict.fromkeys(found))


def answers(
    model: LoadedModel, paths: Sequence[Path], *, embed: bool = False, tell: Callable[[str], None] = lambda notice: None
) -> Iterator[Answer]:
    """An answer for each file, in order, as it is computed; raises DataError if the model can't take image files.

    `tell` gets a notice if an old winner was trained on other pixels than these files have now.
    """
    scale, notice = model.scale_of(paths)
    if notice is not None:
        tell(notice)
    for start in range(0, len(paths), AT_ONCE):
        yield from _batch(model, paths[start : start + AT_ONCE], scale, embed=embed)


def _meant(one: str) -> list[Path]:
    path = Path(one)
    if path.is_dir():
        inside = (file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
        return _some(sorted(file for file in inside if not _hidden(file.relative_to(path))), one, "a folder")
    if one.startswith(LIST) and not path.exists():
        return _listed(Path(one.removeprefix(LIST)))
    if glob.has_magic(one) and not path.exists():
        return _some(sorted(map(Path, glob.glob(one, recursive=True))), one, "a pattern")  # noqa: PTH207 -- any folder's
    return [path]


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _some(files: list[Path], one: str, what: str) -> list[Path]:
    if not files:
        raise DataError(f"{what} needs to have images, got none for {one!r}; correct it")
    return files


def _listed(file: Path) -> list[Path]:
    try:
        lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise DataError(
            f"{LIST}LIST needs a file with a path in each line, got {str(file)!r} ({error.strerror}); correct it"
        ) from error
    return [Path(line.strip()) for line in lines if line.strip()]


def _batch(model: LoadedModel, paths: Sequence[Path], scale: DeepScale, *, embed: bool) -> Iterator[Answer]:
    model.check_takes_files()
    read: list[Tensor] = []
    unread: dict[Path, str] = {}
    for path in paths:
        try:
            read.append(model.read(path, scale))
        except DataError as error:
            unread[path] = str(error)
    rows = iter(_told(model, torch.cat(read), embed=embed) if read else [])
    for path in paths:
        if path in unread:
            yield Answer(path, unread=unread[path])
        else:
            values, embedding = next(rows)
            yield Answer(path, model.prediction(path, values), tuple(values), embedding=embedding)


def _told(model: LoadedModel, images: Tensor, *, embed: bool) -> list[tuple[list[float], Tensor | None]]:
    """The probabilities, and if requested the embedding, of each image."""
    if not embed:
        return [(values, None) for values in model.probabilities(images).tolist()]
    probabilities, embeddings = model.embedded(images)
    return list(zip(probabilities.tolist(), embeddings.unbind(), strict=True))
