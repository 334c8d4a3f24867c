"""The network that is exported: pictures in, finished rows out, by the functions that decode in torch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..decode.topk import dense_values, top_rows
from ..models.build import Detector
from ..tasks import Task

SMALLEST = 2  # pictures in the example of a free batch axis: one would be taken for a constant


class Graph(nn.Module):
    """Images (B, 3, S, S) uint8 -> the outputs of a file, float32, in the order of `Facts.outputs`.

    o2o: rows (B, min(limit, A), ...) of place, score, class and what else the task says of a row, best first; then what is shared.
    o2m: places (B, A, ...), scores (B, A, classes), the others (B, A, ...); then what is shared. Suppression is left to the host.
    """

    def __init__(self, detector: Detector, task: Task, head: str, limit: int, half: bool = False) -> None:
        super().__init__()
        fused = detector.fuse("one" if head == "o2o" else "both")
        self.network = fused.half() if half else fused
        self.task, self.head, self.limit = task, head, limit

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        output = self.network(images)
        shared = [value.float() for value in output.shared.values()]
        if self.head == "o2m":
            place, *others = self._parts(dense_values(output.many, self.task))
            return (place, output.many.outputs["cls"].float().sigmoid(), *others, *shared)
        rows = top_rows(output.one, self.task, self.limit)
        place, *others = self._parts(rows.values)
        return (torch.cat((place, rows.scores[..., None], rows.labels[..., None].float(), *others), -1), *shared)

    def _parts(self, values: Mapping[str, Tensor]) -> list[Tensor]:
        return [values[name].flatten(2) for name in self.task.row]

    @torch.no_grad()
    def shapes(self, size: int) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
        """Shapes of the parts of a row, and the names of what is shared; afterwards the anchors of this size are known."""
        output = self.network(torch.zeros(1, 3, size, size, dtype=torch.uint8))
        values = dense_values(output.one if output.many is None else output.many, self.task)
        return {name: tuple(values[name].shape[2:]) for name in self.task.row}, tuple(output.shared)


def to_onnx(graph: Graph, size: int, batch: int, dynamic: bool, opset: int, names: tuple[str, str, tuple[str, ...]], optimize: bool):
    """The graph as an ONNX model; `names` are those of the input, of the free batch axis, and of the outputs."""
    first, axis, outputs = names
    images = torch.zeros(max(batch, SMALLEST) if dynamic else batch, 3, size, size, dtype=torch.uint8)
    with torch.no_grad():
        program = torch.onnx.export(
            graph.eval(),
            (images,),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim(axis)},) if dynamic else None,
            input_names=[first],
            output_names=list(outputs),
            opset_version=opset,
            optimize=optimize,
            verbose=False,
        )
    assert program is not None
    return program.model_proto
