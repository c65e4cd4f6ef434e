#!/bin/sh
# Fill the model cache: download what is named by a hub id, demand what is named by a path.
set -eu

# fetch NAME REVISION
fetch() {
  case "$1" in
    /*)
      if [ ! -f "$1/config.json" ]; then
        echo "model-fetch: expected a model in $1, got no config.json there. Copy the model to the volume." >&2
        exit 1
      fi
      ;;
    *) hf download "$1" --revision "$2" ;;
  esac
}

fetch "$MODEL" "$MODEL_REVISION"
fetch "$DRAFT_MODEL" "$DRAFT_REVISION"
