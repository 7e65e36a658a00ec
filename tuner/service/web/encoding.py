"""Files in base64: what isn't is refused by its field, rather than read as something else."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from pydantic import Base64Encoder, EncodedBytes
from pydantic_core import PydanticCustomError

_SPACE = b" \t\r\n"  # `base64` breaks lines


class _Base64(Base64Encoder):
    """Pydantic's own ignores whatever is not base64, so that `****` is an empty file."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        """The content. Raises PydanticCustomError."""
        try:
            return base64.b64decode(data.translate(None, _SPACE), validate=True)
        except binascii.Error as error:
            raise PydanticCustomError("base64_decode", "a file is written in base64") from error


Base64Content = Annotated[bytes, EncodedBytes(encoder=_Base64)]
