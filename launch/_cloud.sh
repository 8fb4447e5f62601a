# shellcheck shell=bash
# Sourced by the scripts that command other machines.

# shellcheck source=launch/_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/_environment.sh"
dry_run=

fail() {
  say "error: $*"
  exit 1
}

# The comment at the top of script $1.
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$1"; }

# Runs a command; in a dry run prints it instead, as a shell would take it.
run() {
  if [[ -n $dry_run ]]; then
    printf '%q ' "$@"
    printf '\n'
  else
    "$@"
  fi
}

# The arguments as one line that a shell takes apart again.
quoted() { printf '%q ' "$@"; }

# Writes the checkout, without what is made in it, as a tar archive to standard output.
pack_checkout() {
  tar --create --directory="$checkout" --exclude-vcs --exclude=./.venv --exclude=./runs \
    --exclude=__pycache__ --exclude='.*_cache' .
}
