"""`python app.py` as a user or a Space starts it: one process, one port, files of the page and nothing else."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.tiny import tiny_folder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("models") / "tiny", "llama", chat=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"SPECVIZ_TARGET": str(folder), "GRADIO_SERVER_PORT": str(port)}
    # From another folder: nothing may depend on where it is started.
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "app.py")],
        env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            urllib.request.urlopen(address, timeout=2).close()
            break
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.2)
    yield address
    process.terminate()
    process.wait(10)


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_page_is_there_and_its_scripts_too(address):
    status, body = get(address)
    assert status == 200
    scripts = set(re.findall(rb"gradio_api/file=[^?\"\\\\]+[.]js", body))
    assert len(scripts) >= 5
    for script in scripts:
        status, code = get(f"{address}/{script.decode()}")
        assert status == 200
        assert code


@pytest.mark.parametrize("path", ["/etc/passwd", str(ROOT / "app.py"), str(ROOT / "specviz" / "cli.py")])
def test_no_other_file_is_served(address, path):
    status, _ = get(f"{address}/gradio_api/file={path}")
    assert status in (403, 404)


def test_the_page_names_no_other_host(address):
    _, body = get(address)
    hosts = set(re.findall(rb'(?:src|href)="https?://([^/"]+)', body))
    assert hosts <= {address.removeprefix("http://").encode()}
