# shellcheck shell=bash
# Sourced by the scripts beside it: finds a Python, makes .venv in the checkout and installs the
# package there. Running it again costs nothing until setup.py, the Python or the folder changes.
#
# After `prepare_environment [EXTRAS]`, $checkout is the checkout and $venv_python its interpreter.

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv_python=$checkout/.venv/bin/python

say() { printf '%s\n' "$*" >&2; }

# Whether interpreter $1 runs, is supported and has the modules $2. Runs it instead of trusting its
# name: a version manager's shim may exist and fail.
python_has() {
  "$1" -c "import sys${2:+, $2}; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))" >/dev/null 2>&1
}

# Prints the first supported interpreter on PATH, one that can make a virtual environment if any can.
find_python() {
  local name path fallback=
  for name in python3.11 python3.12 python3.13 python3 python; do
    while IFS= read -r path; do
      python_has "$path" || continue
      if python_has "$path" ensurepip; then
        printf '%s\n' "$path"
        return
      fi
      fallback=${fallback:-$path}
    done < <(type -aP "$name")
  done
  printf '%s\n' "$fallback"
}

# Debian and its relatives ship the venv module apart from the interpreter.
install_venv_module() {
  local package
  package=python$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    say "error: $1 cannot make virtual environments; run: sudo apt-get install $package"
    return 1
  fi
  say "installing $package"
  apt-get update -qq >&2 &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2
}

make_venv() {
  local python
  python=$(find_python)
  if [[ -z $python ]]; then
    say "error: no Python 3.11, 3.12 or 3.13 on PATH; on Debian or Ubuntu run:" \
      "sudo apt-get install python3 python3-venv"
    return 1
  fi
  python_has "$python" ensurepip || install_venv_module "$python" || return
  say "making $checkout/.venv with $("$python" --version)"
  "$python" -m venv --clear "$checkout/.venv"
}

prepare_environment() {
  local extras=${1:-} stamp=$checkout/.venv/installed.txt key
  python_has "$venv_python" pip || make_venv || return
  key="$("$venv_python" --version) $(cksum <"$checkout/setup.py") $checkout"
  grep -qxF "$key [$extras]" "$stamp" 2>/dev/null && return
  grep -qF "$key" "$stamp" 2>/dev/null || rm -f "$stamp"
  say "installing spade_jax${extras:+ with $extras tools} (once; a few minutes)"
  "$venv_python" -m pip install -qq --disable-pip-version-check \
    --editable "$checkout${extras:+[$extras]}" >&2 || return
  printf '%s\n' "$key []" "$key [$extras]" >>"$stamp"
}
