"""A run's events from any place in its log: what streams send, and where they go on."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import IO

from tuner.history.event_lines import EVENTS, DamagedLineError, Event, in_json, parsed
from tuner.history.event_reading import numbered
from tuner.service.contained_files import opened_file, opened_folder
from tuner.storage.folder import Folder, LocalFolder

READ_BYTES = 262_144  # read at once, so that a long log takes no more memory than a short one
LONGEST_LINE = 8_000_000  # bytes; a longer line isn't an event
_POSITION = re.compile(r"([0-9]{1,12}):([0-9]{1,15})")


@dataclass(frozen=True, order=True)
class Position:
    """A place between two events: the number of a segment of the log, and bytes from its beginning."""

    segment: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.segment}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position from its text; raises ValueError."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ValueError(f"a place in a run's events is SEGMENT:BYTES, got {text[:80]!r}")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True)
class Passage:
    """Consecutive events, each with the place after it, and the place after everything that was read."""

    events: list[tuple[Position, Event]]
    end: Position

    def written(self) -> bytes:
        """The events as server-sent events, encoded again: a line of the log may contain what would end a field."""
        return b"".join(sent(str(place), event) for place, event in self.events)


def sent(place: str | None, event: Event) -> bytes:
    """One server-sent event, named by the event's kind."""
    name = re.sub(r"[^\w.-]", "_", str(event.get("event", "message")), flags=re.ASCII)
    first = f"id: {place}\n" if place is not None else ""
    return f"{first}event: {name}\ndata: {json.dumps(in_json(event), separators=(',', ':'))}\n\n".encode()


class EventReader:
    """Reads the log of one run from any place on; has no state, so that many may use it at once."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def after(self, position: Position, until: Position | None = None) -> Passage:
        """The next events after a place, at most READ_BYTES of them unless one is longer; up to `until`.

        An incomplete last line comes later. A damaged line is skipped, and so is a line if a place is in its middle.
        """
        for number, name in self._segments():
            if number < position.segment or (until is not None and number > until.segment):
                continue
            start = position.offset if number == position.segment else 0
            limit = until.offset if until is not None and number == until.segment else None
            content = self._lines(name, start, limit)
            if content:
                return self._passage(number, start, content)
            position = Position(number, start)
        return Passage([], position)

    def end(self) -> Position:
        """The place after the last whole line."""
        segments = self._segments()
        if not segments:
            return Position()
        number, name = segments[-1]
        with self._opened(name) as file:
            return Position(number, _end_of_last_line(file))

    def _passage(self, number: int, start: int, content: bytes) -> Passage:
        events, offset = [], start
        for line in content.split(b"\n")[:-1]:
            offset += len(line) + 1
            try:
                events.append((Position(number, offset), parsed(line.strip())))
            except DamagedLineError:
                continue
        return Passage(events, Position(number, offset))

    def _lines(self, name: str, start: int, limit: int | None) -> bytes:
        """Whole lines of a segment from `start` on."""
        with self._opened(name) as file:
            if start > file.seek(0, os.SEEK_END):
                return b""
            file.seek(start)
            size, most = READ_BYTES, LONGEST_LINE if limit is None else max(0, limit - start)
            while True:
                content = file.read(min(size, most))
                whole = content.rfind(b"\n") + 1
                if whole or len(content) < size or size >= most:
                    return content[:whole]
                file.seek(start)
                size *= 8

    def _segments(self) -> list[tuple[int, str]]:
        try:
            return numbered(self._names())
        except OSError:  # a run that has no event yet, or was deleted
            return []

    def _names(self) -> list[str]:
        if not isinstance(self._folder, LocalFolder):
            return self._folder.files(EVENTS)
        with opened_folder(self._folder.path, (EVENTS,)) as events:
            return os.listdir(events)  # noqa: PTH208 -- of a descriptor

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        """A segment; an empty one if it can't be read."""
        name = f"{EVENTS}/{name}"
        try:
            if isinstance(self._folder, LocalFolder):
                file: IO[bytes] = os.fdopen(opened_file(self._folder.path, name)[0], "rb")
            else:
                file = io.BytesIO(self._folder.read(name))
        except OSError:
            file = io.BytesIO()
        with closing(file):
            yield file


def _end_of_last_line(file: IO[bytes]) -> int:
    """Bytes up to the end of the last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - 65_536)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
