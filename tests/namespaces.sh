#!/bin/sh
# Runs a command in namespaces of its own: a network with a loopback device, mounts, and processes, which end with it.
# Where none can be made, says so and exits with $SKIPPED, or with 0 without it.
# usage: sh tests/namespaces.sh COMMAND...
set -eu
enter="unshare --mount-proc --net --pid --fork --kill-child --propagation private"
[ "$(id -u)" -eq 0 ] || enter="$enter --user --map-root-user"
# SIOCSIFFLAGS and IFF_UP: a bare machine has no program `ip`.
lo_up='import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))'
if ! $enter python3 -c "$lo_up"; then
    echo "skipped: no namespaces can be made here"
    exit "${SKIPPED:-0}"
fi
# shellcheck disable=SC2016,SC2086 # The inner shell expands it; $enter is several words.
exec $enter sh -c 'python3 -c "$0" && exec "$@"' "$lo_up" "$@"
