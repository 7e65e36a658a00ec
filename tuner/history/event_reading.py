"""Reading a run's events, all at once or as they are written; `events.py` describes them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tuner.history.event_lines import EVENTS, DamagedLineError, Event, introduces, names_trial, parsed
from tuner.storage.folder import Folder
from tuner.text import in_utf8

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # as JSON writes it, also as one of a pair
_SEGMENT = re.compile(r"([0-9]{6,12})\.jsonl")


@dataclass(frozen=True)
class Reading:
    """A run's events, and which of them can't be read.

    `damages` has a sentence for each line or segment that was set aside, `torn` one for a last line that isn't
    complete: the driver is writing it now, or was killed while writing it. `surrogates` says that texts may not be
    UTF-8.
    """

    events: list[Event]
    damages: list[str]
    torn: str | None = None
    surrogates: bool = False


def read_all(folder: Folder) -> Reading:
    """All events of a run in the order they happened, and which lines were set aside; damaged files raise nothing."""
    lines, events, torn, surrogates = _Lines(), [], None, False
    names: dict[bytes, str] = {}  # of the segments, by their content
    for name in _without_gaps(segments(folder, lines.damages), lines.damages):
        if torn is not None:  # not in the newest segment: nobody is writing it
            lines.damages.append(torn)
        content = _content(folder, name, lines.damages)
        twin = names.setdefault(hashlib.sha256(content).digest(), name)
        if content and twin != name:
            lines.damages.append(f"{EVENTS}/{name} is a copy of {twin}; it is left out")
            torn = None
            continue
        found, torn = lines.take_whole(name, content)
        events += found
        surrogates = surrogates or _SURROGATE.search(content) is not None
    return Reading(events, lines.damages, torn, surrogates)


def read_events(folder: Folder) -> Iterator[Event]:
    """All events of a run in the order they happened; what can't be read is skipped, see `read_all`."""
    yield from read_all(folder).events


class EventFollower:
    """Reads a run's events while its driver writes them; `damages` says what was set aside so far."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lines = _Lines()
        self._segment, self._taken = 0, 0  # the newest segment seen, and the bytes read of it

    @property
    def damages(self) -> Sequence[str]:
        """A sentence for each line that can't be read."""
        return self._lines.damages

    def new(self) -> list[Event]:
        """The events since the last call, as UTF-8; a line that isn't complete yet comes later."""
        found: list[Event] = []
        for name, lines in self._come():
            events = self._lines.take(name, lines)
            found += in_utf8(events) if _SURROGATE.search(lines) else events
        return found

    def _come(self) -> Iterator[tuple[str, bytes]]:
        """The complete lines that weren't taken yet, by the name of their segment."""
        for number, name in segments(self._folder):
            if number < self._segment:
                continue
            start = self._taken if number == self._segment else 0
            content = _content(self._folder, name, [], start)
            whole = content[: content.rfind(b"\n") + 1]
            self._segment, self._taken = number, start + len(whole)
            yield name, whole


class _Lines:
    """Turns lines into events; for each line that it sets aside it says once why."""

    def __init__(self) -> None:
        self.damages: list[str] = []
        self.trials: set[str] = set()  # trials that were started
        self._numbers: dict[str, int] = {}  # lines taken of each segment

    def take(self, segment: str, lines: bytes) -> list[Event]:
        """The events of whole lines, each with its end."""
        events = []
        for line in lines.split(b"\n")[:-1]:
            number = self._numbers[segment] = self._numbers.get(segment, 0) + 1
            if not line.strip():
                continue
            try:
                events.append(self._sound(line.strip()))
            except DamagedLineError as error:
                self.damages.append(f"{EVENTS}/{segment}, line {number}: {error}; it is left out")
        return events

    def take_whole(self, segment: str, content: bytes) -> tuple[list[Event], str | None]:
        """The events of a whole segment, and a sentence if its last line is cut off."""
        whole = content.rfind(b"\n") + 1
        events, end = self.take(segment, content[:whole]), content[whole:].strip()
        if not end:
            return events, None
        try:
            return [*events, self._sound(end)], None
        except DamagedLineError:
            return (
                events,
                f"{EVENTS}/{segment}, line {self._numbers.get(segment, 0) + 1}: it is cut off; it is left out",
            )

    def _sound(self, line: bytes) -> Event:
        event = parsed(line)
        if names_trial(event) and event["trial"] not in self.trials:
            raise DamagedLineError(f"{event['event']} is about trial {event['trial']}, which was never started")
        if introduces(event):
            self.trials.add(event["trial"])
        return event


def _content(folder: Folder, name: str, damages: list[str], start: int = 0) -> bytes:
    try:
        return folder.read_from(f"{EVENTS}/{name}", start)
    except OSError as error:
        damages.append(f"{EVENTS}/{name} can't be read ({error.strerror or error}); it is left out")
        return b""


def segments(folder: Folder, damages: list[str] | None = None) -> list[tuple[int, str]]:
    """Number and name of each segment, in their order."""
    try:
        names = folder.files(EVENTS)
    except OSError as error:
        if damages is None:
            raise
        damages.append(f"{EVENTS}/ can't be read ({error.strerror or error})")
        return []
    return numbered(names)


def numbered(names: Iterable[str]) -> list[tuple[int, str]]:
    """Those of the files that are segments, with their numbers, in their order."""
    found = ((_SEGMENT.fullmatch(name), name) for name in names)
    return sorted((int(match[1]), name) for match, name in found if match is not None)


def _without_gaps(segments: list[tuple[int, str]], damages: list[str]) -> Iterator[str]:
    """The segments' names, and a sentence for each gap in their numbers."""
    expected = 1
    for number, name in segments:
        if number > expected:
            first, last = f"{EVENTS}/{expected:06d}.jsonl", f"{number - 1:06d}.jsonl"
            gap = f"{first} is" if number == expected + 1 else f"{first} to {last} are"
            damages.append(f"{gap} missing; what happened there is unknown")
        expected = number + 1
        yield name
