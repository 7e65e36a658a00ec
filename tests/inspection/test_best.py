import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import DataError, RunFolderError, TrialError, WeightsError
from tuner.inspection import Prediction, load_model, score, write_best
from tuner.train import Evaluator, Trainer
from tuner.trial import ImageClassifier

CONFIG: dict[str, Any] = {"lr": 1e-3, "batch_size": 16, "image_size": 12}

RECORD: dict[str, Any] = {"trial": "00003", "epoch": 3, "metrics": {"val_accuracy": 0.9}}


@pytest.fixture(scope="module")
def best(colours: ImageClassifier, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "best"
    write_best(folder, colours, CONFIG, checkpoint, score(colours, CONFIG, checkpoint, split_seed=0), RECORD)
    return folder


def content(path: Path) -> Any:
    return json.loads(path.read_text())


def test_best_holds_what_the_contract_says(best: Path, trainer: Trainer, colours: ImageClassifier) -> None:
    assert sorted(path.name for path in best.iterdir()) == [
        "config.json",
        "confusion_matrix.json",
        "metrics.json",
        "mistakes.json",
        "model.json",
        "model.safetensors",
    ]
    scored = trainer.evaluate(trainer.splits.test)
    assert content(best / "metrics.json") == {
        "trial": "00003",
        "epoch": 3,
        "metrics": {
            "val_accuracy": 0.9,
            "test_loss": scored.loss,
            "test_accuracy": scored.accuracy,
            "test_top5_accuracy": scored.top5_accuracy,
            "test_f1": scored.f1,
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
    write_best(folder, colours, CONFIG, checkpoint, scored, RECORD)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in best.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_damaged_checkpoint_leaves_the_older_winner(
    colours: ImageClassifier, checkpoint: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "best"
    folder.mkdir()
    scored = score(colours, CONFIG, checkpoint, split_seed=0)
    with pytest.raises(TrialError):
        write_best(folder, colours, CONFIG, tmp_path / "no-checkpoint", scored, RECORD)
    assert folder.is_dir()


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError) as caught:
        load_model(tmp_path)
    assert str(caught.value) == (
        f"a model needs model.json and model.safetensors, got {tmp_path} without a whole model.json; "
        "name a run with a winner"
    )


def test_a_cut_off_model_is_refused(best: Path, tmp_path: Path) -> None:
    for path in best.iterdir():
        (tmp_path / path.name).write_bytes(
            path.read_bytes()[:-10] if path.suffix == ".safetensors" else path.read_bytes()
        )
    with pytest.raises(WeightsError, match=r"^weights must be a saved state_dict"):
        load_model(tmp_path)


def test_predictions_are_plain_values() -> None:
    assert Prediction(Path("a.png"), "cat", 0.5, (("cat", 0.5),)).record()["image"] == "a.png"
