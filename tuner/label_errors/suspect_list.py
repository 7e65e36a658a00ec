"""Labels that are probably wrong, as a page with the images and as a CSV file in which a user corrects them."""

from __future__ import annotations

import base64
import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from torch import Tensor

from tuner.errors import RunFolderError
from tuner.html_report.elements import Table, render
from tuner.inspection.scoring import picture_of
from tuner.label_errors.confident_learning import confidences, doubted
from tuner.label_errors.judgement import Judgement, judge
from tuner.results.run import RecordedRun
from tuner.results.wording import plural
from tuner.storage.folder import Folder
from tuner.storage.locations import marked
from tuner.study.declaration import Study
from tuner.text import command, in_utf8, spreadsheet_cell

PAGE, ROWS = "label_errors.html", "label_errors.csv"
MOST_SHOWN = 200  # images of the page
EDGE = 160  # pixels of the page's images, at most
SMALL = 64  # pixels up to which an image is written without loss
MOST_PAIRS = 10  # of classes


@dataclass(frozen=True)
class Suspect:
    """An image whose label is probably wrong.

    Attributes:
        file: as messages name it
        label: its class in the data
        suggested: the class that it more probably is of
        confidence: how surely its label is wrong, see `confidences`
        near_duplicate_of: images that look the same and have another label
    """

    file: str
    label: str
    suggested: str
    confidence: float
    near_duplicate_of: tuple[str, ...] = ()


def suspects(found: Judgement) -> dict[int, Suspect]:
    """The images whose labels are probably wrong, by their places, the surest first.

    Those that `doubted` names; and of near duplicates with different labels those that don't have the one of these
    labels that the answers to all of them prefer.
    """
    suggested = doubted(found.answers, found.labels)
    twins: dict[int, tuple[str, ...]] = {}
    for group in map(np.array, found.alike):
        labels, given = found.labels[group], np.unique(found.labels[group])
        preferred = given[found.answers[group][:, given].mean(0).argmax()]
        for index, label in zip(group.tolist(), labels.tolist(), strict=True):
            twins[index] = tuple(found.names[other] for other in group[labels != label])
            if label != preferred and suggested[index] == label:
                suggested[index] = preferred
    confidence, rows = confidences(found.answers, found.labels), np.flatnonzero(suggested != found.labels)
    return {
        index: Suspect(
            *(found.names[index], found.classes[found.labels[index]], found.classes[suggested[index]]),
            *(float(confidence[index]), twins.get(index, ())),
        )
        for index in rows[np.argsort(-confidence[rows], kind="stable")].tolist()
    }


@dataclass(frozen=True)
class LabelErrors:
    """What was found and written.

    Attributes:
        found: by which networks, of which images
        suspects: all of them, the surest first
        page: path or URI of the page with the first of them
        rows: path or URI of the CSV file with all
    """

    found: Judgement
    suspects: tuple[Suspect, ...]
    page: str
    rows: str

    @property
    def judged(self) -> str:
        """Which images were judged, by what."""
        return judged(self.found)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        told = {"page": self.page, "csv": self.rows, "judged": len(self.found.names), "images": self.found.images}
        return told | {"trials": list(self.found.trials), "suspects": [asdict(one) for one in self.suspects]}


def judged(found: Judgement) -> str:
    """Which images were judged, by what."""
    answers = f"by the answers of {plural(len(found.trials), 'trial')}, whose networks did not learn from them"
    counted = f"{len(found.names):,} of {found.images:,} images were judged {answers}"
    return counted if found.folds else f"{counted}; validation=Folds(5) judges all but those for the test"


def _check_unwritten(folder: Folder, *, force: bool) -> None:
    """Raise RunFolderError for a CSV file that may have been edited, or a folder that can't be written to."""
    if folder.exists(ROWS) and not force:
        raise RunFolderError(
            f"labels writes a new file, got {folder.child(ROWS).uri}, which is there and may have your corrections; "
            "use them with --apply, name another folder with --out, or add --force"
        )
    try:
        with marked(folder):
            pass
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"labels needs a folder that can be written to, got {folder.uri!r} "
            f"({getattr(error, 'strerror', None) or error}); name another with --out"
        ) from error


def find(
    run: RecordedRun, folder: Folder, *, study: Study | None = None, force: bool = False, trust: bool = False
) -> LabelErrors:
    """Judge the labels, and write page and CSV file; see `tuner.find_label_errors`."""
    _check_unwritten(folder, force=force)
    found = judge(run, study, trust=trust)
    listed = suspects(found)
    folder.write(ROWS, _csv(listed.values()))
    folder.write(PAGE, in_utf8(_page(run, found, listed, folder)).encode())
    return LabelErrors(found, tuple(listed.values()), folder.child(PAGE).uri, folder.child(ROWS).uri)


def _csv(listed: Iterable[Suspect]) -> bytes:
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(field.name for field in fields(Suspect))
    for one in listed:
        cells = (one.file, one.label, one.suggested, f"{one.confidence:.4f}", "; ".join(one.near_duplicate_of))
        table.writerow(map(spreadsheet_cell, in_utf8(list(cells))))
    return text.getvalue().encode()


def _page(run: RecordedRun, found: Judgement, listed: Mapping[int, Suspect], folder: Folder) -> str:
    shown = list(listed.items())[:MOST_SHOWN]
    pairs = Counter((one.label, one.suggested) for one in listed.values())
    rows = [(label, suggested, f"{count:,}") for (label, suggested), count in pairs.most_common(MOST_PAIRS)]
    out = [] if folder.uri == run.folder.uri else ["--out", folder.uri]
    return render(
        "labels.html",
        run=run,
        count=len(listed),
        judged=judged(found),
        pairs=Table(("label", "suggested", "images"), tuple(rows), len(pairs) - len(rows)),
        shown=[(one, _jpeg(found.image(index))) for index, one in shown],
        rows=folder.child(ROWS).uri,
        apply=command("labels", run.path, *out, "--apply", "corrected.csv"),
    )


def _jpeg(image: Tensor) -> str:
    """An image [C, H, W] as a data URI: a small one without loss."""
    picture, kind = picture_of(image), "png" if max(image.shape[1:]) <= SMALL else "jpeg"
    picture.thumbnail((EDGE, EDGE))
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
