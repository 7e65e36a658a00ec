"""Studies whose images and weights lie in an object store, before and after they are copied."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.commands import run_main, study_file
from tests.s3_proxy import Proxy, proxied
from tests.s3_server import put_objects, s3_endpoint
from tests.stored_photos import COLOURS, photo, photos
from tuner import ImageClassifier
from tuner.errors import DataError, StudyError, WeightsError
from tuner.storage import bucket, copies, outages
from tuner.train import download_missing
from tuner.train.data.loading import load_splits
from tuner.train.download import fetch_stored_weights
from tuner.trial.sources import find_source
from tuner.trial.stored import StoredFiles


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with s3_endpoint("bucket") as endpoint, proxied(endpoint) as standing_between:
        yield standing_between


@pytest.fixture(autouse=True)
def _account(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoint and cache, as the environment has them."""
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{proxy.endpoint}")


def put(proxy: Proxy, objects: dict[str, bytes]) -> None:
    host, port = proxy.server
    put_objects(f"http://{host}:{port}", objects)


def pinned(trial: ImageClassifier) -> ImageClassifier:
    return trial.pinned(trial.stored())


def test_what_a_store_has_is_known_before_anything_is_copied(proxy: Proxy, tmp_path: Path) -> None:
    put(proxy, photos(3, "known") | {"known/cat/notes.txt": b"x", "known/.DS_Store": b"x"})
    trial = ImageClassifier(data="folder:s3://bucket/known", weights=None)
    assert (trial.image_files, trial.look(), trial.reads(), trial.fingerprint()) == (None,) * 4
    trial.check_files()
    assert trial.resolved().data == "folder:s3://bucket/known"
    assert trial.missing_downloads() == [f"s3://bucket/known into {trial.source.copy.base}"]  # type: ignore[attr-defined]
    assert trial.missing_downloads(stored=False) == []
    (facts,) = trial.stored()
    assert facts.sentence().startswith(
        "s3://bucket/known: 6 images in 2 classes, 0.0 MB (1 more without an image's end"
    )
    assert "not on this machine yet: a search copies it, once on each node, into" in facts.sentence()
    assert not (tmp_path / "cache").exists()
    with_data = pinned(trial)
    download_missing(with_data)
    assert with_data.missing_downloads() == []
    assert with_data.fingerprint() == facts.version == trial.fingerprint()
    assert trial.stored()[0].copied
    found = with_data.look()
    assert found is not None
    assert found.images == 6
    assert [str(one) for one in found.left_out] == ["cat/notes.txt (it ends in '.txt', not as images that are read)"]


def test_trials_keep_the_images_that_their_search_began_with(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    put(proxy, photos(12, "kept"))
    began = pinned(ImageClassifier(data="folder:s3://bucket/kept", weights=None))
    before = load_splits(began, seed=0, image_size=8)  # copies them, as on a node that hasn't them
    put(proxy, {"kept/cat/000.png": photo("dog", 99), "kept/cat/012.png": photo("cat", 98)})
    began.check_stored()  # this machine has what it began with
    after = pinned(ImageClassifier(data="folder:s3://bucket/kept", weights=None))
    assert after.fingerprint() != began.fingerprint()
    assert len(load_splits(after, seed=0, image_size=8).train.labels) >= len(before.train.labels)
    monkeypatch.setattr(outages, "LONGEST_SECONDS", 0.0)  # a store that has answered is waited for: see test_outages
    monkeypatch.setattr(bucket, "RETRY_SECONDS", 0.5)
    proxy.gone = True  # what is here needs no store
    try:
        again = load_splits(began, seed=0, image_size=8)
        began.check_stored()
        asked = ImageClassifier(data="folder:s3://bucket/kept", weights=None)
        kept, said = asked.pinned_again(began.fingerprint(), None)
        assert kept == began
        assert said is not None
        assert said.endswith("; the run goes on with this machine's copies of what it began with")
        for unknown in ("0123456789abcdef", None):  # which was never copied
            with pytest.raises(DataError, match="can't be reached"):
                asked.pinned_again(unknown, None)
    finally:
        proxy.gone = False
    assert torch.equal(again.train.labels, before.train.labels)
    os.environ["TUNER_CACHE"] += "-of-another-node"
    with pytest.raises(
        DataError, match=r"keeps the data and weights that it began with, got other objects now at s3://"
    ):
        began.check_stored()
    with pytest.raises(DataError, match="restore them, or start a new search"):
        load_splits(began, seed=0, image_size=8)


def test_a_prefix_without_images_or_classes_is_refused(proxy: Proxy) -> None:
    put(proxy, {"flat/1.png": photo("cat", 1), "texts/cat/1.txt": b"x"})
    for place, said in (
        ("bucket/none", r"needs images below this prefix, got none there; correct bucket and prefix"),
        ("bucket/texts", r"got 1 objects there, none of which ends in \.bmp.*; correct bucket"),
        ("nobody/x", r"needs images in a store that can be read, but there is no bucket 'nobody'; correct the URI"),
        ("bucket/flat/../x", r"a name there can be none of a file \(.*\); rename it, or correct the URI"),
    ):
        with pytest.raises(DataError, match=said):
            ImageClassifier(data=f"folder:s3://{place}").stored()
    trial = pinned(ImageClassifier(data="folder:s3://bucket/flat", weights=None))
    with pytest.raises(
        DataError, match=r"needs at least 2 classes, a subfolder each, got \[\] in s3://bucket/flat; name"
    ):
        load_splits(trial, seed=0, image_size=8)
    with pytest.raises(StudyError, match=r"images of your own are 'folder:s3://bucket/flat'$"):
        ImageClassifier(data="s3://bucket/flat").source  # noqa: B018


def test_weights_come_from_a_store_as_from_a_file(proxy: Proxy, tmp_path: Path) -> None:
    from tuner.train.models import build_network

    uri = "s3://bucket/nets/resnet18-f37072fd.pth"
    network = build_network(ImageClassifier(weights=None), channels=3, classes=4, seed=5)
    file = tmp_path / "net.pth"
    torch.save(network.module.state_dict(), file)
    put(proxy, {"nets/resnet18-f37072fd.pth": file.read_bytes()})
    trial = pinned(ImageClassifier(weights=uri))
    assert (trial.started_from, trial.identity()["weights"]) == (uri, uri)
    assert trial.published is not None  # by its name, as for a file
    assert trial.resolved().weights == uri
    trial.check_files()
    assert len(trial.missing_downloads()) == 1
    loaded = build_network(trial, channels=3, classes=4, seed=7)
    assert trial.missing_downloads() == []
    for name, tensor in network.module.state_dict().items():
        assert torch.equal(tensor, loaded.module.state_dict()[name]), name
    before = trial.weights_fingerprint()
    assert before == trial.stored()[0].version
    put(proxy, {"nets/resnet18-f37072fd.pth": file.read_bytes() + b"."})
    assert pinned(ImageClassifier(weights=uri)).weights_fingerprint() != before
    trial.check_stored()  # this machine has what was there
    with pytest.raises(
        WeightsError, match=r"^weights='s3://bucket/no\.pth' need a file in a store .* there is no such obj"
    ):
        ImageClassifier(weights="s3://bucket/no.pth").stored()


def test_a_file_of_weights_is_named_with_escapes(proxy: Proxy) -> None:
    put(proxy, {"nets/my net.pth": b"weights"})
    for name in ("my%20net.pth", "my net.pth"):
        file = fetch_stored_weights(pinned(ImageClassifier(weights=f"s3://bucket/nets/{name}")))
        assert file is not None
        assert file.read_bytes() == b"weights"


def test_stored_images_are_named_as_in_the_study_and_lie_in_the_cache(tmp_path: Path) -> None:
    for name in ("folder:s3://key:secret@bucket/photos", "table:s3://key:secret@bucket/photos/labels.csv?label=kind"):
        images = find_source(name)
        assert isinstance(images, StoredFiles)
        assert images.name == name
        assert "secret" not in str(images.path)
        assert tmp_path / "cache" in images.path.parents


def table(proxy: Proxy, prefix: str, rows: str, name: str = "labels.csv") -> ImageClassifier:
    """A trial on a table beside three photos of each kind, whose folders say nothing."""
    put(proxy, {f"{prefix}/scans/{kind}{number}.png": photo(kind, number) for kind in COLOURS for number in range(3)})
    put(proxy, {f"{prefix}/{name}": rows.encode()})
    return ImageClassifier(data=f"table:s3://bucket/{prefix}/{name}", weights=None)


ROWS = "image,label\n" + "".join(f"scans/{kind}{number}.png,{kind}\n" for kind in COLOURS for number in range(3))


def test_what_a_table_names_is_known_before_anything_is_copied(proxy: Proxy, tmp_path: Path) -> None:
    put(proxy, {"tabled/scans/bird.png": photo("cat", 9), "tabled/more/.png": b"x", "tabled/notes.txt": b"x"})
    absolute = ROWS.replace("scans/cat0", "s3://bucket/tabled/scans/cat0").replace("scans/cat1", "./x/..\\scans//cat1")
    trial = table(proxy, "tabled", absolute + "scans/cat9.png,cat\nlabels.csv,cat\n")
    assert (trial.image_files, trial.look(), trial.reads(), trial.fingerprint()) == (None,) * 4
    trial.check_files()
    assert trial.resolved() == replace(trial, data_dir=str(Path.cwd() / "data"))
    (facts,) = trial.stored()
    assert facts.sentence().startswith(
        "s3://bucket/tabled/labels.csv: 6 images in 2 classes, 0.0 MB (1 more without a row stay there); not on this "
    )
    assert (facts.objects, facts.images) == (7, 6)
    assert not (tmp_path / "cache").exists()
    with_data = pinned(trial)
    assert with_data.missing_downloads() == [f"s3://bucket/tabled/labels.csv into {facts.folder}"]
    splits = load_splits(with_data, seed=0, image_size=8)
    assert (splits.classes, len([*splits.train.labels, *splits.validation.labels, *splits.test.labels])) == (
        ("cat", "dog"),
        6,
    )
    assert with_data.missing_downloads() == []
    assert with_data.fingerprint() == facts.version == trial.fingerprint() == trial.stored()[0].version
    images = with_data.image_files
    assert images is not None
    copied = {images.relative(file) for file in images.path.rglob("*") if file.is_file()}
    assert copied == {"labels.csv", *(f"scans/{kind}{number}.png" for kind in COLOURS for number in range(3))}
    assert images.look().notices == (
        "1 image has a row but no file: scans/cat9.png",
        "1 image has a file but no row: scans/bird.png",
    )
    assert [str(each) for each in images.look().left_out] == [
        "labels.csv (it ends in '.csv', not as images that are read)",
        "scans/bird.png (it has no row in the table)",
        "scans/cat9.png (it has a row, but there is no such file)",
    ]
    assert [item.label for item in images.look().items] == ["cat"] * 3 + ["dog"] * 3


def test_a_table_is_as_large_as_a_piece_and_named_with_escapes(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "PIECE_BYTES", 50)
    table(proxy, "a b", ROWS.replace("image,label", "file,kind"), "my labels.csv")
    for name in ("a%20b/my%20labels.csv", "a b/my labels.csv"):
        trial = pinned(
            ImageClassifier(f"table:s3://bucket/{name}?region=us-east-1&image=file&label=kind", weights=None)
        )
        download_missing(trial)
        found = trial.look()
        assert found is not None
        assert found.counts == {"cat": {"train": 3}, "dog": {"train": 3}}


def test_images_of_a_table_may_lie_elsewhere_in_its_bucket(proxy: Proxy) -> None:
    rows = ROWS.replace("scans/cat", "s3://bucket/elsewhere/a/cat").replace("scans/dog", "../../elsewhere/b/dog")
    put(proxy, {"tables/my/labels.csv": rows.encode(), "tables/my/extra.png": b"x", "unrelated/cat0.png": b"x"})
    put(
        proxy,
        {
            f"elsewhere/{'a' if kind == 'cat' else 'b'}/{kind}{n}.png": photo(kind, n)
            for kind in COLOURS
            for n in (0, 1)
        },
    )
    put(proxy, {"elsewhere/a/extra.png": photo("cat", 9), "elsewhere/c/extra.png": photo("cat", 9)})
    trial = pinned(ImageClassifier("table:s3://bucket/tables/my/labels.csv", weights=None))
    assert (
        trial.stored()[0]
        .sentence()
        .startswith(
            "s3://bucket/tables/my/labels.csv: 4 images in 2 classes, 0.0 MB (1 more without a row stay there); not on"
        )
    )
    download_missing(trial)
    images = trial.image_files
    assert images is not None
    assert [images.relative(item.file) for item in images.look().items] == [
        f"s3://bucket/elsewhere/{name}.png" for name in ("a/cat0", "a/cat1", "b/dog0", "b/dog1")
    ]
    assert images.look().notices == (
        "2 images have a row but no file: s3://bucket/elsewhere/a/cat2.png, s3://bucket/elsewhere/b/dog2.png",
        "1 image has a file but no row: s3://bucket/elsewhere/a/extra.png",
    )


def test_trials_keep_the_table_that_their_search_began_with(proxy: Proxy) -> None:
    began = pinned(table(proxy, "edited", ROWS))
    download_missing(began)
    put(proxy, {"edited/scans/else.png": photo("cat", 99)})  # which no row names
    assert pinned(began).fingerprint() == began.fingerprint()
    again = pinned(table(proxy, "edited", ROWS.replace("dog2.png,dog", "dog2.png,cat")))
    assert again.fingerprint() != began.fingerprint()
    began.check_stored()  # this machine has what it began with
    download_missing(again)
    labels = [[item.label for item in trial.source.look().items] for trial in (began, again)]  # type: ignore[attr-defined]
    assert labels == [["cat"] * 3 + ["dog"] * 3, ["cat"] * 4 + ["dog"] * 2]
    put(proxy, {"edited/scans/dog2.png": photo("cat", 5)})
    assert pinned(again).fingerprint() != again.fingerprint()
    os.environ["TUNER_CACHE"] += "-of-another-node"
    with pytest.raises(DataError, match=r"got other objects now at s3://bucket/edited/labels\.csv; restore them, or"):
        began.check_stored()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ROWS.replace("scans/", "scan/"), r"none for 3 of 3 rows of 'cat' in T, such as 'scan/cat0"),
        (ROWS.replace(",dog", ",cat"), r"a table needs at least 2 labels in the column 'label', got \['cat'\] in T"),
        (ROWS.replace("scans/cat0.png,cat", "scans/cat0.png,"), r"needs a label, got '' for 'scans/cat0.png' in row 2"),
        (
            ROWS.replace("scans/cat0", "../../x"),
            r"to be in its bucket, s3://bucket/, got '../../x.png' in row 2 of T; co",
        ),
        (ROWS.replace("scans/cat0", "a/../../../x"), r"its bucket, s3://bucket/, got 'a/../../../x.png' in row 2 of"),
        (
            ROWS.replace("scans/cat0", "s3://bucket/../x"),
            r"its bucket, s3://bucket/, got 's3://bucket/../x.png' in row",
        ),
        (
            ROWS.replace("scans/cat0", "/x"),
            r"be in its bucket, s3://bucket/, got '/x.png' in row 2 of T; copy them there",
        ),
        (ROWS.replace("scans", "gs://bucket/bad"), r"bucket, s3://bucket/, got 'gs://bucket/bad/cat0.png' in row 2 of"),
        (ROWS.replace("scans", "s3://bucket2/bad"), r"bucket, s3://bucket/, got 's3://bucket2/bad/cat0.png' in row 2"),
        (ROWS.replace("scans", "s3://bucket/worse"), r"for 3 of 3 rows of 'cat' in T, such as 's3://bucket/worse/cat0"),
        (ROWS.replace("scans/cat0.png", ""), r"every row needs the path of an image, got '' in row 2 of"),
        (
            ROWS.replace("0.png,cat", "0.png,cat;dog"),
            r"needs its task, got T, in which there are semicolons between la",
        ),
        (
            ROWS.replace(",cat", ",1.5").replace(",dog", ",2"),
            r"write ImageClassifier\(..., task='number'\), or task='one'",
        ),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_before_it_is_copied(proxy: Proxy, rows: str, said: str) -> None:
    trial = table(proxy, "bad", rows)
    with pytest.raises(DataError, match=said.replace("T", r"s3://bucket/bad/labels\.csv")):
        trial.stored()


def test_a_table_of_several_labels_in_a_store_names_its_task(proxy: Proxy) -> None:
    rows = ROWS.replace("0.png,cat", "0.png,cat;dog")
    trial = replace(table(proxy, "several", rows), task="several")
    (facts,) = trial.stored()
    assert facts.classes == 2
    trial = trial.pinned([facts])
    download_missing(trial)
    assert trial.source.class_names() == ("cat", "dog")
    assert trial.source.look().counts["cat", "train"] == 3


def test_a_table_that_is_not_there_is_refused(proxy: Proxy) -> None:
    for place in ("bucket/nowhere.csv", "nobody/x.csv", "bucket", "bucket/"):
        with pytest.raises(DataError, match=rf"^data at s3://{place} needs images in a store that can be read, but "):
            ImageClassifier(f"table:s3://{place}", weights=None).stored()


STUDY = """
study = Study(
    "photos", trial=ImageClassifier(data="folder:s3://bucket/PREFIX", model="resnet18", weights=None),
    space={"lr": loguniform(1e-4, 1e-1)}, metric="val_accuracy", budget=Budget(trials=4, max_epochs=3),
)
"""


def test_check_says_what_the_store_has_without_a_download(
    proxy: Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(proxy, photos(4, "checked"))
    space = study_file(tmp_path, STUDY.replace("PREFIX", "checked"))
    code, out, _ = run_main(capsys, "check", space, "--storage", tmp_path / "runs")
    assert code == 0
    assert (
        "s3://bucket/checked: 8 images in 2 classes, 0.0 MB; not on this machine yet: a search copies it, once" in out
    )
    code, out, _ = run_main(capsys, "check", space, "--json", "--storage", tmp_path / "runs")
    (told,) = json.loads(out)["stored"]
    assert (told["uri"], told["objects"], told["classes"], told["copied"]) == ("s3://bucket/checked", 8, 2, False)
    assert not (tmp_path / "cache").exists()
    table(proxy, "checked", ROWS)
    tabled = study_file(tmp_path, STUDY.replace("folder:s3://bucket/PREFIX", "table:s3://bucket/checked/labels.csv"))
    code, out, _ = run_main(capsys, "check", tabled, "--storage", tmp_path / "runs")
    assert code == 0
    assert (
        "s3://bucket/checked/labels.csv: 6 images in 2 classes, 0.0 MB; not on this machine yet: a search copies" in out
    )
    assert not (tmp_path / "cache").exists()
    code, _, err = run_main(capsys, "check", study_file(tmp_path, STUDY.replace("PREFIX", "nothing")))
    assert (code, "got none there; correct bucket and prefix, or copy the images there" in err) == (2, True)
