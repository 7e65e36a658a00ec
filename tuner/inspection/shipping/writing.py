"""Writes a run's winner for other programs: the file, its check, `predict.py`, and a model card."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from dataclasses import asdict, dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tuner.errors import RunFolderError
from tuner.inspection.best import LoadedModel, load_winner
from tuner.inspection.shipping import forms
from tuner.inspection.shipping.card import model_card
from tuner.inspection.shipping.examples import Examples, examples
from tuner.inspection.shipping.forms import SHIPPED, Form, facts_of
from tuner.results.run import RecordedRun
from tuner.trial import pixels

CARD, FACTS, SCRIPT, READER = "README.md", "model.json", "predict.py", "pixels.py"
MOST_APART = 1e-4  # largest difference of answers between an export and the original
RUNS = 20  # runs of one image; the median time is reported
AT_ONCE = 32
TELL = "TELL"  # in main.txt, see `Answers.tell`


@dataclass(frozen=True)
class Checked:
    """How a file compares with the original.

    Attributes:
        file: its name
        images: number of compared images
        apart: largest difference of two probabilities, or of two numbers in their standard deviations
        bytes: of the file
        milliseconds: of one image, median, on this machine's CPU
        accuracy: on the labelled images; None without labels
        labelled: how many these are
    """

    file: str
    images: int
    apart: float
    bytes: int
    milliseconds: float
    accuracy: float | None
    labelled: int


def ship(run: RecordedRun, form: Form, path: str | Path, *, trust: bool = False) -> list[Path]:
    """Write a run's winner into the new folder `path`; returns the files, the card first.

    Args:
        run: whose winner it is
        form: "onnx" (with a variant in float16), "torch-export" or "safetensors"
        path: a folder that doesn't exist yet; nothing is left of it if the export fails
        trust: run the run's study file even if it is another user's

    Raises:
        RunFolderError: the run has no winner that can be loaded, the folder exists, the form can't express the network,
            or a file's answers differ from the original's by more than 1e-4.
        StudyError: a library is missing.
    """
    target = Path(path)
    if target.exists():
        raise RunFolderError(
            f"export writes a new folder, got {str(path)!r}, which exists; remove it or choose another"
        )
    _check_installed(form)
    loaded = load_winner(run, trust=trust)
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        _write(run, loaded, form, part, examples(run, loaded, trust=trust))
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
            f"pip install 'image-tuner[{form}]'"
        )


def _write(run: RecordedRun, loaded: LoadedModel, form: Form, folder: Path, shown: Examples) -> None:
    shipped = SHIPPED[form]
    file = folder / shipped.file
    original = forms.original_answers(loaded)
    facts: dict[str, Any] = facts_of(loaded) | {"file": shipped.file} | dict(shipped.write(loaded, file))
    answers = {one: shipped.answers(one, loaded) for one in (file, *map(folder.joinpath, shipped.others))}
    checks = [_checked(loaded, one, asked, original, shown) for one, asked in answers.items()]
    if checks[0].apart > MOST_APART:
        raise RunFolderError(
            f"an export must answer as the original within {MOST_APART:g}, got {checks[0].apart:.2g} apart from "
            f"{file.name}; use another form"
        )
    facts["checks"] = [asdict(check) for check in checks]
    script = predict_script(form, loaded)
    if script is not None:
        (folder / SCRIPT).write_text(script, encoding="utf-8")
        shutil.copyfile(pixels.__file__, folder / READER)
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    card = model_card(run, loaded, form, facts, shown, scripted=script is not None)
    (folder / CARD).write_text(card, encoding="utf-8")
    for written in answers:
        written.chmod((folder / CARD).stat().st_mode)  # safetensors makes files that only their user can read


def predict_script(form: Form, loaded: LoadedModel) -> str | None:
    """`predict.py` of a form; None if image files don't fit the model, or the model is a user's function."""
    script = SHIPPED[form].script(loaded)
    if script is None or loaded.card.inputs.channels not in (1, 3):
        return None
    assets = files("tuner.inspection.shipping") / "assets"
    rest = ((assets / part).read_text(encoding="utf-8") for part in ("load.txt", "main.txt"))
    return "".join([script, *rest]).replace(TELL, loaded.answers.tell)


def _checked(
    loaded: LoadedModel, file: Path, asked: forms.Answers, original: forms.Answers, shown: Examples
) -> Checked:
    images, answers = shown.checked, loaded.answers
    apart = float(np.abs(_in_batches(asked, images) - _in_batches(original, images)).max()) / answers.targets.unit
    accuracy = None
    if shown.labels is not None:
        accuracy = answers.share_right(torch.from_numpy(_in_batches(asked, shown.images)), shown.labels)
    labelled = 0 if shown.labels is None else len(shown.labels)
    return Checked(
        file.name, len(images), apart, file.stat().st_size, _milliseconds(asked, images[:1]), accuracy, labelled
    )


def _in_batches(asked: forms.Answers, images: np.ndarray) -> np.ndarray:
    return np.concatenate([asked(images[start : start + AT_ONCE]) for start in range(0, len(images), AT_ONCE)])


def _milliseconds(asked: forms.Answers, image: np.ndarray) -> float:
    asked(image)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        asked(image)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)
