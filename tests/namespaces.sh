#!/bin/sh
# Runs a command in namespaces of its own: a network with a loopback device, mounts, and processes, which end with it.
# Where none can be made, says so and exits with $SKIPPED, or with 0 without it.
# usage: sh tests/namespaces.sh COMMAND...
set -eu
enter="unshare --mount-proc --net --pid --fork --kill-child --propagation private"
[ "$(id -u)" -eq 0 ] || enter="$enter --user --map-root-user"
if ! $enter ip link set lo up; then
    echo "skipped: no namespaces can be made here"
    exit "${SKIPPED:-0}"
fi
# shellcheck disable=SC2016,SC2086 # The inner shell expands it; $enter is several words.
exec $enter sh -c 'ip link set lo up && exec "$0" "$@"' "$@"
