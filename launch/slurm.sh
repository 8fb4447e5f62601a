#!/usr/bin/env bash
# Trains on nodes of a SLURM cluster: one process a node, with all GPUs that the job has there.
#
#   bash launch/slurm.sh [--dry_run] SBATCH_OPTION... -- FLAG...
#
#   bash launch/slurm.sh --nodes=1 --gpus-per-node=8 --time=24:00:00 -- --config=FILE --workdir=DIR
#
# Installs into .venv of this checkout, submits a job and shows its log until it ends; Ctrl-C leaves the job
# alone, scancel ends it. Checkout and --workdir have to lie where all nodes see them. FLAGs are
# launch/train.py's. A job that is preempted, or comes to its time limit, saves, is queued again and goes on;
# so does one whose node fails, five times at most.
set -euo pipefail
shopt -s inherit_errexit

# shellcheck source=launch/_cloud.sh
source "$(dirname "${BASH_SOURCE[0]}")/_cloud.sh"

options=()
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    --dry_run) dry_run=1 ;;
    -h | --help) usage "${BASH_SOURCE[0]}" && exit ;;
    *) options+=("$1") ;;
  esac
  shift
done
[[ ${1:-} == -- ]] || fail "give -- between the options for sbatch and the flags for training"
shift

# Until a job has ended for good; one that is queued again is still known.
wait_for() {
  while [[ -n $(squeue --noheader --jobs="$1" --format=%T 2>/dev/null) ]]; do sleep 10; done
}

run prepare_environment cuda
mkdir -p "$checkout/runs"
submit=(sbatch --parsable "--output=$checkout/runs/slurm-%j.log" "${options[@]}"
  "$checkout/launch/_slurm_job.sh" "$checkout" "$@")
if [[ -n $dry_run ]]; then
  run "${submit[@]}"
  exit
fi
job=$("${submit[@]}")
job=${job%%;*}
log=$checkout/runs/slurm-$job.log
say "job $job; its log is $log"
wait_for "$job" &
tail --lines=+1 --follow=name --retry --pid=$! "$log" 2>/dev/null || true # it may not be there yet
state=$(scontrol show job "$job" --oneliner | grep --only-matching 'JobState=[A-Z_]*')
[[ $state == JobState=COMPLETED ]] || fail "job $job ended with ${state#*=}"
