import base64
import hashlib
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.results.simulated import simulated
from tuner.errors import DataError, RunFolderError, TrialError
from tuner.inspection import load_model, load_winner, score, write_best
from tuner.inspection.tasks.one_label import ClassPrediction
from tuner.study.budget import Budget
from tuner.train import Evaluator, Trainer
from tuner.trial import ImageClassifier

CONFIG: dict[str, Any] = {"lr": 1e-3, "batch_size": 16, "image_size": 12}

RECORD: dict[str, Any] = {"trial": "00003", "epoch": 3, "metrics": {"val_accuracy": 0.9}}


@pytest.fixture(scope="module")
def best(colours: ImageClassifier, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "best"
    write_best(folder, colours, CONFIG, score(colours, CONFIG, checkpoint, split_seed=0), RECORD)
    return folder


def content(path: Path) -> Any:
    return json.loads(path.read_text())


def test_best_holds_what_the_contract_says(best: Path, trainer: Trainer, colours: ImageClassifier) -> None:
    assert sorted(path.name for path in best.iterdir()) == [
        "calibration.json",
        "config.json",
        "confusion_matrix.json",
        "least_sure.json",
        "metrics.json",
        "mistakes.json",
        "model.json",
        "model.safetensors",
    ]
    scored = trainer.evaluate(trainer.splits.test)
    metrics = content(best / "metrics.json")
    told = metrics.pop("intervals")
    assert set(told) == {"test_accuracy"}  # six images tell no more
    assert told["test_accuracy"]["low"] < scored["accuracy"] <= told["test_accuracy"]["high"]
    assert metrics == {
        "trial": "00003",
        "epoch": 3,
        "metrics": {
            "val_accuracy": 0.9,
            "test_loss": scored.loss,
            "test_accuracy": scored["accuracy"],
            "test_f1": scored["f1"],
        },
        "images": {"train": 48, "validation": 6, "test": 6},
    }
    assert content(best / "config.json") == CONFIG
    assert content(best / "confusion_matrix.json")["classes"] == ["blue", "green", "red"]
    card = content(best / "model.json")
    assert (card["model"], card["data"], card["weights"]) == ("resnet18", colours.data, "None")
    assert card["inputs"]["normalisation"]["mean"] == list(trainer.splits.normalisation.mean)


def test_the_winner_loaded_back_gives_the_same_accuracy(best: Path, trainer: Trainer) -> None:
    model = load_model(best)
    assert model.classes == ("blue", "green", "red")
    assert model.evaluate(trainer.splits.test) == trainer.evaluate(trainer.splits.test)
    assert model.evaluate(trainer.splits.train) == trainer.evaluate(trainer.splits.train)


def test_image_files_are_classified_as_their_tensors_are(best: Path, trainer: Trainer, tmp_path: Path) -> None:
    from tuner.inspection.scoring import png_base64

    paths = []
    for index, image in enumerate(trainer.splits.test.images()):
        paths.append(tmp_path / f"{index}.png")
        paths[-1].write_bytes(base64.b64decode(png_base64(image)))
    model = load_model(best)
    predictions = model.predict([str(path) for path in paths])
    logits = Evaluator().logits(trainer.module, trainer.splits.test, trainer.splits.normalisation)
    assert [answer.label for answer in predictions] == [model.classes[index] for index in logits.argmax(1).tolist()]
    assert [answer.confidence for answer in predictions] == logits.softmax(1).amax(1).tolist()
    assert [answer.path for answer in predictions] == paths


def test_a_prediction_names_the_likeliest_classes(best: Path, colours: ImageClassifier) -> None:
    path = Path(colours.data.removeprefix("folder:")) / "green" / "green0.png"
    (answer,) = load_model(best).predict([path])
    assert answer.label == "green"
    assert answer.top5[0] == ("green", answer.confidence)
    assert {name for name, _ in answer.top5} == {"blue", "green", "red"}
    assert sum(value for _, value in answer.top5) == pytest.approx(1)
    assert answer.record() == {
        "image": str(path),
        "label": "green",
        "confidence": answer.confidence,
        "top5": dict(answer.top5),
    }
    assert load_model(best).predict([]) == []


def test_an_image_that_isnt_there_is_named(best: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^an image must be readable, got .*nowhere\.png"):
        load_model(best).predict([tmp_path / "nowhere.png"])


def test_an_older_winner_is_replaced(best: Path, colours: ImageClassifier, checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "best"
    folder.mkdir()
    (folder / "stale.json").touch()
    scored = score(colours, CONFIG, checkpoint, split_seed=0)
    write_best(folder, colours, CONFIG, scored, RECORD)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in best.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_damaged_checkpoint_is_not_scored(colours: ImageClassifier, tmp_path: Path) -> None:
    with pytest.raises(TrialError):
        score(colours, CONFIG, tmp_path / "no-checkpoint", split_seed=0)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError) as caught:
        load_model(tmp_path)
    assert str(caught.value) == (
        f"a model needs model.json and model.safetensors, got {tmp_path} without a complete model.json; "
        "name a run with a winner"
    )


def test_a_run_of_a_function_is_refused_with_where_its_checkpoint_is(tmp_path: Path) -> None:
    run = simulated(tmp_path, budget=Budget(trials=2, max_epochs=1))
    (best := tmp_path / "best").mkdir()
    said = f"is one of an ImageClassifier, got {run.path}, which trained by a function or outside of tuner; "
    with pytest.raises(RunFolderError, match=f"{re.escape(said)}its winner saved no checkpoint"):
        load_winner(run)
    (best / "checkpoint").mkdir()
    (best / "checkpoint/weights.pt").touch()
    with pytest.raises(RunFolderError, match=f"load its checkpoint, in {run.path}/best/checkpoint$"):
        load_winner(run)


def older(best: Path, folder: Path) -> Path:
    """The same winner as versions before this one wrote it, without a list of its files."""
    shutil.copytree(best, folder)
    card = content(folder / "model.json")
    del card["files"]
    (folder / "model.json").write_text(json.dumps(card))
    return folder


def test_the_card_names_all_files_and_an_older_one_without_names_loads(best: Path, tmp_path: Path) -> None:
    assert content(best / "model.json")["files"] == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in best.iterdir() if path.name != "model.json"
    }
    loaded = load_model(older(best, tmp_path / "older"))
    assert loaded.card == load_model(best).card


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "metrics.json"])
def test_a_mixture_of_two_winners_is_refused(best: Path, tmp_path: Path, name: str) -> None:
    mixed = tmp_path / "best"
    shutil.copytree(best, mixed)
    if name == "model.safetensors":
        save_file({key: value + 1 for key, value in load_file(best / name).items()}, mixed / name)
    else:
        (mixed / name).write_text(json.dumps(content(best / name) | {"epoch": 7}))
    with pytest.raises(RunFolderError) as caught:
        load_model(mixed)
    assert str(caught.value) == (
        f"a winner's files must belong together, got {mixed} whose {name} doesn't match model.json; "
        "copy the whole folder again, or name another run"
    )


def change(folder: Path, name: str, **values: Any) -> None:
    (folder / name).write_text(json.dumps(content(folder / name) | values))


def inputs(**values: Any) -> dict[str, Any]:
    normalisation = {"mean": [0.5] * 3, "sd": [0.2] * 3}
    return {"inputs": {"channels": 3, "image_size": 12, "normalisation": normalisation} | values}


CARDS: dict[str, dict[str, Any]] = {
    "model number": {"model": 18},
    "no such model": {"model": "resnet19"},
    "another model": {"model": "resnet34"},
    "data list": {"data": ["digits"]},
    "no weights": {"weights": None},
    "classes text": {"classes": "abc"},
    "classes missing": {"classes": None},
    "no classes": {"classes": []},
    "fewer classes": {"classes": ["blue", "green"]},
    "very many classes": {"classes": [str(number) for number in range(100_000)]},
    "inputs list": {"inputs": []},
    "inputs empty": {"inputs": {}},
    "channels text": inputs(channels="three"),
    "very many channels": inputs(channels=10**9),
    "image size": inputs(image_size=10**9),
    "image size 0": inputs(image_size=0),
    "image size true": inputs(image_size=True),
    "statistics of two": inputs(normalisation={"mean": [0.5] * 2, "sd": [0.2] * 2}),
    "statistics text": inputs(normalisation={"mean": "abc", "sd": [0.2] * 3}),
    "deviation 0": inputs(normalisation={"mean": [0.5] * 3, "sd": [0] * 3}),
    "huge": inputs(normalisation={"mean": [10**400] * 3, "sd": [0.2] * 3}),
    "files list": {"files": ["model.json"]},
}


@pytest.mark.parametrize("values", CARDS.values(), ids=CARDS)
def test_a_card_with_wrong_values_is_refused(best: Path, tmp_path: Path, values: dict[str, Any]) -> None:
    folder = older(best, tmp_path / "best")
    change(folder, "model.json", **values)
    with pytest.raises(RunFolderError, match=rf"^a (model|winner) .*{folder}"):
        load_model(folder)


TEXTS = {"empty": b"", "no json": b"{", "list": b"[]", "number": b"3", "null": b"null", "deep": b"[" * 100_000}
BYTES = {**TEXTS, "not text": b"\xff\xfe", "unknown": b'{"no_such": 1}', "wrong": b'{"dropout": "much"}'}


@pytest.mark.parametrize("name", ["model.json", "config.json"])
@pytest.mark.parametrize("text", BYTES.values(), ids=BYTES)
def test_damaged_json_is_refused(best: Path, tmp_path: Path, name: str, text: bytes) -> None:
    folder = older(best, tmp_path / "best")
    (folder / name).write_bytes(text)
    with pytest.raises(RunFolderError, match=rf"^a (model|winner) .*{folder}"):
        load_model(folder)


@pytest.mark.parametrize("name", ["model.json", "config.json", "model.safetensors"])
def test_a_missing_file_is_refused(best: Path, tmp_path: Path, name: str) -> None:
    for folder in (older(best, tmp_path / "older"), shutil.copytree(best, tmp_path / "newer")):
        (folder / name).unlink()
        with pytest.raises(RunFolderError, match=rf"^a (model|winner) .*{folder}"):
            load_model(folder)


def test_a_cut_off_model_is_refused(best: Path, tmp_path: Path) -> None:
    folders = [older(best, tmp_path / "older"), shutil.copytree(best, tmp_path / "newer")]
    for folder, reason in zip(folders, ["weights must be a saved state_dict", "belong together"], strict=True):
        os.truncate(folder / "model.safetensors", 1000)
        with pytest.raises(RunFolderError, match=reason):
            load_model(folder)


def test_one_file_alone_may_be_named_and_what_cannot_be_fed_is_refused(best: Path, tmp_path: Path) -> None:
    model = load_model(best)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    with pytest.raises(DataError, match=r"^an image must be readable, got .*broken\.png"):
        model.predict(str(tmp_path / "broken.png"))
    two = replace(model, card=replace(model.card, inputs=replace(model.card.inputs, channels=2)))
    with pytest.raises(DataError) as caught:
        two.predict([tmp_path / "broken.png"])
    assert str(caught.value) == (
        "image files have 1 or 3 channels, got a model that takes 2; call its module with tensors"
    )


def test_predictions_are_plain_values() -> None:
    assert ClassPrediction(Path("a.png"), "cat", 0.5, (("cat", 0.5),)).record()["image"] == "a.png"
