"""Images and weights in an object store, and the place of this machine's copy."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

from tuner.errors import DataError, StudyError, WeightsError, shown
from tuner.storage.copies import Copy, Listing, check_room, content, listed, listed_alone
from tuner.storage.hub import HubFile, HubProblem
from tuner.trial.data_source import (
    IMAGE_SUFFIXES,
    OF_FILE_MANAGERS,
    Folder,
    Found,
    ImageFiles,
    LeftOut,
    by_path,
    problem_of_name,
)
from tuner.trial.table import Rows, TableOfImages, found_among, searched
from tuner.trial.table_cells import Cells
from tuner.trial.tasks import ONE_LABEL, Task

Copies = tuple[tuple[str, str], ...]  # URI and version of each thing that a search reads from a store


def is_stored(text: object) -> bool:
    """Whether a path is the URI of something in an object store."""
    return isinstance(text, str) and "://" in text and not text.startswith("file://")


class StoredFiles(ImageFiles):
    """Image files in an object store, which are read from a copy on this machine.

    Attributes:
        uri: of what the study names
        version: the copy's; None if nothing has been copied yet
    """

    uri: str
    version: str | None

    @abstractmethod
    def listing(self) -> Listing:
        """What a search copies of what the store has now; raises DataError if that can't be read or be images."""

    @property
    def place(self) -> str:
        """The URI."""
        return self.uri

    @property
    def copy(self) -> Copy:
        """The copy on this machine."""
        return Copy(self.uri, self.version)

    def missing(self, data_dir: Path) -> list[str]:
        """One line if there is no copy yet."""
        return [] if self.copy.is_present else [f"{self.uri} into {self.copy.base}"]

    def class_names(self) -> tuple[str, ...] | None:
        """The copy's class names; None without a copy."""
        return super().class_names() if self.copy.is_present else None

    def check(self, data_dir: Path) -> None:
        """Raise DataError if the copy's files can't be the images of a classifier."""
        if self.copy.is_present:
            super().check(data_dir)

    def fingerprint(self, data_dir: Path) -> str | None:
        """The version, a digest of the objects' names, sizes and ETags."""
        return self.version


@dataclass(frozen=True)
class StoredFolder(StoredFiles, Folder):
    """Image files below a prefix of an object store, a class per subfolder; see `StoredFiles`."""

    uri: str = ""
    version: str | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        """The data set's name, as in the study file."""
        return f"folder:{self.uri}"

    def listing(self) -> Listing:
        """The images below the prefix."""
        with errors_about_data(self.uri):
            listing = listed(self.uri, _is_image)
        if not listing.objects:
            ends = f"objects there, none of which ends in {', '.join(sorted(IMAGE_SUFFIXES))}"
            got = f"{len(listing.others):,} {ends}" if listing.others else "none there"
            raise DataError(
                f"data='{self.name}' needs images below this prefix, got {got}; correct bucket and prefix, or copy "
                "the images there"
            )
        classes = {PurePosixPath(one.name).parent.name for one in listing.objects}
        return replace(listing, images=len(listing.objects), classes=len(classes))

    def look(self) -> Found:
        """See `Folder.look`; objects that aren't copied, because they aren't images, are left out by name."""
        found = super().look()
        others = [name for name in self.copy.others if not (_is_hidden(name) or name.endswith("/"))]
        more = [LeftOut(name, str(problem_of_name(name))) for name in others]
        return replace(found, left_out=tuple(by_path([*found.left_out, *more])))


@dataclass(frozen=True)
class StoredTable(StoredFiles, TableOfImages):
    """The image files that a table in an object store names, which are in the same bucket; see `StoredFiles`.

    Attributes:
        root: the folder on this machine that has the bucket's objects
    """

    uri: str = ""
    version: str | None = None
    root: Path = Path()

    @property
    def file(self) -> Path:
        """The table on this machine."""
        return self.root / self._in_bucket[1]

    @property
    def _in_bucket(self) -> tuple[str, str]:
        """The bucket's URI without its query, and the table's name in it."""
        parts = self.uri.partition("?")[0].split("/")
        size = 4 if ".blob." in parts[2] and "@" not in parts[2] else 3  # abfs://ACCOUNT.blob.…/CONTAINER/…
        return "/".join(parts[:size]), unquote("/".join(parts[size:]))

    @property
    def task(self) -> Task:
        """As declared, else one label: a look at the cells would need the store."""
        return super().task if self.declared or len(self.table.labels) > 1 else ONE_LABEL

    def listing(self) -> Listing:
        """The table and the objects that its rows name; the table is read for that."""
        bucket, name = self._in_bucket
        prefix = "".join([bucket, *self.uri.partition("?")[1:]])
        with errors_about_data(self.uri), TemporaryDirectory(prefix="tuner-table-") as folder:
            alone = listed_alone(self.uri)
            here = replace(self, root=Path(folder))
            here.file.parent.mkdir(parents=True, exist_ok=True)
            here.file.write_bytes(content(alone))
            self._check_task(TableOfImages(replace(self.table, path=here.file)).task)
            rows = here.rows
            named = {file.removeprefix(f"{folder}/") for file in rows.items} - {name}
            common, deep = searched(rows, str(here.path))
            below = listed(prefix, named.__contains__, common.removeprefix(folder).strip("/"))
            objects = replace(alone.objects[0], name=name), *below.objects
            present = {f"{folder}/{one.name}": problem_of_name(one.name) for one in objects}
            unnamed = [f"{folder}/{each}" for each in filter(_is_image, below.others)]
            unnamed = [file for file in unnamed if deep or file.rpartition("/")[0] in rows.folders]
            found = found_among(here, rows, present, unnamed)
        others = tuple(file.removeprefix(f"{folder}/") for file in unnamed)
        return Listing(self.uri, objects, others, prefix=prefix, images=len(found.items), classes=len(found.classes))

    def _check_task(self, seen: Task) -> None:
        """Raise DataError if the cells don't look like one label, and no task is declared."""
        if self.task is not seen and self.declared is None:
            raise DataError(
                f"a table in an object store needs its task, got {self.place}, in which {seen.seen_by} in the column "
                f"{self.table.label!r}; write ImageClassifier(..., task={seen.name!r}), or task='one'"
            )

    def cells(self) -> Iterator[tuple[int, Cells]]:
        """See `TableOfImages.cells`; images are named relative to the table, and are in its bucket."""
        bucket, table = self._in_bucket
        prefixes = f"{bucket}/", re.sub("//[^/@]*:[^/@]*@", "//", f"{bucket}/")  # with and without an account's key
        for number, cells in super().cells():
            image = str(cells[0]).strip().replace("\\", "/")
            if prefix := next(filter(image.startswith, prefixes), ""):
                image = image.replace(prefix, "../" * table.count("/"), 1)
            leads_out = ".." in image and f"{os.path.normpath(f'{table}/../{image}')}/".startswith("../")
            if leads_out or "://" in image or image[:1] == "/":
                raise DataError(
                    f"images of a table in an object store need to be in its bucket, {prefixes[1]}, got "
                    f"{shown(cells[0])} in row {number} of {self.place}; copy them there, or remove the row"
                )
            yield number, (image, *cells[1:])

    def present(self, rows: Rows) -> tuple[dict[str, str | None], list[str]]:
        """See `TableOfImages.present`; images without row aren't copied."""
        return super().present(rows)[0], [str(self.root / name) for name in self.copy.others]

    def relative(self, path: str | Path) -> str:
        """See `ImageFiles.relative`; the URI of an image outside of the table's folder."""
        return super().relative(path).replace(str(self.root), self._in_bucket[0], 1)


@dataclass(frozen=True)
class StoredFacts:
    """Facts about a study's data or weights in a store, without a download.

    Attributes:
        uri: of data or weights
        version: 16 hexadecimal digits that change with names, sizes and ETags
        objects: number of objects that a search copies
        bytes: of all of them
        images: how many of them are images that are read; None for weights
        classes: how many classes these have
        left_out: objects beside them that aren't copied, because they aren't images of the data set
        copied: whether this machine has them
        folder: where its copy is, or will be
    """

    uri: str
    version: str
    objects: int
    bytes: int
    images: int | None
    classes: int | None
    left_out: int
    copied: bool
    folder: str

    def record(self) -> dict[str, Any]:
        """The facts as plain data."""
        return asdict(self)

    def sentence(self) -> str:
        """The facts as a sentence."""
        what = f"{self.images:,} images in {self.classes} classes" if self.images is not None else "one file"
        without = "an image's ending" if self.objects == self.images else "a row"  # a table is an object, too
        more = f" ({self.left_out:,} more without {without} stay there)" if self.left_out else ""
        here = "copied to" if self.copied else "not on this machine yet: a search copies it, once on each node, into"
        return f"{self.uri}: {what}, {self.bytes / 1e6:,.1f} MB{more}; {here} {self.folder}"


def weights_at(uri: str) -> Listing:
    """The object with weights; raises WeightsError if it isn't there or can't be read."""
    with errors_about_weights(uri):
        return listed_alone(uri)


def check_stored(listings: Sequence[Listing], copies: Copies) -> None:
    """Raise DataError if a listing isn't the version that `copies` names, or this machine has no room for it."""
    versions = dict(copies)
    for listing in listings:
        check_unchanged(listing, versions.get(listing.uri))
        with errors_about_weights(listing.uri) if listing.alone else errors_about_data(listing.uri):
            check_room(listing)


def check_unchanged(listing: Listing, version: str | None) -> None:
    """Raise DataError or WeightsError if a store has another version now; None accepts any."""
    if version not in (None, listing.version):
        kind = WeightsError if listing.alone else DataError
        raise kind(
            f"a search keeps the data and weights that it began with, got other objects now at {listing.uri}; restore "
            "them, or start a new search"
        )


def facts_of(listing: Listing) -> StoredFacts:
    """The facts that a listing gives."""
    copy = Copy(listing.uri, listing.version)
    left_out = sum(not _is_hidden(name) for name in listing.others)
    return StoredFacts(
        *(listing.uri, listing.version, len(listing.objects), listing.bytes, listing.images, listing.classes, left_out),
        *(copy.is_present, str(copy.base)),
    )


def errors_about_data(uri: str) -> AbstractContextManager[None]:
    """Within the block StoreProblem becomes DataError."""
    return _told(DataError, f"data at {uri} needs images in a store that can be read")


def errors_about_weights(uri: str) -> AbstractContextManager[None]:
    """Within the block StoreProblem becomes WeightsError."""
    return _told(WeightsError, f"weights='{uri}' need a file in a store that can be read")


@contextmanager
def errors_about_hub(model: str, file: HubFile, *, configures: bool = False) -> Iterator[None]:
    """Within the block HubProblem becomes WeightsError, which says where the file would lie.

    A file that `configures` a model is needed whatever its weights.
    """
    needs = f"{model} needs" if configures else f"weights of {model} need"
    fix = "name another model" if configures else "use --weights PATH, or --weights none for random weights"
    try:
        yield
    except HubProblem as problem:
        raise WeightsError(
            f"{needs} {file.path}, which isn't there, and {file.repository} can't be fetched from the Hugging Face hub "
            f"({problem}); copy {file.name} there, or {fix}"
        ) from problem


@contextmanager
def _told(kind: type[StudyError], rule: str) -> Iterator[None]:
    from tuner.storage.bucket import StoreProblem

    try:
        yield
    except StoreProblem as problem:
        raise kind(f"{rule}, but {problem.reason}; {problem.fix}") from problem


def _is_image(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES and not _is_hidden(name)


def _is_hidden(name: str) -> bool:
    """Whether it is skipped silently, like such files in a folder."""
    parts = PurePosixPath(name).parts
    return any(part.startswith((".", "__")) for part in parts) or parts[-1].lower() in OF_FILE_MANAGERS
