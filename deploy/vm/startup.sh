#!/bin/bash
# Start-up script of a machine that trains one job in a container (README.md). When the job is done
# or has failed, it deletes the group that the machine belongs to, and so the machine. All that has
# to outlast the machine is in the bucket. The script runs at every boot, also of a machine that
# replaces a preempted one.
# shellcheck disable=SC2329 # `repeat` calls functions that seem to have no caller.
set -uo pipefail

directory=${RUNTIME_DIRECTORY:-/run/training} # In memory, since it gets the registry's token.
storage=https://storage.googleapis.com
export DOCKER_CONFIG=$directory # Container-Optimized OS has root's home on a read-only disk.

say() { echo "training: $*"; }

# ask PATH: prints a value of the metadata server; nothing if there is no such value.
ask() {
    curl --silent --fail --retry 5 --retry-connrefused --header 'Metadata-Flavor: Google' \
        "http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/$1"
}
token() { ask service-accounts/default/token | sed -E 's/.*"access_token": *"([^"]*)".*/\1/'; }

# google METHOD URL [OPTION...]: sends a request, and prints the HTTP status, or 000 without an
# answer. The answer is written to $directory/answer.
google() {
    : >"$directory/answer"
    curl --silent --max-time 60 --request "$1" --header @<(echo "Authorization: Bearer $(token)") \
        --output "$directory/answer" --write-out '%{http_code}' "${@:3}" "$2"
}

# end_group: deletes the group. Tries until that succeeds, since the machine costs money until then.
end_group() {
    local status undone="costs until deploy/vm/delete ${group##*/training-vm-}"
    [ "$(ask attributes/training-keep)" != true ] || { say "kept as asked; $undone" && exit; }
    until status=$(google DELETE "https://compute.googleapis.com/compute/v1/$group"); [[ $status == @(2??|404) ]]; do
        say "the group cannot be deleted (HTTP $status); trying again; $undone"
        sleep 30
    done
    say "the group is being deleted"
    exit
}

# repeat WHAT COMMAND...: repeats a command that fails for ten minutes, since new permissions take
# some minutes to take effect.
repeat() {
    for _ in {1..40}; do
        "${@:2}" && return
        say "no $1 yet"
        sleep 15
    done
    return 1
}

# look: fetches DONE.json. It may be missing, but without the right to read the job directory, Cloud
# Storage does not even say that, and `look` fails.
look() {
    status=$(google GET "$storage/storage/v1/b/$bucket/o/$prefix%2FDONE.json?alt=media")
    [[ $status == @(200|404) ]]
}

pull() {
    token | docker login --username oauth2accesstoken --password-stdin "https://${image%%/*}" >/dev/null &&
        docker pull --quiet "$image"
}

# drivers: if the machine has NVIDIA GPUs, installs drivers, and sets $gpus to flags of docker.
drivers() {
    local device
    grep -qs 0x10de /sys/bus/pci/devices/*/vendor && command -v cos-extensions >/dev/null || return 0
    cos-extensions install gpu && mount --bind /var/lib/nvidia{,} && mount -o remount,exec /var/lib/nvidia || return
    gpus=(--volume /var/lib/nvidia:/usr/local/nvidia:ro --env LD_LIBRARY_PATH=/usr/local/nvidia/lib64)
    for device in /dev/nvidia*; do
        [ ! -c "$device" ] || gpus+=(--device "$device")
    done
}

# watch: stops the launcher when Google takes the machine away.
watch() {
    until [ "$(ask preempted)" = TRUE ]; do
        ask 'preempted?wait_for_change=true&timeout_sec=5' >/dev/null || sleep 1
    done
    say "the machine is being taken away"
    bash "$directory/stop"
}

mkdir -p "$directory"
rm -rf "$directory/pid" "$directory/stopping"
# This script makes the launcher save and end, and waits for it. It sends one signal only, since a
# second one would end the launcher before it has saved.
cat >"$directory/stop" <<'END'
pid=$(cat "${0%/*}/pid" 2>/dev/null)
[ "${pid:-0}" -gt 0 ] || exit 0
mkdir "${0%/*}/stopping" 2>/dev/null && kill -TERM "$pid"
tail --pid="$pid" --follow /dev/null
END

group=$(ask attributes/created-by) # projects/NUMBER/zones/ZONE/instanceGroupManagers/NAME
image=$(ask attributes/training-image)
job_dir=$(ask attributes/training-job-dir)
steps=$(ask attributes/training-steps)
command=() gpus=()
eval "command=($(ask attributes/training-command))" # deploy/vm/create has quoted the words.
: "${group:?} ${image:?} ${job_dir:?}"
bucket=${job_dir#gs://} prefix=${job_dir#gs://*/}
bucket=${bucket%%/*} prefix=${prefix%/} prefix=${prefix//\//%2F}

repeat "right to read $job_dir" look
# The group is deleted at once if all steps are done. If their number is not known, or if more steps
# are wanted, the trainer finds out what is left to do.
done_steps=$(sed -nE 's/^ "step": ([0-9]+).*/\1/p' "$directory/answer")
if [ "$status" = 200 ] && [ -n "$steps" ] && [ "${done_steps:-0}" -ge "$steps" ]; then
    say "$job_dir is done already"
    end_group
fi

docker rm --force training >/dev/null 2>&1 # The container may be left from an earlier boot.
code=125 # As docker's own exit code if it cannot start a container.
if repeat image pull && drivers && docker run --detach --name training --network host --log-opt max-size=50m \
    "${gpus[@]}" "$image" components.train --log-dir "/tmp/${group##*/}" "${command[@]}" >/dev/null; then
    docker inspect --format '{{.State.Pid}}' training >"$directory/pid"
    watch &
    docker logs --follow training
    until code=$(docker wait training); do sleep 5; done
    kill $! 2>/dev/null
    rm "$directory/pid"
fi
case $code in
0) say "$job_dir is done" ;;
143) say "saved; the next machine goes on from there" && exit ;;
137) # Out of memory; or replicas were killed before they had saved, if the machine is being stopped.
    [ ! -d "$directory/stopping" ] || { say "not all was saved; the next machine goes on from the newest checkpoint" && exit; }
    ;;&
*)
    docker logs --tail 200 training >"$directory/log" 2>&1
    say "ended with exit code $code; last lines to $job_dir/vm.log: HTTP $(google POST \
        "$storage/upload/storage/v1/b/$bucket/o?uploadType=media&name=$prefix%2Fvm.log" --data-binary "@$directory/log")"
    ;;
esac
end_group
