#!/usr/bin/env bash
# Makes the weights of the samples that ship, their cards and sheets, except trees (recipes/trees-*.yaml):
# bash recipes/weights.sh NUCLEI IMGAUG.whl SCIKIT_IMAGE.whl [NAME ...]
# NUCLEI is the COCO folder of the 2018 Data Science Bowl, stage 1. The wheels: pip download --no-deps imgaug==0.4.0 scikit-image==0.26.0.
# BUILD (build/weights) holds data and runs; PYTHON (.venv/bin/python) and ARGS (key=value words of train, which win over the recipe) may be set.
set -euo pipefail
cd "$(dirname "$0")/.."
nuclei=$1 imgaug=$2 photos=$3
shift 3
build=${BUILD:-build/weights} python=${PYTHON:-.venv/bin/python}

data() { # data NAME: where its training data are, made if they are not there
    case $1 in
        nuclei-*)
            [ -d "$build/contest" ] || "$python" recipes/contest.py "$nuclei" "$build/contest" >&2
            local form=${1#nuclei-}
            [ "$form" = segment ] && echo "$build/contest/segment" || echo "$build/contest/obb/data.yaml"
            ;;
        quokka-pose)
            [ -d "$build/quokka" ] || "$python" recipes/quokka.py "$imgaug" "$photos" "$build/quokka" train=1500 val=100 seed=1 own_val=0 >&2
            echo "$build/quokka"
            ;;
        *) echo "expected nuclei-segment, nuclei-obb or quokka-pose, got $1" >&2 && return 2 ;;
    esac
}

declare -A samples=([nuclei-segment]="nuclei 256" [nuclei-obb]="nuclei-obb 256" [quokka-pose]="quokka 320") # for the sheets in docs/images
declare -A given=([cache]=ram) # what ARGS may change, of a key that it has twice the last
for word in ${ARGS:-}; do given[${word%%=*}]=${word#*=}; done
words=()
for key in "${!given[@]}"; do words+=("$key=${given[$key]}"); done
names=("$@")
[ $# -gt 0 ] || names=(nuclei-segment nuclei-obb quokka-pose)
for name in "${names[@]}"; do
    source=$(data "$name")
    "$python" -m pellucid train --config "recipes/$name.yaml" data="$source" project="$build/runs" name="$name" exist_ok=true "${words[@]}"
    "$python" recipes/ship.py "$build/runs/${name#*-}/$name" "$name-n"
    read -r sample size <<<"${samples[$name]}"
    "$python" bench/sheets.py "docs/images/${name#*-}.jpg" model="$name-n" data="$sample" imgsz="$size" pictures=4 tile=256
done
