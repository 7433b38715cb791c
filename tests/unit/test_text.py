"""Texts of tokens: no broken characters, nothing lost, stop texts found wherever they begin."""

import pytest

from specviz.engine.text import REPLACEMENT, StopTexts, TextStream
from tests.tiny import tiny_tokenizer

TEXT = "Repeat: 👩‍🚀 日本語 é\u202eabc\nx"


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


def decode(tokenizer):
    return lambda ids: tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def test_a_character_split_over_tokens_belongs_to_the_last(tokenizer):
    stream = TextStream(decode(tokenizer))
    ids = tokenizer(TEXT * 3).input_ids
    texts = [stream.push(token) for token in ids]
    assert "".join(texts) == TEXT * 3
    assert not any(REPLACEMENT in text for text in texts)
    assert "" in texts  # the emoji really was split


def test_random_bytes_concatenate_to_the_decoded_text(tokenizer):
    import random

    rng = random.Random(0)
    for _ in range(200):
        ids = [rng.randrange(3, 300) for _ in range(rng.randrange(1, 60))]
        stream = TextStream(decode(tokenizer))
        assert "".join([*map(stream.push, ids), stream.flush()]) == decode(tokenizer)(ids)


def test_a_fork_leaves_the_original_alone(tokenizer):
    stream = TextStream(decode(tokenizer))
    first, *rest = tokenizer("é").input_ids
    stream.push(first)
    fork = stream.fork()
    fork.push(tokenizer("a").input_ids[0])
    assert "".join(stream.push(token) for token in rest) == "é"


@pytest.mark.parametrize(
    ("pieces", "stops", "expected"),
    [
        (["one, ", "two. ", "three"], [". "], "one, two. "),
        (["on", "e tw", "o three"], ["e two"], "one two"),
        (["a", "b", "c"], ["zz"], None),
        (["abcabd"], ["abd"], "abcabd"),
        (["ab", "c", "d"], ["bcd", "abc"], "abc"),
    ],
)
def test_the_output_ends_with_the_first_stop_text(pieces, stops, expected):
    stop, shown = StopTexts(stops), ""
    for piece in pieces:
        end = stop.cut(piece)
        shown += piece if end is None else piece[:end]
        if end is not None:
            break
    else:
        shown = None
    assert shown == expected
