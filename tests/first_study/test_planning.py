"""What is written for folders of different kinds, on a machine whose speeds are made up."""

import ast
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run_main
from tests.first_study.scenes import write_scenes
from tuner.first_study.candidates import Candidate
from tuner.first_study.folder_look import look
from tuner.first_study.plan import Plan, Setting
from tuner.first_study.planning import Means, Wishes, plan
from tuner.study.file import load_study
from tuner.trial import Folds
from tuner.trial.data_source import Folder
from tuner.trial.speed import Speed
from tuner.trial.table import Table, TableOfImages

MODELS = (Candidate("mobilenet_v2", "IMAGENET1K_V1", 71.9), Candidate("efficientnet_b0", "imagenet", 77.7))


def speed(rate: float) -> Speed:
    return Speed(
        start_seconds=0.5,
        once_seconds=1.0,
        once_for="a model 224",
        epoch_seconds=(0.1,),
        score_seconds=1.0,
        look_seconds=1.0,
        cache_bytes=0,
        memory_bytes=10**9,
        images=(1, 1, 1),
        images_per_second=rate,
        features_per_second=rate,
        busy=1.0,
    )


def means(rate: float = 20.0, models: tuple[Candidate, ...] = MODELS) -> Means:
    return Means(models, {each.model: speed(rate) for each in models}, {}, 3.0, workers=2, around=20.0)


def planned(root: Path, wishes: Wishes | None = None, **given: Any) -> Plan:
    return plan(look(Folder(root)), wishes or Wishes(), means(**given), f"folder:{root.name}")


def settings(found: Plan) -> dict[str, Any]:
    """Values as Python has them, or as they are written."""
    values = {}
    for each in found.settings:
        try:
            values[each.name] = ast.literal_eval(each.value)
        except ValueError:
            values[each.name] = each.value
    return values


def folder(root: Path, sizes: dict[str, int], **given: Any) -> Path:
    for number, (name, count) in enumerate(sizes.items()):
        write_scenes(root / name, count, 10_000 * number, **given)
    return root


def test_few_images_train_the_head_alone_and_hold_out_more(tmp_path: Path) -> None:
    found = planned(folder(tmp_path / "my few", {"a": 20, "b": 20}))
    given = settings(found)
    assert found.name == "my-few"
    assert (given["finetune"], given["validation"], given["model"]) == (
        *("head", "Folds(5)"),
        'choice(["efficientnet_b0", "mobilenet_v2"])',
    )
    assert "flip" not in given  # images that change have no features that stay
    (why,) = [each.reason for each in found.settings if each.name == "finetune"]
    assert "all layers learn where there are at least 600 training images, and there are about 28" in why


def test_many_images_train_all_layers_where_the_time_is_enough(tmp_path: Path) -> None:
    root = folder(tmp_path / "many", {"a": 500, "b": 500}, size=(32, 24))
    assert settings(planned(root, rate=200.0))["finetune"] == "gradual"
    assert settings(planned(root, rate=200.0))["flip"] == "choice([0.0, 0.5])"
    assert settings(planned(root, Wishes(mirrored=False), rate=200.0))["flip"] == 0.0
    assert settings(planned(root, rate=10.0))["finetune"] == "head"


def test_a_machine_too_slow_for_the_weights_own_size_gets_smaller_images(tmp_path: Path) -> None:
    root = folder(tmp_path / "slow", {"a": 100, "b": 100}, size=(32, 24))
    assert "image_size" not in settings(planned(root, Wishes(minutes=3)))
    assert settings(planned(root, Wishes(minutes=3), rate=1.0))["image_size"] == 128


def test_uneven_classes_count_alike(tmp_path: Path) -> None:
    root = folder(tmp_path / "uneven", {"a": 40, "b": 10}, size=(32, 24))
    given = settings(planned(root))
    assert (given["metric"], given["class_weights"]) == ("val_f1", 'choice(["none", "balanced"])')
    assert settings(planned(root, Wishes(evenly=False)))["metric"] == "val_loss"


def test_splits_on_the_disk_are_used_as_they_are(tmp_path: Path) -> None:
    for part, count, first in (("train", 20, 0), ("val", 8, 50), ("test", 8, 70)):
        write_scenes(tmp_path / "split" / part / "a", count, first)
        write_scenes(tmp_path / "split" / part / "b", count, 1_000 + first)
    found = planned(tmp_path / "split")
    assert settings(found)["validation"] == "folder"
    (why,) = [each.reason for each in found.settings if each.name == "validation"]
    assert why == "val/ is the user's own; test/ is used once, for the winner"
    (why,) = [each.reason for each in found.settings if each.name == "metric"]
    assert why.startswith("right and wrong answers to about 16 images hardly tell trials apart; the loss also counts")


@pytest.mark.parametrize(
    ("images", "rate", "finetune", "metric", "combine"),
    [
        (110, 20.0, "head", "val_loss", "auto"),  # 198, each validated once
        (112, 20.0, "head", "val_accuracy", "auto"),
        (520, 400.0, "gradual", "val_accuracy", None),  # 104
    ],
)
def test_few_images_for_validation_choose_by_the_loss_and_heads_may_be_averaged_in_the_end(
    tmp_path: Path,
    images: int,
    rate: float,
    finetune: str,
    metric: str,
    combine: str | None,
) -> None:
    root = folder(tmp_path / "even", {"a": images, "b": images}, size=(32, 24))
    given = settings(planned(root, rate=rate))
    assert (given["finetune"], given["metric"], given.get("combine")) == (finetune, metric, combine)
    assert "refit" not in given


def test_a_head_of_one_model_learns_from_all_images_in_the_end(tmp_path: Path) -> None:
    root = folder(tmp_path / "one", {"a": 40, "b": 40}, size=(240, 240))
    one = settings(planned(root, models=MODELS[:1]))
    assert (one["image_size"], one["refit"], one.get("combine")) == ("choice([224, 288])", "train+validation", None)
    for part in ("train", "val"):
        folder(tmp_path / "own" / part, {"a": 20, "b": 20})
    given = settings(planned(tmp_path / "own"))  # without folds the winner's images choose the average, too
    assert (given["validation"], given["refit"], given.get("combine")) == ("folder", "train+validation", None)


def test_heads_are_solved_and_cross_validated(tmp_path: Path) -> None:
    found = planned(folder(tmp_path / "few", {"a": 30, "b": 30}))
    given = settings(found)
    assert (given["optimizer"], given["weight_decay"]) == ("lbfgs", "loguniform(1e-3, 1)")
    assert not {"lr", "batch_size", "dropout"} & given.keys()
    assert given["budget"] == "Budget(total_epochs=4000, max_epochs=1, minutes=30)"
    assert "choice and interval rest on all 54 images" in reason(found, "validation")
    (tmp_path / "study.py").write_text(found.text(), encoding="utf-8")
    assert load_study(tmp_path / "study.py").declared_trial.validation == Folds(5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("images", "pattern", "validation"),
    [
        (6, None, "Folds(5)"),
        (5, None, 0.2),  # one of which is for the test
        (20, r"^(\d+)\d\.", 0.2),  # ten alike: two groups of a class
        (60, r"^(\d+)\d\.", "Folds(5)"),
    ],
)
def test_small_classes_and_those_of_few_groups_are_not_cross_validated(
    tmp_path: Path, images: int, pattern: str | None, validation: object
) -> None:
    root = folder(tmp_path / "small", {"a": 60, "b": images}, size=(32, 24))
    assert settings(planned(root, Wishes(group=pattern)))["validation"] == validation


def test_copies_of_an_image_count_once_for_the_folds(tmp_path: Path) -> None:
    root = folder(tmp_path / "copies", {"a": 60, "b": 5})
    for copy in range(5):
        shutil.copy(root / "b" / "10000.jpg", root / "b" / f"copy{copy}.jpg")
    assert settings(planned(root))["validation"] == 0.2


@pytest.mark.parametrize(
    ("minutes", "sizes", "more"),
    [
        (3.4, 'choice([224, 288]).when(model="efficientnet_b0")', "allow larger images"),
        (7.0, "choice([224, 288])", "change nothing"),
    ],
)
def test_time_that_models_leave_is_for_larger_images_of_the_most_accurate_first(
    tmp_path: Path, minutes: float, sizes: str, more: str
) -> None:
    root = folder(tmp_path / "large", {"a": 200, "b": 200}, size=(240, 224))
    found = planned(root, Wishes(minutes=minutes))
    assert settings(found)["model"] == 'choice(["efficientnet_b0", "mobilenet_v2"])'
    assert settings(found)["image_size"] == sizes
    assert reason(found, "image_size").startswith("pixels, of which the smaller are the weights' own; larger images")
    assert reason(found, "budget") == more
    (tmp_path / "study.py").write_text(found.text(), encoding="utf-8")
    load_study(tmp_path / "study.py")


@pytest.mark.parametrize(
    ("share", "model", "sizes", "more"),
    [
        (0.6, 'choice(["efficientnet_b0", "mobilenet_v2"])', "choice([224, 288])", "change nothing"),
        (0.4, 'choice(["efficientnet_b0", "mobilenet_v2"])', None, "allow larger images"),
        (0.15, "efficientnet_b0", None, "allow more accurate models"),
    ],
)
def test_a_smaller_share_for_features_means_fewer_image_sizes_then_fewer_models(
    tmp_path: Path, share: float, model: str, sizes: str | None, more: str
) -> None:
    root = folder(tmp_path / "large", {"a": 200, "b": 200}, size=(240, 224))
    found = plan(look(Folder(root)), Wishes(minutes=3.92), means(), f"folder:{root.name}", share)
    given = settings(found)
    assert (given["model"], given.get("image_size"), reason(found, "budget")) == (model, sizes, more)


def test_larger_images_are_of_the_models_that_take_them(tmp_path: Path) -> None:
    root = folder(tmp_path / "large", {"a": 30, "b": 30}, size=(240, 224))
    fixed = Candidate("vit_b_16", "imagenet", 81.0)
    assert settings(planned(root, models=(fixed, MODELS[1])))["image_size"] == (
        'choice([224, 288]).when(model="efficientnet_b0")'
    )
    found = planned(root, models=(fixed,))
    assert ("image_size" in settings(found), reason(found, "budget")) == (False, "change nothing")
    assert settings(planned(root, models=(DINOV2,)))["image_size"] == "choice([224, 280])"
    both = settings(planned(root, models=(DINOV2, MODELS[1])))  # a space has one domain of a name
    assert both["image_size"] == 'choice([224, 280]).when(model="timm:vit_small_patch14_dinov2")'


def test_small_photos_gain_nothing_from_larger_images(tmp_path: Path) -> None:
    assert "image_size" not in settings(planned(folder(tmp_path / "small", {"a": 30, "b": 30})))


def test_a_model_that_only_more_minutes_allow_is_told(tmp_path: Path) -> None:
    root = folder(tmp_path / "one", {"a": 200, "b": 200}, size=(32, 24))
    found = planned(root, Wishes(minutes=1.4))
    assert (settings(found)["model"], reason(found, "budget")) == ("efficientnet_b0", "allow more accurate models")


def test_grey_images_are_told(tmp_path: Path) -> None:
    found = planned(folder(tmp_path / "grey", {"a": 10, "b": 10}, grey=True))
    assert "they are grey, and are read as RGB, as the weights expect" in found.trial[0].reason


def test_several_models_are_tried_together_each_with_the_weights_that_are_here(tmp_path: Path) -> None:
    root = folder(tmp_path / "several", {"a": 10, "b": 10})
    models = (MODELS[1], Candidate("resnet18", "imagenet", 69.8), Candidate("resnet50", "imagenet", 80.9))
    given = settings(planned(root, models=models))
    assert given["model"] == 'choice(["resnet50", "efficientnet_b0", "resnet18"])'
    assert given["weights"] == "imagenet"
    found = planned(root, models=(*models, MODELS[0]))
    assert settings(found)["weights"] == {
        **{"resnet50": "imagenet", "efficientnet_b0": "imagenet"},
        "mobilenet_v2": "IMAGENET1K_V1",
    }
    (tmp_path / "study.py").write_text(found.text(), encoding="utf-8")
    load_study(tmp_path / "study.py")


DINOV2 = Candidate("timm:vit_small_patch14_dinov2", "imagenet", 81.1, pixels=224)


def test_a_model_whose_weights_have_large_images_gets_the_usual_ones(tmp_path: Path) -> None:
    root = folder(tmp_path / "dino", {"a": 20, "b": 20})
    found = planned(root, models=(DINOV2, MODELS[1]))
    assert settings(found)["image_size"] == 'choice([224]).when(model="timm:vit_small_patch14_dinov2")'
    found.text()  # is a study
    (tmp_path / "study.py").write_text(found.text(), encoding="utf-8")
    load_study(tmp_path / "study.py")
    (why,) = [each.reason for each in found.settings if each.name == "weights"]
    assert why == "timm's and torchvision's, on this machine already; licence: apache-2.0"
    assert settings(planned(root, models=(DINOV2,)))["image_size"] == 224


@pytest.mark.parametrize(
    ("model", "pixels"),
    [("timm:vit_small_patch14_dinov2", 126), ("timm:vit_base_patch16_siglip_224", 128), ("vit_b_16", None)],
)
def test_smaller_images_are_those_that_the_model_takes(tmp_path: Path, model: str, pixels: int | None) -> None:
    root = folder(tmp_path / "slow", {"a": 100, "b": 100}, size=(32, 24))
    found = planned(root, Wishes(minutes=3), rate=1.0, models=(Candidate(model, "imagenet", 80.0, pixels=224),))
    assert settings(found).get("image_size") == pixels


def test_each_line_has_its_reason_and_the_file_passes_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    root = folder(tmp_path / 'my "best" photos', {"a": 12, "b": 12})
    models = (Candidate("resnet18", None),)
    found = plan(
        look(Folder(root)), Wishes(random=True, group=r"^(\d+)\."), means(models=models), f"folder:{root.name}"
    )
    found = found.with_setting(Setting("budget", "Budget(total_epochs=40, max_epochs=8, minutes=5)", "fits"))
    assert [each.name for each in found.settings if not each.reason] == []
    path = tmp_path / "study.py"
    path.write_text(found.text())
    study = load_study(path)
    assert (study.name, study.budget.total_epochs) == ("my-best-photos", 40)
    assert max(map(len, found.text().splitlines())) <= 100
    code, out, err = run_main(capsys, "check", path)
    assert (code, err) == (0, "")
    assert "data: 24 image files of 2 classes" in out


def planned_table(
    root: Path, labels: list[str], wishes: Wishes | None = None, task: str | None = None, **given: Any
) -> Plan:
    write_scenes(root / "scans", len(labels), 0, size=(32, 24))
    rows = [f"scans/{number}.jpg,{label}" for number, label in enumerate(labels)]
    (root / "labels.csv").write_text("\n".join(["image,label", *rows]))
    table = Table(root / "labels.csv")
    return plan(look(TableOfImages(table, task)), wishes or Wishes(), means(**given), str(table))


def reason(found: Plan, name: str) -> str:
    return next(each.reason for each in found.settings if each.name == name)


@pytest.mark.parametrize("rare", [10, 2])
def test_several_labels_count_alike_and_rare_ones_may_weigh_more(tmp_path: Path, rare: int) -> None:
    labels = ["red;blue" if number < rare else ("red", "")[number % 2] for number in range(40)]
    found = planned_table(tmp_path, labels)
    given = settings(found)
    assert found.opening.startswith("40 images of 2 labels, for 30 minutes of search on this machine.")
    assert (given["optimizer"], given["validation"]) == ("adamw", 0.2)  # what solves a layer takes one label alone
    assert (given["task"], given["metric"], given["label_smoothing"]) == ("several", "val_map", "choice([0.0, 0.1])")
    assert reason(found, "task") == "each image has several labels"
    assert reason(found, "metric").startswith("every label counts alike")
    assert ("class_weights" in given) is (rare == 2)
    if rare == 2:
        assert reason(found, "class_weights") == "the largest label has 10 times the images of the smallest"
    assert ast.parse(found.text())


def test_a_number_has_its_own_metric_and_losses_and_no_hyperparameter_of_classes(tmp_path: Path) -> None:
    labels = [str(number % 7 + 0.5) if number > 20 else "0.5" for number in range(40)]
    found = planned_table(tmp_path, labels, Wishes(mirrored=False, evenly=True))
    given = settings(found)
    assert found.opening.startswith("40 images with numbers from 0.5 to 6.5, for 30 minutes of search")
    assert (given["task"], given["metric"]) == ("number", "val_mae")
    assert given["loss"] == 'choice(["mse", "mae"])'
    assert not {"label_smoothing", "class_weights"} & given.keys()
    by_all = planned_table(tmp_path, labels, Wishes(random=True, mirrored=False))
    assert settings(by_all)["flip"] == 0.0
    assert reason(by_all, "flip") == "no image is mirrored, as that may change its label"


def test_one_label_of_a_table_is_as_of_a_folder(tmp_path: Path) -> None:
    found = planned_table(tmp_path, ["red", "blue"] * 12)
    assert found.opening.startswith("24 images of 2 classes, for")
    assert settings(found)["metric"] == "val_loss"
    assert not {"task", "loss"} & settings(found).keys()
    declared = planned_table(tmp_path, ["1.5", "2.5"] * 12, task="one")
    assert settings(declared)["task"] == "one"  # without it the study would find numbers
