#!/usr/bin/env bash
# Warm-starts a tiny model and runs self-play with it: ten minutes on two cores.
#
#   bash launch/quickstart.sh [DIR] [--set=section.field=value]...
#
# The run goes to DIR (default: runs/quickstart in the checkout). An interrupted run goes on where it
# stopped when the same command is given again.
set -euo pipefail

num_cycles=120 # what fits into ten minutes; the full run of the config is longer

# shellcheck source=launch/_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/_environment.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit
fi
workdir=$checkout/runs/quickstart
if [[ $# -gt 0 && $1 != -* ]]; then
  workdir=$1
  shift
fi

prepare_environment
# Huge pages for what XLA allocates anew in each call: a quarter less time for an update on a CPU.
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}
exec "$venv_python" "$checkout/launch/train.py" --config="$checkout/configs/tiny_games.py" \
  --workdir="$workdir" --set=num_cycles="$num_cycles" --set=evaluation.every=40 "$@"
