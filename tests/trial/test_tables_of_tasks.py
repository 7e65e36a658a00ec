"""Tables of several labels and of numbers: what is taken, what is noticed, and what is refused in a sentence."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tuner import ImageClassifier, RecallAtPrecision, Resources, Study
from tuner.errors import TunerError
from tuner.space import loguniform
from tuner.trial.folder_headers import folder_headers
from tuner.trial.table import Table, TableOfImages

FILES = ("a.png", "b.png", "c.png", "d.png")
COLUMNS = "?label=red&label=blue"
NUMBER = "every row needs a number, with a point before decimals and below 1e+30, got "
OR_CLASSES = " (or task='one' if labels are classes), or remove the row"
ZERO_ONE = "write 1 for images that have it and 0 for others, or remove the row"


def rows(*labels: str, head: str = "image,label") -> str:
    return "\n".join([head, *(f"{file},{label}" for file, label in zip(FILES, labels, strict=True))])


def of_columns(*cells: str, more: str = "") -> str:
    return rows(*cells, head=f"image,red,blue{more}")


def study(folder: Path, content: str, query: str = "", **given: Any) -> Study:
    """A study of a table beside four small images."""
    for number, name in enumerate(FILES):
        Image.new("RGB", (8 + number, 8)).save(folder / name)
    (folder / "labels.csv").write_text(content)
    of_study = {name: given.pop(name) for name in ("metric", "space", "resources") if name in given}
    trial = ImageClassifier(f"table:{folder}/labels.csv{query}", **given)
    return Study("tags", trial=trial, **{"space": {"lr": loguniform(1e-4, 1e-2)}, **of_study})


MEASURES = ("1.5", "2.5", "3.5", "4")
TAGS = ("a;b", "a", "b", "")
REFUSED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "numbers and a word": (
        *(rows("1.5", "2.5", "x", "4"), "", {}),
        f"{NUMBER}'x' for 'c.png' in row 4 of T; correct it{OR_CLASSES}",
    ),
    "numbers and nothing": (rows("1.5", "", "3", "4"), "", {}, f"{NUMBER}'' for 'b.png' in row 3 of T; correct it"),
    "numbers and NaN": (rows("1.5", "NaN", "3", "4"), "", {}, f"{NUMBER}'NaN' for 'b.png' in row 3 of T; correct it"),
    "infinite": (rows("1.5", "inf", "3", "4"), "", {}, f"{NUMBER}'inf' for 'b.png' in row 3 of T; correct it"),
    "too large": (rows("1.5", "1e300", "3", "4"), "", {}, f"{NUMBER}'1e300' for 'b.png' in row 3 of T; correct it"),
    "decimal commas": (
        *(rows('"1,5"', '"2,5"', '"3,5"', "4"), "", {}),
        f"{NUMBER}'1,5' for 'a.png' in row 2 of T; write 1.5{OR_CLASSES}",
    ),
    "decimal commas between semicolons": (
        *("image;label\na.png;1,5\nb.png;2,5\n", "", {}),
        f"{NUMBER}'1,5' for 'a.png' in row 2 of T; write 1.5{OR_CLASSES}",
    ),
    "one decimal comma": (
        rows("1.5", '"2,5"', "3.5", "4"),
        "",
        {},
        f"{NUMBER}'2,5' for 'b.png' in row 3 of T; write 2",
    ),
    "units": (
        *(rows("12 cm", "9.5 cm", "11 cm", "10 cm"), "", {}),
        f"{NUMBER}'12 cm' for 'a.png' in row 2 of T; write 12{OR_CLASSES}",
    ),
    "declared numbers that are names": (
        *(rows("ant", "bee", "ant", "bee"), "", {"task": "number"}),
        f"{NUMBER}'ant' for 'a.png' in row 2 of T; correct it",
    ),
    "declared numbers that are tags": (rows(*TAGS), "", {"task": "number"}, f"{NUMBER}'a;b' for 'a.png' in row 2 of T"),
    "equal numbers": (
        *(rows("1.5", "1.5", "1.50", "1.5"), "", {}),
        "a table needs different numbers in the column 'label', got ['1.5'] in T; name the column that has the labels",
    ),
    "two numbers of an image": (
        *("image,label\na.png,1.5\na.png,1.6\nb.png,2\n", "", {}),
        "rows of the same image need the same values, got label 1.5 and in row 3 1.6 for 'a.png' in T; remove the wrong",
    ),
    "yes": (
        *(of_columns("1,0", "yes,0", "0,1", "1,1"), COLUMNS, {}),
        f"the column 'red' of a label needs 0 or 1, got 'yes' for 'b.png' in row 3 of T; {ZERO_ONE}",
    ),
    "a count": (
        *(of_columns("1,0", "0,2", "0,1", "1,1"), COLUMNS, {}),
        f"the column 'blue' of a label needs 0 or 1, got '2' for 'b.png' in row 3 of T; {ZERO_ONE}",
    ),
    "an empty cell": (
        *(of_columns("1,0", "0,", "0,1", "1,1"), COLUMNS, {}),
        f"the column 'blue' of a label needs 0 or 1, got '' for 'b.png' in row 3 of T; {ZERO_ONE}",
    ),
    "no such column": (
        *(of_columns("1,0", "0,1", "0,1", "1,1"), "?label=red&label=green", {}),
        "a table needs the column 'green', got 'image', 'red', 'blue' in the first row of T; name the one of 0 and 1, as",
    ),
    "a column twice": (
        *(of_columns("1,0", "0,1", "0,1", "1,1"), "?label=red&label=red", {}),
        "Table needs a column of its own for each label, got 'red' twice; leave one out",
    ),
    "columns that aren't named": (
        *(of_columns("1,0,1", "0,1,1", "0,1,0", "1,1,1", more=",weight"), "", {}),
        "a table needs the column 'label', got 'image', 'red', 'blue', and 1 more in the first row of T; name those of 0 "
        "and 1, as data='table:T?label=red&label=blue' or Table('T', label=['red', 'blue'])",
    ),
    "a column that isn't named": (
        *(rows("1", "0", "0", "1", head="image,has rust"), "", {}),
        "a table needs the column 'label', got 'image', 'has rust' in the first row of T; name the one of 0 and 1, as "
        "data='table:T?label=has%20rust' or Table('T', label='has rust')",
    ),
    "one of several columns": (
        *(of_columns("1,0", "0,1", "0,1", "1,1"), COLUMNS, {"task": "one"}),
        "task='one' needs one column of labels, got 'red', 'blue'; name one, or leave task out",
    ),
    "a number of several columns": (
        *(of_columns("1,0", "0,1", "0,1", "1,1"), COLUMNS, {"task": "number"}),
        "task='number' needs one column of labels, got 'red', 'blue'; name one, or leave task out",
    ),
    "no labels": (
        *(rows("", "", "", ""), "", {"task": "several"}),
        "a table needs a label that some training images have and others haven't in the column 'label', got [] in T;",
    ),
    "zeros": (
        *(of_columns("0,0", "0,0", "0,0", "0,0"), COLUMNS, {}),
        "a table needs a label that some training images have and others haven't in the columns 'red', 'blue', got []",
    ),
    "one label that all have": (
        *(rows("red;", "red", "red", "red"), "", {}),
        "a table needs a label that some training images have and others haven't in the column 'label', got ['red'] in",
    ),
    "a label for validation alone": (
        *(rows("a;b,train", "a,train", "b;c,val", "b,val", head="image,label,split"), "", {}),
        "every label needs training images, got 'c' in validation only; give some of its rows the split train",
    ),
    "a label without a name": (
        *(rows("null;a", "a", "b", "a;b"), "", {}),
        "labels need names, got 'null' for 'a.png' in row 2 of T; add them, or leave the cell empty for none",
    ),
    "two sets of labels of an image": (
        *("image,label\na.png,a;b\na.png,a\nb.png,b\n", "", {}),
        "rows of the same image need the same values, got label ('a', 'b') and in row 3 ('a',) for 'a.png' in T; remove",
    ),
    "regression": (
        *(rows(*MEASURES), "", {"task": "regression"}),
        "task must be 'one', 'several', 'number' or None, got 'regression'; write task='number'",
    ),
    "multi-label": (
        *(rows(*TAGS), "", {"task": "multi-label"}),
        "task must be 'one', 'several', 'number' or None, got 'multi-label'; write task='several'",
    ),
    "ordinal": (
        *(rows(*MEASURES), "", {"task": "ordinal"}),
        "task must be 'one', 'several', 'number' or None, got 'ordinal'; leave it out to find it in a table",
    ),
    "a metric of classes for a number": (
        *(rows(*MEASURES), "", {"metrics": ["auroc"]}),
        "metrics needs names of metrics, got 'auroc'; it has spearman, pearson",
    ),
    "a recall for a number": (
        *(rows(*MEASURES), "", {"metrics": [RecallAtPrecision(0.9, of="a")]}),
        "RecallAtPrecision needs classes, got a number for each image; leave it out",
    ),
    "a recall of no label": (
        *(rows(*TAGS), "", {"metrics": [RecallAtPrecision(0.9, of="c")]}),
        "RecallAtPrecision needs a class of the data, got of='c'; it has a, b",
    ),
    "accuracy for several labels": (
        *(rows(*TAGS), "", {"metric": "val_accuracy"}),
        "metric needs to be one that resnet18 on table:T reports, got 'val_accuracy'; write 'val_subset_accuracy'",
    ),
    "smoothing of a number": (
        *(rows(*MEASURES), "", {"space": {"label_smoothing": 0.1}}),
        "label_smoothing means nothing for a number for each image; leave it out",
    ),
    "class weights of a number": (
        *(rows(*MEASURES), "", {"space": {"class_weights": "balanced"}}),
        "class_weights means nothing for a number for each image; leave it out",
    ),
    "a number's loss for labels": (
        *(rows(*TAGS), "", {"space": {"loss": "huber"}}),
        "loss means nothing for several labels for each image; leave it out",
    ),
    "a pipeline for a number": (
        *(rows(*MEASURES), "", {"resources": Resources(strategy="pipeline")}),
        "strategy='pipeline' needs an ImageClassifier, got the image classifier 'resnet18 on table:T', whose images have",
    ),
    "a negative weight": (
        *(of_columns("1,0,1", "0,1,-1", "0,1,1", "1,1,1", more=",weight"), COLUMNS, {}),
        "weight needs a number >= 0, got '-1' for 'b.png' in row 3 of T; correct it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_malformed_table_is_refused_in_a_sentence(tmp_path: Path, case: str) -> None:
    content, query, given, expected = REFUSED[case]
    with pytest.raises(TunerError) as caught:
        study(tmp_path, content, query, **given).check_here()
    told = str(caught.value).replace(f"{tmp_path}/labels.csv", "T")
    assert told.startswith(expected)
    assert "\n" not in told
    assert "; " in told


@pytest.mark.parametrize("data", ["digits", "folder:photos"])
def test_data_of_one_label_is_refused_for_another_task(data: str) -> None:
    with pytest.raises(TunerError) as caught:
        Study("tags", trial=ImageClassifier(data, task="several"), space={"lr": 0.1}).check_here()
    assert str(caught.value) == (
        f"task='several' needs a table or a function, got {data}, whose images have one label each; leave task out"
    )


TAKEN: dict[str, tuple[str, str, dict[str, Any], list[Any]]] = {
    "semicolons at the end, and labels twice": (
        *(rows("red;", "blue;blue", " blue ; red;", ";"), "", {}),
        [("red",), ("blue",), ("blue", "red"), ()],
    ),
    "columns": (
        *(of_columns("1,0", "false,True", " 1.0 ,0", "0,0"), COLUMNS, {}),
        [("red",), ("blue",), ("red",), ()],
    ),
    "numbers": (rows("1.5", " 2 ", "-3e1", ".5"), "", {}, [1.5, 2.0, -30.0, 0.5]),
    "declared numbers": (rows("1", "2", "3", "4"), "", {"task": "number"}, [1.0, 2.0, 3.0, 4.0]),
    "numbers that are classes": (rows("1.0", "1.0", "2.0", "2.0"), "", {"task": "one"}, ["1.0", "1.0", "2.0", "2.0"]),
    "whole numbers": (rows("1", "1", "2", "2"), "", {}, ["1", "1", "2", "2"]),
    "sizes": (rows("5 mm", "5 mm", "6 mm", "6 mm"), "", {}, ["5 mm", "5 mm", "6 mm", "6 mm"]),
    "versions": (rows("1.0.1", "1.0.1", "2.0", "x"), "", {}, ["1.0.1", "1.0.1", "2.0", "x"]),
}


@pytest.mark.parametrize("case", TAKEN)
def test_labels_are_taken_as_they_look_or_are_declared(tmp_path: Path, case: str) -> None:
    content, query, given, expected = TAKEN[case]
    trial: Any = study(tmp_path, content, query, **given).trial
    source = trial.source
    labels = {source.relative(item.file): item.label for item in source.look().items}
    assert [labels[name] for name in FILES] == expected


def notices(folder: Path, content: str, query: str = "") -> list[str]:
    _ = study(folder, content, query)
    told = folder_headers(TableOfImages(Table.of(f"table:{folder}/labels.csv{query}"))).notices
    return [sentence for sentence in told if "images are few" not in sentence and "seen once" not in sentence]


def test_check_says_what_it_took_and_what_teaches_nothing(tmp_path: Path) -> None:
    took = "each image has several labels"
    assert notices(tmp_path, rows("a;b", "b", "b", "b")) == [
        f"{took}, as there are semicolons between labels, in the column 'label'; task='one' makes classes of them",
        "labels of all training images or of none teach nothing, got 'b'; leave them out",
        "a label needs 3 images to be trained, validated and tested on, got fewer of 'a'; add images, or remove the label",
    ]
    told = notices(tmp_path, of_columns("1,0", "1,0", "0,0", "1,0"), COLUMNS)
    assert told == [took, "labels of all training images or of none teach nothing, got 'blue'; leave them out"]


def test_many_whole_numbers_may_be_meant_as_numbers(tmp_path: Path) -> None:
    for count in (10, 11):
        for number in range(count):
            Image.new("RGB", (8, 8 + number)).save(tmp_path / f"{number}.png")
        told = notices(tmp_path, "image,label\n" + "".join(f"{number}.png,{number}\n" for number in range(count)))
        expected = "the 11 labels in the column 'label' are taken as classes; if each is a number, write task='number'"
        assert (expected in told) is (count == 11)
