"""Writes a run's winner for other programs: the file, its check, `predict.py`, and a model card."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tuner.errors import RunFolderError
from tuner.inspection.best import LoadedModel, load_winner
from tuner.inspection.shipping import forms
from tuner.inspection.shipping.card import model_card
from tuner.inspection.shipping.examples import Examples, examples
from tuner.inspection.shipping.forms import SHIPPED, Form, facts_of
from tuner.inspection.shipping.hub_layout import Reader
from tuner.results.front import at_point
from tuner.results.run import RecordedRun
from tuner.trial import pixels

CARD, FACTS, SCRIPT, READER = "README.md", "model.json", "predict.py", "pixels.py"
MOST_APART = 1e-4  # largest difference of answers between an export and the original
MOST_READ_APART = 0.25  # by another library's reading, as a share of how far answers to several files differ
MAX_DROP = 0.01
RUNS = 20  # runs of one image; the median time is reported
READ = 16  # image files by which other libraries' reading is compared
AT_ONCE = 32
MADE_SIZES = ((333, 500), (300, 200), (190, 190))  # width, height of images made where there are no files
TELL = "TELL"  # in main.txt, see `Answers.tell`


@dataclass(frozen=True)
class Checked:
    """How a file compares with the original.

    Attributes:
        file: its name
        images: number of compared images
        apart: largest difference of two probabilities, or of two numbers in their standard deviations
        bytes: of the file
        milliseconds: of one image, median, on this machine's CPU; the files take turns
        quartiles: between which half of these times lie
        accuracy: on the labelled images; None without labels
        labelled: how many these are
    """

    file: str
    images: int
    apart: float
    bytes: int
    milliseconds: float
    quartiles: tuple[float, float]
    accuracy: float | None
    labelled: int


def ship(
    run: RecordedRun,
    form: Form,
    path: str | Path,
    *,
    trust: bool = False,
    max_drop: float = MAX_DROP,
    point: str | None = None,
) -> list[Path]:
    """Write a run's winner into the new folder `path`; returns the files, the card first.

    Args:
        run: whose winner it is
        form: one of `FORMS`
        path: a folder that doesn't exist yet; nothing is left of it if the export fails
        trust: run the run's study file even if it is another user's
        point: which network on the front of two metrics, see `at_point`; None for the winner's
        max_drop: the largest loss of accuracy, as a share of the validation images; see `Answers.measure`

    Raises:
        RunFolderError: the run has no winner that can be loaded, the folder exists, the form can't express the network,
            a file's answers differ from the original's by more than 1e-4 (those of "int8" may), or it loses more
            accuracy than `max_drop`.
        StudyError: a library is missing.
    """
    target = Path(path)
    if target.exists():
        raise RunFolderError(
            f"export writes a new folder, got {str(path)!r}, which exists; remove it or choose another"
        )
    _check_installed(form)
    run = run if point is None else at_point(run, point)
    loaded = load_winner(run, trust=trust)
    if loaded.quantised and form != "onnx":
        raise RunFolderError(
            f"a winner that answers in 8 bits (quantization='int8') is exported as ONNX, got --to {form}; use --to onnx"
        )
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        shown = examples(run, loaded, trust=trust, loses=SHIPPED[form].float32)
        _write(run, loaded, form, part, shown, max_drop)
        part.rename(target)
    except OSError as error:
        raise RunFolderError(f"export needs a place to write to, got {str(path)!r} ({error.strerror})") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    first = {CARD: 0, SCRIPT: 1}
    return sorted(target.iterdir(), key=lambda file: (first.get(file.name, 2), file.name))


def _check_installed(form: Form) -> None:
    libraries = SHIPPED[form].libraries
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        needed = f"{', '.join(libraries[:-1])} and {libraries[-1]}"
        raise RunFolderError(
            f"an export to {form.upper()} needs {needed}, got an installation without {', '.join(missing)}; "
            f"pip install 'image-tuner[{SHIPPED[form].extras}]'"
        )


def _write(run: RecordedRun, loaded: LoadedModel, form: Form, folder: Path, shown: Examples, max_drop: float) -> None:
    shipped = SHIPPED[form]
    file, float32 = folder / shipped.file, folder / forms.FLOAT32
    original = forms.original_answers(loaded)
    facts: dict[str, Any] = facts_of(loaded) | {"file": shipped.file} | dict(shipped.write(loaded, file, shown) or {})
    answers = {
        one: shipped.answers(one, loaded) for one in (file, *filter(Path.exists, map(folder.joinpath, shipped.others)))
    }
    if shipped.float32:
        answers[float32] = forms.onnx_answers(float32)
    checks = _checked(loaded, answers, original, shown)
    if shipped.exact and checks[0].apart > MOST_APART:
        raise RunFolderError(
            f"an export must answer as the original within {MOST_APART:g}, got {checks[0].apart:.2g} apart from "
            f"{file.name}; use another form"
        )
    measured = [_loss(loaded, answers[file], original, shown, max_drop), _beside(checks)] if shipped.float32 else []
    if shipped.readers is not None:
        measured = _reading(loaded, shipped.readers(folder, loaded.classes), shown)
    facts |= {"checks": [asdict(check) for check in checks], "threads": torch.get_num_threads(), "measured": measured}
    float32.unlink(missing_ok=True)
    script = predict_script(form, loaded)
    if script is not None:
        (folder / SCRIPT).write_text(script, encoding="utf-8")
        shutil.copyfile(pixels.__file__, folder / READER)
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    card = model_card(run, loaded, form, facts, shown, scripted=script is not None)
    (folder / CARD).write_text(card, encoding="utf-8")
    for written in folder.iterdir():
        written.chmod((folder / CARD).stat().st_mode)  # safetensors makes files that only their user can read


def _loss(loaded: LoadedModel, asked: forms.Answers, original: forms.Answers, shown: Examples, max_drop: float) -> str:
    """What answers lose on validation images, in words. Raises RunFolderError if that is more than allowed."""
    if shown.validated is None:
        return f"No loss of accuracy was measured: {shown.missing}."
    name, images, labels = shown.validated
    before, after = (
        loaded.answers.quality(torch.from_numpy(_in_batches(one, images)), labels) for one in (original, asked)
    )
    told = f"{loaded.answers.measure} {after:.4f} on {len(images):,} {name} images, {before:.4f} before the export"
    if before - after > max_drop:
        raise RunFolderError(
            f"an export may lose {max_drop:g} by --max-drop, got {before - after:.4f} ({told}); raise it, or use "
            "--to onnx"
        )
    return f"{told[0].upper()}{told[1:]}: {before - after:.4f} lost, of {max_drop:g} that may be."


def _beside(checks: Sequence[Checked]) -> str:
    """The time of a form beside that of ONNX in float32, in words."""
    one, float32 = (
        f"{check.milliseconds:.2f} ms ({check.quartiles[0]:.2f} to {check.quartiles[1]:.2f})" for check in checks
    )
    return f"One image takes {one} on this CPU, {float32} in float32 by onnxruntime: medians and quartiles."


def _reading(loaded: LoadedModel, libraries: Mapping[str, Reader], shown: Examples) -> list[str]:
    """How far answers to image files differ by library, in words. Raises RunFolderError if none reads them alike."""
    with tempfile.TemporaryDirectory() as temporary:
        chosen = np.linspace(0, len(shown.files) - 1, min(READ, len(shown.files))).astype(int)
        files = [shown.files[index] for index in chosen] or list(_made_files(Path(temporary), shown))
        scale, _ = loaded.scale_of(files)
        expected = np.stack([loaded.probabilities(loaded.read(file, scale))[0].numpy() for file in files])
        apart = {
            library: [float(np.abs(read(file) - own).max()) for file, own in zip(files, expected, strict=True)]
            for library, read in libraries.items()
        }
    spread = np.abs(expected - expected.mean(0)).max(1).mean()
    if min(map(statistics.mean, apart.values())) > max(MOST_APART, MOST_READ_APART * spread):
        raise RunFolderError(
            "an export to the hub's layout must be read as in training, got answers to image files that are "
            f"{min(map(max, apart.values())):.2g} apart; use --to onnx"
        )
    what = "image files of the test split" if shown.files else "files made of test images in other sizes"
    return [
        f"{library} answers to {len(files)} {what} within {max(each):.2g} of what tuner does"
        + (", as it doesn't resize exactly as in training." if max(each) > MOST_APART else ".")
        for library, each in apart.items()
    ]


def _made_files(folder: Path, shown: Examples) -> Iterator[Path]:
    for index, size in enumerate(MADE_SIZES):
        image = Image.fromarray(shown.images[index % len(shown.images)].transpose(1, 2, 0))
        image.resize(size, Image.Resampling.BICUBIC).save(folder / f"{index}.png")
        yield folder / f"{index}.png"


def predict_script(form: Form, loaded: LoadedModel) -> str | None:
    """`predict.py` of a form; None if image files don't fit the model, or the model is a user's function."""
    script = SHIPPED[form].script(loaded)
    if script is None or loaded.card.inputs.channels not in (1, 3):
        return None
    assets = files("tuner.inspection.shipping") / "assets"
    rest = ((assets / part).read_text(encoding="utf-8") for part in ("load.txt", "main.txt"))
    return "".join([script, *rest]).replace(TELL, loaded.answers.tell)


def _checked(
    loaded: LoadedModel, asked: Mapping[Path, forms.Answers], original: forms.Answers, shown: Examples
) -> list[Checked]:
    images, answers, expected = shown.checked, loaded.answers, _in_batches(original, shown.checked)
    labelled = 0 if shown.labels is None else len(shown.labels)
    checks = []
    for (file, ask), (first, median, third) in zip(asked.items(), _times(asked.values(), images[:1]), strict=True):
        apart = float(np.abs(_in_batches(ask, images) - expected).max()) / answers.targets.unit
        accuracy = None
        if shown.labels is not None:
            accuracy = answers.share_right(torch.from_numpy(_in_batches(ask, shown.images)), shown.labels)
        size = sum(part.stat().st_size for part in (file, file.with_suffix(".bin")) if part.exists())
        checks.append(Checked(file.name, len(images), apart, size, median, (first, third), accuracy, labelled))
    return checks


def _in_batches(asked: forms.Answers, images: np.ndarray) -> np.ndarray:
    return np.concatenate([asked(images[start : start + AT_ONCE]) for start in range(0, len(images), AT_ONCE)])


def _times(asked: Collection[forms.Answers], image: np.ndarray) -> list[list[float]]:
    """Milliseconds of one image for each: first quartile, median and third one."""
    times: list[list[float]] = [[] for _ in asked]
    for _ in range(RUNS + 1):
        for ask, each in zip(asked, times, strict=True):
            start = time.perf_counter()
            ask(image)
            each.append(1000 * (time.perf_counter() - start))
    return [statistics.quantiles(each[1:], n=4) for each in times]
