"""Files in base64: anything else is refused with its field, and not read as something different."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from pydantic import Base64Encoder, EncodedBytes
from pydantic_core import PydanticCustomError

_SPACE = b" \t\r\n"  # `base64` breaks lines


class _Base64(Base64Encoder):
    """Pydantic's own decoder ignores what isn't base64, so that `****` would be an empty file."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        """The content. Raises PydanticCustomError."""
        try:
            return base64.b64decode(data.translate(None, _SPACE), validate=True)
        except binascii.Error as error:
            raise PydanticCustomError("base64_decode", "a file is written in base64") from error


Base64Content = Annotated[bytes, EncodedBytes(encoder=_Base64)]
