"""The target's law by the book, in numpy, without the engine's sampling code."""

from __future__ import annotations

from collections import Counter

import numpy as np

from specviz.lab.exact import Law
from specviz.lab.table import TableModel


def distribution(logits: np.ndarray, prompt: list[int], output: list[int], **warp) -> np.ndarray:
    """One row after penalties, bias, temperature, top-k, top-p and min-p, in that order."""
    logits = logits.astype(np.float64).copy()
    for token in {*prompt, *output}:
        penalty = warp.get("repetition_penalty", 1.0)
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    for token, count in Counter(output).items():
        logits[token] -= warp.get("frequency_penalty", 0.0) * count
    for token, bias in warp.get("logit_bias", {}).items():
        logits[token] += bias
    temperature = warp.get("temperature", 0.0)
    if temperature == 0:
        return (np.arange(len(logits)) == logits.argmax()).astype(float)
    logits /= temperature
    order = np.argsort(-logits)
    probs = np.exp(logits - logits.max())
    if warp.get("top_k", 0):
        probs[order[warp["top_k"] :]] = 0
    probs /= probs.sum()
    if warp.get("top_p", 1.0) < 1:
        before = np.cumsum(probs[order]) - probs[order]
        probs[order[before >= warp["top_p"]]] = 0
        probs /= probs.sum()
    probs[probs < warp.get("min_p", 0.0) * probs.max()] = 0
    return probs / probs.sum()


def law(target: TableModel, prompt: list[int], length: int, **warp) -> Law:
    """Probability of every output of `length` tokens behind `prompt`."""
    found: Law = {(): 1.0}
    for _ in range(length):
        longer: Law = {}
        for text, mass in found.items():
            pair = tuple([*prompt, *text][-2:])
            row = distribution(target.logits[pair].numpy(), prompt, list(text), **warp)
            longer |= {(*text, token): mass * p for token, p in enumerate(row) if p > 0}
        found = longer
    return found
