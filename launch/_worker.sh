#!/usr/bin/env bash
# Sets up the machine that it runs on and becomes one process of a run.
#
#   bash launch/_worker.sh EXTRA FLAG...
#
# EXTRA is what the accelerator needs of setup.py's extras (cuda, tpu, or nothing on a CPU), FLAGs are
# launch/train.py's.
set -euo pipefail

# shellcheck source=launch/_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/_environment.sh"

prepare_environment "$1"
exec "$venv_python" "$checkout/launch/train.py" "${@:2}"
