"""A start imports, reads and makes no more than the run needs, and leaves the process as it found it."""

import gc
import subprocess
import sys

import pytest
import torch

import specviz
from specviz.startup import one_thread, uncollected
from specviz.zoo import loader
from tests.tiny import tiny_folder

#: What `--help` has no use for.
HEAVY = ("gradio", "plotly", "torch", "transformers", "sklearn", "gguf", "numpy")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from specviz.cli import main; sys.argv = ['specviz', 'run', '--help']\n"
        "try: main()\n"
        f"except SystemExit: sys.exit(' '.join(m for m in {HEAVY} if m in sys.modules) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Answer PROMPT" in ran.stdout
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_is_switched_off_comes_back(two_threads):
    def failing():
        with uncollected(), one_thread():
            seen.append((gc.isenabled(), torch.get_num_threads()))
            with uncollected():
                pass
            seen.append(gc.isenabled())
            raise ValueError("enough")

    seen = []
    assert gc.isenabled()
    with pytest.raises(ValueError, match="enough"):
        failing()
    assert seen == [(False, 1), False]
    assert (gc.isenabled(), torch.get_num_threads()) == (True, 2)


def test_a_load_reads_with_one_thread_and_collects_nothing(two_threads, monkeypatch, tmp_path):
    seen, read = [], loader._read_fast

    def watched(*given):
        seen.append((torch.get_num_threads(), gc.isenabled()))
        return read(*given)

    monkeypatch.setattr(loader, "_read_fast", watched)
    engine = specviz.load(target=str(tiny_folder(tmp_path, "llama")), device="cpu", dtype="float32")
    assert seen == [(1, False)]
    assert (gc.isenabled(), torch.get_num_threads(), engine.device.threads) == (True, 2, 2)
