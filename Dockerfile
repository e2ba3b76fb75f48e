# One image for all processes: callboard serve, worker, board and migrate. See docs/deploy.md.
#   docker build --tag callboard .
ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS build
WORKDIR /source
COPY .ci/uv.txt .ci/uv.txt
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --requirement .ci/uv.txt
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY src src
ARG EXTRAS=gateway,store,jobs,board,otel,prices,mcp
# Versions and hashes are those of requirements.lock, whose development tools stay out.
RUN uv venv --python /usr/local/bin/python /opt/callboard && \
    uv pip install --no-cache --compile-bytecode --python /opt/callboard \
    --constraint requirements.lock --build-constraint requirements.lock ".[${EXTRAS}]"

FROM ${PYTHON}
RUN useradd --uid 10001 --home-dir /data --create-home callboard
COPY --from=build /opt/callboard /opt/callboard
COPY deploy/healthcheck.py /opt/callboard/healthcheck.py
# Everything that Callboard writes is in /data and /tmp, so the rest may be read-only.
ENV PATH=/opt/callboard/bin:$PATH HOME=/data PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8282 8283
HEALTHCHECK --start-period=20s CMD ["python", "/opt/callboard/healthcheck.py"]
ENTRYPOINT ["callboard"]
CMD ["--help"]
