# Truecut with Java, as a user without rights. Built from a checkout: docker build -t truecut .
#   docker run --rm -v "$PWD:/work" truecut run pipeline.yaml
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/truecut
# Every package is checked against the lock's hashes here, and the next line has nothing else to take from. It takes what
# the two distributions ask for; what only developers need stays behind.
RUN /opt/truecut/bin/pip wheel --no-cache-dir --no-deps --require-hashes --requirement requirements.lock --wheel-dir /wheels
RUN /opt/truecut/bin/pip install --no-cache-dir --no-index --find-links /wheels . ./src/truecut_verify

FROM python:3.12-slim-bookworm
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home truecut
COPY --from=build /opt/truecut /opt/truecut
ENV PATH=/opt/truecut/bin:$PATH
# Spark's classes, loaded once: every start costs half.
RUN python -m truecut.spark.archive
USER truecut
WORKDIR /work
# SIGTERM is a clean stop: cursors are made durable, leases given back.
ENTRYPOINT ["tini", "--", "truecut"]
CMD ["--help"]
