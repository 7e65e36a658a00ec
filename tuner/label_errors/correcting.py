"""The images of a run as a table with corrected labels, which a new study can read."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.errors import DataError, did_you_mean, shown
from tuner.label_errors.suspect_list import ROWS
from tuner.text import in_utf8, text_of_cell
from tuner.trial import ImageClassifier
from tuner.trial.data_source import SPLITS, Item
from tuner.trial.table import COLUMNS
from tuner.trial.table_cells import Header, cells_of


def write_corrected(trial: ImageClassifier, corrections: Path, target: Path) -> tuple[int, int]:
    """Write a table of all images, labelled as the CSV file says where it has a row; no image is touched.

    An image whose suggested label was deleted is left out.

    Args:
        trial: names the images
        corrections: a CSV file that `write` wrote and a user has edited
        target: the new table

    Returns:
        how many labels are others, and how many images are left out.

    Raises:
        DataError: images aren't files on this machine, or have names that a table can't have; the CSV file names
            images or classes that the data doesn't have.
        OSError: the table can't be written.
    """
    images = trial.image_files
    if images is None or trial.stored_data is not None:
        raise DataError(
            f"--apply needs images that are files on this machine, got {trial.source.name}; correct the labels there"
        )
    found = images.look()
    names = {in_utf8(images.relative(item.file)): item for item in found.items}
    corrected = _corrected(corrections, names, found.outputs)
    words = {split: word for word, split in SPLITS.items() if word in ("train", "val", "test")}
    with target.open("x", newline="", encoding="utf-8") as opened:
        table = csv.writer(opened)
        table.writerow(COLUMNS)
        for name, item in names.items():
            if label := corrected.get(name, item.label):
                split = words[item.split] if len(found.splits) > 1 else ""
                table.writerow([_path(item), label, split, item.group or "", f"{item.weight:g}"])
    changed = [label for name, label in corrected.items() if label and label != names[name].label]
    return len(changed), list(corrected.values()).count("")


def _corrected(file: Path, names: Mapping[str, Item], classes: Sequence[str]) -> dict[str, str]:
    """The label of each image that the CSV file has; empty for one to be left out."""
    found = {}
    header = Header(file, ROWS, (("image", "file"), ("label", "suggested")), ())
    for number, (cell, suggested) in cells_of(header):
        name, label = text_of_cell(cell), text_of_cell(suggested).strip()
        if name not in names:
            raise DataError(
                f"a correction needs an image of the run, got {shown(name)} in row {number} of {ROWS}; correct the "
                "path, or delete the row"
            )
        if label and label not in classes:
            raise DataError(
                f"a suggested label needs to be a class, got {shown(label)} in row {number} of {ROWS}; "
                f"{did_you_mean(label, classes)}"
            )
        found[name] = label
    return found


def _path(item: Item) -> str:
    """The image's absolute path, as a table reads it; raises DataError if it would read another."""
    path = str(item.path.absolute())
    if path != in_utf8(path).strip().replace("\\", "/") or "://" in path:
        raise DataError(
            "a table has no paths with a backslash, ://, spaces at their end or bytes that aren't UTF-8, got "
            f"{shown(in_utf8(path))}; rename the file"
        )
    return path
