#!/bin/sh
# A queue as Slurm's commands show one, for tests: each job is a folder with what it is and how it stands. Called by the name of
# the command it plays. `release ID` gives a job its node.
D=$(dirname "$0")/../queue
state() { cat "$D/$1/state" 2>/dev/null; }
put() { printf '%s' "$3" >"$D/$1/$2.new" && mv "$D/$1/$2.new" "$D/$1/$2"; }

start() {
    put "$1" state RUNNING
    (
        export SLURM_JOB_ID="$1" SLURM_ARRAY_TASK_ID="${1#*_}"
        restarts=$(cat "$D/$1/restarts" 2>/dev/null || echo 0)
        [ "$restarts" = 0 ] || export SLURM_RESTART_COUNT="$restarts"
        cd "$(cat "$D/$1/folder")" || exit 1
        bash "$D/$1/script" </dev/null >>"$D/$1/out" 2>&1 &
        put "$1" pid $!
        wait $!
        code=$?
        put "$1" code "$code"
        if [ -f "$D/$1/again" ]; then
            rm "$D/$1/again"
            put "$1" restarts $((restarts + 1))
            put "$1" reason BeginTime
            put "$1" state PENDING
        elif [ -f "$D/$1/end" ]; then
            put "$1" state "$(cat "$D/$1/end")"
        elif [ "$code" = 0 ]; then
            put "$1" state COMPLETED
        else
            put "$1" state FAILED
        fi
    ) </dev/null >/dev/null 2>&1 &
}

case $(basename "$0") in
sbatch)
    [ "$1" = --version ] && echo 'slurm-wlm 22.05.8' && exit
    if [ -f "$D/refuse" ]; then
        cat "$D/refuse" >&2
        exit 1
    fi
    printf '%s\n' "$*" >>"$D/asked"
    folder=.
    while [ $# -gt 0 ]; do
        [ "$1" = --chdir ] && folder=$2
        shift
    done
    id=$(($(cat "$D/last" 2>/dev/null || echo 0) + 1))
    echo "$id" >"$D/last"
    cat >"$D/script-$id"
    last=$(sed -n 's/^#SBATCH --array=0-\([0-9]*\).*/\1/p' "$D/script-$id")
    for task in $(seq 0 "${last:-0}"); do
        job=$id${last:+_$task}
        mkdir "$D/$job"
        cp "$D/script-$id" "$D/$job/script"
        put "$job" folder "$folder"
        put "$job" reason Resources
        put "$job" state PENDING
        [ -f "$D/hold" ] || start "$job"
    done
    echo "$id"
    ;;
release)
    start "$1"
    ;;
scontrol)
    if [ "$1" = requeue ]; then
        touch "$D/$2/again"
        kill -TERM "$(cat "$D/$2/pid")"
        exit
    fi
    job=$4
    if [ ! -d "$D/$job" ]; then
        echo 'slurm_load_jobs error: Invalid job id specified' >&2
        exit 1
    fi
    reason=None
    [ "$(state "$job")" = PENDING ] && reason=$(cat "$D/$job/reason")
    echo "JobId=$job JobName=x JobState=$(state "$job") Reason=$reason Restarts=$(cat "$D/$job/restarts" 2>/dev/null || echo 0)" \
        "ExitCode=$(cat "$D/$job/code" 2>/dev/null || echo 0):0 TimeLimit=00:10:00 StartTime=Unknown Partition=gpu NodeList=node1" \
        "PreemptTime=$(cat "$D/$job/preempted" 2>/dev/null || echo None)"
    ;;
squeue)
    for job in "$D"/*/; do
        job=$(basename "$job")
        [ "$(state "$job")" = PENDING ] && echo "$job"
    done
    ;;
scancel)
    for job in "$@"; do :; done
    case $1 in
    --signal=INT) kill -INT "$(cat "$D/$job/pid")" ;;
    *)
        if [ "$(state "$job")" = PENDING ]; then
            put "$job" state CANCELLED
        else
            put "$job" end CANCELLED
            kill -TERM "$(cat "$D/$job/pid")"
        fi
        ;;
    esac
    ;;
sinfo)
    echo 'node1|gpu|mix|gpu:4|gpu:1(IDX:0)|2/14/0/16|1-00:00:00|up|gpu*|'
    echo 'node2|cpu|idle|(null)|gpu:0|0/8/0/8|infinite|up|cpu|'
    ;;
sacct)
    echo 'Slurm accounting storage is disabled' >&2
    exit 1
    ;;
srun)
    printf '%s\n' "$*" >>"$D/asked"
    while [ "$1" != -- ]; do shift; done
    shift
    exec "$@"
    ;;
esac
