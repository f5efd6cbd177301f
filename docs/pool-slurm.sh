#!/bin/sh
# The shards of a suite as a job array for Slurm. Copy this file, change its first lines, and
# submit it from a folder that all nodes share:
#   mkdir -p pool && sbatch pool-slurm.sh          (options of hotlap run may follow)
# Shards that are done are skipped, so submit it again to complete the pool. Only some shards:
#   sbatch --array=3,7 pool-slurm.sh
#SBATCH --job-name=hotlap
#SBATCH --array=0-11
#SBATCH --time=60
#SBATCH --output=pool/shard-%a.log
# A task has whole nodes with all of their memory. If a node fails or a job is preempted, Slurm
# starts the task again. Two minutes before the time limit, Slurm tells hotlap to end its servers.
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
suite=${SUITE:-app-servers}
shards=${SHARDS:-12} # as many as --array has
nodes_per_server=${NODES_PER_SERVER:-3}
hotlap=${HOTLAP:-hotlap}

set -eu
# With --nodes=2, the load comes from the second node.
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    generator=$(scontrol show hostnames "$SLURM_JOB_NODELIST" |
        grep -vx "$SLURMD_NODENAME" | head -n 1)
    set -- "$@" --generator-on \
        "srun --nodes=1 --ntasks=1 --overlap --nodelist=$generator '$hotlap' agent"
fi
exec "$hotlap" run --suite "$suite" --shard "$SLURM_ARRAY_TASK_ID/$shards" \
    --nodes-per-server "$nodes_per_server" --store "pool/shard-$SLURM_ARRAY_TASK_ID.db" "$@"
