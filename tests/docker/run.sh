#!/bin/sh
# Builds the image and runs the tests marked `docker`; where no container engine can be had, says so and succeeds.
# usage: sh tests/docker/run.sh PYTHON
set -eu
cd "$(dirname "$0")/../.."
python=${1:-.venv/bin/python}
tools=../shared/tools
IMAGE=${IMAGE:-tfrecord-training:dev}
export IMAGE

if ! docker info >/dev/null 2>&1; then
    if [ "$(id -u)" -ne 0 ] || [ ! -f "$tools/docker_up.sh" ]; then
        echo "test-docker skipped: no container engine answers; start Docker and run it again"
        exit 0
    fi
    trap 'bash "$tools/docker_down.sh"' EXIT
    trap 'exit 143' INT TERM
    bash "$tools/docker_up.sh"
fi

make image
"$python" -m pytest -q -m docker tests/docker tests/test_lessons.py
