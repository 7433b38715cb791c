"""`python app.py` as a user or a Space starts it: one process, one port, files of the page and nothing else."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

import pytest

from tests.app import ROOT, start_app, stop_app
from tests.tiny import tiny_folder


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("models") / "tiny", "llama", chat=True)
    # It runs in another folder than its own: nothing may depend on where it is started.
    process, address = start_app(tmp_path_factory.mktemp("app") / "app.log", SPECVIZ_TARGET=str(folder))
    yield address
    stop_app(process)


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
