#!/bin/bash
# Start-up script of a machine that trains one job (README.md): in a container, until the job is done or has failed; then
# it deletes the group that the machine belongs to, and so the machine. Whatever has to outlast it is in the bucket.
# It runs at every boot, on the machines too that take the place of one that was preempted.
# shellcheck disable=SC2329 # repeat calls what looks as if nothing did
set -uo pipefail

directory=${RUNTIME_DIRECTORY:-/run/training} # in memory, as the registry's token comes to lie there
storage=https://storage.googleapis.com
export DOCKER_CONFIG=$directory # on Container-Optimized OS root's home cannot be written

say() { echo "training: $*"; }

# ask PATH: prints what the metadata server knows of the machine; nothing if it does not know.
ask() {
    curl --silent --fail --retry 5 --retry-connrefused --header 'Metadata-Flavor: Google' \
        "http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/$1"
}
token() { ask service-accounts/default/token | sed -E 's/.*"access_token": *"([^"]*)".*/\1/'; }

# google METHOD URL [OPTION...]: prints the HTTP status, 000 without one; the answer is in $directory/answer.
google() {
    : >"$directory/answer"
    curl --silent --max-time 60 --request "$1" --header @<(echo "Authorization: Bearer $(token)") \
        --output "$directory/answer" --write-out '%{http_code}' "${@:3}" "$2"
}

# end_group: tries until the group is gone, because as long as it is there this machine costs.
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

# repeat WHAT COMMAND...: again if it fails, as rights that were granted a moment ago take minutes to hold.
repeat() {
    for _ in {1..40}; do
        "${@:2}" && return
        say "no $1 yet"
        sleep 15
    done
    return 1
}

# look: asks for DONE.json; who may not read the job directory is not even told that it is not there.
look() {
    status=$(google GET "$storage/storage/v1/b/$bucket/o/$prefix%2FDONE.json?alt=media")
    [[ $status == @(200|404) ]]
}

pull() {
    token | docker login --username oauth2accesstoken --password-stdin "https://${image%%/*}" >/dev/null &&
        docker pull --quiet "$image"
}

# drivers: installs those of NVIDIA's GPUs where there are any, and puts what docker has to be told of them into $gpus.
drivers() {
    local device
    grep -qs 0x10de /sys/bus/pci/devices/*/vendor && command -v cos-extensions >/dev/null || return 0
    cos-extensions install gpu && mount --bind /var/lib/nvidia{,} && mount -o remount,exec /var/lib/nvidia || return
    gpus=(--volume /var/lib/nvidia:/usr/local/nvidia:ro --env LD_LIBRARY_PATH=/usr/local/nvidia/lib64)
    for device in /dev/nvidia*; do
        [ ! -c "$device" ] || gpus+=(--device "$device")
    done
}

# watch: has the launcher stop when the machine is being taken away.
watch() {
    until [ "$(ask preempted)" = TRUE ]; do
        ask 'preempted?wait_for_change=true&timeout_sec=5' >/dev/null || sleep 1
    done
    say "the machine is being taken away"
    bash "$directory/stop"
}

mkdir -p "$directory"
rm -rf "$directory/pid" "$directory/stopping"
# Has the launcher save and end, and waits for that. It is told once only: a second signal would end it unsaved.
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
eval "command=($(ask attributes/training-command))" # as quoted by deploy/vm/create
: "${group:?} ${image:?} ${job_dir:?}"
bucket=${job_dir#gs://} prefix=${job_dir#gs://*/}
bucket=${bucket%%/*} prefix=${prefix%/} prefix=${prefix//\//%2F}

repeat "right to read $job_dir" look
# If the number of steps is not known, or more are asked for than are done, the trainer finds out what is left to do.
done_steps=$(sed -nE 's/^ "step": ([0-9]+).*/\1/p' "$directory/answer")
if [ "$status" = 200 ] && [ -n "$steps" ] && [ "${done_steps:-0}" -ge "$steps" ]; then
    say "$job_dir is done already"
    end_group
fi

docker rm --force training >/dev/null 2>&1 # of an earlier boot
code=125 # docker's own where it cannot start a container
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
137) # out of memory perhaps; or a replica had to be killed before it had saved, which the next machine bears
    [ ! -d "$directory/stopping" ] || { say "not all was saved; the next machine goes on from the newest checkpoint" && exit; }
    ;;&
*)
    docker logs --tail 200 training >"$directory/log" 2>&1
    say "ended with exit code $code; last lines to $job_dir/vm.log: HTTP $(google POST \
        "$storage/upload/storage/v1/b/$bucket/o?uploadType=media&name=$prefix%2Fvm.log" --data-binary "@$directory/log")"
    ;;
esac
end_group
