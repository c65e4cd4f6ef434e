# Shared by the scripts that a CI runner calls; sourced, never run. Bash.
#
# Settings from the environment, beside those of common.sh:
#   DRAFTGATE_CI_STATE      folder for the host's lock and notes; ~/.local/state/draftgate-ci if unset
#   DRAFTGATE_LOCK_WAIT_S   patience with another job on this host; 600 if unset

# A runner's checkout is cleaned before each job; a venv outside of it is kept.
if [[ -n "${RUNNER_TOOL_CACHE:-}" ]]; then
  export DRAFTGATE_VENV="${DRAFTGATE_VENV:-$RUNNER_TOOL_CACHE/draftgate-venv}"
fi

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

STATE="${DRAFTGATE_CI_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/draftgate-ci}"
# shellcheck disable=SC2034 # used by the scripts that source this
NOT_FREE=75 # exit code of "this host is not free now"; EX_TEMPFAIL of sysexits.h

# output NAME VALUE: hand a value on to later steps and jobs.
output() {
  [[ "$2" != *$'\n'* ]] || die "the value of output '$1' has more than one line"
  printf '%s=%s\n' "$1" "$2" >>"${GITHUB_OUTPUT:-/dev/stdout}"
}

# annotate LEVEL TEXT: a line that GitHub shows on the run's page; LEVEL is notice, warning or error.
annotate() {
  local text="${2//'%'/%25}"
  if [[ "${GITHUB_ACTIONS:-}" == true ]]; then
    printf '::%s::%s\n' "$1" "${text//$'\n'/%0A}"
  else
    printf '%s: %s: %s\n' "$NAME" "$1" "$2"
  fi
}

# setting KEY FILTER: a setting of gpu-ci/gate.json through a jq filter, which must give true where
# it is usable; on one line, strings as they are.
setting() {
  jq -e --arg key "$1" ".[\$key] | $2" "$ROOT/gpu-ci/gate.json" >/dev/null 2>&1 ||
    die "gpu-ci/gate.json: '$1' is $(jq -c --arg key "$1" '.[$key]' "$ROOT/gpu-ci/gate.json")," \
      "which cannot be used. gpu-ci/README.md says what it must be."
  jq -cr --arg key "$1" '.[$key]' "$ROOT/gpu-ci/gate.json"
}

# These are filters of jq, not words of bash.
# shellcheck disable=SC2034,SC2016 # used by the scripts that source this
{
  A_NAME='type == "string" and test("^[A-Za-z0-9][A-Za-z0-9._-]*$")'
  A_COUNT='type == "number" and . > 0 and . == floor'
  AN_IMAGE='type == "string" and test("^[a-z0-9][A-Za-z0-9._/:@{}-]*$")'
  NAMES='type == "array" and all(.[]; type == "string" and test("^[A-Za-z0-9][A-Za-z0-9._-]*$"))'
  LABELS_OF_RUNNER="length > 0 and ($NAMES)"
  LINES='type == "array" and all(.[]; type == "string" and (test("\n") | not))'
}

# need NAME...: stop unless each variable is set to something.
need() {
  local name
  for name; do
    [[ -n "${!name:-}" ]] || die "environment variable $name is empty; the workflow sets it"
  done
}

# place: where a process number means one process, as draftgate/engines/docker.py spells it.
place() {
  local boot namespace
  boot="$(</proc/sys/kernel/random/boot_id)"
  namespace="$(readlink /proc/self/ns/pid)"
  printf '%s-%s-%s' "$boot" "${namespace//[!0-9]/}" "$(id -u)"
}

# born PID: its start in clock ticks since boot; empty if it has ended (proc(5)).
born() {
  local line fields
  line="$(cat "/proc/$1/stat" 2>/dev/null)" || return 0
  read -ra fields <<<"${line##*) }"
  [[ "${fields[0]}" == [ZX] ]] || printf '%s' "${fields[19]}"
}

# lives OWNER: whether the process noted as PID-BORN still runs; numbers are used again.
lives() {
  [[ "$1" =~ ^[0-9]+-[0-9]+$ && "$(born "${1%-*}")" == "${1#*-}" ]]
}

# take_host: be the one job on this host until this script ends, and mark all that it starts.
# Everything started from here on inherits DRAFTGATE_JOB, by which clean-host finds leftovers.
take_host() {
  mkdir -p "$STATE"
  exec 9>>"$STATE/gpu.lock"
  if ! flock -w "${DRAFTGATE_LOCK_WAIT_S:-600}" 9; then
    annotate error "Another job holds this host ($STATE/gpu.lock). Run this one again later."
    exit "$NOT_FREE"
  fi
  DRAFTGATE_JOB="$(place)/$$-$(born $$)"
  export DRAFTGATE_JOB
}

# gently COMMAND...: run it and return its exit code. A cancelled job sends SIGINT and SIGTERM to
# the script alone; they are passed on as SIGTERM, which draftgate takes as Ctrl-C. (SIGINT would
# be lost: bash starts background commands with it ignored.) The host's lock is not inherited.
gently() {
  local child code=0 stopped=no
  "$@" 9>&- &
  child=$!
  trap 'stopped=yes; kill -TERM "$child" 2>/dev/null || true' INT TERM
  wait "$child" || code=$?
  while [[ "$stopped" == yes ]]; do # the signal ended the waiting, not the command
    stopped=no code=0
    wait "$child" || code=$?
  done
  trap - INT TERM
  return "$code"
}
