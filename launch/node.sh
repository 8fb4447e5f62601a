#!/usr/bin/env bash
# Trains on this machine in the background: a GPU node, or one host of a TPU slice.
#
#   bash launch/node.sh [--extra=EXTRA] [--dry_run] COMMAND
#
#   run FLAG...     all of it: sets up, starts, shows the log
#   setup           installs what is missing
#   start FLAG...   starts training; it goes on when this terminal closes
#   logs            shows the log until training ends, and exits as training did
#   stop            asks training to save and end
#   exit_code       prints how training ended, or nothing while it goes on
#
# EXTRA is cuda unless given; tpu on a TPU, nothing on a CPU. FLAGs are launch/train.py's. Training that is
# killed, by a fault of the machine or because another host of the run died, is started again, five times
# at most. After a restart of the machine the same command goes on with the run.
set -euo pipefail

max_restarts=5

# shellcheck source=launch/_cloud.sh
source "$(dirname "${BASH_SOURCE[0]}")/_cloud.sh"

extra=cuda
while [[ ${1:-} == -* ]]; do
  case $1 in
    --extra=*) extra=${1#*=} ;;
    --dry_run) dry_run=1 ;;
    -h | --help) usage "${BASH_SOURCE[0]}" && exit ;;
    *) fail "unknown option $1; --help lists those that there are" ;;
  esac
  shift
done

state=$checkout/runs/node
worker=("$checkout/launch/_worker.sh" "$extra")

mkdir -p "$state"

setup() { run prepare_environment "$extra"; }

# The lock is free when training has ended, however that was.
is_running() { ! flock --nonblock "$state/lock" true; }

start() {
  if [[ -n $dry_run ]]; then
    run bash "${worker[@]}" "$@"
  elif is_running; then
    say "training is running already"
  else
    rm -f "$state/exit_code" "$state/stop"
    setsid nohup flock --close "$state/lock" \
      bash "${BASH_SOURCE[0]}" --extra="$extra" supervise "$@" >>"$state/log" 2>&1 </dev/null &
    until is_running || [[ -e $state/exit_code ]]; do sleep 0.1; done
  fi
}

# What runs in the background: training, again if it is killed.
supervise() {
  local code restarts=0
  while :; do
    code=0
    bash -c 'echo $$ >"$0" && exec bash "$@"' "$state/pid" "${worker[@]}" "$@" || code=$?
    # 130 is what training says of itself when it was asked to stop.
    if [[ -e $state/stop ]] || ((code <= 128 || code == 130 || restarts == max_restarts)); then break; fi
    restarts=$((restarts + 1))
    say "training was killed (exit code $code); starting it again, time $restarts of $max_restarts"
    sleep 10 # the other hosts of the run need a moment to notice
  done
  echo "$code" >"$state/exit_code"
}

exit_code() {
  if ! is_running; then cat "$state/exit_code"; fi
}

logs() {
  if [[ -n $dry_run ]]; then
    run tail --lines=200 --follow "$state/log"
    return
  fi
  # Until the lock is free: the process that training once was may be another by now.
  flock "$state/lock" true &
  tail --lines=200 --follow=name --retry --pid=$! "$state/log"
  [[ -e $state/exit_code ]] || fail "training is gone, and nobody saw how it ended; start it again"
  return "$(<"$state/exit_code")"
}

stop() {
  is_running || fail "training is not running"
  run touch "$state/stop"
  run kill -TERM "$(<"$state/pid")"
}

command=${1:-}
case $command in
  setup | start | logs | stop | exit_code | supervise) "$@" ;;
  run)
    setup
    start "${@:2}"
    logs
    ;;
  *) fail "no command ${command:-given}; --help lists those that there are" ;;
esac
