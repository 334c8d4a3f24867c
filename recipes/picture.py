"""Pictures side by side, as at the head of the README: `python recipes/picture.py OUT.jpg PICTURE [PICTURE ...]`."""

from __future__ import annotations

import sys

from PIL import Image

GAP = 6  # pixels between pictures


def main(out: str, sources: list[str]) -> None:
    pictures = [Image.open(source).convert("RGB") for source in sources]
    width = sum(picture.width for picture in pictures) + GAP * (len(pictures) - 1)
    sheet = Image.new("RGB", (width, max(picture.height for picture in pictures)), "white")
    left = 0
    for picture in pictures:
        sheet.paste(picture, (left, 0))
        left += picture.width + GAP
    sheet.save(out, quality=88)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
