# The demo in a container: docker build -t veilrec . && docker run --rm -v "$PWD/runs:/runs" veilrec
FROM python:3.11-slim
WORKDIR /veilrec
COPY pyproject.toml README.md LICENSE CITATION.cff constraints.txt ./
COPY veilrec veilrec
COPY papers papers
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu \
 && pip install --no-cache-dir . \
 && useradd --create-home person && mkdir /runs && chown person /runs
USER person
WORKDIR /
ENTRYPOINT ["veilrec"]
CMD ["demo", "--out", "/runs/demo"]
