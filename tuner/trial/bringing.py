"""The files that an image classifier reads, where they are, and which have to be downloaded first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

from tuner.errors import DataError, WeightsError
from tuner.storage.copies import Copy, Listing
from tuner.storage.hub import BETWEEN, HubFile, commits_in
from tuner.storage.regular_files import sha256
from tuner.trial.data_source import Folder
from tuner.trial.folder_headers import FolderHeaders, folder_headers
from tuner.trial.model_and_data import ModelAndData
from tuner.trial.models import DEFAULTS, ModelFacts, PublishedWeights, weights_names
from tuner.trial.stored import (
    StoredFacts,
    StoredFolder,
    check_stored,
    errors_about_hub,
    facts_of,
    images_at,
    weights_at,
)


class ReadsFiles(ModelAndData):
    """The part of `ImageClassifier` that is about its files; see there for the fields."""

    @property
    def image_folder(self) -> Folder | None:
        """The folder on this machine in which each image is a file."""
        found = self.source.image_folder(self.data_folder)
        return None if isinstance(found, StoredFolder) and not found.copy.is_present else found

    @property
    def stored_data(self) -> str | None:
        """The URI of images in an object store; None for others."""
        source = self.source if isinstance(self.data, str) else None
        return source.uri if isinstance(source, StoredFolder) else None

    def missing_downloads(self, *, stored: bool = True) -> list[str]:
        """See `Trial.missing_downloads`."""
        wanted = [(each.model, each.named_weights) for each in self.each]
        of_weights = self.stored_weights if stored else None
        path = self.weights_file
        data = self.source.missing(self.data_folder) if stored or self.stored_data is None else []
        return [
            *data,
            *([f"{of_weights} into {path.parent}"] if of_weights and path and not path.is_file() else []),
        ] + [
            f"weights of {model} into {weights.path}"
            for model, weights in wanted
            if weights and not weights.path.is_file()
        ]

    def stored(self) -> list[StoredFacts]:
        """See `Trial.stored`."""
        return [facts_of(listing) for listing in self.listings()]

    def listings(self) -> list[Listing]:
        """What object stores have now, data first; raises DataError or WeightsError."""
        data, weights = self.stored_data, self.stored_weights
        return [*([images_at(data)] if data else []), *([weights_at(weights)] if weights else [])]

    def pinned(self, facts: Sequence[StoredFacts]) -> Self:
        """See `Trial.pinned`."""
        return self._with_copies([(one.uri, one.version) for one in facts])

    def _with_copies(self, stored: Sequence[tuple[str, str]]) -> Self:
        """The same trial, fixed to versions in object stores, and to commits of repositories on the hub."""
        commits = []
        for each in self.each:
            if file := _on_the_hub(each):
                with errors_about_hub(each.model_name, file, configures=each.named_weights is None):
                    commits.append((file.repository, file.settled_commit()))
        changed: Self = replace(cast(Any, self), copies=(*stored, *commits))
        return changed

    def pinned_again(self, data: str | None, weights: str | None) -> tuple[Self, str | None]:
        """See `Trial.pinned_again`."""
        begun = self.at_commits(weights)
        try:
            return begun.pinned(self.stored()), None
        except (DataError, WeightsError) as problem:
            file = next((each for each in (weights or "").split(BETWEEN) if "@" not in each), None)
            began = [(uri, version) for uri, version in ((self.stored_data, data), (self.stored_weights, file)) if uri]
            if not all(version and Copy(uri, version).is_whole for uri, version in began):
                raise
            kept = begun._with_copies([(uri, str(version)) for uri, version in began])
            return kept, f"{problem}; the run goes on with this machine's copies of what it began with"

    def at_commits(self, weights: str | None) -> Self:
        """See `Trial.at_commits`."""
        begun: Self = replace(cast(Any, self), copies=(*self.copies, *commits_in(weights).items()))
        return begun

    def check_stored(self) -> None:
        """See `Trial.check_stored`."""
        pinned = dict(self.copies)
        wanted = [uri for uri in (self.stored_data, self.stored_weights) if uri]
        if not all(uri in pinned and Copy(uri, pinned[uri]).is_whole for uri in wanted):
            check_stored(self.listings(), self.copies)

    def look(self) -> FolderHeaders | None:
        """See `Trial.look`."""
        folder = self.image_folder
        return None if folder is None else folder_headers(folder, validation=self.validation)

    def reads(self) -> str | None:
        """See `Trial.reads`: images that are separate files."""
        folder = self.image_folder
        return None if folder is None else f"{len(folder.files(self.data_folder)):,} images of {self.source.name}"

    def fingerprint(self) -> str | None:
        """A fingerprint of the data set's files; None for a function's data."""
        return self.source.fingerprint(self.data_folder)

    def data_changed_since(self, moment: float) -> list[Path] | None:
        """The data set's files that were written after a moment; not those that were put there with an older time.

        None for data in a store, of which there are only copies here.
        """
        if self.stored_data is not None:
            return None
        return [path for path in self.source.files(self.data_folder) if path.stat().st_mtime > moment]

    @property
    def commit(self) -> str | None:
        """OWNER/NAME@COMMIT of the repository that has the one model or its weights; None if it isn't on the hub."""
        file = _on_the_hub(self)
        commit = None if file is None else file.known_commit
        return None if file is None or commit is None else f"{file.repository}@{commit}"

    def weights_fingerprint(self) -> str | None:
        """A fingerprint of a file's contents or the version in a store, and the commits of repositories on the hub.

        None for random weights of models that aren't on the hub, and for published ones that torch downloads.
        """
        commits = {each.commit for each in self.each if _on_the_hub(each)}
        if None in commits:
            return None
        return BETWEEN.join(filter(None, [self._file_version(), *sorted(map(str, commits))])) or None

    def _file_version(self) -> str | None:
        """A fingerprint of the contents of the user's file of weights, or its version in a store."""
        if uri := self.stored_weights:
            return Copy(uri, dict(self.copies).get(uri)).settled.version
        path = self.weights_file
        if path is None or self.named_weights is not None or not path.is_file():
            return None
        return sha256(path)[:16]

    def resolved(self, folder: Path | None = None) -> Self:
        """The same trial with absolute paths, relative to `folder` or the working directory."""
        base = (folder or Path.cwd()).absolute()
        changed: Any = replace(cast(Any, self), data_dir=str(base / self.data_folder))
        if isinstance(self.data, str) and self.data.startswith("folder:") and self.stored_data is None:
            changed = replace(changed, data=f"folder:{base / Path(self.data.removeprefix('folder:')).expanduser()}")
        if self.weights not in (None, "none", *DEFAULTS, *weights_names()) and self.stored_weights is None:
            changed = replace(changed, weights=str(base / Path(str(self.weights)).expanduser()))
        return cast(Self, changed)


def _on_the_hub(trial: Any) -> HubFile | None:
    """The file on the hub from which the training of one model starts, or the one that configures the model."""
    found: ModelFacts | PublishedWeights = trial.named_weights or trial.model_facts
    return found.hub_file
