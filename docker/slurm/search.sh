#!/usr/bin/env bash
# One search on all nodes of one Slurm allocation. In a folder that every node sees:
#
#   sbatch search.sh photos.py --trials 100        options after the study file go to `tuner run`
#
# Ray's head and the search itself run on the first node, and a worker on each other node. Three minutes before the time
# limit the search is saved and the job is put into the queue again; later it goes on. A job that is cancelled or preempted is
# saved as well. Each job has its own run, runs/slurm-JOBID/.
#
# $TUNER_EXEC runs all of it in a container: TUNER_EXEC="apptainer exec --nv tuner.sif" sbatch search.sh photos.py
# $TUNER_ADDRESS can name the first node's address, if it has several and the first one found is in the wrong network.

#SBATCH --job-name=tuner
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
#SBATCH --time=08:00:00
#SBATCH --signal=B:USR1@180
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail
study=${1:?usage: sbatch search.sh STUDY.py [OPTIONS]}
shift
read -ra inside <<< "${TUNER_EXEC:-}"
grace=120 # shorter than the time between the signal and the limit
name=slurm-$SLURM_JOB_ID
port=$((20000 + SLURM_JOB_ID % 20000)) # jobs that share a node don't meet
head=$(hostname)

reachable() { # the address of this node by which others reach it: often its name is one of loopback, as on Debian
    local one first=''
    for one in ${TUNER_ADDRESS:-} $(hostname --ip-address) $(hostname --all-ip-addresses); do
        first=${first:-$one}
        [[ $one == 127.0.[01].1 || $one == *:* ]] || { echo "$one" && return; }
    done
    echo "$first"
}
address=$(reachable):$port
temporary=/tmp/ray-$SLURM_JOB_ID

# A token for this job, which is never written to a file: srun passes the environment on.
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

driver='' told='' ended='' steps=()

save() { # a signal came: what it means ($1), and SIGTERM for the search, which saves
    told=$1
    [ -z "$driver" ] || kill -TERM "$driver" 2> /dev/null || true
}
trap 'save requeue' USR1
trap 'save end' TERM

clean_up() {
    trap '' USR1 TERM
    [ ${#steps[@]} = 0 ] || kill -TERM "${steps[@]}" 2> /dev/null || true
    wait
    srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" rm -rf "$temporary" || true
}
trap clean_up EXIT

on_nodes() { # COUNT OPTION…: `ray start` with these options, in the background, on so many nodes
    local count=$1 where=$2
    shift 2
    srun --nodes="$count" --ntasks="$count" --cpus-per-task="$SLURM_CPUS_PER_TASK" "$where" \
        "${inside[@]}" ray start --block --num-cpus="$SLURM_CPUS_PER_TASK" "$@" > /dev/null &
    steps+=("$!")
}

nodes_there() { # how many nodes have joined; Ray may print lines of its own, and end badly after the number
    local found
    found=$("${inside[@]}" python - "$address" 2> /dev/null << 'PYTHON' | grep -m 1 -xE '[0-9]+'
import socket
import sys
socket.create_connection(sys.argv[1].rsplit(":", 1), timeout=5).close()  # Ray would wait for minutes
import ray
ray.init(address=sys.argv[1], log_to_driver=False)
print(sum(node["Alive"] for node in ray.nodes()))
PYTHON
    ) || true
    echo "${found:-0}"
}

wait_for_nodes() { # COUNT: until so many have joined, or a signal comes
    local step
    until [ -n "$told" ] || [ "$(nodes_there)" -ge "$1" ]; do
        for step in "${steps[@]}"; do
            kill -0 "$step" 2> /dev/null && continue
            echo "tuner: a node's \`ray start\` ended before $1 nodes had joined; see its message above" >&2
            exit 1
        done
        sleep 1
    done
}

go_on() { # waits for the search; $ended is its exit code
    while :; do # a signal that comes ends `wait`, not the search
        wait "$driver" && ended=0 || ended=$?
        kill -0 "$driver" 2> /dev/null || break
    done
    wait "$driver" 2> /dev/null && ended=0 || ended=$?
}

on_nodes 1 "--nodelist=$head" --head --node-ip-address="${address%:*}" --port="$port" --temp-dir="$temporary" \
    --include-dashboard=false
wait_for_nodes 1
if [ -z "$told" ] && [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    on_nodes $((SLURM_JOB_NUM_NODES - 1)) "--exclude=$head" --address="$address"
fi
wait_for_nodes "$SLURM_JOB_NUM_NODES"

if [ -z "$told" ]; then
    if compgen -G "runs/$name/*/run.json" > /dev/null; then
        "${inside[@]}" python -m tuner resume "runs/$name" --address "$address" --grace "$grace" &
    else
        "${inside[@]}" python -m tuner run "$study" --name "$name" --storage runs --address "$address" \
            --grace "$grace" "$@" &
    fi
    driver=$!
    [ -z "$told" ] || save "$told" # it came in between
    go_on
fi

if [ "$told" = requeue ] && [ "${ended:-130}" = 130 ]; then # 130: the search was saved, and isn't over
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "${ended:-130}"
