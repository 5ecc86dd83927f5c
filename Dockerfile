# The service and the sandbox's interpreter are two environments: what a model writes never sees the service's packages.
# Build: docker build -t rolloutgym .    Run: docker run -p 8000:8000 rolloutgym
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
RUN python -m venv /opt/rolloutgym \
 && python -m venv --without-pip /opt/sandbox \
 && /opt/rolloutgym/bin/python -m pip --python /opt/sandbox/bin/python install --no-cache-dir --quiet --only-binary :all: \
      numpy sympy mpmath
# What the service needs, before the service: a change of its code installs nothing anew.
COPY pyproject.toml /src/
RUN /opt/rolloutgym/bin/python -c "import tomllib; project = tomllib.load(open('/src/pyproject.toml', 'rb'))['project']; \
      extras = project['optional-dependencies']; \
      print(*project['dependencies'], *extras['server'], *extras['redis'], sep='\n')" >/requirements.txt \
 && /opt/rolloutgym/bin/python -m pip install --no-cache-dir --quiet --only-binary :all: \
      -r /requirements.txt dumb-init "setuptools>=77"
COPY . /src
RUN /opt/rolloutgym/bin/python -m pip wheel --no-cache-dir --quiet --no-deps --no-build-isolation --wheel-dir /wheels /src \
 && /opt/rolloutgym/bin/python -m pip install --no-cache-dir --quiet --no-deps /wheels/rolloutgym-*.whl \
 && /opt/rolloutgym/bin/python -m pip check --quiet \
 && /opt/rolloutgym/bin/python -m pip uninstall --yes --quiet setuptools pip \
 && find /opt/rolloutgym /opt/sandbox -type d -name tests -path '*site-packages*' -prune -exec rm -rf {} +

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="rolloutgym" \
      org.opencontainers.image.description="Verifiable-reward environments for language models over HTTP" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/rolloutgym /opt/rolloutgym
COPY --from=build /opt/sandbox /opt/sandbox
ENV PATH=/opt/rolloutgym/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    ROLLOUTGYM_HOST=0.0.0.0 \
    ROLLOUTGYM_PORT=8000 \
    ROLLOUTGYM_SANDBOX_PYTHON=/opt/sandbox/bin/python
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['ROLLOUTGYM_PORT']}/health\", timeout=4)"]
# Process 1 reaps what killed workers and sandboxes leave, and hands signals to the service alone. A terminal's Ctrl-C
# reaches the service as well: as SIGTERM, the copy is not a second, impatient one.
ENTRYPOINT ["dumb-init", "--single-child", "--rewrite", "2:15", "--"]
CMD ["rolloutgym", "serve"]
