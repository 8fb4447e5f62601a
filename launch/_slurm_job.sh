#!/usr/bin/env bash
# The job that launch/slurm.sh submits: _slurm_job.sh CHECKOUT FLAG...
#SBATCH --job-name=spade_jax
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@300
set -euo pipefail

max_restarts=5

# jax would give each task only the GPU of its number on the node.
if [[ -n ${SLURM_GPUS_ON_NODE:-} ]]; then
  JAX_LOCAL_DEVICE_IDS=$(seq --separator=, 0 $((SLURM_GPUS_ON_NODE - 1)))
  export JAX_LOCAL_DEVICE_IDS
fi

code=0
srun --kill-on-bad-exit=1 bash "$1/launch/_worker.sh" cuda "${@:2}" || code=$?

# 130: training was told that the time limit is near, and has saved. Above: a process was killed.
if ((code == 130)) || ((code > 128 && ${SLURM_RESTART_COUNT:-0} < max_restarts)); then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
