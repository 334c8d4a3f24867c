"""Put the best weights of a run among those that ship, as float16: `python recipes/ship.py RUN NAME`."""

from __future__ import annotations

import sys
from pathlib import Path

from pellucid.zoo import load_weights, save_weights
from pellucid.zoo.weights import HERE


def main(run: str, name: str) -> None:
    model, card = load_weights(Path(run) / "weights" / "best.safetensors")
    path = HERE / f"{name}.safetensors"
    save_weights(path, model.state_dict(), card, half=True)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {card.task}-{card.scale}, {card.imgsz} px, {', '.join(card.names)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
