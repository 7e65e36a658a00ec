"""Parts of a page that are packed, and the policy that says which scripts may run in it."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache

from markupsafe import Markup

# With it Chromium parses plotly's modules only once, not again when each is run; others see a comment.
COMPILED_AT_ONCE = "//# allFunctionsCalledOnLoad\n"


def packed(text: str) -> Markup:
    """The text as gzip in base85, which the page unpacks by `DecompressionStream`; `,` replaces `<`."""
    written = base64.b85encode(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    return Markup(written.replace(b"<", b",").decode("ascii"))


@cache
def packed_plotly() -> Markup:
    """The script that the page runs of the installed plotly."""
    return packed(_plotly())


@cache
def policy(*scripts: str) -> Markup:
    """A Content-Security-Policy for a page that loads nothing, and only runs these scripts and plotly's.

    Plotly compiles code to draw parallel coordinates, which needs `unsafe-eval`; it styles its elements.
    """
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in (*scripts, _plotly()))
    return Markup(
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return COMPILED_AT_ONCE + script


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
