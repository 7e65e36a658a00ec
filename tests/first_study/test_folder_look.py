import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from tests.first_study.scenes import scene, write_scenes
from tuner.errors import DataError
from tuner.first_study.folder_look import FirstLook, look
from tuner.first_study.likeness import groups_of, hashes_of
from tuner.trial.data_source import Folder


def names(seen: FirstLook, groups: list[list[int]]) -> list[list[str]]:
    return [[seen.images.relative(seen.places[index].file) for index in group] for group in groups]


def two_classes(root: Path, count: int = 12) -> Path:
    write_scenes(root / "cat", count, 0)
    write_scenes(root / "dog", count, 100)
    return root


def test_different_images_are_not_alike(tmp_path: Path) -> None:
    seen = look(Folder(two_classes(tmp_path, 60)))
    assert (seen.alike.same, seen.alike.near, seen.alike.whole) == ([], [], True)
    assert (seen.splits, seen.count("train"), seen.shorter, seen.grey) == (("train",), 120, 72, 0.0)


def test_images_for_validation_are_few_only_where_some_are_held_out_for_it(tmp_path: Path) -> None:
    folder = Folder(two_classes(tmp_path))
    assert "the images are few, about 2 for test: small" in look(folder).notices[0]
    assert "the images are few, about 5 for validation and about 2 for test" in look(folder, random=True).notices[0]


def test_a_class_without_images_in_a_split_counts_as_none_of_them(tmp_path: Path) -> None:
    two_classes(tmp_path / "train")
    write_scenes(tmp_path / "val" / "cat", 3, 200)
    seen = look(Folder(tmp_path))
    assert [seen.count(part) for part in ("train", "validation", "test")] == [24, 3, 0]


def test_the_same_pixels_in_other_files_are_the_same_image(tmp_path: Path) -> None:
    two_classes(tmp_path)
    scene(500).save(tmp_path / "cat" / "a.png")
    scene(500).save(tmp_path / "dog" / "b.bmp")
    shutil.copy(tmp_path / "cat" / "0.jpg", tmp_path / "cat" / "copy of 0.jpg")
    seen = look(Folder(tmp_path))
    assert names(seen, seen.alike.same) == [["cat/0.jpg", "cat/copy of 0.jpg"], ["cat/a.png", "dog/b.bmp"]]
    assert seen.notices[-2:] == [
        "1 image is there more than once in a class: cat/0.jpg = cat/copy of 0.jpg",
        "1 image is there in two classes: cat/a.png = dog/b.bmp; no model can get both right, so delete the wrong ones",
    ]


def test_the_same_large_image_is_compared_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_scenes(tmp_path / "cat", 2, 0)
    shutil.copytree(folder, tmp_path / "dog")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000)  # Pillow's own, which ours goes before
    assert len(look(Folder(tmp_path)).alike.same) == 2


@pytest.mark.parametrize("change", ["smaller", "compressed", "brighter", "cropped a little"])
def test_near_duplicates_are_found(tmp_path: Path, change: str) -> None:
    two_classes(tmp_path / "train")
    write_scenes(tmp_path / "val" / "cat", 3, 300)
    write_scenes(tmp_path / "val" / "dog", 3, 400)
    image = Image.open(tmp_path / "train" / "cat" / "3.jpg")
    changed = {
        "smaller": image.resize((48, 36)),
        "compressed": image,
        "brighter": ImageEnhance.Brightness(image).enhance(1.15),
        "cropped a little": image.crop((1, 1, 95, 71)),
    }[change]
    changed.save(tmp_path / "val" / "dog" / "like.jpg", quality=40)
    seen = look(Folder(tmp_path))
    assert seen.alike.same == []
    assert names(seen, seen.alike.near) == [["train/cat/3.jpg", "val/dog/like.jpg"]]
    pair = "train/cat/3.jpg ~ val/dog/like.jpg"
    told = [notice for notice in seen.notices if pair in notice]
    assert told == [
        f"1 image has a near duplicate in two classes: {pair}; look whether their labels are right",
        f"1 image has a near duplicate in two splits: {pair}; they make the later split's metrics too good",
        f"2 images in 1 group are near duplicates: {pair}; group= in ImageClassifier keeps files on one side of a cut by "
        "their names, else metrics may be too good",
    ]


def test_images_without_contrast_are_not_taken_for_each_other(tmp_path: Path) -> None:
    shade = np.arange(40)[:, None, None] // 8 + np.zeros((40, 40, 3))  # 0 to 4 of 255 levels, in all of them
    for name, level in (("black", 10), ("white", 240)):
        (tmp_path / name).mkdir()
        for index in range(6):
            pixels = (level + shade).astype(np.uint8)
            pixels[index, index] += 1
            Image.fromarray(pixels).save(tmp_path / name / f"{index}.png")
    assert look(Folder(tmp_path)).alike.near == []


def test_names_of_near_duplicates_become_a_group(tmp_path: Path) -> None:
    for kind, first in (("cat", 0), ("dog", 100)):
        (tmp_path / kind).mkdir()
        for seed in range(first, first + 12):
            for shot in (1, 2):
                scene(seed).save(tmp_path / kind / f"{kind}{seed}_{shot}.jpg", quality=95 - 20 * shot)
    seen = look(Folder(tmp_path))
    assert len(seen.alike.near) == 24
    assert seen.group == r"^([^_]+)_"
    assert seen.notices[-1].endswith("group=r'^([^_]+)_' keeps them on one side of a cut by their names")


def test_a_name_that_all_share_is_no_group(tmp_path: Path) -> None:
    for kind, first in (("cat", 0), ("dog", 100)):
        (tmp_path / kind).mkdir()
        for seed in range(first, first + 30):
            scene(seed).save(tmp_path / kind / f"{kind}_{seed}.jpg")
    scene(3).save(tmp_path / "cat" / "cat_3b.jpg", quality=50)
    seen = look(Folder(tmp_path))
    assert len(seen.alike.near) == 1
    assert seen.group is None


def test_too_few_groups_to_be_cut_are_none(tmp_path: Path) -> None:
    for kind, first in (("cat", 0), ("dog", 100)):
        (tmp_path / kind).mkdir()
        for seed in range(first, first + 4):
            for shot in (1, 2):
                scene(seed).save(tmp_path / kind / f"{kind}{seed}_{shot}.jpg", quality=95 - 20 * shot)
    seen = look(Folder(tmp_path))
    assert len(seen.alike.near) == 8
    assert seen.group is None


def test_chains_are_one_group_and_a_hash_has_both_directions() -> None:
    assert groups_of([(5, 7), (1, 2), (7, 9), (2, 3)]) == [[1, 2, 3], [5, 7, 9]]
    rising = np.broadcast_to(np.arange(16, dtype=np.uint8)[None, :, None] * 10, (16, 16, 3))
    along_rows, along_columns = (hashes_of(np.stack([each])) for each in (rising, rising.transpose(1, 0, 2)))
    assert along_rows[0].tolist() == [0xFF] * 8 + [0] * 8
    assert along_columns[0].tolist() == [0] * 8 + [0xFF] * 8


def test_a_class_whose_images_are_mostly_unreadable_is_refused(tmp_path: Path) -> None:
    two_classes(tmp_path, 4)
    for index in range(5):
        (tmp_path / "dog" / f"broken {index}.jpg").write_bytes(b"no image")
    with pytest.raises(
        DataError, match="at least half of a class's images must be readable, got 4 of 9 in training of 'dog'"
    ):
        look(Folder(tmp_path))
