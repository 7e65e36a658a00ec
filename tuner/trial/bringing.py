"""The files that an image classifier reads, where they are, and which have to be downloaded first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

from tuner.errors import DataError, WeightsError
from tuner.storage.copies import Copy, Listing
from tuner.storage.hub import BETWEEN, HubFile, commits_in
from tuner.storage.regular_files import sha256
from tuner.trial.data_source import ImageFiles
from tuner.trial.folder_headers import FolderHeaders, folder_headers
from tuner.trial.model_and_data import ModelAndData, Weights, of_each
from tuner.trial.models import DEFAULTS, ModelFacts, PublishedWeights, weights_names
from tuner.trial.stored import (
    StoredFacts,
    StoredFiles,
    check_stored,
    errors_about_hub,
    facts_of,
    is_stored,
    weights_at,
)
from tuner.trial.table import PREFIX, Table


class ReadsFiles(ModelAndData):
    """The part of `ImageClassifier` that is about its files; see there for the fields."""

    @property
    def image_files(self) -> ImageFiles | None:
        """The data set if each of its images is a file on this machine."""
        found = self.source.image_files(self.data_folder)
        return None if isinstance(found, StoredFiles) and not found.copy.is_present else found

    @property
    def stored_data(self) -> str | None:
        """The URI of images, or of a table of them, in an object store; None for others."""
        return self.source.uri if isinstance(self.source, StoredFiles) else None

    @property
    def all_stored_weights(self) -> tuple[str, ...]:
        """The URIs of weights in object stores, from which one of the models starts."""
        return tuple(dict.fromkeys(uri for each in self.each if (uri := each.stored_weights)))

    def missing_downloads(self, *, stored: bool = True) -> list[str]:
        """See `Trial.missing_downloads`."""
        data = self.source.missing(self.data_folder) if stored or self.stored_data is None else []
        copied: dict[str, None] = {}
        published = []
        for each in self.each:
            path = each.weights_file
            if path is None or path.is_file():
                continue
            if each.stored_weights and stored:
                copied[f"{each.stored_weights} into {path.parent}"] = None
            elif each.named_weights:
                published.append(f"weights of {each.model} into {path}")
        return [*data, *copied, *published]

    def stored(self) -> list[StoredFacts]:
        """See `Trial.stored`."""
        return [facts_of(listing) for listing in self.listings()]

    def listings(self) -> list[Listing]:
        """What object stores have now, data first; raises DataError or WeightsError."""
        data = [self.source.listing()] if isinstance(self.source, StoredFiles) else []
        return [*data, *map(weights_at, self.all_stored_weights)]

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
            known = dict(begun.copies)
            of_weights = [(uri, known.get(uri, weights)) for uri in self.all_stored_weights]
            began = [(uri, version) for uri, version in ((self.stored_data, data), *of_weights) if uri]
            if not all(version and Copy(uri, version).is_whole for uri, version in began):
                raise
            kept = begun._with_copies([(uri, str(version)) for uri, version in began])
            return kept, f"{problem}; the run goes on with this machine's copies of what it began with"

    def at_commits(self, weights: str | None) -> Self:
        """See `Trial.at_commits`."""
        stored = {each.model_name: each.stored_weights for each in self.each}
        versions = [(stored.get(name) or name, version) for name, version in commits_in(weights).items()]
        begun: Self = replace(cast(Any, self), copies=(*self.copies, *versions))
        return begun

    def check_stored(self) -> None:
        """See `Trial.check_stored`."""
        pinned = dict(self.copies)
        wanted = [uri for uri in (self.stored_data, *self.all_stored_weights) if uri]
        if not all(uri in pinned and Copy(uri, pinned[uri]).is_whole for uri in wanted):
            check_stored(self.listings(), self.copies)

    def look(self) -> FolderHeaders | None:
        """See `Trial.look`."""
        images = self.image_files
        return None if images is None else folder_headers(images, validation=self.validation)

    def reads(self) -> str | None:
        """See `Trial.reads`: images that are separate files."""
        images = self.image_files
        return None if images is None else f"{len(images.look().items):,} images of {self.source.name}"

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

        More than one are joined, each after the model or the repository. None for random weights of models that aren't
        on the hub, and for published ones that torch downloads.
        """
        found = dict(version for each in self.each for version in _versions(each))
        if not found or None in found.values():
            return None
        if isinstance(self.weights, dict) or any(map(_on_the_hub, self.each)):
            return BETWEEN.join(f"{name}@{found[name]}" for name in sorted(found))
        return next(iter(found.values()))

    def resolved(self, folder: Path | None = None) -> Self:
        """The same trial with absolute paths, relative to `folder` or the working directory."""
        base = (folder or Path.cwd()).absolute()
        changed: Any = replace(cast(Any, self), data_dir=str(base / self.data_folder))
        if isinstance(self.data, str) and self.data.startswith("folder:") and self.stored_data is None:
            changed = replace(changed, data=f"folder:{base / Path(self.data.removeprefix('folder:')).expanduser()}")
        if isinstance(self.data, str) and self.data.startswith(PREFIX) and self.stored_data is None:
            table = Table.of(self.data)
            changed = replace(changed, data=str(replace(table, path=base / Path(table.path).expanduser())))
        return cast(Self, replace(changed, weights=of_each(self.weights, lambda weights: _absolute(weights, base))))


def _absolute(weights: Weights, base: Path) -> Weights:
    """A file's path from `base` on; what isn't a path is unchanged."""
    if weights in (None, "none", *DEFAULTS, *weights_names()) or is_stored(weights):
        return weights
    return str(base / Path(str(weights)).expanduser())


def _versions(trial: Any) -> Iterator[tuple[str, str | None]]:
    """The repository, or the model, and the version of each thing that one model starts from; None if it has none."""
    if file := _on_the_hub(trial):
        yield file.repository, file.known_commit
    path = trial.weights_file
    if uri := trial.stored_weights:
        yield trial.model_name, Copy(uri, dict(trial.copies).get(uri)).settled.version
    elif path is not None and trial.named_weights is None:
        yield trial.model_name, sha256(path)[:16] if path.is_file() else None


def _on_the_hub(trial: Any) -> HubFile | None:
    """The file on the hub from which the training of one model starts, or the one that configures the model."""
    found: ModelFacts | PublishedWeights = trial.named_weights or trial.model_facts
    return found.hub_file
