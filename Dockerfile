# One image for every step of the pipeline: the components, and the trainer's replicas on Docker and Vertex AI. `make image`
# builds it for CPUs, `make image-gpu` with TensorFlow's CUDA packages. Any builder does; nothing of the machine that builds
# it (certificates, package index) goes in.
ARG ACCELERATOR=cpu
FROM python:3.11-slim AS base

FROM base AS lock-cpu
COPY requirements.lock /requirements.lock

FROM base AS lock-gpu
COPY requirements-gpu.lock /requirements.lock

# The packages, in an environment of their own that the image takes over whole; pip stays behind. What no step imports goes:
# headers and sources to build packages, clang for its bindings, gRPC's compiler, tests of packages, Google's generative
# models, and what Arrow has for other stores and for serving. `tests/docker` imports all of the project in what remains, and
# runs the pipeline.
FROM lock-${ACCELERATOR} AS packages
RUN python3 -m venv --without-pip /opt/venv \
    && python3 -m pip --python /opt/venv/bin/python install --no-cache-dir --disable-pip-version-check \
        --root-user-action=ignore --no-deps --require-hashes --requirement /requirements.lock \
    && cd /opt/venv/lib/python3*/site-packages \
    && rm -rf tensorflow/include clang tensorboard_data_server vertexai agentplatform google/genai numpy/*/include \
        pyarrow/include pyarrow/src pyarrow/*flight* pyarrow/*s3* pyarrow/*azure* grpc_tools nvidia/*/include \
    && find . -regex '.*\.\(c\|cpp\|h\|hpp\|pxd\|pyi\|pyx\)' -delete \
    && find . -type d -name tests -prune -exec rm -rf {} +
# An editable install before the sources exist: it only puts /app on Python's path ("compat" writes a plain .pth) and
# records name and version. The lock carries setuptools, so nothing unlocked is fetched to build it.
WORKDIR /app
COPY pyproject.toml ./
RUN python3 -m pip --python /opt/venv/bin/python install --no-cache-dir --disable-pip-version-check \
        --root-user-action=ignore --no-deps --no-build-isolation --config-settings editable_mode=compat --editable . \
    && python3 -m pip --python /opt/venv/bin/python check

FROM base
COPY --from=packages /opt/venv /opt/venv
# PYTHONUNBUFFERED: a replica's last words reach the log even when it is killed.
# HOME: anybody can write there, be it who starts a local run, to whom its files belong, or on a root file system that
# nobody may write to, with a tmpfs.
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    TF_CPP_MIN_LOG_LEVEL=1
RUN useradd --uid 1000 --user-group --no-create-home --home-dir $HOME --shell /usr/sbin/nologin trainer
WORKDIR /app
ENTRYPOINT ["/bin/sh", "/app/docker/entrypoint.sh"]
# By number, so that Kubernetes sees that it is not root. Where a mount at /gcs should be for root alone: `make image RUN_AS=0`.
ARG RUN_AS=1000:1000
USER $RUN_AS
# What is slow and rare is above: an edit of the sources rebuilds only what follows.
COPY . .
# What the image was made of: shown by --version of every command, and kept with every model.
ARG CODE_VERSION VERSION
ENV CODE_VERSION=$CODE_VERSION
LABEL org.opencontainers.image.title="tfrecord-training-pipeline" \
    org.opencontainers.image.revision="$CODE_VERSION" \
    org.opencontainers.image.version="$VERSION"
