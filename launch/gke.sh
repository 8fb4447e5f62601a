#!/usr/bin/env bash
# Trains on TPU slices of a GKE cluster, through xpk.
#
#   bash launch/gke.sh --cluster=NAME --zone=ZONE --workload=NAME --tpu_type=TYPE [OPTION...] COMMAND
#
#   run FLAG...     starts and shows the log
#   start FLAG...   builds an image of this checkout and submits it as a workload
#   logs            shows the first host's log until the workload ends, across its restarts
#   delete          ends the workload
#
# TYPE is such as v5litepod-16. Options: --num_slices=N, --project=ID, --dry_run to print what would be done.
# FLAGs are launch/train.py's; give a --workdir that outlives the pods and that all of them see. A workload
# whose pods are preempted or killed is started again, twenty times at most; one that ends with an error of
# its own is not. xpk, kubectl and gcloud have to be installed and logged in; the cluster is made once, by
# `xpk cluster create`.
set -euo pipefail
shopt -s inherit_errexit

# shellcheck source=launch/_cloud.sh
source "$(dirname "${BASH_SOURCE[0]}")/_cloud.sh"

cluster='' zone='' workload='' tpu_type='' num_slices=1 project=()
while [[ ${1:-} == -* ]]; do
  case $1 in
    --cluster=*) cluster=${1#*=} ;;
    --zone=*) zone=${1#*=} ;;
    --workload=*) workload=${1#*=} ;;
    --tpu_type=*) tpu_type=${1#*=} ;;
    --num_slices=*) num_slices=${1#*=} ;;
    --project=*) project=("$1") ;;
    --dry_run) dry_run=1 ;;
    -h | --help) usage "${BASH_SOURCE[0]}" && exit ;;
    *) fail "unknown option $1; --help lists those that there are" ;;
  esac
  shift
done
[[ -n $cluster && -n $zone && -n $workload && -n $tpu_type ]] ||
  fail "give --cluster, --zone, --workload and --tpu_type before the command"
target=("--cluster=$cluster" "--zone=$zone" "${project[@]}" "--workload=$workload")

start() {
  local context
  context=$(mktemp -d)
  pack_checkout | tar --extract --directory="$context"
  # exec, so that xpk's SIGTERM reaches training, which then saves. By default xpk starts a workload again
  # for exit codes from 127 on: killed (137), another host died (134), asked to stop (130).
  run xpk workload create "${target[@]}" --tpu-type="$tpu_type" --num-slices="$num_slices" \
    --base-docker-image=python:3.12 --script-dir="$context" --max-restarts=20 \
    --command="exec bash launch/_worker.sh tpu $(quoted "$@")"
  rm -r "$context"
}

logs() {
  local ended
  run gcloud container clusters get-credentials "$cluster" --location="$zone" "${project[@]}"
  while :; do
    # Fails while the pod is not there yet, and ends when it does.
    run kubectl logs --follow --container=jax-tpu --tail=-1 \
      --selector="xpk.google.com/workload=$workload,batch.kubernetes.io/job-completion-index=0" || true
    if [[ -n $dry_run ]]; then return; fi
    ended=$(kubectl get jobset "$workload" --output='jsonpath={.status.terminalState}')
    case $ended in
      Completed) return ;;
      Failed) fail "$workload has failed" ;;
    esac
    sleep 10
  done
}

delete() { run xpk workload delete "${target[@]}" --force; }

command=${1:-}
case $command in
  start | logs | delete) "$@" ;;
  run)
    start "${@:2}"
    logs
    ;;
  *) fail "no command ${command:-given}; --help lists those that there are" ;;
esac
