#!/bin/sh
# Builds a Kubernetes control plane and runs the tests marked `kubernetes` in namespaces of their own; where Go or
# namespaces cannot be had, says so and succeeds.
# usage: sh tests/kubernetes/run.sh PYTHON [arguments of pytest]
set -eu
cd "$(dirname "$0")"
python=$1
shift
if ! command -v go >/dev/null; then
    echo "test-kubernetes skipped: there is no Go; install Go 1.26 and run it again"
    exit 0
fi
enter="unshare --mount-proc --net --pid --fork --kill-child --propagation private"
[ "$(id -u)" -eq 0 ] || enter="$enter --user --map-root-user"
if ! $enter ip link set lo up; then
    echo "test-kubernetes skipped: no namespaces can be made here"
    exit 0
fi
key=$(cat go.mod go.sum | sha256sum | cut -c -12)
programs=${XDG_CACHE_HOME:-$HOME/.cache}/tfrecord-training-pipeline/kubernetes-$key
if [ ! -d "$programs" ]; then
    echo "building a Kubernetes control plane in $programs (some ten minutes the first time, 5 GB in Go's caches)"
    new=$programs.$$
    mkdir -p "$new"
    CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -trimpath -ldflags '-s -w' -o "$new/" tool
    mv "$new/server" "$new/etcd"
    jobset=$(go list -m -f '{{.Dir}}' sigs.k8s.io/jobset)/config/components
    cp "$jobset/crd/bases/jobset.x-k8s.io_jobsets.yaml" "$jobset/webhook/manifests.yaml" "$new"
    mv "$new" "$programs"
fi
cd ../..
export CONTROL_PLANE="$programs"
# shellcheck disable=SC2016,SC2086 # The inner shell expands them; $enter is several words.
exec $enter sh -c 'ip link set lo up && exec "$0" -m pytest -q -m kubernetes "$@" tests/kubernetes tests/contracts' "$python" "$@"
