"""Photos in an S3-compatible store on this machine, as a study reads them."""

import io
import random

from PIL import Image

COLOURS = {"cat": (200, 60, 40), "dog": (40, 80, 200)}


def photo(kind: str, number: int, edge: int = 32) -> bytes:
    """A PNG of noise around the colour of its class; another one for each number."""
    noise = random.Random(f"{kind} {number}")
    image = Image.new("RGB", (edge, edge))
    colour = COLOURS[kind]
    image.putdata([tuple(min(255, max(0, c + noise.randint(-40, 40))) for c in colour) for _ in range(edge * edge)])
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


def photos(each: int, prefix: str = "photos") -> dict[str, bytes]:
    """Objects by their names: `each` photos of every class."""
    return {f"{prefix}/{kind}/{number:03}.png": photo(kind, number) for kind in COLOURS for number in range(each)}
