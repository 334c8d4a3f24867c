"""A picture from a URL that the user gave: fetched within limits of size and time."""

from __future__ import annotations

import http.client
import re
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from ..errors import DataError

LARGEST = 64 * 2**20  # bytes of a picture
PATIENCE = 10.0  # seconds in which a server must answer
WHOLE = 60.0  # seconds in which all of it must arrive
_PART = 2**16


def is_url(text: str) -> bool:
    """Whether `text` begins as a URL of any kind."""
    return re.match(r"[a-z][a-z0-9+.-]+://", text, re.IGNORECASE) is not None


def fetch(url: str) -> bytes:
    """What lies at an http(s) URL; DataError with the reason where it cannot be had in time, or is too large for a picture."""
    began = time.monotonic()
    content = bytearray()
    try:
        with urlopen(Request(url, headers={"User-Agent": "pellucid"}), timeout=PATIENCE) as answer:
            while part := answer.read1(_PART):
                content += part
                _within_limits(url, len(content), time.monotonic() - began)
            length = answer.length  # what was promised and did not come
    except HTTPError as error:
        error.close()
        raise DataError(f"{url}: expected a picture, the server answered {error.code} {error.reason}; check the address") from None
    except DataError:
        raise
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DataError(f"{url}: expected an answer, got {getattr(error, 'reason', None) or error}; check address and network") from None
    if length:
        raise DataError(f"{url}: expected {len(content) + length} bytes, got {len(content)}; try again")
    return bytes(content)


def name_of(url: str) -> Path:
    """A file name for what lies at `url`: the last part of its path, made safe."""
    name = Path(unquote(urlsplit(url).path)).name
    name = re.sub(r"[^\w.\- ()+]", "_", name)[-100:].lstrip(". ")
    return Path(name if Path(name).suffix else f"{name or 'image0'}.jpg")


def _within_limits(url: str, size: int, seconds: float) -> None:
    if size > LARGEST:
        raise DataError(f"{url}: expected a picture of at most {LARGEST >> 20} MiB, got more; save it as a file first")
    if seconds > WHOLE:
        raise DataError(f"{url}: expected all of the picture within {WHOLE:.0f} s, got {size} bytes; save it as a file first")
