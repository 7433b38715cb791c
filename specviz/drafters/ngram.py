"""Draft types `ngram` and `ngram-smoothed`: the text so far drafts its own continuation, no second model needed.

Both keep their index incrementally and rebuild it when a new run begins, so nothing of an earlier prompt can be
proposed. Held by tests/unit/test_drafters.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specviz.drafters.protocol import Ask, Passes, Proposal, Start
from specviz.engine.cache import ROOT

#: Longest and shortest match that `ngram` looks for.
LONGEST_MATCH, SHORTEST_MATCH = 5, 1
#: Order of the smoothed model (a trigram's context is 2 tokens) and its absolute discount.
ORDER, DISCOUNT = 4, 0.75


class NgramLookup:
    """Prompt lookup: finds the latest earlier occurrence of the longest suffix and copies what followed it.

    Deterministic, so q is one-hot (Saxena 2023, prompt lookup decoding; back-off from the longest to the
    shortest match). A copy that reaches the end of the text goes on into its own draft, which continues a loop.
    """

    type, name, params, warning = "ngram", "prompt lookup", 0, None

    def __init__(self) -> None:
        self._next: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def begin(self, start: Start) -> None:
        self._next.clear()
        self._indexed = 0
        self._index(start.ids)

    def width(self, gamma: int) -> int:
        return gamma

    def propose(self, ask: Ask) -> Passes[Proposal]:
        return self.copy(ask.context, ask.gamma)
        yield  # makes it a generator, like every drafter

    def copy(self, context: Sequence[int], gamma: int, shortest: int = SHORTEST_MATCH) -> Proposal:
        """What followed the longest match of at least `shortest` tokens."""
        self._index(context)
        for size in range(min(LONGEST_MATCH, len(context)), shortest - 1, -1):
            start = self._next.get(tuple(context[-size:]))
            if start is not None:
                return self._continue(context, start, gamma)
        return Proposal(note="nothing to copy: no earlier match" if gamma else None)

    def _index(self, context: Sequence[int]) -> None:
        """Every n-gram that ends before the last token, with where its continuation stands."""
        for end in range(max(self._indexed, 1), len(context)):
            for size in range(SHORTEST_MATCH, min(LONGEST_MATCH, end) + 1):
                self._next[tuple(context[end - size : end])] = end
        self._indexed = max(self._indexed, len(context))

    def _continue(self, context: Sequence[int], start: int, gamma: int) -> Proposal:
        proposal = Proposal()
        source = f"{self.type} {start}:{min(start + gamma, len(context))}"
        node = ROOT
        for position in range(start, start + gamma):
            token = context[position] if position < len(context) else proposal.ids[position - len(context)]
            node = proposal.add(token, None, node, source=source)
        return proposal


class NgramSmoothed:
    """Interpolated Kneser-Ney over prompt and output: a real q over the whole vocabulary, drawn from token by token.

    Chen & Goodman 1999, §2.8: the highest order counts occurrences, the lower ones count distinct left neighbours,
    each gives up `DISCOUNT` of every count to the next lower, and the lowest gives it to the uniform distribution.
    """

    type, name, params, warning = "ngram-smoothed", "interpolated Kneser-Ney", 0, None

    def __init__(self, vocab_size: int, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self._vocab_size, self._device, self._dtype = vocab_size, device, dtype
        self._counts: list[defaultdict[tuple[int, ...], dict[int, int]]] = []
        self._indexed = 0

    def begin(self, start: Start) -> None:
        self._counts = [defaultdict(dict) for _ in range(ORDER)]
        self._indexed = 0
        self._index(start.ids)

    def width(self, gamma: int) -> int:
        return gamma

    def propose(self, ask: Ask) -> Passes[Proposal]:
        self._index(ask.context)
        proposal, node = Proposal(), ROOT
        for depth in range(ask.gamma):
            raw, order = self._distribution([*ask.context[-ORDER:], *proposal.ids])
            q = ask.warp(raw.log()[None].to(self._device), ask.context, [proposal.ids])[0]
            token = ask.noise.draft(q, len(ask.context) + depth)
            confidence = float(raw[token])
            source = f"{self.type} order {order}"
            node = proposal.add(token, q, node, confidence=confidence, source=source, raw_q=raw)
            if confidence < ask.min_confidence and depth + 1 < ask.gamma:
                proposal.note = f"stopped drafting: confidence {confidence:.2f} is below {ask.min_confidence:g}"
                break
        return proposal
        yield  # makes it a generator, like every drafter

    def _index(self, context: Sequence[int]) -> None:
        for end in range(self._indexed, len(context)):
            history = tuple([-1] * ORDER + list(context[max(0, end - ORDER + 1) : end]))[-(ORDER - 1) :]
            token = context[end]
            for order in range(ORDER, 0, -1):
                # A lower order counts distinct left neighbours: it learns only of n-grams that are new one order up.
                after = self._counts[order - 1][history[len(history) - order + 1 :]]
                known = after.get(token, 0)
                after[token] = known + 1
                if known:
                    break
        self._indexed = max(self._indexed, len(context))

    def _distribution(self, context: Sequence[int]) -> tuple[Tensor, int]:
        """((vocabulary,) probabilities of the next token, the longest order that had seen this history)."""
        probs = np.full(self._vocab_size, 1.0 / self._vocab_size)
        longest = 0
        for order in range(1, ORDER + 1):
            history = tuple(context[len(context) - order + 1 :])
            after = self._counts[order - 1].get(history) if len(history) == order - 1 else None
            if not after:
                continue
            ids = np.fromiter(after.keys(), np.int64, len(after))
            counts = np.fromiter(after.values(), np.float64, len(after))
            total = counts.sum()
            probs *= DISCOUNT * len(after) / total
            probs[ids] += (counts - DISCOUNT) / total
            longest = order
        return torch.from_numpy(probs).to(self._dtype), longest
