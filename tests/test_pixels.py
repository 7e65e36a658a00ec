"""What a pixel is: training, scoring, predict, an exported program and init read the same ones from every file."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.commands import study_file, tuner
from tests.results.simulated import simulated
from tuner import Budget, Run, Study, load_run, loguniform
from tuner.cli.main import main
from tuner.driver import data_look
from tuner.driver.data_look import write_data
from tuner.errors import DataError
from tuner.first_study.pictures import pixels_of, see
from tuner.history.data_record import began_before
from tuner.inspection import LoadedModel, load_model, score, write_best
from tuner.inspection.networks import trial_splits
from tuner.inspection.shipping import ship
from tuner.storage.folder import LocalFolder
from tuner.train import Trainer
from tuner.train.data.images import as_tensor, read_image
from tuner.train.data.looking import look
from tuner.trial import HYPERPARAMETERS, ImageClassifier, pixels
from tuner.trial.framing import Framing
from tuner.trial.pixels import DeepScale, with_one_scale

pytestmark = pytest.mark.filterwarnings("ignore:.*getdata:DeprecationWarning")  # as pillow-heif writes a file
EDGE = 12
CONFIG: dict[str, Any] = {"lr": 1e-3, "batch_size": 16, "image_size": EDGE}
SUFFIXES = {
    **{"PNG": ".png", "JPEG": ".jpg", "BMP": ".bmp", "GIF": ".gif", "WEBP": ".webp", "TIFF": ".tif", "PPM": ".ppm"},
    "HEIF": ".heic",
    **{"AVIF": ".png", "JPEG2000": ".jpg", "ICO": ".bmp", "TGA": ".bmp", "QOI": ".png", "PCX": ".bmp"},
}  # a name that is read; the content says what it is
MODES = (
    *("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "La", "CMYK", "YCbCr", "LAB", "HSV"),
    *("I", "I;16", "I;16B", "I;16L", "F"),
)


def image(mode: str, seed: int) -> Image.Image:
    """Blocks of colours, which resizing and lossy formats leave apart; deep ones of up to 12 bits, or 0 to 1."""
    generator = np.random.default_rng(seed)
    deep = generator.integers(0, 4096, (EDGE, EDGE))
    deep[0, 0] = 4095
    if mode == "F":
        return Image.fromarray((deep / 4095).astype(np.float32))
    if mode == "I":
        return Image.fromarray(deep.astype(np.int32))
    if mode.startswith("I;16"):
        return Image.frombytes(mode, (EDGE, EDGE), deep.astype(">u2" if mode == "I;16B" else "<u2").tobytes())
    made = Image.new(mode, (EDGE, EDGE))
    made.frombytes(generator.integers(0, 256, len(made.tobytes()), dtype=np.uint8).tobytes())
    if mode == "P":
        made.putpalette(generator.integers(0, 256, 768, dtype=np.uint8).tobytes())
    return made


def exif(orientation: int) -> Image.Exif:
    found = Image.Exif()
    found[0x0112] = orientation
    return found


def files_of_every_kind(folder: Path) -> Iterator[Path]:
    """Every mode, orientation, depth and format that Pillow writes and tuner reads."""
    for number, kind in enumerate(pixels.FORMATS):
        for place, mode in enumerate(MODES):
            for orientation in range(1, 9):
                path = folder / f"{kind} {mode.replace(';', ' ')} {orientation}{SUFFIXES[kind]}"
                more: dict[str, Any] = {"transparency": 3} if mode == "P" and kind in ("PNG", "GIF") else {}
                try:
                    image(mode, 100 * number + place).save(path, kind, exif=exif(orientation), **more)
                except (OSError, ValueError, KeyError, TypeError):
                    path.unlink(missing_ok=True)
                    continue
                yield path


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    (root / "one").mkdir()
    (root / "two").mkdir()
    for index, path in enumerate(list(files_of_every_kind(root / "one"))):
        if index % 2:
            path.rename(root / "two" / path.name)
    return root


def winner(root: Path, folder: Path, **settings: Any) -> Run:
    """A run whose winner was trained for an epoch."""
    torch.set_num_threads(1)
    trial = ImageClassifier(f"folder:{root}", weights=None, **settings)
    trainer = Trainer(trial, CONFIG, epochs=1, seed=0, split_seed=0)
    trainer.run_epoch()
    (folder / "saved").mkdir(parents=True)
    trainer.save(folder / "saved")
    run = simulated(folder / "run")
    scored = score(trial, CONFIG, folder / "saved", split_seed=0)
    write_best(Path(run.path) / "best", trial, CONFIG, scored, {"trial": "0", "epoch": 1})
    return Run(run.folder)


@pytest.fixture(scope="module")
def run(every_kind: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return winner(every_kind, tmp_path_factory.mktemp("a run"))


def as_numbers(images: torch.Tensor) -> np.ndarray:
    return images.permute(0, 2, 3, 1).numpy()


def exported_pixels(folder: Path, files: list[Path]) -> np.ndarray:
    """What the exported `pixels.py` reads, [N, H, W, 3], in a process that doesn't find tuner."""
    code = (
        "import json, sys, numpy as np\nsys.path.insert(0, sys.argv[1])\nsys.modules['tuner'] = None\n"
        "from pixels import DeepScale, read\n"
        "scale = DeepScale(**json.load(open(sys.argv[1] + '/model.json'))['scale'])\n"
        "files = sys.stdin.read().splitlines()\n"
        "sys.stdout.buffer.write(np.stack([np.asarray(read(one, 'RGB', scale)) for one in files]).tobytes())"
    )
    listed = "\n".join(map(str, files)).encode()
    done = subprocess.run([sys.executable, "-c", code, folder], input=listed, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, np.uint8).reshape(len(files), EDGE, EDGE, 3)


def test_every_kind_of_file_has_the_same_pixels_wherever_it_is_read(every_kind: Path, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    trial = ImageClassifier(f"folder:{every_kind}", weights=None)
    files = sorted(every_kind.rglob("*.*"))
    assert len(files) > 500
    model = load_model(Path(run.path) / "best")
    scale = model.card.inputs.scale
    assert scale == DeepScale(16, 1.0)  # PPM spreads whole numbers over 16 bits
    predicted = torch.cat([model.read(path, scale) for path in files])
    held = {}
    for memory in (None, 0.0):  # decoded into the cache, and read from the files in every epoch
        found = trial_splits(ImageClassifier(trial.data, weights=None, data_memory_gb=memory), CONFIG, split_seed=0)
        held[memory] = torch.cat([part.images() for part in (found.train, found.validation, found.test)])
    assert torch.equal(held[None], held[0.0])
    assert len(held[None]) == len(files)
    assert {one.numpy().tobytes() for one in held[None]} == {one.numpy().tobytes() for one in predicted}
    _, of_init = see(files)
    assert of_init == scale
    expected = as_numbers(predicted)
    assert [pixels_of(path, of_init) for path in files] == [
        repr((EDGE, EDGE)).encode() + one.tobytes() for one in expected
    ]
    ship(run, "onnx", tmp_path / "model")
    assert np.array_equal(exported_pixels(tmp_path / "model", files), expected)
    done = subprocess.run(
        [sys.executable, tmp_path / "model" / "predict.py", *files], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == list(map(str, files))
    shares = model.probabilities(predicted).amax(1).tolist()
    assert [float(row[2]) for row in rows] == pytest.approx(shares, abs=1e-3)


def test_orientations_are_those_of_the_pixels_that_are_not_turned(every_kind: Path) -> None:
    """The same picture, saved with each orientation, is turned back to eight different ones, in every mode alike."""
    turned = {2: (-1, 1), 3: (-1, -1), 4: (1, -1)}
    for name in ("PNG RGBA", "PNG LA", "PNG I 16", "PNG P", "PNG RGB", "TIFF F", "TIFF I 16B", "WEBP RGBA"):
        (first,) = every_kind.glob(f"*/{name} 1.*")
        whole = read_image(first, scale=DeepScale(16, 1.0)).numpy()
        for orientation, expected in {
            **{each: whole[:, ::down, ::across] for each, (across, down) in turned.items()},
            5: whole.transpose(0, 2, 1),
            6: whole.transpose(0, 2, 1)[:, :, ::-1],
            7: whole.transpose(0, 2, 1)[:, ::-1, ::-1],
            8: whole.transpose(0, 2, 1)[:, ::-1],
        }.items():
            (path,) = every_kind.glob(f"*/{name} {orientation}.*")
            assert np.array_equal(read_image(path, scale=DeepScale(16, 1.0)).numpy(), expected), path.name


def written(folder: Path, images: dict[str, np.ndarray]) -> Path:
    """A folder of two classes, of which each has all the images."""
    for level, name in enumerate(("one", "two")):
        (folder / name).mkdir(parents=True)
        for index in range(6):
            Image.new("L", (4, 4), 10 * index + level).save(folder / name / f"plain {index}.png")
        for file, values in images.items():
            Image.fromarray(values).save(folder / name / file)
    return folder


def levels(root: Path) -> dict[str, list[int]]:
    """The levels of each image of a folder, by name, as training reads them."""
    facts = look(ImageClassifier(f"folder:{root}", weights=None), seed=0, framing=Framing(4))
    assert facts is not None
    return {
        path.name: sorted(set(read_image(path, 1, facts.scale).flatten().tolist()))
        for path in root.glob("one/*")
        if "plain" not in path.name
    }


def test_two_deep_images_have_one_scale(tmp_path: Path) -> None:
    root = written(
        tmp_path,
        {f"{top}.tif": np.array([[0, top]], np.int32) for top in (200, 300)},
    )
    assert levels(root) == {"200.tif": [0, 50], "300.tif": [0, 75]}


def test_twelve_bits_in_a_file_of_sixteen_keep_their_256_levels(tmp_path: Path) -> None:
    root = written(tmp_path, {"deep.png": np.arange(4096, dtype=np.uint16).reshape(64, 64)})
    assert levels(root) == {"deep.png": list(range(256))}


@pytest.mark.parametrize("highest", [1000, 4095, 60_000, 65_535])
def test_a_pgm_has_the_pixels_of_a_png_with_the_same_numbers(tmp_path: Path, highest: int) -> None:
    values = (np.arange(4096, dtype=np.uint16) % 1001).reshape(64, 64)
    root = written(tmp_path, {"deep.png": values, "pillow.pgm": values, "brighter.png": values * 4})
    head = f"64 64\n{highest}\n".encode()
    for name in ("one", "two"):
        (root / name / "own.pgm").write_bytes(b"P5\n" + head + values.astype(">u2").tobytes())
        (root / name / "text.pgm").write_bytes(b"P2\n" + head + " ".join(map(str, values.flatten())).encode())
    facts = look(ImageClassifier(f"folder:{root}", weights=None), seed=0, framing=Framing(4))
    assert facts is not None
    assert facts.scale == DeepScale(12)
    expected = torch.from_numpy((values >> 4).astype(np.uint8))[None]
    for name in ("deep.png", "pillow.pgm", "own.pgm", "text.pgm"):
        assert torch.equal(read_image(root / "one" / name, 1, facts.scale), expected), name


def test_a_pgm_has_its_own_range_where_no_image_of_training_is_deep(tmp_path: Path) -> None:
    (tmp_path / "own.pgm").write_bytes(b"P5\n2 2\n4095\n" + np.array([[0, 4095], [2048, 16]], ">u2").tobytes())
    assert read_image(tmp_path / "own.pgm", 1, DeepScale())[0].tolist() == [[0, 255], [128, 1]]


@pytest.mark.parametrize(
    ("largest", "scale"),
    [
        ([], DeepScale()),
        ([0], DeepScale(8)),
        ([255], DeepScale(8)),
        ([3, 256], DeepScale(10)),
        ([16383], DeepScale(14)),
        ([65535], DeepScale(16)),
        ([70000], DeepScale(18)),
        ([0.0], DeepScale(None, 1.0)),
        ([0.2, 1.0], DeepScale(None, 1.0)),
        ([3.7], DeepScale(None, 7.0)),
        ([0.5, 254.5], DeepScale(None, 255.0)),
        ([3071.2, 4095], DeepScale(12, 4095.0)),
    ],
)
def test_the_scale_holds_the_largest_values(largest: list[float], scale: DeepScale) -> None:
    assert DeepScale.over(largest) == scale


def test_values_above_the_scale_are_white() -> None:
    assert DeepScale(10).levels(np.array([0, 4, 1023, 1024, 70000])).tolist() == [0, 1, 255, 255, 255]
    assert DeepScale(None, 7.0).levels(np.array([0.0, 3.5, 7.0, 9.0], np.float32)).tolist() == [0, 128, 255, 255]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            np.array([[-5, 9]], np.int32),
            "has values from -5, where finite numbers from 0 are read; replace or shift them",
        ),
        (
            np.array([[np.nan, 9]], np.float32),
            "has values that are NaN or infinite, where finite numbers from 0 are read; replace or shift them",
        ),
        (
            np.array([[np.inf, 9]], np.float32),
            "has values that are NaN or infinite, where finite numbers from 0 are read; replace or shift them",
        ),
    ],
)
def test_a_deep_image_without_a_level_for_each_value_is_named(tmp_path: Path, values: np.ndarray, reason: str) -> None:
    root = written(tmp_path, {})
    Image.fromarray(values).save(root / "one" / "bad.tif")
    facts = look(ImageClassifier(f"folder:{root}", weights=None), seed=0, framing=Framing(4))
    assert facts is not None
    assert facts.notices[0] == f"1 of 13 files was left out: one/bad.tif (it {reason})"
    seen, _ = see([root / "one" / "bad.tif"])
    assert seen == [reason]
    with pytest.raises(DataError) as caught:
        read_image(root / "one" / "bad.tif", scale=DeepScale(16, 1.0))
    assert str(caught.value) == f"an image must be readable, got {root / 'one' / 'bad.tif'}: it {reason}"


def test_without_deep_training_images_a_file_of_32_bits_is_refused_and_one_of_16_is_read(tmp_path: Path) -> None:
    Image.fromarray(np.full((2, 2), 25700, np.uint16)).save(tmp_path / "16.png")
    Image.fromarray(np.full((2, 2), 25700, np.int32)).save(tmp_path / "32.tif")
    assert read_image(tmp_path / "16.png")[:, 0, 0].tolist() == [100, 100, 100]
    with pytest.raises(
        DataError, match=r"it has values of 32 bits, whose range no training image tells; convert it to 8"
    ):
        read_image(tmp_path / "32.tif")


def test_a_users_data_set_of_deep_pil_images_has_no_guessed_range() -> None:
    assert as_tensor(Image.fromarray(np.full((2, 2), 25700, np.uint16)))[:, 0, 0].tolist() == [100, 100, 100]
    with pytest.raises(DataError, match=r"^a PIL image must have a range that is known, got one that has values of 32"):
        as_tensor(Image.fromarray(np.full((2, 2), 300, np.int32)))


def test_images_of_8_bits_are_decoded_once_and_deep_ones_twice() -> None:
    asked: list[tuple[str, DeepScale | None]] = []

    def reading(item: str, scale: DeepScale | None) -> str:
        asked.append((item, scale))
        if item == "deep" and scale is None:
            raise pixels.UnknownScale(300)
        return item.upper()

    assert with_one_scale(reading, ["plain", "deep", "other"]) == (["PLAIN", "DEEP", "OTHER"], DeepScale(10))
    assert asked == [("plain", None), ("deep", None), ("other", None), ("deep", DeepScale(10))]


def test_a_large_deep_image_has_the_levels_of_a_small_one_and_is_turned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ramp = np.add.outer(np.arange(96), 2 * np.arange(128)).astype(np.uint16) * 8
    for suffix in ("png", "tif"):
        Image.fromarray(ramp).save(tmp_path / f"ramp.{suffix}", exif=exif(6))
        whole = read_image(tmp_path / f"ramp.{suffix}", 1, DeepScale(12))[0].int()
        assert whole.shape == (128, 96)
        with monkeypatch.context() as patched:
            patched.setattr(pixels, "LARGE_PIXELS", 1000)
            patched.setattr(pixels, "LARGEST_EDGE", 16)
            patched.setattr(pixels, "ROWS", 3)
            large = read_image(tmp_path / f"ramp.{suffix}", 1, DeepScale(12))[0].int()
        centre = whole[16:112].reshape(16, 6, 16, 6).float().mean((1, 3))
        assert float((large - centre).abs().max()) <= 1


def test_an_export_has_the_reader_itself(run: Run, tmp_path: Path) -> None:
    ship(run, "safetensors", tmp_path / "model")
    text = (tmp_path / "model" / "pixels.py").read_text()
    assert text == Path(pixels.__file__).read_text()
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - set(sys.stdlib_module_names) == {"PIL", "numpy", "pillow_heif"}  # the last if it is there
    assert HYPERPARAMETERS["image_size"].high == pixels.LARGEST_EDGE


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
def test_a_tiff_that_isnt_square_is_turned_whole(tmp_path: Path, orientation: int, compression: str) -> None:
    ramp = np.add.outer(20 * np.arange(9), np.arange(12)).astype(np.uint8)
    for kind in ("TIFF", "PNG"):
        more = {"compression": compression} if kind == "TIFF" else {}
        Image.fromarray(ramp).save(tmp_path / kind, kind, exif=exif(orientation), **more)
    assert torch.equal(read_image(tmp_path / "TIFF"), read_image(tmp_path / "PNG"))


def older(run: Run) -> Run:
    """The run as an earlier version wrote it, without a scale."""
    card = Path(run.path) / "best" / "model.json"
    told = json.loads(card.read_text())
    del told["inputs"]["scale"]
    card.write_text(json.dumps(told))
    return run


def test_a_winner_of_an_earlier_version_says_once_which_images_it_saw_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = written(tmp_path / "photos", {f"{top}.tif": np.full((2, 2), top, np.int32) for top in (200, 300)})
    Image.new("RGBA", (4, 2)).save(root / "one" / "turned.png", exif=exif(6))
    Image.new("RGB", (4, 2)).save(root / "one" / "turned.jpg", exif=exif(6))
    run = winner(root, tmp_path / "a run")
    assert main(["predict", run.path, str(root / "one")]) == 0
    assert "other pixels" not in capsys.readouterr().err
    assert main(["predict", older(run).path, str(root / "one")]) == 0
    said = capsys.readouterr().err
    assert said == (
        "3 of 10 images have other pixels than when this run began, with a version of tuner that lost their "
        "orientation or guessed the range of each: 200.tif, 300.tif, turned.png; train again for answers that are as exact "
        "as in training\n"
    )
    model = load_model(Path(run.path) / "best")
    assert isinstance(model, LoadedModel)
    with pytest.warns(UserWarning, match=r"^1 of 2 images have other pixels"):
        assert len(model.predict([root / "one" / "turned.png", root / "one" / "turned.jpg"])) == 2
    Image.fromarray(np.full((2, 2), 4095, np.uint16)).save(tmp_path / "16 bit.png")
    assert model.read(tmp_path / "16 bit.png", model.scale_of([tmp_path / "16 bit.png"])[0]).unique().tolist() == [15]
    assert main(["predict", run.path, str(root / "one" / "plain 1.png"), str(tmp_path / "16 bit.png")]) == 0
    assert capsys.readouterr().err == ""


def test_the_look_at_an_older_runs_images_says_once_which_it_saw_otherwise(tmp_path: Path) -> None:
    root = written(tmp_path / "photos", {"deep.png": np.arange(4096, dtype=np.uint16).reshape(64, 64)})
    study = Study(
        "s", trial=ImageClassifier(f"folder:{root}", weights=None), space={"lr": loguniform(1e-4, 1e-2)},
        metric="val_accuracy", budget=Budget(trials=1),
    )  # fmt: skip
    folder = LocalFolder(tmp_path)
    assert began_before(folder)
    found = data_look.look(study, before=True)
    assert found is not None
    assert found.notices[0] == (
        "2 of 14 images have other pixels than when this run began, with a version of tuner that lost their orientation "
        "or guessed the range of each: deep.png, deep.png; trials are trained with the new ones now; begin a new run for trials "
        "that are all alike"
    )
    assert found.record["scale"] == {"bits": 12, "white": None}
    write_data(folder, found)
    assert not began_before(folder)
    plain = data_look.look(study)
    assert plain is not None
    assert plain.notices == found.notices[1:]


STUDY = """
study = Study(
    "photos", trial=ImageClassifier("folder:photos", "squeezenet1_1", weights=None),
    space={"lr": loguniform(1e-4, 1e-2), "image_size": 32}, metric="val_accuracy",
    budget=Budget(trials=1, max_epochs=1),
)
"""


@pytest.mark.ray
@pytest.mark.slow
def test_a_resumed_run_of_an_earlier_version_says_once_which_images_it_saw_otherwise(tmp_path: Path) -> None:
    root = written(tmp_path / "photos", {})
    Image.new("RGBA", (4, 2)).save(root / "one" / "turned.png", exif=exif(6))
    begun = tuner("run", study_file(tmp_path, STUDY), "--storage", "runs", folder=tmp_path)
    assert (begun.code, "other pixels" in begun.out + begun.err) == (0, False)
    (data,) = (tmp_path / "runs").rglob("data.json")
    told = json.loads(data.read_text())
    assert told.pop("scale") == {"bits": None, "white": None}
    data.write_text(json.dumps(told))
    for trials, notices in ((2, 1), (3, 1)):  # the second one has nothing new to say
        resumed = tuner("resume", "runs", "--trials", str(trials), folder=tmp_path)
        assert resumed.code == 0, resumed.err
        said = load_run(tmp_path / "runs").record.notices
        assert sum("1 of 13 images have other pixels" in one for one in said) == notices


def test_photos_of_phones_are_read_if_pillow_heif_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("pillow_heif")
    Image.new("RGB", (40, 20), (200, 30, 30)).save(tmp_path / "photo.heic", quality=95)
    read = pixels.read(tmp_path / "photo.heic", "RGB", pixels.NO_DEEP)
    assert read.size == (40, 20)
    assert np.abs(np.asarray(read).astype(int) - (200, 30, 30)).max() < 12
