"""Data sets: their files, and what can be known about them without torch; among them images that are files."""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import ClassVar, NamedTuple

from tuner.errors import DataError
from tuner.machine.installation import is_installed
from tuner.storage.regular_files import sha256
from tuner.trial.tasks import ONE_LABEL, Label, Strata, Task

HEIC_SUFFIXES = (".heic", ".heif")  # of phones; Pillow only reads them with a plug-in
IMAGE_SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"),
        *(HEIC_SUFFIXES if is_installed("pillow_heif") else ()),
    }
)
_ENDINGS = tuple(IMAGE_SUFFIXES)
TO_JPEG = (
    "pip install pillow-heif, or convert them to JPEG, for example by `magick mogrify -format jpg *.heic` in each of "
    "their folders"
)
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".pq")
NAMED = 3  # examples in a sentence
MOST_SEARCHED = 10_000  # folders
_YEAR = re.compile(r"(19|20)\d\d")
OF_FILE_MANAGERS = frozenset({"thumbs.db", "desktop.ini", "icon\r"})  # silently skipped, like hidden files
SPLITS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}  # what users call them, in any case


class Source(ABC):
    """Where a data set's images come from.

    `native_size` is the edge of its images in pixels (None: they differ), `default_size` the one that trials resize
    them to unless the space says otherwise, `classes` the number of classes (None: known after a look at the files).
    """

    name: str
    channels: int
    classes: int | None = None
    native_size: int | None = None
    default_size: int | None = None

    @abstractmethod
    def files(self, data_dir: Path) -> list[Path]:
        """The existing files of the data set, sorted."""

    def missing(self, data_dir: Path) -> list[str]:
        """What would have to be downloaded, in words; empty if nothing is missing."""
        return []

    @abstractmethod
    def check(self, data_dir: Path) -> None:
        """Raise DataError if the data set is damaged, or doesn't exist here and can't be downloaded."""

    @property
    def task(self) -> Task:
        """What its labels are."""
        return ONE_LABEL

    def image_files(self, data_dir: Path) -> ImageFiles | None:
        """The image files that the data set is read from; None if it has files of another kind."""
        return None

    def is_present(self, data_dir: Path) -> bool:
        """Whether the data set can be read without a download."""
        return not self.missing(data_dir)

    def fingerprint(self, data_dir: Path) -> str | None:
        """16 hexadecimal digits that change with the data: with names, sizes and contents of the files."""
        return digest((path.name, str(path.stat().st_size), sha256(path)) for path in self.files(data_dir))

    def signature(self, data_dir: Path) -> tuple[tuple[str, int], ...]:
        """A cheap key for the present state on disk, from modification times in ns; for caches within one process."""
        return tuple((str(path), path.stat().st_mtime_ns) for path in self.files(data_dir))

    def class_names(self) -> tuple[str, ...] | None:
        """The class names in the order of the labels, if they can be found quickly; otherwise None."""
        return None

    def count_classes(self) -> int | None:
        """The number of classes, if it can be found quickly; otherwise None."""
        return self.classes


@dataclass(frozen=True)
class LeftOut:
    """A file or folder that is left out of the data set.

    Attributes:
        path: relative to the data set's folder
        reason: what is wrong with it, after "it"
    """

    path: str
    reason: str

    def __str__(self) -> str:
        r"""For example `cat/1.jpg (it is cut off)`; a line end in the path is written as `\n`."""
        path = self.path.replace("\n", r"\n").replace("\r", r"\r")
        return f"{path} (it {self.reason})"


class Item(NamedTuple):
    """An image file of a data set.

    Attributes:
        file: its path
        label: the name of its class; or the names of its labels, or a number, as the task says
        split: "train", "validation" or "test"
        group: what images that belong together share; None for an image by itself
        weight: of the image in the training loss, >= 0
    """

    file: str
    label: Label
    split: str = "train"
    group: str | None = None
    weight: float = 1.0

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.file)


@dataclass(frozen=True)
class Found:
    """What is in a data set of image files.

    Attributes:
        items: its images, those of a split and of a class together, in the classes' order
        left_out: files among them that aren't image files that can be opened, sorted
        notices: what the user should know, in sentences
        task: what labels are
        columns: of a table that has labels: their names
    """

    items: tuple[Item, ...]
    left_out: tuple[LeftOut, ...]
    notices: tuple[str, ...] = ()
    task: Task = ONE_LABEL
    columns: tuple[str, ...] = ()

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """The splits that have images."""
        return tuple(dict.fromkeys(split for _, split in self._pairs))

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of a network's outputs: the classes, the labels, or what the number is."""
        return self.task.outputs((label for label, _ in self._pairs), self.columns)

    @property
    def content(self) -> str:
        """What the images have, see `Task.content`."""
        return self.task.content((label for label, _ in self._pairs), self.columns)

    @cached_property
    def strata(self) -> Strata:
        """The kinds of images: classes, labels, or ranges of the number."""
        labels: Counter[Label] = Counter()
        for (label, _), count in self._pairs.items():
            labels[label] += count
        return self.task.strata(labels)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of the strata that have training images, in their order."""
        return tuple(name for name in self.strata.names if self.counts[name, "train"])

    @cached_property
    def images(self) -> Counter[str]:
        """How many images a split has."""
        found: Counter[str] = Counter()
        for (_, split), count in self._pairs.items():
            found[split] += count
        return found

    @cached_property
    def counts(self) -> Counter[tuple[str, str]]:
        """How many images a stratum has in a split, by both."""
        return self.counted(self._pairs)

    def counted(self, pairs: Mapping[tuple[Label, str], int]) -> Counter[tuple[str, str]]:
        """How many of some images, which are counted by label and split, a stratum has in a split, by both."""
        found: Counter[tuple[str, str]] = Counter()
        for (label, split), count in pairs.items():
            for place in self.strata.of(label):
                found[self.strata.names[place], split] += count
        return found

    @cached_property
    def _pairs(self) -> Counter[tuple[Label, str]]:
        return Counter(map(attrgetter("label", "split"), self.items))


@contextmanager
def readable() -> Iterator[None]:
    """Within the block PermissionError becomes DataError."""
    try:
        yield
    except PermissionError as error:
        raise DataError(f"images must be readable, got {error.filename}: {error.strerror}; change that") from error


class ImageFiles(Source):
    """Image files, each with its class.

    Attributes:
        path: of the folder to which messages name files
        names_of_splits: what a user adds to have a split, for messages
    """

    path: Path
    channels = 3
    default_size: int | None = 64
    names_of_splits: ClassVar[Mapping[str, str]]

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the images are, for messages."""

    @abstractmethod
    def look(self) -> Found:
        """The images and what is left out; raises DataError for files that can't be the images of a classifier."""

    def image_files(self, data_dir: Path) -> ImageFiles:
        """The data set itself."""
        return self

    def relative(self, path: str | Path) -> str:
        """A path for messages: relative to the folder if it is inside, with / between its parts."""
        return str(path).removeprefix(f"{self.path}/")

    def class_names(self) -> tuple[str, ...] | None:
        """The names of a network's outputs."""
        return self.look().outputs

    def count_classes(self) -> int | None:
        """The number of a network's outputs."""
        return None if (names := self.class_names()) is None else len(names)

    def files(self, data_dir: Path) -> list[Path]:
        """All image files."""
        return [item.path for item in self.look().items]

    def check(self, data_dir: Path) -> None:
        """Raise DataError if `look` does."""
        self.look()

    def fingerprint(self, data_dir: Path) -> str | None:
        """A fingerprint of the images' relative names and sizes, and of `details`; contents aren't read."""
        return digest(
            (self.relative(item.file), str(os.stat(item.file).st_size), *self.details(item))  # noqa: PTH116 -- of many
            for item in self.look().items
        )

    def content_key(self) -> str:
        """16 hexadecimal digits that change with names, sizes, times and `details`; contents aren't read."""
        stats = ((item, item.path.absolute(), item.path.stat()) for item in self.look().items)
        return digest(
            (str(path), str(stat.st_size), str(stat.st_mtime_ns), *self.details(item)) for item, path, stat in stats
        )

    def details(self, item: Item) -> tuple[str, ...]:
        """What is known of an image beside its file, for fingerprints; nothing if the path says all."""
        return ()


@dataclass(frozen=True)
class Folder(ImageFiles):
    """Image files, a class per subfolder: `PATH/<class>/*` or `PATH/train/<class>/*` with `test` and maybe `val`."""

    path: Path
    default_size: int | None = 64

    names_of_splits = {"train": "train/", "validation": "val/", "test": "test/"}  # noqa: RUF012 -- of the class

    @property
    def name(self) -> str:  # type: ignore[override]
        """The data set's name, as in the study file."""
        return f"folder:{self.path}"

    @property
    def place(self) -> str:
        """Where the images are, for messages."""
        return str(self.path)

    @property
    def has_splits(self) -> bool:
        """Whether the folder is split on disk: `train` holds classes (and isn't a class itself)."""
        return any(_subfolders(folder) for folder in _subfolders(self.path) if split_of(folder.name) == "train")

    def split_folders(self) -> dict[str, Path]:
        """The folder of each split.

        Raises:
            DataError: the folder doesn't exist, or has other folders besides its splits.
        """
        if not self.path.is_dir():
            raise DataError(
                f"folder:PATH needs a folder of images, got {self.path}, which isn't one{_looked_in(self.path)}; "
                "correct the path"
            )
        if not self.has_splits:
            return {"train": self.path}
        found: dict[str, Path] = {}
        for folder in _subfolders(self.path):
            if (split := split_of(folder.name)) is None:
                others = ", ".join(name for name, meaning in SPLITS.items() if meaning != "train")
                raise DataError(
                    f"next to train/ there may only be {others}, got {self.place}/{folder.name}; move or rename it"
                )
            if split in found:
                raise DataError(
                    f"a split needs one folder, got {found[split].name}/ and {folder.name}/ for {split} in "
                    f"{self.place}; put their images into one of them"
                )
            found[split] = folder
        return found

    @readable()
    def look(self) -> Found:
        """The image files of every split and class, and what is left out.

        Raises:
            DataError: fewer than two classes have images, or a class has none in the training split.
        """
        items: list[Item] = []
        left_out: list[LeftOut] = []
        for split, folder in self.split_folders().items():
            loose = (path for path in folder.iterdir() if is_named_as_image(path.name) and path.is_file())
            left_out += [LeftOut(self.relative(path), "lies outside of any class") for path in loose]
            for child in _subfolders(folder):
                images, others = _files(child)
                left_out += [LeftOut(self.relative(path), reason) for path, reason in others]
                items += [Item(path, child.name, split) for path in images]
                if not images:
                    left_out.append(LeftOut(f"{self.relative(child)}/", "is a class without images"))
        empty = [each.path for each in left_out if each.path.endswith("/")]
        found = Found(tuple(items), tuple(by_path(left_out)), tuple(_odd_classes({item.label for item in items})))
        check_classes(
            found,
            few="a folder of images needs at least 2 classes, a subfolder each",
            where=self.place
            + (
                _unread(found)
                or self._deeper(found)
                or _without_images(empty) + f"; name the folder that holds the classes{_loose(found)}{self._or_table()}"
            ),
            fix="add it to train/",
        )
        return found

    def _deeper(self, found: Found) -> str:
        """What to do about classes that lie too deep, as in 2019/cat/ and 2020/cat/; empty if there are none."""
        if found.items:
            return ""
        waiting, deep = deque(_subfolders(self.path)), list[Path]()
        for _ in range(MOST_SEARCHED):
            if not waiting:
                break
            folder = waiting.popleft()
            deep += [folder] if any(is_named_as_image(entry.name) for entry in visible(folder)) else []
            waiting += _subfolders(folder)
        if not deep:
            return ""
        names = listed(f"{self.relative(folder)}/" for folder in sorted(deep))
        holds = [place for place, classes in Counter(folder.parent for folder in deep).items() if classes > 1]
        name = f"name the folder that holds the classes, such as {holds[0]}, or " if holds else ""
        return (
            f", whose images are in {names}; {name}bring the images of each class together in one folder"
            f"{self._or_table()}"
        )

    def _or_table(self) -> str:
        """A second fix for a folder without classes: the tables that it has."""
        told = [f"'table:{self.place}/{file.name}'" for file in tables_in(self.path)]
        return f", or, if it has a row for each image, write data={' or data='.join(told[:NAMED])}" if told else ""

    def signature(self, data_dir: Path) -> tuple[tuple[str, int], ...]:
        """The times of the classes' folders, which change when files are added or removed."""
        folders = [folder for split in self.split_folders().values() for folder in _subfolders(split)]
        return tuple((str(folder), folder.stat().st_mtime_ns) for folder in folders)


def _looked_in(path: Path) -> str:
    return "" if path.is_absolute() else f" in {Path.cwd()}, where the command was started"


def _unread(found: Found) -> str:
    heic = sum(each.path.lower().endswith(HEIC_SUFFIXES) for each in found.left_out)
    return f", where {heic:,} file{'s are' if heic > 1 else ' is'} HEIC, which isn't read; {TO_JPEG}" if heic else ""


def _loose(found: Found) -> str:
    """A second fix where images lie in no class's folder; empty if none do."""
    loose = sum(is_named_as_image(each.path) and "/" not in each.path for each in found.left_out)
    what = f"{loose:,} image{'s' if loose > 1 else ''}"
    return f", or move the {what} in it into a folder for each class" if loose else ""


def _without_images(classes: list[str]) -> str:
    return f", and {', '.join(classes)} without images ({', '.join(sorted(IMAGE_SUFFIXES))})" if classes else ""


def _odd_classes(names: set[Label]) -> Iterator[str]:
    """Sentences about classes that are probably not meant."""
    texts = sorted(map(str, names))
    alike = Counter(name.casefold() for name in texts)
    for one in (name for name, count in alike.items() if count > 1):
        same = [name for name in texts if name.casefold() == one]
        yield f"the classes {' and '.join(same)} differ only in case; if they are one, put their images into one folder"
    if len(texts) > 1 and all(_YEAR.fullmatch(name) for name in texts):
        yield (
            f"the classes are the years {listed(texts)}, which a model would learn to tell apart; if that isn't meant, "
            "sort the images by what they show"
        )


def split_of(name: str) -> str | None:
    """The split that users call so: "train", "validation" or "test"; None for another name."""
    return SPLITS.get(name.strip().casefold())


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))


def tables_in(folder: Path) -> list[Path]:
    """The files directly in a folder that are tables by their endings, sorted."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in TABLE_SUFFIXES and path.is_file())


def is_named_as_image(name: str) -> bool:
    """Whether a file has the ending of an image, and isn't hidden."""
    return name.lower().endswith(_ENDINGS) and not name.startswith(".")


def check_classes(found: Found, *, few: str, where: str, fix: str) -> None:
    """Raise DataError for fewer strata than the task needs, or classes of which one has no training images.

    The texts are for the sentences.
    """
    named = [name for name in found.classes if name in found.outputs or not found.task.has_classes]
    if sum(found.counts[name, "train"] < found.images["train"] for name in named) < found.task.fewest:
        raise DataError(f"{few}, got {sorted(named)} in {where}")
    for name, split in found.counts:
        if name in found.outputs and not found.counts[name, "train"]:
            alike = [one for one in found.outputs if one != name and one.casefold() == name.casefold()]
            fix = f"rename it to '{alike[0]}', which differs only in case" if alike else fix
            raise DataError(f"every {found.task.stratum[0]} needs training images, got '{name}' in {split} only; {fix}")


def _files(folder: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """A class's image files, sorted, and the other entries with what is wrong with them."""
    found: list[str] = []
    others: list[tuple[str, str]] = []
    for entry in visible(folder):
        if (problem := problem_of(entry, "is a folder inside a class, whose images must lie directly in it")) is None:
            found.append(entry.path)
        else:
            others.append((entry.path, problem))
    return sorted(found), others


def visible(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder, except for hidden files and those of file managers; DataError if it can't be read."""
    with readable(), os.scandir(folder) as entries:
        yield from (
            entry
            for entry in entries
            if not entry.name.startswith((".", "__")) and entry.name.lower() not in OF_FILE_MANAGERS
        )


def problem_of(entry: os.DirEntry[str], folder: str) -> str | None:
    """Why an entry of a folder can't be an image, judged by name and permissions; None if it may be one.

    `folder` is the answer if it is a folder.
    """
    try:
        if entry.is_dir():
            return folder
        if problem := problem_of_name(entry.name):
            return problem
        if not entry.is_file():
            return "is a link to nothing" if entry.is_symlink() else "is no regular file"
    except OSError as error:
        return f"is a link that can't be followed ({error.strerror})"
    return None if os.access(entry.path, os.R_OK) else "may not be read by this user"


def problem_of_name(name: str) -> str | None:
    """Why a file can't be an image, judged by its name; None if it may be one."""
    if name.lower().endswith(_ENDINGS):  # of many thousands: the quickest test
        return None
    suffix = Path(name).suffix.lower()
    if suffix in HEIC_SUFFIXES:
        return "is HEIC, which isn't read: pip install pillow-heif, or convert it to JPEG"
    return f"ends in {suffix!r}, not as images that are read" if suffix else "has no ending of an image"


def listed(names: Iterable[object]) -> str:
    """The first few names, and how many more there are."""
    told = list(names)
    more = [f"and {len(told) - NAMED:,} more"] if len(told) > NAMED else []
    return ", ".join([*map(str, told[:NAMED]), *more])


def by_path(left_out: Iterable[LeftOut]) -> list[LeftOut]:
    """Sorted by their paths."""
    return sorted(left_out, key=lambda found: found.path)


def digest(rows: Iterable[tuple[str, ...]]) -> str:
    """16 hexadecimal digits that change with the rows and their order."""
    found = hashlib.sha256()
    for row in rows:
        found.update("\x1f".join(row).encode("utf-8", "surrogateescape") + b"\x1e")
    return found.hexdigest()[:16]
