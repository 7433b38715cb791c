"""Chats for tests of the training pipeline, in the form of a chat template."""

import numpy as np

from specviz.train.chats import Chats


def chat(*answer: int) -> list[int]:
    """system 9 9 EOS, user 8 ... EOS, answer."""
    return [9, 9, 0, 7, 8, 50, 51, 0, 7, 6, *answer]


def chats(count: int = 20, seed: int = 0) -> Chats:
    random = np.random.default_rng(seed)
    made = [np.array(chat(*random.integers(20, 60, random.integers(5, 12)), 0)) for _ in range(count)]
    for one in made:
        one[5:7] = random.integers(20, 60, 2)
    return Chats(made, [10] * count)
