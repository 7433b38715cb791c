"""Engines for the whole suite: tiny random ones, built here, and the bundled model."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

from functools import cache

import pytest
import torch

from specviz.engine.engine import Engine
from specviz.engine.model import LanguageModel
from specviz.lab.table import random_heads
from specviz.zoo import cache_dir, costs
from tests.tiny import VOCAB_SIZE, tiny_model, tiny_tokenizer


@pytest.fixture(autouse=True, scope="session")
def _few_threads():
    """Tiny matrices are slower on many threads, and workers share the cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _costs_apart(tmp_path_factory: pytest.TempPathFactory):
    """What steps cost here, with the tests running, is nothing to keep in the user's cache."""
    apart = tmp_path_factory.mktemp("costs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "cache_dir", lambda: cache_dir() if "SPECVIZ_CACHE" in os.environ else apart)
        yield


def tiny_engine(architecture: str = "llama", draft_seed: int | None = None, **options) -> Engine:
    """An engine on a tiny random target; with `draft_seed`, a tiny draft model of other weights (0: the target's)."""
    draft = (
        None if draft_seed is None else LanguageModel(tiny_model(architecture, seed=draft_seed), "draft", VOCAB_SIZE)
    )
    target = LanguageModel(tiny_model(architecture, **options), architecture, VOCAB_SIZE)
    return Engine(
        target,
        _tokenizer(),
        draft,
        heads=random_heads(target, target.embedding.shape[1], (1, target.layers) if target.layers > 1 else (1,)),
    )


@cache
def _tokenizer():
    return tiny_tokenizer()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test is a failure: something it needs was not installed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def real_engine():
    """The bundled model in float32, fetched when it is not in the cache."""
    import specviz

    return specviz.load(dtype="float32", device="cpu")
