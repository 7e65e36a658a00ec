"""Images and weights in an object store, and the place of this machine's copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tuner.errors import DataError, StudyError, WeightsError
from tuner.storage.copies import Copy
from tuner.storage.hub import HubFile, HubProblem
from tuner.trial.data_source import IMAGE_SUFFIXES, OF_FILE_MANAGERS, Folder, Found, LeftOut, by_path

if TYPE_CHECKING:
    from tuner.storage.copies import Listing

Copies = tuple[tuple[str, str], ...]  # URI and version of each thing that a search reads from a store


def is_stored(text: object) -> bool:
    """Whether a path is the URI of something in an object store."""
    return isinstance(text, str) and "://" in text and not text.startswith("file://")


@dataclass(frozen=True)
class StoredFolder(Folder):
    """Image files below a prefix of an object store, a class per subfolder: read from a copy on this machine.

    Attributes:
        uri: of the prefix
        version: the copy's; None if nothing has been copied yet
    """

    uri: str = ""
    version: str | None = None

    @classmethod
    def at(cls, uri: str, copies: Copies = ()) -> StoredFolder:
        """The folder in the version that `copies` names, else the one that was copied last."""
        copy = Copy(uri, dict(copies).get(uri)).settled
        return cls(copy.files, uri=uri, version=copy.version)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The data set's name, as in the study file."""
        return f"folder:{self.uri}"

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

    def look(self) -> Found:
        """See `Folder.look`; objects that aren't copied, because they aren't images, are left out by name."""
        found = super().look()
        more = [LeftOut(name, _why(name)) for name in self.copy.others if not (_is_hidden(name) or name.endswith("/"))]
        return replace(found, left_out=tuple(by_path([*found.left_out, *more])))

    def class_names(self) -> tuple[str, ...] | None:
        """The copy's class names; None without a copy."""
        return super().class_names() if self.copy.is_present else None

    def check(self, data_dir: Path) -> None:
        """Raise DataError if the copy isn't laid out as a class per subfolder."""
        if self.copy.is_present:
            super().check(data_dir)

    def fingerprint(self, data_dir: Path) -> str | None:
        """The version, a digest of the objects' names, sizes and ETags."""
        return self.version


@dataclass(frozen=True)
class StoredFacts:
    """Facts about a study's data or weights in a store, without a download.

    Attributes:
        uri: of data or weights
        version: 16 hexadecimal digits that change with names, sizes and ETags
        objects: number of objects that a search copies
        bytes: of all of them
        classes: for data, subfolders with images
        left_out: objects that aren't copied, because they aren't images
        copied: whether this machine has them
        folder: where its copy is, or will be
    """

    uri: str
    version: str
    objects: int
    bytes: int
    classes: int | None
    left_out: int
    copied: bool
    folder: str

    def record(self) -> dict[str, Any]:
        """The facts as plain data."""
        return asdict(self)

    def sentence(self) -> str:
        """The facts as a sentence."""
        what = f"{self.objects:,} images in {self.classes} classes" if self.classes is not None else "one file"
        more = f" ({self.left_out:,} more without an image's ending stay there)" if self.left_out else ""
        here = "copied to" if self.copied else "not on this machine yet: a search copies it, once on each node, into"
        return f"{self.uri}: {what}, {self.bytes / 1e6:,.1f} MB{more}; {here} {self.folder}"


def images_at(uri: str) -> Listing:
    """The images below a prefix now; raises DataError if it has none or can't be read."""
    from tuner.storage.copies import listed

    with errors_about_data(uri):
        listing = listed(uri, _is_image)
    if not listing.objects:
        ends = f"objects there, none of which ends in {', '.join(sorted(IMAGE_SUFFIXES))}"
        got = f"{len(listing.others):,} {ends}" if listing.others else "none there"
        raise DataError(
            f"data='folder:{uri}' needs images below this prefix, got {got}; correct bucket and prefix, or copy the "
            "images there"
        )
    return listing


def weights_at(uri: str) -> Listing:
    """The object with weights; raises WeightsError if it isn't there or can't be read."""
    from tuner.storage.copies import listed_alone

    with errors_about_weights(uri):
        return listed_alone(uri)


def check_stored(listings: Sequence[Listing], copies: Copies) -> None:
    """Raise DataError if a listing isn't the version that `copies` names, or this machine has no room for it."""
    from tuner.storage.copies import check_room

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
    classes = None if listing.alone else len({str(PurePosixPath(one.name).parent.name) for one in listing.objects})
    left_out = sum(not _is_hidden(name) for name in listing.others)
    return StoredFacts(
        *(listing.uri, listing.version, len(listing.objects), listing.bytes, classes, left_out),
        *(copy.is_present, str(copy.base)),
    )


@contextmanager
def errors_about_data(uri: str) -> Iterator[None]:
    """Within the block StoreProblem becomes DataError."""
    with _told(DataError, f"data='folder:{uri}' needs images in a store that can be read"):
        yield


@contextmanager
def errors_about_weights(uri: str) -> Iterator[None]:
    """Within the block StoreProblem becomes WeightsError."""
    with _told(WeightsError, f"weights='{uri}' need a file in a store that can be read"):
        yield


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


def _why(name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    return f"ends in {suffix!r}, not as images that are read" if suffix else "has no ending of an image"
