#!/usr/bin/env bash
# Checks the code and runs the tests; arguments go on to pytest.
#
#   bash launch/test.sh                      everything but the tests marked slow
#   bash launch/test.sh -m slow              the slow ones
#   bash launch/test.sh tests/rl -k packing  some of them
set -euo pipefail

# shellcheck source=launch/_environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/_environment.sh"

prepare_environment test
cd "$checkout"
"$venv_python" -m ruff check .
"$venv_python" -m ruff format --check --quiet .
"$venv_python" -m mypy
.venv/bin/shellcheck --external-sources launch/*.sh .ci/run
exec "$venv_python" -m pytest "$@"
