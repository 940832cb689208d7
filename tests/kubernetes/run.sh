#!/bin/sh
# Builds a Kubernetes control plane, and runs a command in namespaces of its own, with the directory of the programs in
# CONTROL_PLANE. Where Go, ip or namespaces cannot be had, or with ONLY_BUILT nothing has been built yet, says so and
# exits with $SKIPPED, or with 0 without it.
# usage: sh tests/kubernetes/run.sh COMMAND...
set -eu
root=$PWD
cd "$(dirname "$0")"
skip() {
    echo "skipped: $1"
    exit "${SKIPPED:-0}"
}
command -v go >/dev/null || skip "there is no Go; install Go 1.26 and run it again"
command -v ip >/dev/null || skip "there is no program ip; install iproute2 and run it again"
SKIPPED=1 sh ../namespaces.sh true || exit "${SKIPPED:-0}"
key=$(cat go.mod go.sum | sha256sum | cut -c -12)
programs=${XDG_CACHE_HOME:-$HOME/.cache}/tfrecord-training-pipeline/kubernetes-$key
if [ ! -d "$programs" ]; then
    [ -z "${ONLY_BUILT:-}" ] || skip "there is no control plane yet; make test-kubernetes builds it"
    echo "building a Kubernetes control plane in $programs (some ten minutes the first time, 5 GB in Go's caches)"
    new=$programs.$$
    mkdir -p "$new"
    CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -trimpath -ldflags '-s -w' -o "$new/" tool
    mv "$new/server" "$new/etcd"
    jobset=$(go list -m -f '{{.Dir}}' sigs.k8s.io/jobset)/config/components
    cp "$jobset/crd/bases/jobset.x-k8s.io_jobsets.yaml" "$jobset/webhook/manifests.yaml" "$new"
    mv "$new" "$programs"
fi
cd "$root"
export CONTROL_PLANE="$programs"
exec sh tests/namespaces.sh "$@"
