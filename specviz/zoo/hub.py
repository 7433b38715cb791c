"""Model folders of the Hugging Face Hub: the local copy when whole, else config, tokenizer and weights are fetched.

Invariant: a model whose files are here makes no request, and every refusal of the Hub becomes one sentence naming the
model. Held by tests/unit/test_zoo_hub.py.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from specviz.errors import ModelError
from specviz.zoo.cache import Listener, is_full, report

_SMALL = ["*.json", "*.txt", "*.model", "*.jinja"]
_SAFE = [*_SMALL, "*.safetensors"]
_PICKLED = [*_SMALL, "*.safetensors", "pytorch_model*.bin"]
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def snapshot(repo: str, progress: Listener | None = None) -> Path:
    """The folder of the model `repo` on this machine, downloaded when it is not here or not whole.

    Raises:
        ModelError: gated, missing, not reachable, without weights, or the disk is full.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        here = Path(snapshot_download(repo, allow_patterns=_PICKLED, ignore_patterns=["*/*"], local_files_only=True))
        if missing_file(here) is None:
            return here
    except HFValidationError as error:
        raise ModelError(f"{repo!r} is neither a folder nor a model name of the form owner/name.") from error
    except LocalEntryNotFoundError:
        report(progress, f"Looking for {repo} on the Hugging Face Hub")
    folder = _download(repo, _SAFE, progress)
    if (
        missing_file(folder) in _WEIGHTS
    ):  # safetensors where there are any; pickled weights are read as plain tensors only
        folder = _download(repo, _PICKLED, progress)
    if missing := missing_file(folder):
        raise ModelError(f"{repo} cannot be used: its repository has no {missing}; choose another model.")
    return folder


def missing_file(folder: Path) -> str | None:
    """The name of a file a model folder must have and `folder` has not, or None."""
    if not (folder / "config.json").is_file():
        return "config.json"
    for weights in _WEIGHTS:
        if (folder / weights).is_file():
            return None
        index = folder / f"{weights}.index.json"
        if index.is_file():
            try:
                shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
            except (ValueError, KeyError, AttributeError, TypeError):
                return index.name
            return next((shard for shard in sorted(shards) if not (folder / shard).is_file()), None)
    return _WEIGHTS[0]


def _download(repo: str, patterns: list[str], progress: Listener | None) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub import errors as hub

    network = hub.HfHubHTTPError.__mro__[
        1
    ]  # the base of the HTTP library's errors, whichever library this version uses
    try:
        bars = _bars(f"Downloading {repo.split('/')[-1]}", progress)
        return Path(snapshot_download(repo, allow_patterns=patterns, ignore_patterns=["*/*"], tqdm_class=bars))
    except hub.GatedRepoError as error:
        raise ModelError(
            f"{repo} is gated: accept its licence on its Hugging Face Hub page, then log in with `hf auth login`."
        ) from error
    except (hub.RepositoryNotFoundError, hub.RevisionNotFoundError, hub.DisabledRepoError) as error:
        raise ModelError(
            f"There is no model {repo!r} on the Hugging Face Hub, or it is private: check the spelling, "
            "or log in with `hf auth login`."
        ) from error
    except (hub.OfflineModeIsEnabled, network, OSError) as error:
        if is_full(str(error)):
            raise ModelError(
                f"The disk is full: {repo} does not fit into {constants.HF_HUB_CACHE}; "
                "free some space there, or set HF_HOME to a folder on another disk."
            ) from error
        if constants.HF_HUB_OFFLINE:
            why = "HF_HUB_OFFLINE is set: unset it"
        else:
            why = "the Hugging Face Hub cannot be reached: check the network"
        raise ModelError(f"{repo} is not on this machine and {why}, or name a local folder instead.") from error


def _bars(stage: str, progress: Listener | None) -> type:
    """A tqdm that draws nothing and hands the bytes to the listener."""
    from tqdm.auto import tqdm

    lock = threading.Lock()

    class Bars(tqdm):
        def __init__(self, *args, **kwargs):
            self.is_bytes = kwargs.get("unit") == "B"
            self.count = 0
            super().__init__(*args, **{**kwargs, "disable": True})
            self.total = kwargs.get("total")

        def update(self, n=1):
            if self.is_bytes and n:
                with lock:
                    # Two bars count the same bytes, on the wire and on disk: each reports its own, and they agree.
                    self.count += int(n)
                    report(progress, stage, self.count, max(int(self.total or 0), self.count))

    return Bars
