"""What the kernels of assignment compare objects by: the windows and similarities of the tasks, in the order of their arithmetic.

`shapes` is (points, strides, their limits, numbers, predicted, true, more predicted, more true): pointers to contiguous float32. FORM
is 0 for boxes, 1 for rotated boxes, 2 for keypoints with boxes. What is no number stays none. Imported only where there is a GPU.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton  # type: ignore[import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-untyped, unused-ignore]


@triton.jit
def _least(x, floor):
    """clamp(min=floor); what is no number stays none."""
    return tl.where(x < floor, floor, x)


@triton.jit
def _atan2(y, x):
    """The angle of (x, y) to 2e-7, by the polynomial of Cephes' atanf."""
    large, small = tl.maximum(tl.abs(x), tl.abs(y)), tl.minimum(tl.abs(x), tl.abs(y))
    z = tl.div_rn(small, tl.where(large > 0, large, 1.0))
    turned = z > 0.4142135623730950
    z = tl.where(turned, tl.div_rn(z - 1.0, z + 1.0), z)
    s = z * z
    angle = (((8.05374449538e-2 * s - 1.38776856032e-1) * s + 1.99777106478e-1) * s - 3.33329491539e-1) * s * z + z
    angle = tl.where(turned, angle + 0.7853981633974483, angle)
    angle = tl.where(tl.abs(y) > tl.abs(x), 1.5707963267948966 - angle, angle)
    angle = tl.where(x < 0, 3.141592653589793 - angle, angle)
    angle = tl.where(y < 0, -angle, angle)
    return tl.where((x == x) & (y == y), angle, x + y)


@triton.jit
def _log1p(x):
    """log(1 + x), exact to rounding near 0."""
    s = tl.div_rn(x, 2.0 + x)
    q = s * s
    near = 2.0 * s * (1.0 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9)))))
    return tl.where(tl.abs(x) < 0.3, near, tl.log(1.0 + x))


@triton.jit
def _expm1(x):
    """exp(x) - 1, exact to rounding near 0."""
    near = 1.0 + x * (1.0 / 6) * (1.0 + x * (1.0 / 7) * (1.0 + x * (1.0 / 8) * (1.0 + x * (1.0 / 9))))
    near = x * (1.0 + x * 0.5 * (1.0 + x * (1.0 / 3) * (1.0 + x * 0.25 * (1.0 + x * 0.2 * near))))
    return tl.where(tl.abs(x) < 0.5, near, tl.exp(x) - 1.0)


@triton.jit
def _box(boxes, place, known):
    """x1, y1, x2, y2 of boxes number `place`."""
    x1, y1 = tl.load(boxes + 4 * place, mask=known, other=0.0), tl.load(boxes + 4 * place + 1, mask=known, other=0.0)
    x2, y2 = tl.load(boxes + 4 * place + 2, mask=known, other=0.0), tl.load(boxes + 4 * place + 3, mask=known, other=0.0)
    return x1, y1, x2, y2


@triton.jit
def _rbox(rboxes, place, known):
    """x, y, w, h, theta of rotated boxes number `place`."""
    x, y = tl.load(rboxes + 5 * place, mask=known, other=0.0), tl.load(rboxes + 5 * place + 1, mask=known, other=0.0)
    w, h = tl.load(rboxes + 5 * place + 2, mask=known, other=1.0), tl.load(rboxes + 5 * place + 3, mask=known, other=1.0)
    return x, y, w, h, tl.load(rboxes + 5 * place + 4, mask=known, other=0.0)


@triton.jit
def _ciou(shapes, row, place, known):
    """`geometry.boxes.box_ciou` of predicted boxes `place` and the true one `row`."""
    px1, py1, px2, py2 = _box(shapes[4], place, known)
    x1, y1, x2, y2 = _box(shapes[5], row, True)
    w, h, true_w, true_h = px2 - px1, py2 - py1, x2 - x1, y2 - y1
    low_x, low_y = tl.maximum(px1, x1), tl.maximum(py1, y1)
    high_x, high_y = tl.minimum(px2, x2), tl.minimum(py2, y2)
    intersection = _least(high_x - low_x, 0.0) * _least(high_y - low_y, 0.0)
    h, true_h = h + 1e-7, true_h + 1e-7
    iou = tl.div_rn(intersection, w * h + true_w * true_h - intersection + 1e-7)
    hull_x, hull_y = tl.maximum(px2, x2) - tl.minimum(px1, x1), tl.maximum(py2, y2) - tl.minimum(py1, y1)
    diagonal = hull_x * hull_x + hull_y * hull_y + 1e-7
    off_x, off_y = px1 + px2 - x1 - x2, py1 + py2 - y1 - y2
    between = (off_x * off_x + off_y * off_y) * 0.25
    turn = _atan2(true_w, true_h) - _atan2(w, h)
    aspect = 0.4052847345693511 * (turn * turn)  # 4 / pi^2
    weight = tl.div_rn(aspect, aspect - iou + 1.0000001)
    return iou - tl.div_rn(between, diagonal) - weight * aspect


@triton.jit
def _far(along, across, theta, x, y):
    """(x, y) under the adjugate of the covariance of a box turned by theta."""
    c, s = tl.cos(theta), tl.sin(theta)
    u, v = x * c + y * s, y * c - x * s
    return across * (u * u) + along * (v * v)


@triton.jit
def _probiou(shapes, row, place, known):
    """`geometry.rboxes.probiou` of predicted boxes `place` and the true one `row`."""
    x, y, w, h, theta = _rbox(shapes[4], place, known)
    true_x, true_y, true_w, true_h, true_theta = _rbox(shapes[5], row, True)
    a1, b1 = tl.div_rn(_least(w * w, 1e-6), 12.0), tl.div_rn(_least(h * h, 1e-6), 12.0)
    a2, b2 = tl.div_rn(_least(true_w * true_w, 1e-6), 12.0), tl.div_rn(_least(true_h * true_h, 1e-6), 12.0)
    turn = theta - true_theta
    c, s = tl.cos(turn), tl.sin(turn)
    c, s = c * c, s * s
    det = a1 * b1 + a2 * b2 + c * (a1 * b2 + b1 * a2) + s * (a1 * a2 + b1 * b2)
    far = _far(a1, b1, theta, x - true_x, y - true_y) + _far(a2, b2, true_theta, x - true_x, y - true_y)
    a1, b1, a2, b2 = tl.sqrt_rn(a1), tl.sqrt_rn(b1), tl.sqrt_rn(a2), tl.sqrt_rn(b2)
    geometric = 4 * a1 * b1 * a2 * b2
    same, parallel, crossed = a1 * b1 - a2 * b2, a1 * b2 - b1 * a2, a1 * a2 - b1 * b2
    over = same * same + c * (parallel * parallel) + s * (crossed * crossed)
    distance = tl.div_rn(far, det + 1e-7) * 0.25 + _log1p(tl.div_rn(over - 1e-7, geometric + 1e-7)) * 0.5
    distance = _least(distance, 1e-7)
    distance = tl.where(distance > 100.0, 100.0, distance)
    return 1.0 - tl.sqrt_rn(1e-7 - _expm1(-distance))


@triton.jit
def _oks(shapes, row, place, known, points):
    """`geometry.keypoints.oks` with the box's share of area; CIoU where no point is labelled."""
    x1, y1, x2, y2 = _box(shapes[5], row, True)
    area = _least(tl.load(shapes[3] + 3) * (x2 - x1) * (y2 - y1), 1e-9)
    total = tl.zeros(place.shape, tl.float32)
    seen = 0.0
    for number in range(points):
        true = shapes[7] + (row * points + number) * 3
        if tl.load(true + 2) > 0:
            near = shapes[6] + (place * points + number) * 3
            dx = tl.load(near, mask=known, other=0.0) - tl.load(true)
            dy = tl.load(near + 1, mask=known, other=0.0) - tl.load(true + 1)
            sigma = tl.load(shapes[3] + 4 + number)
            total += tl.exp(-tl.div_rn(dx * dx + dy * dy, 8 * (sigma * sigma) * area))
            seen += 1.0
    return tl.where(seen > 0, tl.div_rn(total, _least(seen, 1.0)), _ciou(shapes, row, place, known))


@triton.jit
def similarity(shapes, row, place, known, points, FORM: tl.constexpr):
    """u, floored at 0, of predictions number `place` and the object `row`; `points` an object."""
    if FORM == 0:
        u = _ciou(shapes, row, place, known)
    elif FORM == 1:
        u = _probiou(shapes, row, place, known)
    else:
        u = _oks(shapes, row, place, known, points)
    return tl.where(u <= 0, 0.0, u)


@triton.jit
def window(shapes, row, anchor, anchors, FORM: tl.constexpr):
    """Which anchors are candidates of the object `row`."""
    known = anchor < anchors
    px, py = tl.load(shapes[0] + 2 * anchor, mask=known, other=0.0), tl.load(shapes[0] + 2 * anchor + 1, mask=known, other=0.0)
    least = tl.load(shapes[3])  # the side of a window
    if FORM == 1:
        x, y, w, h, theta = _rbox(shapes[5], row, True)
        c, s = tl.cos(theta), tl.sin(theta)
        along, across = (px - x) * c + (py - y) * s, (py - y) * c - (px - x) * s
        thin = tl.minimum(w, h) < tl.load(shapes[3] + 1)
        half_w, half_h = tl.where(thin, -1.0, _least(w, least) * 0.5), tl.where(thin, -1.0, _least(h, least) * 0.5)
        inside = (tl.abs(along) <= half_w) & (tl.abs(across) <= half_h)
    else:
        x1, y1, x2, y2 = _box(shapes[5], row, True)
        inside = tl.abs(px - (x1 + x2) * 0.5) < _least(x2 - x1, least) * 0.5
        inside = inside & (tl.abs(py - (y1 + y2) * 0.5) < _least(y2 - y1, least) * 0.5)
        if FORM == 2:
            stride = tl.load(shapes[1] + anchor, mask=known, other=1.0)
            scale = tl.div_rn(tl.sqrt_rn((x2 - x1) * (y2 - y1)), stride)
            inside = inside & ((scale >= tl.load(shapes[3] + 1)) | (stride == tl.load(shapes[2])))
            inside = inside & ((scale <= tl.load(shapes[3] + 2)) | (stride == tl.load(shapes[2] + 1)))
    return known & inside
