"""Models and their weights as a space decides on them: names, preprocessing, what is refused and what is noticed."""

from pathlib import Path
from typing import Any

import pytest

from tuner import Budget, Study
from tuner.errors import StudyError
from tuner.space import Space, choice, randint, uniform
from tuner.trial import ImageClassifier
from tuner.trial.framing import Framing

MODELS = ["resnet18", "efficientnet_b0", "vit_b_16"]


def refusal(trial: ImageClassifier, space: dict[str, Any]) -> str:
    with pytest.raises(StudyError) as caught:
        trial.check(Space(space))
    return str(caught.value)


def my_data() -> tuple[Any, Any, Any]:
    return ((), (), ())


def my_model(config: dict[str, Any]) -> object:
    return config["width"]


@pytest.mark.parametrize(
    ("model", "weights", "framing"),
    [
        ("resnet18", "imagenet", Framing(224, 256)),
        ("convnext_tiny", "imagenet", Framing(224, 236)),
        ("efficientnet_b0", "IMAGENET1K_V1", Framing(224, 256, "bicubic")),
        ("resnet50", "IMAGENET1K_V2", Framing(224, 232)),
        ("vit_b_16", "IMAGENET1K_SWAG_E2E_V1", Framing(384, 384, "bicubic")),
        ("mobilenet_v2", "somewhere/mobilenet_v2-b0353104.pth", Framing(224, 256)),
        ("mobilenet_v2", "my_own.pt", Framing(64)),
    ],
)
def test_published_weights_bring_their_framing_which_an_image_size_overrules(
    model: str, weights: str, framing: Framing
) -> None:
    trial = ImageClassifier("folder:pets", model, weights=weights)
    assert trial.framing(None) == framing
    assert trial.hyperparameters({})["image_size"] == framing.pixels
    assert trial.framing(512) == Framing(512)
    own = 28 if weights == "my_own.pt" else framing.pixels
    assert ImageClassifier("fashion-mnist", model, weights=weights).default_image_size == own


def test_torchvisions_enums_and_their_long_names_are_taken() -> None:
    from torchvision.models import ResNet50_Weights

    for weights in (ResNet50_Weights.IMAGENET1K_V1, "ResNet50_Weights.IMAGENET1K_V1", "IMAGENET1K_V1"):
        trial = ImageClassifier(model="resnet50", weights=weights)  # type: ignore[arg-type]
        assert trial.weights == "IMAGENET1K_V1"
        assert trial.weights_file is not None
        assert trial.weights_file.name == "resnet50-0676ba61.pth"
        assert trial.resolved(Path("/elsewhere")).weights == "IMAGENET1K_V1"
    assert ImageClassifier(weights="ResNet18_Weights.DEFAULT").weights == "imagenet"


def test_a_model_in_the_space_wins_and_decides_on_weights_and_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    space = Space({"model": choice(MODELS), "dropout": uniform(0, 0.5).when(model="vit_b_16"), "lr": 0.1})
    declared = ImageClassifier("digits", "vgg11")
    declared.check(space)
    trial = declared.within(space)
    assert trial.name == "3 models on digits"
    assert trial.identity()["model"] == "resnet18, efficientnet_b0, vit_b_16"
    assert [line.split(" into ")[0] for line in trial.missing_downloads()] == [
        f"weights of {model}" for model in MODELS
    ]
    one = trial.of({"model": "efficientnet_b0"})
    assert (one.name, one.framing(None)) == ("efficientnet_b0 on digits", Framing(224, 256, "bicubic"))
    assert trial.hyperparameters({"model": "vit_b_16"})["model"] == "vit_b_16"
    assert ImageClassifier("digits", "vgg11").within(Space({"model": "resnet50"})).name == "resnet50 on digits"
    assert "vgg11" not in declared.within(space).candidates


def test_a_model_that_is_conditional_leaves_the_declared_one_among_them() -> None:
    space = Space({"deep": choice([True, False]), "model": choice(["resnet50"]).when(deep=True)})
    assert ImageClassifier().within(space).candidates == ("resnet50", "resnet18")


@pytest.mark.parametrize(
    ("trial", "space", "message"),
    [
        (ImageClassifier(), {"model": choice(["resnet18", "resnet81"])}, "model must be one of torchvision's class"),
        (ImageClassifier(), {"model": 3}, "model must be text, got 3; write it in quotes"),
        (
            ImageClassifier(weights="IMAGENET1K_V2"),
            {"model": choice(["resnet50", "resnet18"])},
            "weights of resnet18 are imagenet, IMAGENET1K_V1, got 'IMAGENET1K_V2'",
        ),
        (
            ImageClassifier(weights="mine.pt"),
            {"model": choice(["resnet50", "resnet18"])},
            "weights of a file fit one model, got 'mine.pt' for 2 models in the space; name those of each: weights={'resnet50'",
        ),
        (
            ImageClassifier(),
            {"model": choice(["resnet18", "vit_b_16"]), "image_size": choice([128, 224])},
            "vit_b_16 takes images of 224 pixels only, got image_size=128",
        ),
        (ImageClassifier(), {"arch": "resnet50"}, "'arch' is not a hyperparameter of ImageClassifier; did you mean"),
    ],
)
def test_models_of_a_space_that_cant_work_are_refused(
    trial: ImageClassifier, space: dict[str, Any], message: str
) -> None:
    assert refusal(trial, {"lr": 0.1} | space).startswith(message)


def test_an_image_size_counts_for_the_models_that_it_is_conditional_on() -> None:
    size = choice([128, 160]).when(model="resnet18")
    ImageClassifier().check(Space({"model": choice(["resnet18", "vit_b_16"]), "image_size": size}))


def test_a_functions_model_has_its_own_word_for_a_model() -> None:
    trial = ImageClassifier(my_data, my_model)
    trial.check(Space({"model": choice([1, 2]), "backbone": choice(["small", "large"])}))
    assert trial.within(Space({"model": choice([1, 2])})).candidates == ()
    assert trial.hyperparameters({"model": 2})["model"] == 2
    assert "model" not in trial.hyperparameters({})


@pytest.mark.parametrize(
    ("trial", "space", "notice"),
    [
        (ImageClassifier("folder:pets", "vgg11"), {"model": "resnet18"}, "model='vgg11' is never tried: `model` in"),
        (ImageClassifier("folder:pets"), {"epochs": choice([2, 50])}, "epochs=50 is cut to the budget's max_epochs=3"),
        (ImageClassifier(weights=None), {"finetune": "head"}, "finetune='head' with weights=None trains the last"),
        (
            ImageClassifier("folder:pets", weights="my.pt"),
            {"lr": 0.1},
            "it is unknown what my.pt expects, so images are resized to 64 pixels; set image_size to what it was trained",
        ),
        (
            ImageClassifier("cifar10"),
            {"lr": 0.1},
            "images of cifar10 are enlarged from 32 to 224 pixels, as the weights expect; image_size=32 is quicker and",
        ),
    ],
)
def test_what_is_hardly_meant_so_is_noticed(trial: ImageClassifier, space: dict[str, Any], notice: str) -> None:
    study = Study("s", trial=trial, space=space, budget=Budget(max_epochs=3))
    assert [told[: len(notice)] for told in study.notices] == [notice]


def test_a_sound_study_gets_no_notice() -> None:
    space = {"model": choice(MODELS), "finetune": "head", "epochs": randint(1, 4)}
    assert Study("s", trial=ImageClassifier("folder:pets"), space=space, budget=Budget(max_epochs=3)).notices == []
