"""Draws the picture of CONTRIBUTING: the rooms of tuner/, and who may import whom.

python -m docs.draw_rooms
"""

from collections.abc import Mapping
from graphlib import TopologicalSorter
from html import escape
from itertools import pairwise
from pathlib import Path

FILE = Path(__file__).parent / "images" / "rooms.svg"
EVERYWHERE = ("errors", "machine", "text")  # almost every room may import them
WIDTH, HEIGHT = 1000, 84  # of the picture; of a row
BOX = (104, 34)
SWEEPS = 8  # of the rows, to order them
INK, PAPER, LINE = "#1f2937", "#eef2ff", "#8b93a7"

Rooms = Mapping[str, set[str]]  # room -> rooms that it may import
Link = tuple[str, str]  # from a room to one below it; where it passes a row, it takes a place there as a room does


def picture(may_import: Mapping[str, tuple[set[str], set[str]]]) -> str:
    """The SVG for the table of test_architecture.py."""
    rooms = {room: of_tuner - {*EVERYWHERE} for room, (of_tuner, _) in may_import.items() if room not in EVERYWHERE}
    heights, links = heights_of(rooms), direct(rooms)
    rows = in_rows(heights, links)
    places: dict[str | Link, list[tuple[float, float]]] = {}
    for number, row in enumerate(reversed(rows)):
        for column, one in enumerate(row):
            places.setdefault(one, []).append((WIDTH * (column + 1) / (len(row) + 1), HEIGHT * (number + 0.5)))
    paths = [_path([*places[link[0]], *places.get(link, []), *places[link[1]]]) for link in links]
    boxes = [_box(one, *where[0]) for one, where in places.items() if isinstance(one, str)]
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT * len(rows)}" '
        'font-family="system-ui, sans-serif" font-size="14" text-anchor="middle">'
    )
    title = "<title>The rooms of tuner; each may import those below it that a line leads to</title>"
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([opening, title, ground, *paths, *boxes, "</svg>\n"])


def direct(rooms: Rooms) -> list[Link]:
    """What each room may import, without what it also reaches through another room that it may import."""
    return [
        (room, other)
        for room, others in rooms.items()
        for other in sorted(others)
        if not any(other in rooms[between] for between in others - {other})
    ]


def heights_of(rooms: Rooms) -> dict[str, int]:
    """The row of each room from below: above the highest one that it imports."""
    heights: dict[str, int] = {}
    for room in TopologicalSorter(rooms).static_order():
        heights[room] = max((heights[other] + 1 for other in rooms[room]), default=0)
    return heights


def in_rows(heights: Mapping[str, int], links: list[Link]) -> list[list[str | Link]]:
    """Rooms and passing links, row by row from below."""
    rows: list[list[str | Link]] = [
        [room for room in sorted(heights) if heights[room] == row]
        + [link for link in links if heights[link[1]] < row < heights[link[0]]]
        for row in range(max(heights.values()) + 1)
    ]
    for _ in range(SWEEPS):
        for row, below in zip(rows[1:], rows, strict=False):
            _sort_by_neighbours(row, below, links)
        for row, above in zip(rows[-2::-1], rows[::-1], strict=False):
            _sort_by_neighbours(row, above, links)
    return rows


def _sort_by_neighbours(row: list[str | Link], other: list[str | Link], links: list[Link]) -> None:
    """Order a row by where what it is linked to stands in the row beside it: fewer lines cross."""
    column = {one: (index + 1) / (len(other) + 1) for index, one in enumerate(other)}

    def middle(one: str | Link) -> float:
        ends = [one] if one in column else []
        for link in links if isinstance(one, str) else [one]:
            if one in link or one == link:
                ends += [end for end in (link, *link) if end != one and end in column]
        return sum(column[end] for end in ends) / len(ends) if ends else 0.5

    row.sort(key=middle)


def _box(room: str, x: float, y: float) -> str:
    width, height = BOX
    at = f'x="{x - width / 2:.0f}" y="{y - height / 2:.0f}" width="{width}" height="{height}"'
    return (
        f'<rect {at} rx="6" fill="{PAPER}" stroke="{LINE}"/>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}" fill="{INK}">{escape(room)}</text>'
    )


def _path(points: list[tuple[float, float]]) -> str:
    """A smooth line from the lower edge of the first box to the upper edge of the last one."""
    (x, y), (last, end) = points[0], points[-1]
    stops = [(x, y + BOX[1] / 2), *((px, py + d) for px, py in points[1:-1] for d in (-8, 8)), (last, end - BOX[1] / 2)]
    curve = f"M{stops[0][0]:.0f} {stops[0][1]:.0f}"
    for (x1, y1), (x2, y2) in pairwise(stops):
        middle = (y1 + y2) / 2
        curve += f" C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
    return f'<path d="{curve}" fill="none" stroke="{LINE}" stroke-width="1.4"/>'


if __name__ == "__main__":
    from tests.test_architecture import MAY_IMPORT

    FILE.write_text(picture(MAY_IMPORT), encoding="utf-8")
