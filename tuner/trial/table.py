"""Labels from a table: a CSV or Parquet file with a row for each image, whose paths are relative to the table."""

from __future__ import annotations

import gc
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import quote, unquote

from tuner.errors import DataError, StudyError, shown
from tuner.trial.data_source import (
    SPLITS,
    TABLE_SUFFIXES,
    Found,
    ImageFiles,
    Item,
    LeftOut,
    by_path,
    check_classes,
    is_named_as_image,
    listed,
    problem_of,
    readable,
    split_of,
)
from tuner.trial.table_cells import Cells, Header, cells_of
from tuner.trial.tasks import ONE_LABEL, TASKS, LabelError, Task

PREFIX = "table:"
COLUMNS = dict.fromkeys(("image", "label", "split", "group", "weight"))  # in this order
OPTIONAL = ("split", "group", "weight")
MOST_ABSENT = 0.5  # of a class's rows
ABSENT = "has a row, but there is no such file"
State = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Table:
    """A CSV or Parquet file with a row for each image.

    Attributes:
        path: of the file, or its URI in an object store; paths of images are relative to its folder
        image: the column of the images' paths
        label: the column of the classes' names, of several labels with ; between them, or of numbers; or a list of
            columns of 0 and 1, one for each label
        split: the column that says train, val or test; None for "split", if there is such a column
        group: the column whose images stay on one side of a cut if they have the same value; None for "group", likewise
        weight: the column of the images' weights in the training loss, >= 0; None for "weight", likewise
    """

    path: str | Path
    image: str = "image"
    label: str | Sequence[str] = "label"
    split: str | None = None
    group: str | None = None
    weight: str | None = None

    def __post_init__(self) -> None:
        """Raise StudyError for a path or columns that can't be ones."""
        path = str(self.path).strip() if isinstance(self.path, str | Path) else ""
        if not path or "\0" in path:
            raise StudyError(f"Table needs the path of a CSV or Parquet file, got {shown(self.path)}; correct it")
        if isinstance(self.label, list | tuple):
            object.__setattr__(self, "label", tuple(self.label) if len(self.label) != 1 else self.label[0])
        columns = self.columns
        for name, column in columns:
            if not isinstance(column, str) or not column.strip():
                raise StudyError(
                    f"Table needs the name of one column for {name}, got {shown(column)}; write {name}='{name}'"
                )
        twice = next((column for _, column in columns if [one for _, one in columns].count(column) > 1), None)
        if not self.labels:
            raise StudyError("Table needs columns of labels, got an empty list; write label='label'")
        if self.labels.count(twice) > 1:
            raise StudyError(f"Table needs a column of its own for each label, got {shown(twice)} twice; leave one out")
        if twice in (self.image, *self.labels):
            raise StudyError(f"Table needs two columns for image and label, got {shown(twice)} for both; change one")

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of labels."""
        return self.label if isinstance(self.label, tuple) else (self.label,)

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns that the table must have, each after what it says, in the order of `COLUMNS`."""
        others = [(name, column) for name in OPTIONAL if (column := getattr(self, name)) is not None]
        return [("image", self.image), *(("label", column) for column in self.labels), *others]

    def __str__(self) -> str:
        """As text for `data`, such as `table:labels.csv?image=file&label=species`."""
        changed = [f"{name}={quote(column)}" for name, column in self.columns if column != name or len(self.labels) > 1]
        return f"{PREFIX}{self.path}{'&' if '?' in str(self.path) else '?'}{'&'.join(changed)}".rstrip("?&")

    @classmethod
    def of(cls, text: str) -> Table:
        """The table that a text for `data` names; raises StudyError as the class does."""
        path, _, query = text.removeprefix(PREFIX).partition("?")
        pairs = [part.partition("=") for part in query.split("&") if part]
        columns: dict[str, Any] = {name: unquote(column) for name, _, column in pairs if name in COLUMNS}
        others = "&".join("".join(pair) for pair in pairs if pair[0] not in columns)  # of a name with a question mark
        if labels := [unquote(column) for name, _, column in pairs if name == "label"]:
            columns["label"] = labels
        return cls(f"{path}?{others}" if others else path, **columns)


@dataclass(frozen=True)
class TableOfImages(ImageFiles):
    """The image files that a table on this machine names; those of a class and a split are sorted by their paths.

    `declared` is the name of the task; None to find it in the table.
    """

    table: Table
    declared: str | None = None
    default_size: int | None = 64

    def __post_init__(self) -> None:
        """Raise StudyError for a task whose labels are in one column if several are named."""
        if len(self.table.labels) > 1 and not self.task.of_columns:
            raise StudyError(
                f"task={self.declared!r} needs one column of labels, got {listed(map(repr, self.table.labels))}; name "
                "one, or leave task out"
            )

    names_of_splits: ClassVar[Mapping[str, str]] = {
        part: f"split '{word}'" for part, word in (("train", "train"), ("validation", "val"), ("test", "test"))
    }

    @property
    def name(self) -> str:  # type: ignore[override]
        """The data set's name, as in the study file."""
        return str(self.table)

    @property
    def file(self) -> Path:
        """The table, with an absolute path."""
        return Path(os.path.abspath(Path(self.table.path).expanduser()))  # noqa: PTH100 -- without links

    @property
    def path(self) -> Path:  # type: ignore[override]
        """The table's folder."""
        return self.file.parent

    @property
    def place(self) -> str:
        """The table."""
        return str(self.table.path)

    def files(self, data_dir: Path) -> list[Path]:
        """The table and all image files."""
        return [self.file, *super().files(data_dir)]

    def look(self) -> Found:
        """The images that have a row, and what is left out: rows without image, and images without row.

        Raises:
            DataError: the table can't be read, or rows contradict each other; fewer than two classes have images, or
                one has none in the training split; or more than half of a class's images don't exist.
        """
        with _uncollected():
            return _look(self, self._state())

    def signature(self, data_dir: Path) -> State:
        """The times of the table and of the folders that hold its images."""
        return self._state()

    def details(self, item: Item) -> tuple[str, ...]:
        """All that the table says of an image."""
        label = item.label if isinstance(item.label, str) else repr((item.label,))
        return item.split, label, item.group or "", repr(item.weight)

    @property
    def task(self) -> Task:
        """What labels are: as declared, else as the table's cells look; one label if the table can't be read."""
        if self.declared is not None:
            return TASKS[self.declared]
        if len(self.table.labels) > 1:
            return next(task for task in TASKS.values() if task.of_columns)
        state = _file_state(self.file)
        return ONE_LABEL if state is None else _found_task(self, state)

    @property
    def has_columns(self) -> bool:
        """Whether the file is a table with the columns."""
        try:
            next(self.cells(), None)
        except DataError:
            return False
        return True

    @property
    def _header(self) -> Header:
        given = self.table.columns
        missing = [(name, name) for name in OPTIONAL if name not in dict(given)]
        wanted = sorted([*given, *missing], key=lambda pair: [*COLUMNS].index(pair[0]))
        return Header(self.file, self.place, tuple(wanted), [name for name, _ in missing])

    @property
    def rows(self) -> Rows:
        """What the rows say; raises DataError for a table that can't be read."""
        with readable(), _uncollected():
            if not self.file.is_file():
                raise DataError(
                    f"table:PATH needs a file that ends in {', '.join(TABLE_SUFFIXES)}, got {self.file}, which is "
                    f"{'a folder' if self.file.is_dir() else 'no file'}; correct the path"
                )
            return _rows(self, self.task, _file_state(self.file))

    def _state(self) -> State:
        named = [str(self.file), *self.rows.folders]
        return tuple((path, _changed(path)) for path in named)

    def cells(self) -> Iterator[tuple[int, Cells]]:
        """Each row's number and cells; raises DataError as `cells_of`."""
        return cells_of(self._header)

    def present(self, rows: Rows) -> tuple[dict[str, str | None], list[str]]:
        """The files with a row that exist, each with what is wrong with it or None, and images without row."""
        present: dict[str, str | None] = {}
        unnamed: list[str] = []
        common, deep = searched(rows, str(self.path))
        left, seen = [*rows.folders, *([common] if deep else [])], set()
        while left:
            folder = left.pop()
            if folder in seen:
                continue
            seen.add(folder)
            for entry in _entries(folder):
                if entry.path in rows.items:
                    present[entry.path] = problem_of(entry, "is a folder")
                elif is_named_as_image(entry.name) and problem_of(entry, "is a folder") is None:
                    unnamed.append(entry.path)
                if deep and entry.is_dir(follow_symlinks=False) and not entry.name.startswith((".", "__")):
                    left.append(entry.path)
        return present, unnamed


@dataclass(frozen=True)
class Rows:
    """What a table's rows say.

    Attributes:
        items: by file
        folders: in which these files are
        repeated: files that are named again, with the same values
    """

    items: Mapping[str, Item]
    folders: tuple[str, ...]
    repeated: tuple[str, ...]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Within it Python's garbage collector is off: it would look through a million rows again and again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 -- of many
    except (OSError, ValueError):
        return 0


def _file_state(file: Path) -> tuple[str, int, int] | None:
    """A key for a file's present content; None if it can't be looked at."""
    try:
        state = file.stat()
    except (OSError, ValueError):
        return None
    return str(file), state.st_mtime_ns, state.st_size


@lru_cache(maxsize=4)
def _found_task(source: TableOfImages, state: tuple[str, int, int]) -> Task:
    """The task of a table with one column of labels, as its cells look."""
    try:
        cells = [str(cells[1]) for _, cells in source.cells()]
    except DataError:  # told when the table is read for its images
        return ONE_LABEL
    return next((task for task in TASKS.values() if task.is_of(cells)), ONE_LABEL)


@lru_cache(maxsize=1)
def _rows(source: TableOfImages, task: Task, state: tuple[str, int, int] | None) -> Rows:
    """The rows of a table, whose file is in this state."""
    base, place, labels = str(source.path), source.place, source.table.labels
    items: dict[str, Item] = {}
    repeated: list[str] = []
    without: list[str] = []
    for number, cells in source.cells():
        item = _item(cells, labels, task, base, number, place)
        if not (cells[-3] and cells[-3].strip()):
            without.append(item.file)
        before = items.setdefault(item.file, item)
        if before is not item:
            if before != item:
                raise DataError(_contradiction(source, number, before, item))
            repeated.append(item.file)
    if not items:
        raise DataError(f"a table needs a row for each image, got {source.place} with a header only; add rows")
    _check_splits(without, len(items) + len(repeated), source)
    _check_groups(items.values(), source)
    return Rows(items, tuple(sorted({file.rpartition("/")[0] or "/" for file in items})), tuple(repeated))


def _item(cells: Cells, columns: Sequence[str], task: Task, base: str, number: int, place: str) -> Item:
    """What a row says; raises DataError for a value that can't be one."""
    named, *said, word, group, weight = cells
    image = str(named).strip().replace("\\", "/")
    if not image or "\0" in image or "://" in image:
        raise DataError(
            f"every row needs the path of an image, got {shown(image)} in row {number} of {place}; write a path that "
            "is absolute or relative to the table, or remove the row"
        )
    try:
        label = task.label(cast("list[str]", said), columns)
    except LabelError as error:
        raise DataError(
            f"{error.rule}, got {shown(error.value)} for '{image}' in row {number} of {place}; {error.fix}, or remove "
            "the row"
        ) from error
    if (split := split_of(word.strip() or "train") if word else "train") is None:
        raise DataError(
            f"split needs to be {', '.join(SPLITS)}, got {shown(word)} for '{image}' in row {number} of {place}; "
            "correct it"
        )
    loss_weight = 1.0 if weight is None else _weight(weight, image, number, place)
    file = f"{base}/{image}" if image[0] != "/" else image
    if "/." in file or "//" in file or file[-1] == "/":
        file = os.path.normpath(file)
    return Item(file, label, split, (group and group.strip()) or None, loss_weight)


def _weight(text: str, image: str, number: int, place: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = -1.0
    if not (isfinite(weight) and weight >= 0):
        raise DataError(
            f"weight needs a number >= 0, got {shown(text)} for '{image}' in row {number} of {place}; correct it"
        )
    return weight


def _contradiction(source: TableOfImages, number: int, before: Item, now: Item) -> str:
    name = next(name for name in ("label", "split", "group", "weight") if getattr(before, name) != getattr(now, name))
    earlier, later = getattr(before, name), getattr(now, name)
    return (
        f"rows of the same image need the same values, got {name} {shown(earlier)} and in row {number} {shown(later)} "
        f"for '{source.relative(now.file)}' in {source.place}; remove the wrong row"
    )


def _check_splits(without: Sequence[str], rows: int, source: TableOfImages) -> None:
    """Raise DataError if some of the rows have no split, but others have one; `without` has the files of those."""
    if 0 < len(without) < rows:
        raise DataError(
            f"either all rows need a split or none, got none for {len(without):,} of {rows:,} in {source.place}, such "
            f"as '{source.relative(without[0])}'; add them, or empty the column"
        )


def _check_groups(items: Iterable[Item], source: TableOfImages) -> None:
    """Raise DataError for groups that are in two splits, or one that holds all images."""
    splits = Counter(group for group, _ in set(map(attrgetter("group", "split"), items)))
    two = sorted(group for group, count in splits.items() if group and count > 1)
    if two:
        raise DataError(
            f"the images of a group need the same split, got {listed(map(repr, two))} in two of {source.place}; "
            "correct split or group"
        )
    if len(splits) == 1 and None not in splits:
        raise DataError(
            f"group needs to tell images apart, got '{next(iter(splits))}' for all of {source.place}; empty the column"
        )


@lru_cache(maxsize=1)
def _look(source: TableOfImages, state: State) -> Found:
    """The images of a table, whose file and folders are in this state."""
    rows = source.rows
    return found_among(source, rows, *source.present(rows))


def found_among(
    source: TableOfImages, rows: Rows, present: Mapping[str, str | None], unnamed: Collection[str]
) -> Found:
    """What a table's rows say of files that exist; see `TableOfImages.present`, and `TableOfImages.look`."""
    problems = {file: problem for file in rows.items if (problem := present.get(file, ABSENT)) is not None}
    _check_most(source, rows, problems)
    items = [item for item in rows.items.values() if item.file not in problems]
    for column in (itemgetter(0), itemgetter(1), itemgetter(2)):  # file, label, split: quicker than by all at once
        items.sort(key=column)
    found = Found(tuple(items), (), task=source.task, columns=source.table.labels)
    check_classes(
        found,
        few=f"a table needs {found.task.needed} in {_columns(source)}",
        where=f"{source.place}; name the column that has the labels, as in Table({source.place!r}, label=...)",
        fix="give some of its rows the split train",
    )
    left_out = [
        *(LeftOut(source.relative(file), problem) for file, problem in problems.items()),
        *(LeftOut(source.relative(file), "has no row in the table") for file in unnamed),
    ]
    if not any(item.weight and item.split == "train" for item in items):
        raise none_counts(sum(item.split == "train" for item in items), source.name)
    absent = [file for file, problem in problems.items() if problem == ABSENT]
    notices = _notices(source, found, absent=absent, unnamed=unnamed, repeated=rows.repeated)
    return replace(found, left_out=tuple(by_path(left_out)), notices=tuple(notices))


def _columns(source: TableOfImages) -> str:
    labels = source.table.labels
    return f"the column{'s' * (len(labels) > 1)} {listed(map(repr, labels))}"


def searched(rows: Rows, base: str) -> tuple[str, bool]:
    """The common folder of all images with a row, and whether others are looked for in all that it holds.

    That is so if `base`, the table's folder, holds it; otherwise only in the folders of those with a row.
    """
    common = os.path.commonpath(rows.folders)
    return common, f"{common}/".startswith(f"{base}/")


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder; nothing if it doesn't exist."""
    with suppress(OSError, ValueError), readable(), os.scandir(folder) as entries:
        yield from entries


def none_counts(images: int, name: str) -> DataError:
    """The error about training images whose weights are all 0."""
    return DataError(
        f"training images need weights of which some are > 0, got 0 for all {images:,} of {name}; raise some"
    )


def _check_most(source: TableOfImages, rows: Rows, problems: Mapping[str, str]) -> None:
    """Raise DataError if more than half of a class's files can't be images: then their paths must be wrong."""
    named = Found(tuple(rows.items.values()), (), task=source.task, columns=source.table.labels)
    missing = named.counted(Counter((rows.items[file].label, "") for file in problems))
    for (name, _), count in sorted(missing.items()):
        of_class = sum(named.counts[name, split] for split in named.splits)
        if count > MOST_ABSENT * of_class:
            place = named.strata.names.index(name)
            first = next(file for file in problems if place in named.strata.of(rows.items[file].label))
            raise DataError(
                f"at least half of a {source.task.stratum[0]}'s images must be there, got none for {count:,} of "
                f"{of_class:,} rows of '{name}' in {source.place}, such as {shown(source.relative(first))}, which "
                f"{problems[first]}; correct the column {source.table.image!r}, whose paths are relative to the table"
            )


def _notices(
    source: TableOfImages, found: Found, *, absent: list[str], unnamed: Collection[str], repeated: Iterable[str]
) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for (label, _), count in found.counts.items():
        counts[label] += count
    by_case: dict[str, list[str]] = defaultdict(list)
    for label in counts:
        by_case[label.casefold()].append(label)
    alike = [" and ".join(map(repr, labels)) for labels in by_case.values() if len(labels) > 1]
    yield from _what_it_took(source, found)
    files = {
        "a row but no file": absent,
        "a file but no row": unnamed,
        "more than one row, which say the same": list(dict.fromkeys(repeated)),
    }
    for what, those in files.items():
        if those:
            yield f"{_count(len(those), 'image has', 'images have')} {what}: {listed(map(source.relative, those))}"
    if found.task.has_classes and (once := [label for label in found.outputs if counts[label] == 1]):
        labels = _count(len(once), "label is", "labels are")
        yield f"{labels} seen once: {listed(map(repr, once))}; correct those that are misspelt"
    same = [each for each in found.outputs if found.counts[each, "train"] in (0, found.images["train"])]
    if found.task.has_classes and same:
        yield f"labels of all training images or of none teach nothing, got {listed(map(repr, same))}; leave them out"
    if alike:
        yield f"labels that differ in case are different classes, got {listed(alike)}; write them alike if they aren't"


def _what_it_took(source: TableOfImages, found: Found) -> Iterator[str]:
    """The sentence about a task that isn't one label, and about what it was seen by; or that could be another."""
    seen, column = source.declared is None and len(source.table.labels) == 1, source.table.label
    if found.task is not ONE_LABEL:
        why = f", as {found.task.seen_by}, in the column {column!r}; task='one' makes classes of them"
        yield f"each image has {found.task.described}{why * seen}"
    elif other := next((task for task in TASKS.values() if task.may_be_of(found.outputs)), None) if seen else None:
        yield (
            f"the {len(found.outputs)} labels in the column {column!r} are taken as classes; if each is "
            f"{other.described}, write task={other.name!r}"
        )


def _count(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"
