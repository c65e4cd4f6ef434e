# Shared by the scripts beside it; sourced, never run. Bash.
#
# Settings from the environment:
#   PYTHON          interpreter to make the venv with (3.11 to 3.13); found by itself if unset
#   DRAFTGATE_VENV  folder of the venv; .venv in the checkout if unset

set -euo pipefail

SCRIPTS="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ROOT="$(cd "$SCRIPTS/../.." && pwd)"
VENV="${DRAFTGATE_VENV:-$ROOT/.venv}"
NAME="$(basename "$0")"
cd "$ROOT"

# say TEXT...: one line of progress, with the seconds since the script started.
say() {
  printf '[%s %4ds] %s\n' "$NAME" "$SECONDS" "$*"
}

# die TEXT...: say what is wrong and stop.
die() {
  printf '%s: %s\n' "$NAME" "$*" >&2
  exit 1
}

# hash_of FILE...: one hash over the contents.
hash_of() {
  cat -- "$@" | sha256sum | cut -d' ' -f1
}
