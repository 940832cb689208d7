#!/bin/sh
# Runs a command in a root of its own, with the directories of this machine and further mounts. Those that $HIDDEN lists
# are empty there. No mount shows outside, as the caller is in a mount namespace of its own.
# usage: sh tests/enter_root.sh ROOT [DIRECTORY...] -- [SOURCE TARGET]... -- COMMAND...
# ROOT is an empty directory; a DIRECTORY is shown although it may be in a hidden one.
set -eu
root=$1
shift
mount -t tmpfs none "$root"
mount --make-unbindable "$root"
for path in /*; do
    if [ -L "$path" ]; then
        cp -P "$path" "$root"
    elif [ -d "$path" ]; then
        mkdir -m 1777 "$root$path"
        case " ${HIDDEN:-} " in
        *" $path "*) ;;
        *) mount --rbind "$path" "$root$path" ;;
        esac
    fi
done
while [ "$1" != -- ]; do
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
    shift
done
shift
# shellcheck disable=SC2016 # The inner shell expands it.
exec chroot "$root" sh -euc '
cd "$0"
while [ "$1" != -- ]; do
    [ -e "$2" ] || mkdir -p "$2"
    mount --bind "$1" "$2"
    shift 2
done
shift
exec "$@"' "$PWD" "$@"
