"""Logits to distribution, and distribution to token: the only place where either happens.

Target and draft go through the same `Warp`, so `p` and `q` are always comparable; temperature 0 is a one-hot
distribution on the same path. Held by tests/unit/test_sampling.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specviz.errors import NumericsError
from specviz.settings import Settings

SMALLEST = torch.finfo(torch.float32).tiny


class Warp:
    """Penalties, bias, temperature, top-k, top-p and min-p of one run, in that order, then softmax in float32."""

    def __init__(self, settings: Settings, prompt_length: int) -> None:
        self.settings = settings
        self.prompt_length = prompt_length
        #: Whether a row's distribution depends on the ids of its path, beyond its logits.
        self.reads_path = settings.repetition_penalty != 1 or settings.frequency_penalty != 0

    def __call__(
        self, logits: Tensor, context: Sequence[int], paths: Sequence[Sequence[int]], checked: bool = True
    ) -> Tensor:
        """Distributions for one position each.

        Args:
            logits: (rows, vocabulary), any float type.
            context: every committed id, prompt included.
            paths: for each row the ids drafted behind the context that it has seen; `prefixes` makes those of a chain.
            checked: False leaves it to the caller to see that the logits are finite (`require_finite`), which has to
                wait for the device.

        Returns:
            (rows, vocabulary) float32, or float64 for float64 logits; each row sums to 1.

        Raises:
            NumericsError: a logit is NaN or infinite.
        """
        settings = self.settings
        logits = self.adjust(logits, context, paths, checked)
        if self.greedy:
            return torch.zeros_like(logits).scatter_(1, best(logits)[:, None], 1.0)
        if settings.temperature != 1:
            # Shifted first: at T = 1e-6 a plain division would overflow.
            logits = (logits - logits.amax(-1, keepdim=True)) / settings.temperature
        return truncate(logits, settings.top_k, settings.top_p, settings.min_p)

    @property
    def greedy(self) -> bool:
        """Whether every distribution is one-hot on its best token."""
        # Below the smallest float32 a division would give 0/0; long before that the distribution is one-hot.
        return self.settings.temperature < SMALLEST or self.settings.top_k == 1

    def adjust(
        self, logits: Tensor, context: Sequence[int], paths: Sequence[Sequence[int]], checked: bool = True
    ) -> Tensor:
        """Logits after penalties and bias, before temperature; arguments, precision and errors as for a call."""
        settings = self.settings
        if logits.dtype != torch.float64:
            logits = logits.float()
        if checked:
            require_finite(finite(logits))
        if self.reads_path:
            logits = torch.stack([self._penalise(row, context, path) for row, path in zip(logits, paths, strict=True)])
        if settings.logit_bias:
            ids = torch.tensor(list(settings.logit_bias), device=logits.device)
            bias = torch.tensor(list(settings.logit_bias.values()), dtype=logits.dtype, device=logits.device)
            logits = logits.index_add(1, ids, bias.expand(len(logits), -1))
        return logits

    def _penalise(self, row: Tensor, context: Sequence[int], path: Sequence[int]) -> Tensor:
        settings, row = self.settings, row.clone()
        if settings.repetition_penalty != 1:
            seen = torch.tensor(sorted({*context, *path}), device=row.device)
            logits = row[seen]
            row[seen] = torch.where(
                logits > 0, logits / settings.repetition_penalty, logits * settings.repetition_penalty
            )
        if settings.frequency_penalty:
            counts = Counter([*context[self.prompt_length :], *path])
            if counts:
                ids = torch.tensor(list(counts), device=row.device)
                row[ids] -= settings.frequency_penalty * torch.tensor(list(counts.values()), device=row.device)
        return row


def best(values: Tensor) -> Tensor:
    """(rows,) where each of (rows, n) values is greatest: the first such place."""
    # numpy finds it in a tenth of the time on a CPU.
    return torch.from_numpy(values.numpy().argmax(-1)) if values.device.type == "cpu" else values.argmax(-1)


def finite(logits: Tensor) -> Tensor:
    """() whether all of (rows, vocabulary) logits are, not yet read from the device."""
    # A sum is finite only when every term is, and takes a thirtieth of the time; float16 would overflow in it.
    return logits.sum(dtype=logits.dtype if logits.dtype == torch.float64 else torch.float32).isfinite()


def require_finite(is_finite: bool | Tensor) -> None:
    """Damaged logits never become a token.

    Raises:
        NumericsError: `is_finite` is false.
    """
    if not is_finite:
        raise NumericsError(
            "The model returned logits that are not finite: its weights are damaged or the precision is too low; "
            "load it in float32 or fetch it again."
        )


def prefixes(path: Sequence[int]) -> list[Sequence[int]]:
    """What each row of a chain has seen of it: nothing, the first id, the first two, ... all."""
    return [path[:i] for i in range(len(path) + 1)]


def truncate(logits: Tensor, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Tensor:
    """Softmax of (rows, vocabulary) logits, cut to the `top_k` best, then to the nucleus, then by `min_p`.

    The nucleus (Holtzman et al. 2020, §3.1) is the smallest set of best tokens whose mass reaches `top_p`; the best
    token always stays. Exactly `top_k` tokens stay, also where logits tie.
    """
    if 0 < top_k < logits.shape[-1]:
        best = logits.topk(top_k)
        logits = torch.full_like(logits, -torch.inf).scatter_(1, best.indices, best.values)
    probs = logits.softmax(-1)
    if top_p < 1:
        probs = torch.stack([_nucleus(row, top_p) for row in probs])
    if min_p > 0:
        probs = probs.where(probs >= min_p * probs.amax(-1, keepdim=True), torch.zeros_like(probs))
    if top_p < 1 or min_p > 0:
        probs = probs / probs.sum(-1, keepdim=True)
    return probs


def _nucleus(row: Tensor, top_p: float) -> Tensor:
    # Tokens below (1 - top_p) / vocabulary weigh less than 1 - top_p together, so none of them can be needed to reach
    # top_p: leaving them out is exact, and sorts hundreds of values instead of 49,152.
    best = _descending(row[row >= (1 - top_p) / len(row)])
    size = max(1, int((best.cumsum(0) - best < top_p).sum()))
    keep = row >= best[size - 1]
    if ties := int(keep.sum()) - size:
        keep[(row == best[size - 1]).nonzero()[-ties:, 0]] = False
    return row * keep


def _descending(values: Tensor) -> Tensor:
    # numpy sorts bare values several times as fast as torch, which sorts their indices along.
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy())[::-1].copy())
    return values.sort(descending=True).values


def draw(weights: Tensor, u: float) -> Tensor:
    """() the token at quantile `u` in (0, 1) of (vocabulary,) non-negative weights; they need not be normalised.

    A token of weight 0 is never drawn. The token is not read from the device; it is an id also where weights are NaN.
    """
    if weights.device.type == "mps":  # which has no float64
        weights = weights.cpu()
    if weights.device.type == "cpu" and np.count_nonzero(weights.numpy()) == 1:  # as at temperature 0
        return best(weights[None])[0]
    cdf = weights.double().cumsum(0)
    total = cdf[-1:]
    # u * total may round up to the total, which no token lies above.
    quantile = torch.minimum(total * u, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cdf, quantile, right=True)[0].clamp_(max=len(weights) - 1)
