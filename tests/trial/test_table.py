"""Tables of images: what they say, what is left out, and what is refused."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tuner import ImageClassifier, Table
from tuner.errors import DataError, StudyError
from tuner.trial.data_source import Folder, Item, LeftOut
from tuner.trial.folder_headers import folder_headers
from tuner.trial.sources import find_source
from tuner.trial.splitting import check_splitting
from tuner.trial.table import TableOfImages

HEAD = "image,label\n"
ROWS = "a1.png,ant\na2.png,ant\nb1.png,bee\nb2.png,bee\n"
SPLIT = "image,label,split\na1.png,ant,train\na2.png,ant,test\nb1.png,bee,train\nb2.png,bee,test\n"
FILES = ("a1.png", "a2.png", "b1.png", "b2.png")


def write(folder: Path, content: str | bytes, *images: str, name: str = "labels.csv") -> TableOfImages:
    """A table beside small images, all different."""
    for number, image in enumerate(images or FILES):
        (folder / image).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8 + number, 8)).save(folder / image)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    source = find_source(f"table:{folder}/{name}")
    assert isinstance(source, TableOfImages)
    return source


def said(source: TableOfImages) -> list[tuple[object, ...]]:
    return [(source.relative(item.file), *item[1:]) for item in source.look().items]


PLAIN = [(name, label, "train", None, 1.0) for name, label in zip(FILES, ("ant", "ant", "bee", "bee"), strict=True)]


@pytest.mark.parametrize(
    "content",
    [
        HEAD + ROWS,
        "\ufeff" + HEAD + ROWS,
        (HEAD + ROWS).replace(",", ";"),
        (HEAD + ROWS).replace(",", "\t"),
        (HEAD + ROWS).replace("\n", "\r\n"),
        (HEAD + ROWS).replace(",", " , "),
        'image,label\n"a1.png","ant"\n"a2.png",ant\n\nb1.png,"bee"\n,,\nb2.png,bee'.replace(",,\n", ",\n"),
        "label,note,image\n" + "".join(f'{label},"x, ""y""",{name}\n' for name, label, *_ in reversed(PLAIN)),
        HEAD + ROWS.replace("a1.png", "./a1.png").replace("b1.png", "x/../b1.png"),
        HEAD + ROWS.replace("a1.png", ".\\a1.png"),
        "image,label,split,group,weight\n" + ROWS.replace("\n", ",,,1\n"),
        "image,label,split,group,weight\n" + ROWS.replace("\n", ", , , 1 \n"),
    ],
)
def test_one_table_in_many_spellings(tmp_path: Path, content: str) -> None:
    assert said(write(tmp_path, content)) == PLAIN


def test_all_columns_say_what_they_are_for(tmp_path: Path) -> None:
    text = "image,label,split,group,weight\n" + "".join(
        f"{name},0{name[0] == 'b':d},{split},{group},{weight}\n"
        for name, split, group, weight in zip(
            FILES, ("Train", "TEST", "valid", "train"), "xyz ", ("1", "0", "2.5", "1e-1"), strict=True
        )
    )
    assert said(write(tmp_path, text)) == [
        ("a2.png", "00", "test", "y", 0.0),
        ("a1.png", "00", "train", "x", 1.0),
        ("b2.png", "01", "train", None, 0.1),
        ("b1.png", "01", "validation", "z", 2.5),
    ]


def test_columns_have_the_names_that_are_given(tmp_path: Path) -> None:
    source = write(tmp_path, "file,Art & Name,split\na1.png,ant,9\na2.png,ant,9\nb1.png,bee,8\nb2.png,bee,8\n")
    table = Table(source.table.path, image="file", label="Art & Name", group="split", split="fold")
    assert str(table) == f"table:{tmp_path}/labels.csv?image=file&label=Art%20%26%20Name&split=fold&group=split"
    assert Table.of(str(table)) == Table(str(table.path), "file", "Art & Name", "fold", "split")
    with pytest.raises(
        DataError, match="a table needs the column 'fold', got 'file', 'Art & Name', 'split' in the first"
    ):
        TableOfImages(table).look()
    (tmp_path / "labels.csv").write_text("file,kind,fold\na1.png,ant,9\na2.png,ant,9\nb1.png,bee,8\nb2.png,bee,8\n")
    found = TableOfImages(Table(source.table.path, image="file", label="kind", group="fold"))
    assert [item.group for item in found.look().items] == ["9", "9", "8", "8"]


def test_a_study_has_the_table_as_text_that_names_it_again(tmp_path: Path) -> None:
    trial = ImageClassifier(Table("photos/labels.csv", label="species"))
    assert trial.data == "table:photos/labels.csv?label=species"
    assert trial.resolved(tmp_path).data == f"table:{tmp_path}/photos/labels.csv?label=species"
    assert trial.name == "resnet18 on table:photos/labels.csv?label=species"
    assert trial == ImageClassifier("table:photos/labels.csv?label=species")


def test_a_table_is_the_list_of_items_that_folders_are(tmp_path: Path) -> None:
    names = [f"{part}/{kind}/{number}.png" for part in ("train", "val") for kind in ("x", "y") for number in range(3)]
    rows = [f"{name},{name.split('/')[1]},{name.split('/')[0]}\n" for name in names]
    source = write(tmp_path, "image,label,split\n" + "".join(reversed(rows)), *names)
    (tmp_path / "labels.csv").rename(tmp_path.parent / f"{tmp_path.name}.csv")  # a folder may only hold its splits
    folder = Folder(tmp_path).look()
    (tmp_path.parent / f"{tmp_path.name}.csv").rename(tmp_path / "labels.csv")
    assert replace(source.look(), columns=()) == folder


def test_what_is_left_out_is_counted_and_named(tmp_path: Path) -> None:
    text = HEAD + ROWS + "a1.png,ant\na3.png,ant\nb3.txt,bee\nc1.png,Bee\nsub,bee\n"
    source = write(tmp_path, text, *FILES, "c1.png", "d1.png", "sub/deep/e1.png", ".hidden/f.png")
    (tmp_path / "b3.txt").write_text("no image")
    found = source.look()
    assert found.left_out == (
        LeftOut("a3.png", "has a row, but there is no such file"),
        LeftOut("b3.txt", "ends in '.txt', not as images that are read"),
        LeftOut("d1.png", "has no row in the table"),
        LeftOut("sub", "is a folder"),
        LeftOut("sub/deep/e1.png", "has no row in the table"),
    )
    assert found.notices == (
        "1 image has a row but no file: a3.png",
        "2 images have a file but no row: d1.png, sub/deep/e1.png",
        "1 image has more than one row, which say the same: a1.png",
        "1 label is seen once: 'Bee'; correct those that are misspelt",
        "labels that differ in case are different classes, got 'Bee' and 'bee'; write them alike if they aren't",
    )
    assert folder_headers(source).record()["notices"][:5] == list(found.notices)
    assert folder_headers(source).counts == {"Bee": {"train": 1}, "ant": {"train": 2}, "bee": {"train": 2}}


def test_links_that_lead_nowhere_are_left_out_and_refused_if_they_are_most_of_a_class(tmp_path: Path) -> None:
    source = write(tmp_path, HEAD + ROWS + "b3.png,bee\n")
    for name in ("b3.png", "no row.png", "circle"):
        (tmp_path / name).symlink_to(name)  # to itself
    circle = "is a link that can't be followed (Too many levels of symbolic links)"
    assert source.look().left_out == (LeftOut("b3.png", circle),)
    source = write(tmp_path / "most", HEAD + ROWS, *FILES[2:])
    (tmp_path / "most" / "a1.png").mkdir()
    (tmp_path / "most" / "a2.png").symlink_to("gone.png")
    with pytest.raises(DataError) as caught:
        source.look()
    assert str(caught.value) == (
        f"at least half of a class's images must be there, got none for 2 of 2 rows of 'ant' in {source.place}, such as "
        "'a1.png', which is a folder; correct the column 'image', whose paths are relative to the table"
    )
    write(tmp_path / "classes", "", "ant/1.png", "bee/1.png")
    (tmp_path / "classes" / "ant" / "2.png").symlink_to("2.png")
    assert Folder(tmp_path / "classes").look().left_out == (LeftOut("ant/2.png", circle),)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_what_this_user_may_not_read_is_refused_in_a_sentence() -> None:
    rows = "".join(f"in/{name},{name[0]}\n" for name in FILES)
    told = []
    with tempfile.TemporaryDirectory() as place:  # which other users may enter, unlike tmp_path
        Path(place).chmod(0o755)
        for name in ("table", "images", "closed"):
            write(Path(place, name), HEAD + rows, *(f"in/{name}" for name in FILES))
        write(Path(place, "folder"), "", "ant/1.png", "bee/1.png")
        Path(place, "folder", "link").symlink_to(Path(place, "closed", "in"))
        for name in ("table/labels.csv", "images/in", "closed"):
            Path(place, name).chmod(0)
        os.seteuid(65534)
        try:
            for name in ("table/labels.csv", "images/labels.csv", "closed/labels.csv", "folder"):
                with pytest.raises(DataError) as caught:
                    find_source(f"{'folder' if name == 'folder' else 'table'}:{place}/{name}").check(Path(place))
                told.append(str(caught.value).replace(place, "T"))
        finally:
            os.seteuid(0)
    assert told == [
        "a table must be readable, got T/table/labels.csv: Permission denied; change that",
        "images must be readable, got T/images/in: Permission denied; change that",
        "images must be readable, got T/closed/labels.csv: Permission denied; change that",
        "images must be readable, got T/folder/link: Permission denied; change that",
    ]


def test_images_may_lie_elsewhere(tmp_path: Path) -> None:
    other = tmp_path / "other"
    source = write(tmp_path, "", *(f"other/{name}" for name in FILES))
    (tmp_path / "tables").mkdir()
    (tmp_path / "other" / "extra.png").write_bytes((other / "a1.png").read_bytes())
    for paths in ((f"{other}/{name}" for name in FILES), (f"../other/{name}" for name in FILES)):
        rows = "".join(f"{path},{path[-6]}\n" for path in paths)
        (tmp_path / "tables" / "labels.csv").write_text(HEAD + rows)
        source = TableOfImages(Table(tmp_path / "tables" / "labels.csv"))
        assert source.look().items == tuple(Item(f"{other}/{name}", name[0]) for name in FILES)
        assert [each.path for each in source.look().left_out] == [f"{other}/extra.png"]


def test_a_relative_table_is_read_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, HEAD + ROWS)
    monkeypatch.chdir(tmp_path)
    assert said(TableOfImages(Table("labels.csv"))) == PLAIN
    assert TableOfImages(Table("labels.csv")).look().left_out == ()


def test_parquet_has_the_same_rows(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    source = write(tmp_path, b"", name="labels.parquet")
    columns: dict[str, Any] = {"image": list(FILES), "label": pa.array([1, 1, 20, 20]), "weight": [1.0, 2.0, 1.0, 0.5]}
    parquet.write_table(pa.table(columns), tmp_path / "labels.parquet")
    assert said(source) == [
        (name, label, "train", None, weight)
        for name, label, weight in zip(FILES, ("1", "1", "20", "20"), (1.0, 2.0, 1.0, 0.5), strict=True)
    ]
    columns["label"] = pa.array(["x", "x", None, "y"])
    parquet.write_table(pa.table(columns), tmp_path / "labels.parquet")
    with pytest.raises(DataError, match=r"every row needs a label, got '' for 'b1\.png' in row 3"):
        source.look()


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "empty": (
        "",
        "a table needs the column 'image', got no columns in the first row of T; it has nothing, or name it, as data='table:T?image=COLUMN' or Table('T', image='COLUMN')",
    ),
    "header only": (HEAD, "a table needs a row for each image, got T with a header only; add rows"),
    "no header": (
        ROWS,
        "a table needs the column 'image', got 'a1.png', 'ant' in the first row of T; it has a1.png, ant, or",
    ),
    "no label column": (
        "image,labels\na1.png,ant\n",
        "a table needs the column 'label', got 'image', 'labels' in the first ",
    ),
    "two label columns": ("image,label,label\na1.png,ant,x\n", "a table needs one column 'label', got 2 in T; rename"),
    "no label": (
        HEAD + "a1.png,\n",
        "every row needs a label, got '' for 'a1.png' in row 2 of T; add it, or remove the row",
    ),
    "NaN label": (
        HEAD + ROWS + "a3.png,NaN\n",
        "every row needs a label, got 'NaN' for 'a3.png' in row 6 of T; add it",
    ),
    "no image": (HEAD + ROWS + " ,ant\n", "every row needs the path of an image, got '' in row 6 of T; write a path"),
    "web address": (
        HEAD + "https://a/b.png,ant\n",
        "every row needs the path of an image, got 'https://a/b.png' in row 2",
    ),
    "short row": (
        HEAD + "a1.png\n",
        "every row needs as many cells as the first, got 1 in row 2 and 2 in the first of T;",
    ),
    "long row": (HEAD + "a1.png,ant,or bee\n", "every row needs as many cells as the first, got 3 in row 2 and 2 in"),
    "open quote": (
        HEAD + 'a1.png,"ant\nb1.png,bee\n',
        "a table needs rows of cells, with pairs of quotes, got others after",
    ),
    "stray quote": (
        HEAD + 'a1.png,"an"t\n',
        "a table needs rows of cells, with pairs of quotes, got others after row 1 of",
    ),
    "NUL": (
        HEAD + "a1.png,a\0nt\n",
        "every row needs a label, got 'a\\x00nt' for 'a1.png' in row 2 of T; add it",
    ),
    "latin-1": (
        HEAD.encode() + b"a1.png,b\xe4r\n",
        "a table needs to be UTF-8 text, got other bytes after row 1 of T; save",
    ),
    "UTF-16": (
        (HEAD + ROWS).encode("utf-16"),
        "a table needs to be UTF-8 text, got other bytes after row 1 of T; save it",
    ),
    "UTF-16 without a mark": (
        (HEAD + ROWS).encode("utf-16-le"),
        "a table needs to be UTF-8 text, got other bytes after row 1 of T; save it as 'CSV UTF-8'",
    ),
    "a title": (
        "My photos,,\n" + HEAD,
        "a table needs the column 'image', got 'My photos', '', '' in the first row of T; it has My photos, or name it",
    ),
    "a zip": (
        b"PK\x03\x04\x14\x00\x06\x00\xff\xfe",
        "a table needs to be UTF-8 text, got other bytes after row 1 of T;",
    ),
    "no such images": (
        HEAD + ROWS.replace("png", "jpg"),
        "at least half of a class's images must be there, got none for 2",
    ),
    "Windows paths": (
        HEAD + r"C:\photos\a1.png,ant" + "\n",
        "at least half of a class's images must be there, got none for",
    ),
    "out of the folder": (
        HEAD + "../a1.png,ant\n../b1.png,bee\n",
        "at least half of a class's images must be there, got no",
    ),
    "absolute": (
        HEAD + "/nowhere/a1.png,ant\n",
        "at least half of a class's images must be there, got none for 1 of 1 ",
    ),
    "endless path": (
        HEAD + "x" * 5000 + "/a.png,ant\n",
        "at least half of a class's images must be there, got none for",
    ),
    "two labels": (
        HEAD + ROWS + "./a1.png,bee\n",
        "rows of the same image need the same values, got label 'ant' and in row 6 'b",
    ),
    "two weights": (
        "image,label,weight\na1.png,ant,1\na1.png,ant,2\n",
        "rows of the same image need the same values, got w",
    ),
    "two splits": (
        SPLIT + "a1.png,ant,test\n",
        "rows of the same image need the same values, got split 'train' and in row 6",
    ),
    "one class": (
        HEAD + "a1.png,ant\na2.png,ant\n",
        "a table needs at least 2 labels in the column 'label', got ['ant'] in",
    ),
    "some splits": (
        SPLIT + "c.png,bee,\n",
        "either all rows need a split or none, got none for 1 of 5 in T, such as 'c.png'",
    ),
    "no such split": (
        SPLIT + "c.png,bee,dev\n",
        "split needs to be train, training, val, valid, validation, test, testing, got 'dev' for 'c.png' in",
    ),
    "only for a test": (
        SPLIT.replace("b1.png,bee,train", "b1.png,cat,test"),
        "a table needs at least 2 labels in the column",
    ),
    "not trained": (
        SPLIT.replace("b2.png,bee,test", "b2.png,cat,test"),
        "every class needs training images, got 'cat' in test only; give some of its rows the split train",
    ),
    "no weight above 0": (
        SPLIT.replace("\n", ",0\n").replace("split,0", "split,weight").replace("test,0", "test,1"),
        "training images need weights of which some are > 0, got 0 for all 2 of table:T; raise some",
    ),
    "negative weight": (
        "image,label,weight\na1.png,ant,-1\n",
        "weight needs a number >= 0, got '-1' for 'a1.png' in row 2",
    ),
    "NaN weight": (
        "image,label,weight\na1.png,ant,nan\n",
        "weight needs a number >= 0, got 'nan' for 'a1.png' in row 2",
    ),
    "no weight": (
        "image,label,weight\na1.png,ant,\n",
        "weight needs a number >= 0, got '' for 'a1.png' in row 2 of T; corr",
    ),
    "decimal comma": (
        "image;label;weight\na1.png;ant;0,5\n",
        "weight needs a number >= 0, got '0,5' for 'a1.png' in row 2 of",
    ),
    "group in two splits": (
        "image,label,split,group\na1.png,ant,train,x\na2.png,ant,test,x\n",
        "the images of a group need the same split, got 'x' in two of T; correct split or group",
    ),
    "one group": (
        "image,label,group\n" + ROWS.replace("\n", ",x\n"),
        "group needs to tell images apart, got 'x' for all of T; empty the column",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_malformed_table_is_refused_in_a_sentence(tmp_path: Path, case: str) -> None:
    content, expected = REFUSED[case]
    source = write(tmp_path, content)
    with pytest.raises(DataError) as caught:
        ImageClassifier(source.name).check_files()
    told = str(caught.value).replace(source.place, "T")
    assert told.startswith(expected)
    assert "\n" not in told
    assert "; " in told


def test_what_is_no_table_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(name: str) -> str:
        with pytest.raises(DataError) as caught:
            find_source(f"table:{tmp_path / name}").check(tmp_path)
        return str(caught.value).replace(str(tmp_path), "T")

    (tmp_path / "photos").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"image,label\n")
    ending = "table:PATH needs a file that ends in .csv, .tsv, .parquet, .pq, got"
    assert refusal("nowhere.csv") == f"{ending} T/nowhere.csv, which is no file; correct the path"
    assert refusal("photos") == f"{ending} T/photos, which is a folder; correct the path"
    assert refusal("broken.parquet").startswith(
        "a table that ends in .parquet needs to be a Parquet file, got T/broken.parquet (Parquet magic bytes not found"
    )
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"image": ["a.png"], "label": pa.array([{"x": 1}])}
    parquet.write_table(pa.table(columns), tmp_path / "structs.parquet")
    assert refusal("structs.parquet") == (
        "a table's columns need texts or numbers, got struct<x: int64> for 'label' in T/structs.parquet; write it as text"
    )
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert refusal("structs.parquet") == (
        "a Parquet file needs pyarrow, which isn't installed, got T/structs.parquet; pip install pyarrow, or save the table "
        "as CSV"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"path": ""}, "Table needs the path of a CSV or Parquet file, got ''; correct it"),
        ({"path": 3}, "Table needs the path of a CSV or Parquet file, got 3; correct it"),
        (
            {"path": "a.csv", "label": None},
            "Table needs the name of one column for label, got None; write label='label'",
        ),
        ({"path": "a.csv", "split": ["a", "b"]}, "Table needs the name of one column for split, got"),
        ({"path": "a.csv", "label": "image"}, "Table needs two columns for image and label, got 'image' for both"),
    ],
)
def test_a_table_that_cant_be_one_is_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(StudyError) as caught:
        Table(**given)
    assert str(caught.value).startswith(expected)


def test_changes_of_table_and_images_change_what_is_known_of_the_data(tmp_path: Path) -> None:
    text = "image,label,group,weight\n" + ROWS.replace("\n", ",g,1\n").replace("b2.png,bee,g", "b2.png,bee,h")
    source = write(tmp_path, text)
    os.utime(tmp_path / "a1.png", (1, 1))
    before, key = source.fingerprint(tmp_path), source.content_key()
    trial = ImageClassifier(source.name)
    assert trial.data_changed_since(10.0) == [tmp_path / name for name in ("labels.csv", *FILES[1:])]
    (tmp_path / "labels.csv").write_text("\n".join([text.splitlines()[0], *reversed(text.splitlines()[1:])]))
    assert (source.fingerprint(tmp_path), source.content_key()) == (before, key)  # the order of rows says nothing
    for old, new in (
        ("a1.png,ant", "a1.png,bee"),
        (",ant", ",aunt"),
        ("bee,h", "bee,i"),
        ("a1.png,ant,g,1", "a1.png,ant,g,2"),
    ):
        (tmp_path / "labels.csv").write_text(text.replace(old, new))
        assert source.fingerprint(tmp_path) != before
        assert source.content_key() != key
    (tmp_path / "labels.csv").write_text(text)
    assert source.fingerprint(tmp_path) == before
    (tmp_path / "b1.png").write_bytes(b"another size")
    assert source.fingerprint(tmp_path) != before
    (tmp_path / "b2.png").unlink()
    assert [item.path.name for item in source.look().items] == ["a1.png", "a2.png", "b1.png"]


def test_groups_are_said_by_the_table_or_by_a_pattern(tmp_path: Path) -> None:
    source = write(tmp_path, "image,label,group\n" + ROWS.replace(".png,ant", ".png,ant,x").replace(",bee", ",bee,"))
    with pytest.raises(DataError) as caught:
        ImageClassifier(source.name, group="^(.)").check_files()
    assert str(caught.value) == (
        f"group= is a pattern of file names for data without groups of its own, got '^(.)' for {source.name}, which has a "
        "column of them; leave group= out"
    )
    (tmp_path / "labels.csv").write_text(HEAD + ROWS)
    check_splitting(source, None, "^(.)")
    ImageClassifier(source.name, group="^(.)").check_files()


def test_a_check_of_a_table_loads_neither_pandas_nor_torch(tmp_path: Path) -> None:
    source = write(tmp_path, HEAD + ROWS)
    code = (
        "import sys; from tuner import ImageClassifier; trial = ImageClassifier(sys.argv[1]); trial.check_files(); "
        "assert trial.look().images == 4; print({'pandas', 'pyarrow', 'torch', 'ray', 'numpy'} & {*sys.modules})"
    )
    told = subprocess.run([sys.executable, "-c", code, source.name], capture_output=True, text=True, check=True)
    assert told.stdout.strip() in ("set()", "{'numpy'}")


def test_a_folder_without_classes_names_the_table_in_it(tmp_path: Path) -> None:
    write(tmp_path, HEAD + ROWS)
    with pytest.raises(DataError) as caught:
        Folder(tmp_path).look()
    assert str(caught.value) == (
        f"a folder of images needs at least 2 classes, a subfolder each, got [] in {tmp_path}; name the folder that holds "
        "the classes, or move the 4 images in it into a folder for each class, or, if it has a row for each image, write "
        f"data='table:{tmp_path}/labels.csv'"
    )
