"""`LanguageModel`: forward passes for any full-attention causal LM, alone, over a tree, or for several texts at once.

A pass over a chain runs without a mask. A tree or several texts run with one that lets a row see its text's chain
and its own ancestors, at the position its depth gives it; a model that cannot be trusted with such a mask runs its
texts one by one and refuses trees. Held by tests/unit/test_model.py: whatever was rolled back, and however rows
were grouped, the logits are those of a fresh pass.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from specviz.engine.cache import ROOT, KVCache, Many, Pass, Single, Store
from specviz.errors import ModelError, SettingsError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Prompt tokens per prefill pass: bounds the memory of attention scores on long prompts.
PREFILL_ROWS = 512


class LanguageModel:
    """One model's weights and the memory of the texts it reads.

    Two of these may share the weights of one `PreTrainedModel`; each has its own memory.

    Args:
        model: any causal LM whose layers all attend to the whole past.
        name: what people call it.
        vocab_size: ids of the shared tokenizer; logits are cut to these (padded embeddings differ between models).

    Raises:
        ModelError: the model's head is narrower than `vocab_size`.
    """

    path = "transformers"
    #: What is to be said of every run it drafts in.
    warning: str | None = None
    _taps: Taps | None = None

    @property
    def precision(self) -> str:
        """What the weights are in, such as bfloat16."""
        return str(self.dtype).removeprefix("torch.")

    def __init__(self, model: PreTrainedModel, name: str, vocab_size: int) -> None:
        config = model.config.get_text_config(decoder=True)
        if config.vocab_size < vocab_size:
            raise ModelError(
                f"{name} knows {config.vocab_size} tokens and its tokenizer {vocab_size}: "
                "choose a model whose embedding covers its tokenizer."
            )
        self.name = name
        self.vocab_size = vocab_size
        self.params = sum(weights.numel() for weights in model.parameters())
        self.max_positions: int = getattr(config, "max_position_embeddings", None) or 2**31
        self.layers: int = config.num_hidden_layers
        self.device, self.dtype = model.device, model.dtype
        self.store = Store(self.layers)
        self._memory = Cache(layers=self.store.layers)
        self._model = model
        self._config = config
        self._opened = 0
        self._exits: dict[int, LanguageModel] = {}
        self._trees: str | None = "unknown"
        parameters = inspect.signature(model.forward).parameters
        # transformers renames the argument during its 5.x series.
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        self._keeps_rows = "logits_to_keep" in parameters
        self._takes_positions = "position_ids" in parameters

    @property
    def weight_bytes(self) -> int:
        """Memory of the weights; `store.bytes` is that of keys, values and tapped features."""
        return sum(weights.nbytes for weights in self._model.parameters())

    # What was allocated in inference mode may be written in inference mode only, whoever asks.
    @torch.inference_mode()
    def clear(self, capacity: int, texts: int = 1) -> None:
        """Forget every text and make room for `texts` of `capacity` rows; memory of earlier runs is used again."""
        self._opened = 0
        self.store.clean()
        self.store.room(texts, capacity)

    @torch.inference_mode()
    def open(self, capacity: int) -> KVCache:
        """Begin a text of at most `capacity` rows."""
        self._opened += 1
        self.store.room(self._opened, capacity)
        return KVCache(self, self._opened - 1, capacity)

    def run(self, passes: Sequence[Pass]) -> list[Tensor]:
        """(len(ids), vocab_size) logits of each pass, in the model's own precision; passes are of different texts."""
        if len(passes) > 1 and self.refuses_trees():
            return [logits for one in passes for logits in self.run([one])]
        if len(passes) == 1 and passes[0].parents is None:
            return [self._chain(passes[0].cache, passes[0].ids, len(passes[0].ids))]
        return self._masked(passes)

    def prefill(self, cache: KVCache, ids: Sequence[int], cancelled: Callable[[], bool]) -> None:
        """As `KVCache.prefill`."""
        for start in range(0, len(ids), PREFILL_ROWS):
            if cancelled():
                return
            self._chain(cache, ids[start : start + PREFILL_ROWS], 1)

    def exit(self, layers: int) -> LanguageModel:
        """The model made of the first `layers` layers, the final norm and the head: same weights, same memory.

        Early exit as in LayerSkip (Elhoushi et al. 2024, §4.3).

        Raises:
            SettingsError: no such number of layers.
            ModelError: the layers of this architecture are not found.
        """
        self._check_exit(layers)
        if layers not in self._exits:
            exit_ = copy.copy(self)
            exit_._model = _first_layers(self._model, layers, self.name)
            exit_.name = f"the first {layers} of the {self.layers} layers of {self.name}"
            exit_.params = sum(weights.numel() for weights in exit_._model.parameters())
            exit_.layers, exit_._exits = layers, {}
            exit_._memory = Cache(layers=self.store.layers[:layers])
            exit_._taps = None
            self._exits[layers] = exit_
        return self._exits[layers]

    def _check_exit(self, layers: int) -> None:
        if not 1 <= layers < self.layers:
            raise SettingsError(f"exit_layer must be from 1 to {self.layers - 1} for {self.name}, not {layers}.")

    def tap(self, layers: tuple[int, ...]) -> None:
        """Keep, from now on, what stands behind these layers for every row: read it with `KVCache.features`.

        Layers are counted from 1; the number of layers means the last one's output, before the final norm. Kept
        beside keys and values, as precise as the model adds them up, so that a rollback or a kept path is the same
        for all. Tapping other layers ends the earlier tap; rows read before the first have zeros.

        Raises:
            ModelError: there is no such layer, or the layers of this architecture are not found.
        """
        if self._taps is not None and self._taps.layers == layers:
            return
        self._check_taps(layers)
        if self._taps is not None:
            self._taps.close()
        self._taps = Taps(layer_stack(self._model), layers)
        self.store.features = None

    @property
    def tapped(self) -> tuple[int, ...]:
        """The layers that are tapped; none before the first `tap`."""
        return self._taps.layers if self._taps is not None else ()

    @property
    def embedding(self) -> Tensor:
        """(vocabulary, hidden) embedding, as it is before any scaling."""
        return self._model.get_input_embeddings().weight

    def head_rows(self, ids: Tensor) -> Tensor:
        """(len(ids), hidden) rows of the output head."""
        return self._model.get_output_embeddings().weight[ids]

    def _check_taps(self, layers: tuple[int, ...]) -> None:
        if not layers or list(layers) != sorted({*layers}) or layers[0] < 1 or layers[-1] > self.layers:
            raise ModelError(f"Layers to tap in {self.name} go upwards from 1 to {self.layers}, not {layers}.")

    def refuses_taps(self) -> str | None:
        """Why hidden states of this model cannot be kept; None when they can."""
        try:
            layer_stack(self._model)
        except ModelError as error:
            return str(error)
        return None

    def refuses_exit(self) -> str | None:
        """Why no early exit can be made of this model; None when it can."""
        try:
            self.exit(1)
        except ModelError as error:
            return str(error)
        return None

    def refuses_trees(self) -> str | None:
        """Why this model cannot read a tree in one pass; None when it can, which is tried out once."""
        if self._trees == "unknown":
            self._trees = self._why_no_trees()
        return self._trees

    def _why_no_trees(self) -> str | None:
        if not self._takes_positions:
            return f"{self.name} takes no position ids, so branches of a tree cannot stand side by side."
        if windows := _windows(self._config):
            return f"{self.name} has layers of {windows}, which count rows, not positions on a branch."
        return None if self._reads_a_tree_like_its_paths() else f"{self.name} ignores the attention mask of a tree."

    def _reads_a_tree_like_its_paths(self) -> bool:
        """Feed a fork of two branches, then each alone: a model that ignores the mask is far off."""
        twin = copy.copy(self)
        twin.store = Store(self.layers)
        twin._memory, twin._opened, twin._trees = Cache(layers=twin.store.layers), 0, None
        twin._taps = None
        ids = [token % self.vocab_size for token in (5, 7, 11, 13, 17)]
        with torch.inference_mode():
            cache = twin.open(8)
            cache.forward(ids[:1])
            tree = cache.forward(ids[1:], [ROOT, 0, ROOT, 2]).float()
            paths = []
            for branch in (ids[1:3], ids[3:]):
                cache.rollback(1)
                paths.append(cache.forward(branch).float())
        # Not "is small": logits that are not finite say nothing about trees and are refused where they are used.
        return not bool((tree - torch.cat(paths)).abs().max() > 0.1 * tree.std() + 1e-3)

    def _chain(self, cache: KVCache, ids: Sequence[int], rows: int) -> Tensor:
        if cache.links:
            raise AssertionError("a chain cannot continue a tree: keep a path of it first")
        start, end = cache.base, cache.base + len(ids)
        self.store.room(cache.slot + 1, end)
        self.store.plan = Single(cache.slot, start, end)
        self.store.touch(end)
        logits = self._forward(as_ids(ids).to(self.device)[None], rows)[0]
        cache.grown(len(ids), None)
        return logits

    def _masked(self, passes: Sequence[Pass]) -> list[Tensor]:
        if any(one.parents is not None for one in passes) and (reason := self.refuses_trees()):
            raise SettingsError(f"Trees cannot be verified here: {reason}")
        rows = max(len(one.ids) for one in passes)
        ends = [one.cache.length + len(one.ids) for one in passes]
        end = max(ends)
        self.store.room(max(one.cache.slot for one in passes) + 1, end)
        ids = torch.zeros((len(passes), rows), dtype=torch.long)
        positions = torch.zeros((len(passes), rows), dtype=torch.long)
        places = torch.full((len(passes), rows), self.store.capacity)
        seen = torch.zeros((len(passes), rows, end), dtype=torch.bool)
        seen[:, :, 0] = True  # padding has to see something
        for i, one in enumerate(passes):
            count, cache = len(one.ids), one.cache
            ids[i, :count] = as_ids(one.ids)
            places[i, :count] = torch.arange(cache.length, cache.length + count)
            depths, ancestors = genealogy(cache.links, count, one.parents)
            positions[i, :count] = cache.base + depths
            seen[i, :count, : cache.base] = True
            seen[i, :count, cache.base : cache.length + count] = ancestors
            if cache.base == 0:
                seen[i, :count, 0] = ancestors[:, 0]
        if len(passes) == 1:
            self.store.plan = Single(passes[0].cache.slot, passes[0].cache.length, end)
        else:
            slots = torch.tensor([one.cache.slot for one in passes])
            first = slots.tolist() == list(range(len(passes)))
            self.store.plan = Many(slots.to(self.device), places.to(self.device), 0, end, first)
        self.store.touch(end)
        mask = torch.zeros(seen.shape, dtype=self.dtype).masked_fill_(~seen, torch.finfo(self.dtype).min)
        logits = self._forward(
            ids.to(self.device),
            rows,
            attention_mask=mask[:, None].to(self.device),
            position_ids=positions.to(self.device),
        )
        for one in passes:
            one.cache.grown(len(one.ids), one.parents)
        return [logits[i, : len(one.ids)] for i, one in enumerate(passes)]

    def _forward(self, ids: Tensor, rows: int, **extra) -> Tensor:
        extra |= {self._cache_argument: self._memory, "use_cache": True}
        if self._keeps_rows:
            extra["logits_to_keep"] = rows
        if self._taps is None:
            return self._model(input_ids=ids, **extra).logits[:, -rows:, : self.vocab_size]
        with self._taps.catching() as caught:
            logits = self._model(input_ids=ids, **extra).logits
        self.store.write_features(torch.cat(caught, -1))
        return logits[:, -rows:, : self.vocab_size]


class Taps:
    """Hooks on some layers that catch their outputs during a pass and not otherwise: the weights may be shared."""

    def __init__(self, stack: nn.ModuleList, layers: tuple[int, ...]) -> None:
        self.layers = layers
        self._caught: list[Tensor] | None = None
        self._hooks = [stack[layer - 1].register_forward_hook(self._catch) for layer in layers]

    def _catch(self, module: nn.Module, given: tuple, output: Tensor | tuple) -> None:
        if self._caught is not None:
            self._caught.append(output[0] if isinstance(output, tuple) else output)

    @contextmanager
    def catching(self) -> Iterator[list[Tensor]]:
        """The list fills with (texts, rows, hidden) outputs, one a layer."""
        self._caught = caught = []
        try:
            yield caught
        finally:
            self._caught = None

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()


def as_ids(ids: Sequence[int] | Tensor) -> Tensor:
    """(len(ids),) ids as a tensor."""
    return ids if isinstance(ids, Tensor) else torch.tensor(ids)


def genealogy(links: Sequence[int], count: int, parents: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    """(depths of the new rows, (count, rows of the tree) which of the tree's rows each of them sees)."""
    if parents is None:
        return torch.arange(count), torch.ones((count, count), dtype=torch.bool).tril_()
    links = [*links, *parents]
    depths: list[int] = []
    seen = torch.zeros((len(links), len(links)), dtype=torch.bool)
    for row, parent in enumerate(links):
        depths.append(0 if parent == ROOT else depths[parent] + 1)
        if parent != ROOT:
            seen[row] = seen[parent]
        seen[row, row] = True
    return torch.tensor(depths[-count:]), seen[-count:]


def _windows(config: object) -> str | None:
    """What is said of layers that do not attend to the whole past; None when there are none."""
    kinds = {*(getattr(config, "layer_types", None) or ()), *(getattr(config, "attention_layers", None) or ())}
    if not kinds and getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        kinds = {"sliding"}
    odd = sorted(kinds - {"full_attention", "global"})
    return " and ".join(odd) + " attention" if odd else None


def layer_stack(model: PreTrainedModel) -> nn.ModuleList:
    """The decoder layers of a model, in order.

    Raises:
        ModelError: this architecture's are not found.
    """
    module = model
    for name in _path_of_layers(model):
        module = getattr(module, name)
    return module


def _path_of_layers(model: PreTrainedModel) -> list[str]:
    total = model.config.get_text_config(decoder=True).num_hidden_layers
    for path, module in model.named_modules():
        for child, stack in module.named_children():
            if isinstance(stack, nn.ModuleList) and len(stack) == total:
                return [*filter(None, path.split(".")), child]
    raise ModelError(f"The layers of a {type(model).__name__} are not found.")


def _first_layers(model: PreTrainedModel, layers: int, name: str) -> PreTrainedModel:
    """`model` with all but its first `layers` left out; every weight is shared."""
    try:
        path = _path_of_layers(model)
    except ModelError:
        raise ModelError(f"The layers of {name} are not found: draft type layer_skip cannot be used with it.") from None
    return _with_child(model, path, layer_stack(model)[:layers])


def _with_child(module: nn.Module, path: list[str], child: nn.Module) -> nn.Module:
    """A shallow copy of `module` in which the descendant at `path` is `child`."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    name, *rest = path
    twin._modules[name] = _with_child(module._modules[name], rest, child) if rest else child
    return twin
