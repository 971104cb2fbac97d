# One image for every machine: codezero and what it needs, nothing that builds or installs.
#   docker build .                                  for a machine without a GPU
#   docker build --build-arg TORCH_BACKEND=cu130 .  for NVIDIA cards; what `uv pip install --torch-backend` knows
# It works with and without BuildKit. docs/docker.md says how to run it.

# What the node runs on: a Debian with Python 3.11 to 3.13 and its venv module.
ARG BASE_IMAGE
# What the parts are built in, if it is another one: the same Python, and what a build needs to find its packages.
ARG BUILD_IMAGE
# Each may be empty, as compose files say "not given".


# The page of localhost:3000. Node.js is taken from PyPI and stays in this stage.
FROM ${BUILD_IMAGE:-${BASE_IMAGE:-python:3.12-slim-bookworm}} AS page
WORKDIR /app
COPY scripts/build_page.sh scripts/
COPY modal-login modal-login
RUN python3 -m venv .venv && mkdir -p codezero/login && scripts/build_page.sh || { cat modal-login/build.log; exit 1; }


# Python's packages, as uv.lock names them. The project is only linked, so that its source may change without these.
FROM ${BUILD_IMAGE:-${BASE_IMAGE:-python:3.12-slim-bookworm}} AS environment
ARG TORCH_BACKEND=cpu
# Compiled here, because nothing can be written there at run time.
ENV UV_COMPILE_BYTECODE=1 UV_NO_CACHE=1
WORKDIR /app
COPY pyproject.toml uv.lock ./
COPY scripts/install.sh scripts/
RUN mkdir codezero configs && touch README.md codezero/__init__.py \
 && scripts/install.sh \
 && .venv/bin/python -m pip uninstall --quiet --yes uv pip
# Where PyTorch's own index is out of reach, the install takes what there is: rather no image than the other kind.
COPY docker/check_torch.py docker/
RUN .venv/bin/python docker/check_torch.py "$TORCH_BACKEND"


FROM ${BASE_IMAGE:-python:3.12-slim-bookworm}
# tini is process 1: it passes signals on to the node and buries the processes that the node leaves behind.
# Triton compiles the kernels of learning on a card; the headers of Python come with the base image.
ARG TORCH_BACKEND=cpu
RUN apt-get update --quiet \
 && apt-get install --quiet --yes --no-install-recommends tini \
    $([ "$TORCH_BACKEND" = cpu ] || echo gcc libc6-dev) \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*

WORKDIR /app
COPY --from=environment /app/.venv .venv

# Whose files the volumes hold; the number matters where a folder of the host is mounted in place of a volume.
ARG NODE_UID
RUN groupadd --gid "${NODE_UID:-1000}" node \
 && useradd --uid "${NODE_UID:-1000}" --gid node --no-create-home --home-dir /node --shell /usr/sbin/nologin node \
 && install --directory --owner node --group node --mode 0700 /node /node/runs /node/logs /node/cache

COPY pyproject.toml LICENSE NOTICE ./
COPY docker docker
COPY configs configs
COPY codezero codezero
COPY --from=page /app/codezero/login/static codezero/login/static
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 \
    HOME=/node \
    XDG_CACHE_HOME=/node/cache \
    HF_HOME=/node/cache/huggingface \
    MPLCONFIGDIR=/node/cache/matplotlib
# The image stands on its own: every library loads with the base's Python, and nothing of it is the user's.
RUN python -m compileall -q codezero && python -c "import torch, trl, hivemind, codezero.node" \
 && rm -rf /node/cache/* /tmp/*

# Where the node lives: swarm.pem, wallet.json and swarm.toml; runs/, logs/ and cache/ below it.
USER node
WORKDIR /node
VOLUME ["/node", "/node/runs", "/node/logs", "/node/cache"]
ENV PAGE_PORT=3000 P2P_PORT=38331
EXPOSE 3000 38331
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s --retries=3 CMD ["python", "/app/docker/healthy.py"]
ENTRYPOINT ["/usr/bin/tini", "--", "/app/docker/entrypoint.sh"]
CMD ["run"]
