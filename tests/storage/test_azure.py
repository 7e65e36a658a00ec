"""Runs in Azure's Blob Storage, against Azurite."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import AzureFileSystem

from tests.azure_server import ACCOUNT, KEY, azure_account
from tests.storage.stores import works_for_everything
from tuner import Budget, External, Random, Search, Study, load_run, uniform
from tuner.errors import RunFolderError
from tuner.storage import outages
from tuner.storage.azure import AzurePlace
from tuner.storage.bucket import Bucket
from tuner.storage.locations import open_folder
from tuner.storage.object_folder import ObjectFolder


def test_an_account_is_in_the_uri_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCOUNT_NAME", "ACCOUNT", "ACCOUNT_KEY", "KEY", "SAS_TOKEN", "ENDPOINT"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    own = AzurePlace("mine", "photos/my runs")
    assert AzurePlace.of("abfs://photos@mine.dfs.core.windows.net/my%20runs/") == own
    assert AzurePlace.of("abfss://mine.blob.core.windows.net/photos/my%20runs") == own
    with pytest.raises(RunFolderError, match=r"needs the account's name, got 'abfs://photos/my%20runs'; write abfs://"):
        AzurePlace.of("abfs://photos/my%20runs")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    assert AzurePlace.of("abfs://photos/my%20runs") == own
    assert (own.options(), own.is_told) == ({"account_name": "mine"}, False)
    for uri in ("abfs://photos/my runs", "abfs://photos@mine.dfs.core.windows.net/my runs?enable_tls=true"):
        folder = open_folder(uri)  # by the machine's identity, which nothing is asked for yet
        assert isinstance(folder, ObjectFolder)
        assert folder.key == "photos/my runs"
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=2")
    assert AzurePlace.of("abfs://photos").options() == {"account_name": "mine", "sas_key": "?sv=1&sig=2"}
    assert AzurePlace.of("abfs://photos").filesystem() == AzureFileSystem("mine", sas_token="?sv=1&sig=2")
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:10000/mine/")
    place = AzurePlace.of("abfs://photos")
    assert place.options() == {
        **{"account_name": "mine", "account_key": KEY},
        "endpoint": "http://127.0.0.1:10000/mine",
    }
    assert place.filesystem().type_name == "abfs"
    assert KEY not in repr(place)


@pytest.fixture(scope="module")
def account() -> Iterator[dict[str, str]]:
    with azure_account("bucket") as account:
        yield account


BASES = ["abfs://bucket", "abfss://bucket/my runs/größe", f"abfs://bucket@{ACCOUNT}.dfs.core.windows.net/a%20b/"]


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES)
def test_a_container_works_for_everything(account: dict[str, str], tmp_path: Path, base: str) -> None:
    works_for_everything(base, tmp_path)


@pytest.mark.slow
def test_an_object_is_created_once_and_read_in_parts(account: dict[str, str]) -> None:
    folder = open_folder("abfs://bucket/created")
    assert (folder.create("one", b"1"), folder.create("one", b"2"), folder.read("one")) == (True, False, b"1")
    folder.touch("one")
    for missing in (folder.modified, folder.touch, folder.read):
        with pytest.raises(FileNotFoundError):
            missing("two")
    bucket = Bucket("abfs://bucket/created")
    (found,) = bucket.objects()
    assert (found.name, found.size, bucket.read(found, 0, 1, alone=False)) == ("one", 1, b"1")


@pytest.mark.slow
def test_a_search_goes_on_from_another_machine(account: dict[str, str], tmp_path: Path) -> None:
    study = Study(
        "azure",
        trial=External("furnace"),
        space={"x": uniform(0, 1)},
        metric="loss",
        mode="min",
        search=Random(),
        budget=Budget(trials=4, max_epochs=3),
    )
    search = Search(study, storage="abfs://bucket/runs")
    trial = search.ask()
    assert trial is not None
    search.report(trial, 1, 0.5)
    search.close()
    run = load_run(search.run.path)
    assert (run.record.epochs(), run.status) == (1, "interrupted")
    with Search.resume(run.path) as again:
        while (trial := again.ask()) is not None:
            for epoch in trial.epochs_left:
                if again.report(trial, epoch, trial.config["x"]) != "continue":
                    break
            again.tell(trial)
    run = load_run(run.path)
    assert (run.status, run.folder.exists("report.html")) == ("finished", True)
    assert len(run.trials) == 4


@pytest.mark.slow
def test_an_account_that_does_not_answer_may_answer_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with azure_account("bucket") as account:
        folder = open_folder("abfs://bucket/gone")
        folder.write("one", b"1")
    for name, value in account.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(outages, "LONGEST_SECONDS", 0.0)
    for method in (folder.files, lambda: folder.read("one"), lambda: folder.write("one", b"2")):
        with pytest.raises(OSError, match="connection") as gone:
            method()
        assert outages.is_passing(gone.value)


@pytest.mark.slow
def test_a_container_that_is_not_there_and_a_wrong_key_are_refused(
    account: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunFolderError, match="check the bucket and the credentials"):
        open_folder("abfs://nothing/runs").create("one", b"1")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "AAAA")
    with pytest.raises(RunFolderError, match="check the bucket and the credentials"):
        open_folder("abfs://bucket/runs").create("one", b"1")
