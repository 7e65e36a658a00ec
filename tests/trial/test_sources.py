import struct
from pathlib import Path

import pytest

from tuner.errors import DataError, StudyError
from tuner.trial import data_source
from tuner.trial.data_source import Folder, Item, LeftOut
from tuner.trial.sources import KNOWN_SOURCES, find_source, idx_is_whole


def write_idx(path: Path, shape: tuple[int, ...], content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x00\x00\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + content)


def write_fashion(data_dir: Path) -> Path:
    raw = data_dir / "FashionMNIST" / "raw"
    for split in ("train", "t10k"):
        write_idx(raw / f"{split}-images-idx3-ubyte", (1, 28, 28), bytes(784))
        write_idx(raw / f"{split}-labels-idx1-ubyte", (1,), bytes(1))
    return raw


def write_images(root: Path, *files: str) -> Path:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(file.encode())
    return root


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ("fashion_mnist", "did you mean 'fashion-mnist'?"),
        ("CIFAR-10", "did you mean 'cifar10'?"),
        ("digit", "did you mean 'digits'?"),
        ("folder:", "images of your own are 'folder:PATH'"),
        (None, "images of your own are 'folder:PATH'"),
    ],
)
def test_an_unknown_data_set_gets_the_nearest_one(data: str, hint: str) -> None:
    with pytest.raises(StudyError) as caught:
        find_source(data)
    known = ", ".join(KNOWN_SOURCES)
    assert str(caught.value) == f"data must be {known}, folder:PATH, table:PATH or a function, got {data!r}; {hint}"


def test_digits_are_always_there(tmp_path: Path) -> None:
    source = find_source("digits")
    source.check(tmp_path)
    assert source.missing(tmp_path) == []
    assert [path.name for path in source.files(tmp_path)] == ["digits.csv.gz"]


def test_what_is_missing_is_named_with_its_place(tmp_path: Path) -> None:
    assert find_source("fashion-mnist").missing(tmp_path) == [
        f"Fashion-MNIST (30 MB) into {tmp_path / 'FashionMNIST' / 'raw'}"
    ]
    assert find_source("cifar10").missing(tmp_path) == [f"CIFAR-10 (163 MB) into {tmp_path / 'cifar-10-batches-py'}"]


@pytest.mark.parametrize(("files", "told"), [(3, "3 files are HEIC"), (1, "1 file is HEIC")])
def test_photos_of_phones_that_cant_be_read_are_told_with_two_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, told: str
) -> None:
    monkeypatch.setattr(data_source, "_ENDINGS", (".jpg", ".png"))  # as without pillow-heif
    root = write_images(tmp_path, *["cat/1.heic", "cat/2.HEIC", "dog/1.heif"][:files])
    with pytest.raises(DataError) as caught:
        find_source(f"folder:{root}").check(tmp_path)
    assert (
        f"got [] in {root}, where {told}, which isn't read; pip install pillow-heif, or convert them to JPEG, for "
        "example by `magick mogrify -format jpg *.heic` in each of their folders"
    ) in str(caught.value)


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        (("Cat", "cat", "dog"), "the classes Cat and cat differ only in case; if they are one, put their images into"),
        (("2019", "2020"), "the classes are the years 2019, 2020, which a model would learn to tell apart; if that"),
        (("2019", "cat"), None),
        (("cat", "dog"), None),
    ],
)
def test_classes_that_are_hardly_meant_are_told(tmp_path: Path, classes: tuple[str, ...], told: str | None) -> None:
    notices = Folder(write_images(tmp_path, *[f"{name}/1.png" for name in classes])).look().notices
    assert [told in one for one in notices if told] == [True] * bool(told)
    assert bool(notices) == bool(told)


def test_fashion_mnist_is_present_once_all_four_files_are(tmp_path: Path) -> None:
    raw = write_fashion(tmp_path)
    source = find_source("fashion-mnist")
    source.check(tmp_path)
    assert source.is_present(tmp_path)
    (raw / "train-labels-idx1-ubyte").unlink()
    assert not source.is_present(tmp_path)


def test_a_cut_off_idx_file_is_damaged_and_named(tmp_path: Path) -> None:
    path = write_fashion(tmp_path) / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError) as caught:
        find_source("fashion-mnist").check(tmp_path)
    assert str(caught.value) == (
        f"an IDX file must be as long as its header says, got {path} of 799 bytes; delete it and download it again"
    )


@pytest.mark.parametrize("content", [b"", b"\x00\x00\x08", b"\x00\x00\x08\x03\x00", b"<html>no such file</html>"])
def test_what_is_no_idx_file_is_not_whole(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert not idx_is_whole(tmp_path / "file")


def test_the_fingerprint_changes_with_the_content_of_known_data(tmp_path: Path) -> None:
    raw, source = write_fashion(tmp_path), find_source("fashion-mnist")
    before = source.fingerprint(tmp_path)
    assert before == source.fingerprint(tmp_path)
    assert len(before) == 16
    write_idx(raw / "train-labels-idx1-ubyte", (1,), b"\x01")
    assert source.fingerprint(tmp_path) != before


def test_the_fingerprint_of_a_folder_changes_with_names_and_sizes_and_not_with_its_place(tmp_path: Path) -> None:
    here = write_images(tmp_path / "here", "a/1.png", "b/1.png")
    there = write_images(tmp_path / "there", "a/1.png", "b/1.png")
    before = Folder(here).fingerprint(tmp_path)
    assert Folder(there).fingerprint(tmp_path) == before
    write_images(there, "b/2.png")
    assert Folder(there).fingerprint(tmp_path) != before


def test_the_signature_of_a_folder_notices_a_new_image(tmp_path: Path) -> None:
    import os

    root = write_images(tmp_path, "a/1.png", "b/1.png")
    before = Folder(root).signature(tmp_path)
    write_images(root, "a/2.png")
    os.utime(root / "a", ns=(1, 1))
    assert Folder(root).signature(tmp_path) != before


def test_a_folder_of_classes_is_all_training_data(tmp_path: Path) -> None:
    root = write_images(tmp_path, "cat/1.PNG", "cat/._1.png", "cat/notes.txt", "dog/1.jpeg", ".hidden/1.png")
    assert Folder(root).look().items == (Item(f"{root}/cat/1.PNG", "cat"), Item(f"{root}/dog/1.jpeg", "dog"))


def test_what_lies_among_the_images_and_is_none_is_told_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_source, "_ENDINGS", (".jpg", ".png"))  # as without pillow-heif
    root = write_images(
        tmp_path,
        *(
            "cat/1.png",
            "cat/IMG 1.HEIC",
            "cat/labels.csv",
            "cat/README",
            "cat/.DS_Store",
            "cat/Thumbs.db",
            "cat/more.jpg/1.png",
        ),
        *("dog/\u732b 1.png", "loose.jpg", "notes.txt", "bird/song.mp3"),
    )
    (root / "dog" / "gone.png").symlink_to(root / "nowhere.png")
    found = Folder(root).look()
    assert found.items == (Item(f"{root}/cat/1.png", "cat"), Item(f"{root}/dog/\u732b 1.png", "dog"))
    assert found.left_out == (
        LeftOut("bird/", "is a class without images"),
        LeftOut("bird/song.mp3", "ends in '.mp3', not as images that are read"),
        LeftOut("cat/IMG 1.HEIC", "is HEIC, which isn't read: pip install pillow-heif, or convert it to JPEG"),
        LeftOut("cat/README", "has no ending of an image"),
        LeftOut("cat/labels.csv", "ends in '.csv', not as images that are read"),
        LeftOut("cat/more.jpg", "is a folder inside a class, whose images must lie directly in it"),
        LeftOut("dog/gone.png", "is a link to nothing"),
        LeftOut("loose.jpg", "lies outside of any class"),
    )
    assert Folder(root).count_classes() == 2


def test_names_in_no_known_encoding_are_taken_as_they_are(tmp_path: Path) -> None:
    import os

    root = write_images(tmp_path, "cat/1.png", "dog/1.png")
    (root / os.fsdecode(b"dog/caf\xe9.png")).write_bytes(b"1")
    source = Folder(root)
    assert len(source.files(tmp_path)) == 3
    assert len(source.fingerprint(tmp_path)) == len(source.content_key()) == 16


def test_a_folder_may_have_splits_of_its_own(tmp_path: Path) -> None:
    root = write_images(tmp_path, "train/cat/1.png", "train/dog/1.png", "val/cat/2.png", "test/dog/3.png")
    found = Folder(root).look()
    assert found.counts == {("dog", "test"): 1, ("cat", "train"): 1, ("dog", "train"): 1, ("cat", "validation"): 1}
    assert (found.splits, found.classes) == (("test", "train", "validation"), ("cat", "dog"))


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    root = write_images(tmp_path, "plane/1.png", "train/1.png")
    assert Folder(root).look().classes == ("plane", "train")


@pytest.mark.parametrize("names", [("Train", "Val", "TEST"), ("training", "validation", "Testing")])
def test_folders_of_splits_are_taken_by_their_meaning(tmp_path: Path, names: tuple[str, str, str]) -> None:
    root = write_images(tmp_path, *(f"{split}/{kind}/1.jfif" for split in names for kind in ("cat", "dog")))
    found = Folder(root).look()
    assert found.classes == ("cat", "dog")
    assert found.images == {"train": 2, "validation": 2, "test": 2}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["cat/1.png"], "a folder of images needs at least 2 classes, a subfolder each, got ['cat'] in {root}; name"),
        (
            ["1.png", "2.jpg"],
            "a folder of images needs at least 2 classes, a subfolder each, got [] in {root}; name the folder that holds the "
            "classes, or move the 2 images in it into a folder for each class",
        ),
        (
            ["cat/1.png", "dog/notes.txt"],
            "a folder of images needs at least 2 classes, a subfolder each, got ['cat'] in {root}, and dog/ without images (.bmp,",
        ),
        (
            ["train/a/1.png", "train/b/1.png", "test/c/1.png"],
            "every class needs training images, got 'c' in test only; add it to train/",
        ),
        (
            ["train/a/1.png", "train/b/1.png", "tset/a/1.png"],
            "next to train/ there may only be val, valid, validation, test, testing, got {root}/tset; move or rename it",
        ),
        (
            ["train/a/1.png", "train/b/1.png", "val/a/1.png", "Valid/a/1.png"],
            "a split needs one folder, got Valid/ and val/ for validation in {root}; put their images into one of them",
        ),
        (
            ["train/Cat/1.png", "train/dog/1.png", "val/cat/1.png"],
            "every class needs training images, got 'cat' in validation only; rename it to 'Cat', which differs only in",
        ),
        (
            ["2019/cat/1.png", "2019/dog/1.png", "2020/cat/1.png", "2020/dog/1.png"],
            "a folder of images needs at least 2 classes, a subfolder each, got [] in {root}, whose images are in "
            "2019/cat/, 2019/dog/, 2020/cat/, and 1 more; name the folder that holds the classes, such as {root}/2019, "
            "or bring the images of each class together in one folder",
        ),
        (
            ["cats/anna/1.png", "dogs/anna/1.png", ".cache/x/1.png", ".cache/y/1.png"],
            "a folder of images needs at least 2 classes, a subfolder each, got [] in {root}, whose images are in "
            "cats/anna/, dogs/anna/; bring the images of each class together in one folder",
        ),
        (
            ["1.png", "2019/cat/1.png", "2019/dog/1.png"],
            "a folder of images needs at least 2 classes, a subfolder each, got [] in {root}, whose images are in "
            "2019/cat/, 2019/dog/; name the folder that holds the classes, such as {root}/2019, or",
        ),
        (
            ["a/b/c/cat/1.png", "a/b/c/dog/1.png"],
            "a folder of images needs at least 2 classes, a subfolder each, got [] in {root}, whose images are in "
            "a/b/c/cat/, a/b/c/dog/; name the folder that holds the classes, such as {root}/a/b/c, or",
        ),
    ],
)
def test_a_folder_that_cant_work_is_refused(tmp_path: Path, files: list[str], message: str) -> None:
    root = write_images(tmp_path, *files)
    with pytest.raises(DataError) as caught:
        find_source(f"folder:{root}").check(tmp_path)
    assert str(caught.value).startswith(message.format(root=root))


def test_a_line_end_in_a_files_name_is_written_out() -> None:
    assert str(LeftOut("cat/a\nb\r.jpg", "is cut off")) == r"cat/a\nb\r.jpg (it is cut off)"


def test_a_folder_that_isnt_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        find_source(f"folder:{tmp_path / 'nowhere'}").check(tmp_path)
    assert str(caught.value) == (
        f"folder:PATH needs a folder of images, got {tmp_path / 'nowhere'}, which isn't one; correct the path"
    )


def test_cifar10_is_taken_as_folders_with_both_splits(tmp_path: Path) -> None:
    source = find_source("cifar10")
    write_images(tmp_path / "cifar10", "train/cat/1.jpg", "train/dog/1.jpg")
    assert source.is_present(tmp_path)
    with pytest.raises(DataError, match=r"^cifar10 as folders needs train/ and test/, got .* without test/; add it"):
        source.check(tmp_path)
    write_images(tmp_path / "cifar10", "test/cat/1.jpg")
    source.check(tmp_path)
    assert len(source.files(tmp_path)) == 3


def test_it_is_known_how_each_data_set_by_name_is_read_and_downloaded_where_it_may_be_missing(tmp_path: Path) -> None:
    from tuner.train.data.by_name import DATA_SETS

    assert list(DATA_SETS) == list(KNOWN_SOURCES)
    downloaded = {name for name, data_set in DATA_SETS.items() if data_set.download}
    assert {"fashion-mnist", "cifar10"} <= downloaded <= {*KNOWN_SOURCES} - {"digits"}
    assert [name for name in downloaded if not KNOWN_SOURCES[name].missing(tmp_path)] == []
