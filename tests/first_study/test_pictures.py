from pathlib import Path

import numpy as np
from PIL import Image

from tests.unclean import LEFT_OUT, write_unclean
from tuner.first_study.pictures import Picture, see
from tuner.trial.data_source import Folder


def test_what_decoding_shows_is_what_a_search_leaves_out(tmp_path: Path) -> None:
    folder = Folder(write_unclean(tmp_path))
    files = folder.files(tmp_path)
    found = dict(zip(map(folder.relative, files), see(files)[0], strict=True))
    named = {name for name in LEFT_OUT if name in found}  # the others are no image files by their names
    assert named == {"dog/bomb.png", "dog/cut off.jpg", "dog/cut off.png", "dog/empty.jpg", "dog/page.jpg"}
    assert {name: why for name, why in found.items() if isinstance(why, str)} == {
        name: LEFT_OUT[name] for name in named
    }


def test_sizes_and_colours_are_seen_and_the_count_is_told(tmp_path: Path) -> None:
    grey = np.arange(30 * 40, dtype=np.uint8).reshape(30, 40)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(np.stack([grey] * 3, axis=2)).save(tmp_path / "grey as rgb.jpg")
    Image.fromarray(np.stack([grey, 0 * grey, grey], axis=2)).save(tmp_path / "colour.png")
    Image.fromarray((np.arange(900).reshape(30, 30) * 70).astype(np.uint16)).save(tmp_path / "16 bit.png")
    files, told = sorted(tmp_path.iterdir()), []
    found, _ = see(files, lambda done, total: told.append((done, total)))
    assert all(isinstance(picture, Picture) for picture in found)
    assert [(p.size, p.grey) for p in found if isinstance(p, Picture)] == [
        ((30, 30), True),
        ((40, 30), False),
        ((40, 30), True),
        ((40, 30), True),
    ]
    assert told[-1] == (4, 4)
