# Two images of a checkout: the service, and, by `--target spark`, a Spark that has acker.
#
#     docker build -t acker .
#     docker run -e ACKER_URL=redis://... -e ACKER_TOKENS=operate:... -p 127.0.0.1:8080:8080 acker
#
# No secret is built in: the service takes its own from the environment, and starts with tokens only.

FROM python:3.11-slim-bookworm AS build
RUN pip install --no-cache-dir "uv>=0.9,<1"
ENV UV_PROJECT_ENVIRONMENT=/app UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /source
# What others have written first: it seldom changes.
COPY pyproject.toml uv.lock ./
RUN uv sync --no-cache --locked --no-dev --no-install-project --extra api --extra cli
COPY . .
# The wheel's own build step makes the dashboard, with a Node that it gets for that.
RUN uv build --no-cache --wheel --out-dir /wheels \
    && uv pip install --no-cache --no-deps --compile-bytecode --python /app /wheels/*.whl

FROM build AS build-spark
RUN uv sync --no-cache --locked --no-dev --no-install-project --inexact --extra api --extra cli --extra spark

FROM python:3.11-slim-bookworm AS runtime
RUN useradd --system --uid 10001 --home-dir /data --create-home acker
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /data
# A number, so that whoever runs it can see that this is not root.
USER 10001

# Master, worker and jobs are processes of one installation: they must agree on every version.
FROM runtime AS spark
USER root
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
USER 10001
COPY --from=build-spark /app /app
ENV SPARK_HOME=/app/lib/python3.11/site-packages/pyspark PYSPARK_PYTHON=/app/bin/python SPARK_WORKER_DIR=/tmp/work

# The last one is what is built where nobody names a target.
FROM runtime AS service
COPY --from=build /app /app
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["acker"]
CMD ["serve", "--host", "0.0.0.0"]
