# One CPU image for every step of the pipeline: the components, and the trainer's replicas on Docker and Vertex AI.
# Any builder does; nothing of the machine that builds it (certificates, package index) goes in.
FROM python:3.11-slim

# PYTHONUNBUFFERED: a replica's last words reach the log even when it is killed.
ENV PYTHONUNBUFFERED=1 \
    TF_CPP_MIN_LOG_LEVEL=1

WORKDIR /app

# Slowest and rarest first: an edit of the sources rebuilds only the last COPY.
COPY requirements.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        --require-hashes --requirement requirements.lock

# An editable install before the sources exist: it only puts /app on Python's path ("compat" writes a plain .pth) and
# records name and version. The lock carries setuptools, so nothing unlocked is fetched to build it.
COPY pyproject.toml ./
RUN pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .

COPY . .

# Root on purpose: Vertex AI mounts /gcs for root, and kfp's DockerRunner mounts folders that belong to whoever runs it.
ENTRYPOINT ["/bin/sh", "/app/docker/entrypoint.sh"]
