#!/bin/sh
# A module of the project runs under Python; any other command (what kfp and Vertex AI pass) runs as it is.
#   docker run IMAGE components.convert --help
#   docker run IMAGE python3 -c 'import trainer'
if [ $# -eq 0 ]; then
    echo "usage: docker run IMAGE components.convert|train|evaluate|register|predict|serve|deploy|cleanup [flags], or any command" >&2
    exit 2
fi
case $1 in
components.* | pipelines.* | trainer.*) exec python -m "$@" ;;
*) exec "$@" ;;
esac
