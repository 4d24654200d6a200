# The base image by its version and by the digest of its list of platforms. Another one is chosen with
#   --build-arg PYTHON=IMAGE@sha256:...
# `docker buildx imagetools inspect IMAGE` prints the digest.
ARG PYTHON=python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1

FROM ${PYTHON} AS build
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never \
    UV_PROJECT_ENVIRONMENT=/opt/reprieve
# Set to 1 where npm has no registry to ask: the image is then without the web page.
ARG REPRIEVE_WITHOUT_WEB=
RUN pip install --no-cache-dir uv==0.13.9
WORKDIR /source
COPY pyproject.toml uv.lock PACKAGE.md LICENSE ./
COPY src src
COPY web web
COPY kubeworld kubeworld
# Distributions of their own, which the image does not install; the lock names them.
COPY kubelocal/pyproject.toml kubelocal/
COPY reprieve-notice/pyproject.toml reprieve-notice/
COPY .ci/prune.py .ci/
# What is never imported goes in the same layer; the kubernetes package alone is 126 MB, of which 3 are used.
RUN uv sync --locked --no-dev --no-editable && python .ci/prune.py /opt/reprieve

# `--target up`: the embedded cluster and the demo, for whoever has no Python.
FROM build AS build-up
COPY kubelocal kubelocal
RUN uv sync --locked --no-dev --no-editable --extra local

FROM ${PYTHON} AS up
COPY --from=build-up /opt/reprieve /opt/reprieve
ENV PATH=/opt/reprieve/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["reprieve"]
CMD ["up", "--no-open"]

FROM ${PYTHON}
COPY --from=build /opt/reprieve /opt/reprieve
ENV PATH=/opt/reprieve/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["reprieve"]
CMD ["run"]
