"""What was found wrong with a data set: stable codes, counts, the first few places; warned about, or raised."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import DataError, PellucidWarning

PLACES = 5  # how many places a finding names

# code -> (level, sentence after the count). fatal: cannot be used as it is; error: left out; warning: changed or doubtful; note: only said.
CODES: dict[str, tuple[str, str]] = {
    "unreadable": ("fatal", "data set(s) cannot be read"),
    "class-id": ("fatal", "object(s) of a class that the data set does not name; correct the ids or the names"),
    "labels-lost": (
        "fatal",
        "split(s) to learn from or to be scored on without a single label file; put the labels where they are looked for, or give each "
        "picture an empty one where all are meant to be without objects",
    ),
    "rows-none": ("fatal", "split(s) in which not one label row could be used; choose the task that the labels are for, or mend them"),
    "rows-most": (
        "fatal",
        "split(s) to learn from of which most label rows cannot be used; mend them, choose the task that they are for, or train on a copy "
        "without them (`pellucid data check fix=FOLDER`)",
    ),
    "image-missing": ("error", "image(s) are listed but not there; left out"),
    "image-unreadable": ("error", "image(s) cannot be read; left out with their labels"),
    "image-format": ("error", "picture file(s) of a format that is not read (JPEG, PNG, WebP, BMP, TIFF are); left out"),
    "image-pages": ("warning", "image file(s) hold several pages, the first of which alone is used; save each page as a file"),
    "image-twice": ("warning", "image(s) are listed more than once; read once"),
    "file-beside": (
        "warning",
        "annotation file(s) lie beside the one that is read of their split; left out, name the task that they are for to read them",
    ),
    "label-unreadable": ("error", "label file(s) cannot be read; left out with their images"),
    "label-without-image": ("error", "label file(s) have no image; left out"),
    "label-twice": ("warning", "image(s) have a label file in the labels folder and one beside them; the former is used"),
    "label-spelled": ("warning", "image(s) have a label file whose name differs from theirs in capitals; used"),
    "label-cases": ("warning", "image(s) have several label files whose names differ in capitals alone; one is used"),
    "label-shared": ("warning", "image(s) have their label file in common with another of the same name; its rows count for each"),
    "labels-beside": ("note", "image(s) have their label file beside them; used"),
    "label-missing": ("note", "image(s) have no label file; taken as images without objects"),
    "labels-none": ("warning", "test split(s) without a single label file; every image is taken as one without objects"),
    "row-fields": ("error", "row(s) with a wrong number of fields for the task; left out"),
    "row-box": ("error", "row(s) hold a box alone where the task needs more; left out"),
    "row-outline": ("error", "row(s) hold an outline where the task needs four corners; left out"),
    "row-points": (
        "error",
        "row(s) hold a box and keypoints by kpt_shape, not the task's outlines; left out, remove kpt_shape if they are outlines",
    ),
    "row-polygon": ("note", "row(s) hold corners or a polygon; the box around them is used"),
    "rows-mixed": ("warning", "split(s) in which rows with a box and rows with a polygon stand side by side; the boxes of both are used"),
    "row-class": ("error", "row(s) whose class is not a whole number; left out"),
    "row-number": ("error", "row(s) with a value that is not a finite number; left out"),
    "row-range": ("error", "row(s) that are not normalised by the image's width and height; left out"),
    "object-malformed": ("error", "object(s) with missing or malformed fields; left out"),
    "object-without-image": ("error", "object(s) refer to an image that is not listed; left out"),
    "object-without-box": ("error", "object(s) with neither a box nor a polygon; left out"),
    "object-without-polygon": ("error", "object(s) without a polygon, which the task needs; left out"),
    "object-without-corners": ("error", "object(s) without the four corners that the task needs; left out"),
    "object-far": ("error", "object(s) reach many times the size of their image over its edge; left out"),
    "degenerate": ("error", "object(s) without width, height or area; left out"),
    "outside": ("error", "object(s) wholly outside their image; left out"),
    "clipped": ("warning", "object(s) reach more than half a pixel over the edge of their image; clipped"),
    "box-replaced": ("warning", "box(es) without width or height, or outside their image; the one around the polygon is used"),
    "part-flat": ("warning", "part(s) of polygons without area; left out"),
    "not-rectangle": ("warning", "rotated box(es) whose corners make no rectangle; the smallest rectangle around them is used"),
    "area-missing": ("warning", "object(s) without a usable area; that of their polygon, else of their box, is used"),
    "visibility": ("warning", "keypoint(s) with a visibility other than 0, 1 or 2; above 0 counts as seen, below as absent"),
    "point-outside": ("warning", "keypoint(s) outside their image; taken as absent"),
    "point-origin": ("warning", "keypoint(s) without a visibility at (0, 0); taken as absent"),
    "point-names": ("warning", "class(es) name their keypoints otherwise than the first class; its names are used"),
    "point-owner": (
        "error",
        "keypoint(s) whose group id objects of several labels share; left out, give each object a group id of its own",
    ),
    "point-twice": ("error", "keypoint(s) that their object already has; the first is used"),
    "skeleton": ("warning", "skeleton bone(s) that are no pair of keypoint numbers; not drawn"),
    "points-none": ("note", "object(s) without a labelled keypoint; they teach their box alone"),
    "shape-type": ("warning", "shape(s) of a type that the task does not use; left out"),
    "size-mismatch": ("warning", "image(s) of another size than their labels state; the labels are taken as pixels of the file"),
    "exif-frame": ("warning", "image(s) with an EXIF rotation were labelled without it; their labels are turned too"),
    "path-guess": ("warning", "folder(s) not where the file says; the likely place is used"),
    "name-spelled": ("warning", "object(s) spell their class in another way than the data set; taken as that class"),
    "name-twice": ("warning", "class name(s) stand for several ids; kept as separate classes"),
    "id-replaced": ("note", "image id(s) are no 64-bit integers; the position in the file is used"),
    "ignored": ("note", "object(s) are crowd or difficult; neither taught nor counted"),
    "tiny": ("warning", "object(s) are smaller than 3 px at the training size; raise imgsz"),
    "duplicate": ("warning", "object(s) repeat another of the same class and box; kept"),
    "split-overlap": ("error", "image(s) are in more than one split; scores will flatter"),
    "split-missing": (
        "fatal",
        "split(s) that training needs, train to learn from and val to be scored on, are not there; `pellucid data split` makes both, "
        "split=NAME looks at one alone that is only scored on",
    ),
    "class-absent": ("note", "class(es) have no object in a split"),
}


@dataclass(frozen=True)
class Finding:
    """One kind of trouble: how often, and the first few places (file, line, reason)."""

    code: str
    count: int
    places: tuple[str, ...]
    split: str = ""  # "" where it concerns the whole set
    of: int = 0  # how many there are of what is counted, where that is known
    hint: str = ""  # what else the whole of them shows

    @property
    def level(self) -> str:
        """fatal, error, warning or note."""
        return CODES[self.code][0]

    @property
    def message(self) -> str:
        """What is counted, what becomes of it, and the hint."""
        return CODES[self.code][1] + (f"; {self.hint}" if self.hint else "")

    @property
    def sentence(self) -> str:
        where = f"{self.split}: " if self.split else ""
        count = f"{self.count} of {self.of}" if self.of else str(self.count)
        more = "; ..." if self.count > len(self.places) else ""
        return f"{where}{count} {self.message} [{self.code}] ({'; '.join(self.places)}{more})"


class Log:
    """Counts findings while files are read."""

    def __init__(self, split: str = "") -> None:
        self.split = split
        self._found: dict[str, tuple[int, list[str]]] = {}
        self._about: dict[str, tuple[int, str]] = {}  # of how many, and a hint

    def add(self, code: str, place: object, reason: str = "", count: int = 1) -> None:
        """One more of `code` at `place`, a file or file:line."""
        assert code in CODES, code
        if not count:
            return
        total, places = self._found.get(code, (0, []))
        text = f"{place}: {reason}" if reason else str(place)
        text = text.removesuffix(".") if " " in text else text  # it ends within a sentence
        if len(places) < PLACES and text not in places:
            places.append(text)
        self._found[code] = (total + count, places)

    def about(self, code: str, of: int, hint: str = "") -> None:
        """What is said beside the count of a finding, if there is one: of how many, and what that shows."""
        self._about[code] = (of, hint)

    def count(self, code: str) -> int:
        return self._found.get(code, (0, []))[0]

    def findings(self) -> tuple[Finding, ...]:
        found = self._found.items()
        return tuple(Finding(code, count, tuple(places), self.split, *self._about.get(code, ())) for code, (count, places) in found)


def settle(findings: Iterable[Finding], strict: bool) -> None:
    """Warn of each finding above a note; raise DataError for a fatal one, or for any if `strict`."""
    serious = [finding for finding in findings if finding.level != "note"]
    stopping = [finding for finding in serious if strict or finding.level == "fatal"]
    if stopping:
        others = f" ({len(stopping) - 1} more kinds of finding)" if len(stopping) > 1 else ""
        raise DataError(f"{stopping[0].sentence}{others}; `pellucid data check` with this data= and task= lists everything.")
    for finding in serious:
        warnings.warn(finding.sentence, PellucidWarning, stacklevel=3)
