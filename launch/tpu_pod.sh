#!/usr/bin/env bash
# Trains on a Cloud TPU slice of one host or many, asked for as a queued resource.
#
#   bash launch/tpu_pod.sh --name=NAME --zone=ZONE --accelerator=TYPE [OPTION...] COMMAND
#
#   run FLAG...     all of it: asks for the slice, sets it up, starts, shows the log; again after each
#                   preemption until training ends
#   create          asks for the slice and waits until it is there
#   setup           copies this checkout to all hosts and installs it there
#   start FLAG...   starts training on all hosts; it goes on when this machine leaves
#   logs            shows the first host's log until training ends
#   stop            asks training to save and end
#   delete          gives the slice back
#
# TYPE is such as v5litepod-8 or v6e-16. Options: --runtime=VERSION (the TPU software, by default what fits
# TYPE), --spot, --project=ID, --dry_run to print what would be done first. FLAGs are launch/train.py's; give
# a --workdir that outlives the slice and that all hosts see. gcloud has to be logged in.
set -euo pipefail
shopt -s inherit_errexit

# shellcheck source=launch/_cloud.sh
source "$(dirname "${BASH_SOURCE[0]}")/_cloud.sh"

name='' zone='' accelerator='' runtime='' where=() spot=()
while [[ ${1:-} == -* ]]; do
  case $1 in
    --name=*) name=${1#*=} ;;
    --zone=*) zone=${1#*=} ;;
    --accelerator=*) accelerator=${1#*=} ;;
    --runtime=*) runtime=${1#*=} ;;
    --project=*) where+=("$1") ;;
    --spot) spot=(--spot) ;;
    --dry_run) dry_run=1 ;;
    -h | --help) usage "${BASH_SOURCE[0]}" && exit ;;
    *) fail "unknown option $1; --help lists those that there are" ;;
  esac
  shift
done
[[ -n $name && -n $zone && -n $accelerator ]] || fail "give --name, --zone and --accelerator before the command"
where+=("--zone=$zone")

default_runtime() {
  case $accelerator in
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v6e-*) echo v2-alpha-tpuv6e ;;
    *) echo tpu-ubuntu2204-base ;;
  esac
}

on_hosts() { run gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --worker="$1" --command="$2"; }

# What there is of the slice: nothing, something to wait for, all of it, or what a preemption left.
slice_state() {
  local request node
  if [[ -n $dry_run ]]; then
    echo "${asked_for:-none}"
    return
  fi
  request=$(gcloud compute tpus queued-resources list "${where[@]}" --filter="name ~ /$name\$" \
    --format='value(state.state)')
  case $request in
    '') echo none ;;
    FAILED | SUSPENDED) echo gone ;;
    ACTIVE)
      node=$(gcloud compute tpus tpu-vm list "${where[@]}" --filter="name ~ /$name\$" --format='value(state)')
      case $node in
        READY) echo ready ;;
        '' | PREEMPTED | TERMINATED) echo gone ;;
        *) echo "$node" ;;
      esac
      ;;
    *) echo "$request" ;;
  esac
}

create() {
  local state
  while :; do
    state=$(slice_state)
    case $state in
      ready) return ;;
      none)
        run gcloud compute tpus queued-resources create "$name" "${where[@]}" --node-id="$name" \
          --accelerator-type="$accelerator" --runtime-version="${runtime:-$(default_runtime)}" "${spot[@]}"
        asked_for=ready
        ;;
      gone)
        say "$name was preempted or could not be had; asking for it again"
        delete
        ;;
      *)
        say "waiting for $name: $state"
        sleep 30
        ;;
    esac
  done
}

# TPU images have an older Python than is needed; uv brings one without the system's package manager.
# shellcheck disable=SC2016  # the other host's HOME
get_python='export PATH="$HOME/.local/bin:$PATH" && { command -v python3.12 >/dev/null ||
  { python3 -m pip install --quiet --user uv && uv python install 3.12; }; }'

setup() {
  local archive
  archive=$(mktemp -d)/spade_jax.tar
  pack_checkout >"$archive"
  run gcloud compute tpus tpu-vm scp "$archive" "$name:spade_jax.tar" "${where[@]}" --worker=all
  rm -r "${archive%/*}"
  on_hosts all "mkdir -p spade_jax && tar -xf spade_jax.tar -C spade_jax && $get_python &&
    bash spade_jax/launch/node.sh --extra=tpu setup"
}

of_node() { echo "bash spade_jax/launch/node.sh --extra=tpu $*"; }
start() { on_hosts all "$(of_node start "$(quoted "$@")")"; }
logs() { on_hosts 0 "$(of_node logs)"; }
stop() { on_hosts all "$(of_node stop)"; }
delete() { run gcloud compute tpus queued-resources delete "$name" "${where[@]}" --force --quiet; }

# Ends as training does. Where that cannot be learnt the slice may be gone, or only the connection.
run_to_the_end() {
  local code
  while :; do
    create
    setup
    start "$@"
    logs || true
    code=$(on_hosts 0 "$(of_node exit_code)") || code=
    if [[ -n $dry_run ]]; then
      echo "$code"
      return
    fi
    if [[ $code =~ ^[0-9]+$ ]]; then
      return "$code"
    fi
    say "lost sight of $name; looking for it again"
    sleep 30
  done
}

command=${1:-}
case $command in
  create | setup | start | logs | stop | delete) "$@" ;;
  run) run_to_the_end "${@:2}" ;;
  *) fail "no command ${command:-given}; --help lists those that there are" ;;
esac
