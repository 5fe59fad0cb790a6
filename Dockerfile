# Truecut with Java, as a user without rights. Built from a checkout: docker build -t truecut .
#   docker run --rm -v "$PWD:/work" truecut run pipeline.yaml
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/truecut \
 && /opt/truecut/bin/pip install --no-cache-dir --constraint requirements.lock .

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
