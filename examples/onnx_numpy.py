"""Objects on a picture from an exported file, without torch: `python examples/onnx_numpy.py model.onnx picture.jpg`."""

import json
import os
import sys

import numpy as np
from PIL import Image, ImageOps

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read as it is imported
import onnxruntime


def find(model: str, picture: str, conf: float = 0.25) -> list[dict]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    facts = json.loads(session.get_modelmeta().custom_metadata_map["pellucid"])
    image = ImageOps.exif_transpose(Image.open(picture)).convert("RGB")

    size = facts["imgsz"]  # the letterbox: the longer side becomes `size`, the rest is grey
    scale = size / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    left, top = (size - width) // 2, (size - height) // 2
    canvas = Image.new("RGB", (size, size), (facts["letterbox"]["fill"],) * 3)
    canvas.paste(image.resize((width, height), Image.Resampling.BILINEAR), (left, top))

    images = np.asarray(canvas).transpose(2, 0, 1)[None]  # (1, 3, size, size) uint8
    rows = session.run(["rows"], {"images": images})[0][0]  # x1 y1 x2 y2 score class ..., best first
    rows = rows[rows[:, 4] >= conf]
    boxes = (rows[:, :4] - [left, top, left, top]) * np.tile(np.divide(image.size, (width, height)), 2)
    boxes = boxes.clip(0, np.tile(image.size, 2))
    classes = rows[:, 5].astype(int)
    return [
        {"name": facts["names"][c], "class": facts["class_ids"][c], "score": float(score), "box": box.tolist()}
        for c, score, box in zip(classes, rows[:, 4], boxes, strict=True)
    ]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("expected two arguments, an exported model and a picture: onnx_numpy.py model.onnx picture.jpg", file=sys.stderr)
        sys.exit(2)
    for found in find(sys.argv[1], sys.argv[2]):
        print(json.dumps(found))
