# A Docker Space, or any machine with Docker: docker build -t specviz . && docker run -p 7860:7860 specviz
FROM python:3.11-slim

RUN useradd --create-home --uid 1000 user
USER user
ENV HOME=/home/user \
    PATH=/home/user/.local/bin:$PATH \
    HF_HOME=/home/user/.cache/huggingface \
    SPECVIZ_CACHE=/home/user/.cache/specviz \
    GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_SERVER_PORT=7860 \
    GRADIO_ANALYTICS_ENABLED=False \
    PYTHONUNBUFFERED=1
WORKDIR /home/user/app

# Options for pip, such as the index that holds torch's CPU builds: --build-arg PIP_OPTIONS="--extra-index-url ..."
ARG PIP_OPTIONS=""
COPY --chown=user requirements.txt .
RUN pip install --user --no-cache-dir ${PIP_OPTIONS} -r requirements.txt

# The weights are part of the image: a start needs no network.
COPY --chown=user specviz/ specviz/
RUN python -m specviz fetch

COPY --chown=user . .
# What is compiled on first use is compiled here.
RUN python -m specviz run "Hi" --max-new-tokens 1
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/', timeout=4)"]
CMD ["python", "app.py"]
