"""Tiny random models in HF format, one per supported architecture, with a real tokenizer that loses no text.

Invariant: the same arguments give the same weights, and greedy output varies (the weights are drawn wide). Held by
tests/unit/test_zoo.py.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

ARCHITECTURES = ("gpt2", "gpt_neo", "llama", "qwen2")
VOCAB_SIZE = 300
EOS = "<|endoftext|>"
CHAT_MARKS = ("<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TEXT = (
    "The target checks what the draft proposes, and the draft proposes what the target may say next. "
    "A token that both would say is cheap; a token that only one would say is thrown away and drawn again."
)


def tiny_tokenizer(chat: bool = False, text: str = _TEXT) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of VOCAB_SIZE tokens, EOS the first; another `text` gives another vocabulary."""
    specials = [EOS, *CHAT_MARKS]  # the marks are there without `chat` too, so that ids do not depend on it
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, clean_up_tokenization_spaces=False)
    if chat:
        fast.chat_template = CHAT_TEMPLATE
    return fast


def tiny_model(
    architecture: str,
    *,
    seed: int = 0,
    vocab_padding: int = 0,
    hidden: int = 32,
    layers: int = 2,
    max_positions: int = 256,
    eos: bool = True,
    std: float = 0.4,
) -> PreTrainedModel:
    """A random float32 model in eval mode.

    Args:
        architecture: one of ARCHITECTURES; gpt_neo alternates global and local layers (window 16), llama and qwen2 have
            4 query and 2 key-value heads.
        seed: of the weights, drawn with standard deviation `std` (wide, or greedy output would loop on near-ties).
        vocab_padding: logits beyond the tokenizer's VOCAB_SIZE tokens.
        eos: whether the model names EOS (id 0) as its end; without, it runs to the length limit.
    """
    common = {"vocab_size": VOCAB_SIZE + vocab_padding, "bos_token_id": None, "eos_token_id": 0 if eos else None}
    grouped = {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": max_positions,
        "initializer_range": std,
        "tie_word_embeddings": False,
    }
    dropless = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    if architecture == "gpt2":
        sizes = {"n_embd": hidden, "n_layer": layers, "n_head": 4, "n_positions": max_positions}
        model = GPT2LMHeadModel(GPT2Config(**common, **sizes, **dropless, initializer_range=std))
    elif architecture == "gpt_neo":
        kinds = (
            [[["global", "local"], (layers + 1) // 2]]
            if layers % 2 == 0
            else [[["global"], 1], [["local"], layers - 1]]
        )
        sizes = {"hidden_size": hidden, "num_layers": layers, "num_heads": 4, "max_position_embeddings": max_positions}
        model = GPTNeoForCausalLM(
            GPTNeoConfig(**common, **sizes, attention_types=kinds, window_size=16, initializer_range=std)
        )
    elif architecture == "llama":
        model = LlamaForCausalLM(LlamaConfig(**common, **grouped))
    elif architecture == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**common, **grouped, use_sliding_window=False))
    else:
        raise ValueError(f"no tiny {architecture!r}: choose one of {ARCHITECTURES}")
    torch.random.set_rng_state(state)
    return model.eval().requires_grad_(False)


def tiny_folder(
    path: Path,
    architecture: str,
    *,
    seed: int = 0,
    vocab_padding: int = 0,
    hidden: int = 32,
    layers: int = 2,
    max_positions: int = 256,
    chat: bool = False,
    eos: bool = True,
) -> Path:
    """Save `tiny_model` and `tiny_tokenizer` as an HF-format folder at `path` and return it."""
    options = {"vocab_padding": vocab_padding, "hidden": hidden, "layers": layers, "max_positions": max_positions}
    tiny_model(architecture, seed=seed, eos=eos, **options).save_pretrained(path)
    _tokenizer(chat, eos).save_pretrained(path)
    return Path(path)


@cache
def _tokenizer(chat: bool, eos: bool) -> PreTrainedTokenizerFast:
    tokenizer = tiny_tokenizer(chat)
    if not eos:
        tokenizer.eos_token = None  # whose id would end a run, too
    return tokenizer
