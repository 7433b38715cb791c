"""`Engine`: a target, its tokenizer and its draft types; turns a prompt and settings into a `Decoding`.

Bad input is refused here, before anything runs, in one sentence; a model's generation_config changes nothing but
which ids end a run. Held by tests/unit/test_engine.py.
"""

from __future__ import annotations

import datetime
import numbers
import platform
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psutil
import torch
from transformers import PreTrainedTokenizerBase

import specviz
from specviz.drafters import MAKERS, Drafter
from specviz.engine.decode import Decoding
from specviz.engine.model import LanguageModel
from specviz.engine.record import TOP_MAX, StepRecorder
from specviz.errors import SettingsError
from specviz.settings import DRAFTS, Settings
from specviz.trace import Device, Draft, Prompt, Run, Target


class Engine:
    """Decodes with one target, one run at a time: the first step of a run ends the one before.

    Args:
        target: the model whose distribution comes out.
        tokenizer: shared by target and draft model.
        draft_model: for draft type `model`, or None.
        draft_unavailable: the sentence that says why there is no draft model.
        eos_token_ids: the ids that end a run unless asked otherwise; default: the tokenizer's own.
    """

    def __init__(
        self,
        target: LanguageModel,
        tokenizer: PreTrainedTokenizerBase,
        draft_model: LanguageModel | None = None,
        draft_unavailable: str | None = None,
        eos_token_ids: Iterable[int] | None = None,
    ) -> None:
        self.target, self.tokenizer, self.draft_model = target, tokenizer, draft_model
        self._draft_unavailable = draft_unavailable or "No draft model was loaded: name one with draft_model."
        own = tokenizer.eos_token_id
        self.eos_token_ids = tuple(eos_token_ids) if eos_token_ids is not None else () if own is None else (own,)
        self.device = describe_device(target)
        self._serial = 0

    def drafts(self) -> dict[str, str | None]:
        """Every draft type; None when it can be used here, else the sentence that says why not."""
        missing = {"model": self._draft_unavailable} if self.draft_model is None else {}
        return {name: missing.get(name) for name in DRAFTS}

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Decoding:
        """Decode `prompt` step by step.

        Args:
            prompt: a text, or a list of ids that is read as it is.
            trace: False leaves probabilities out of the steps; the ids are the same.
            top: how many of the best tokens of p, q and the residual each traced token lists (0 to 8).
            cancelled: called between draft and verify and between steps; true ends the run.
            **options: the fields of `specviz.settings.Settings`.

        Returns:
            An iterator of `Step`; its `run` is the whole `Run`, filled as it goes.

        Raises:
            SettingsError: at once, for a prompt or a setting that cannot be used.
            NumericsError: while iterating, when the model's logits are not finite.
        """
        trace, top = options.pop("trace", True), options.pop("top", 0)
        cancelled: Callable[[], bool] = options.pop("cancelled", None) or (lambda: False)
        if not isinstance(top, int) or not 0 <= top <= TOP_MAX:
            raise SettingsError(f"top must be a whole number from 0 to {TOP_MAX}, not {top!r}.")
        settings = self._resolve(Settings.of(**options), prompt)
        token_ids = self.encode(prompt, settings.chat)
        drafter = self._drafter(settings.draft)
        run = Run(
            id=uuid.uuid4().hex[:12],
            created_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            app_version=specviz.__version__,
            device=self.device,
            target=Target(self.target.name, self.target.params),
            draft=Draft(drafter.type, drafter.name, drafter.params),
            settings=settings.to_dict(),
            prompt=Prompt(prompt if isinstance(prompt, str) else self.text(token_ids), token_ids),
        )
        recorder = StepRecorder(self.text, trace, top)
        return Decoding(run, settings, self.target, drafter, self.text, recorder, cancelled, self.claim)

    def claim(self) -> Callable[[], bool]:
        """Take the target's cache; the result is false once somebody else has taken it."""
        self._serial += 1
        serial = self._serial
        return lambda: self._serial == serial

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Run:
        """Decode `prompt` to the end; options and errors as for `stream`."""
        decoding = self.stream(prompt, **options)
        for _ in decoding:
            pass
        return decoding.run

    def text(self, ids: Sequence[int]) -> str:
        """Decoded text without special tokens; spaces are left as the ids spell them."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def encode(self, prompt: str | Sequence[int], chat: bool | None) -> list[int]:
        """The ids the target reads.

        Raises:
            SettingsError: the prompt is empty, not text, too long for the context, or holds unknown ids.
        """
        ids = self._encode_text(prompt, chat) if isinstance(prompt, str) else self._check_ids(prompt)
        if not ids:
            raise SettingsError("The prompt is empty: write something for the model to continue.")
        if len(ids) >= self.target.max_positions:
            raise SettingsError(
                f"The prompt is {len(ids)} tokens long and {self.target.name} reads at most "
                f"{self.target.max_positions}, the answer included: shorten it."
            )
        return ids

    def _encode_text(self, prompt: str, chat: bool | None) -> list[int]:
        if not prompt.strip():
            return []
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            raise SettingsError(
                f"The prompt holds half of a character ({prompt[error.start]!r}) at position {error.start}: remove it."
            ) from error
        if chat:
            message = [{"role": "user", "content": prompt}]
            templated = self.tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
            return self._check_ids(self.tokenizer(templated, add_special_tokens=False).input_ids)
        return self._check_ids(self.tokenizer(prompt).input_ids)

    def _check_ids(self, prompt: Sequence[int]) -> list[int]:
        for token in prompt:
            if not isinstance(token, numbers.Integral) or not 0 <= token < self.target.vocab_size:
                raise SettingsError(
                    f"The prompt holds {token!r}, which is not a token id of {self.target.name} "
                    f"(0 to {self.target.vocab_size - 1})."
                )
        return [int(token) for token in prompt]

    def _resolve(self, settings: Settings, prompt: str | Sequence[int]) -> Settings:
        """`settings` with what depends on the model filled in: chat template and end ids."""
        if not isinstance(prompt, (str, Sequence)) or isinstance(prompt, (bytes, bytearray)):
            raise SettingsError(f"The prompt must be a text or a list of token ids, not {type(prompt).__name__}.")
        has_template = self.tokenizer.chat_template is not None
        if settings.chat and not has_template:
            raise SettingsError(f"{self.target.name} has no chat template: switch chat off.")
        eos = self.eos_token_ids if settings.eos_token_id is None else settings.eos_token_id
        for token in (*eos, *settings.logit_bias):
            if token >= self.target.vocab_size:
                raise SettingsError(
                    f"{token} is not a token id of {self.target.name} (0 to {self.target.vocab_size - 1})."
                )
        chat = has_template if settings.chat is None else settings.chat
        return settings.replace(chat=chat and isinstance(prompt, str), eos_token_id=() if settings.ignore_eos else eos)

    def _drafter(self, name: str) -> Drafter:
        reason = self.drafts()[name]
        if reason is not None:
            raise SettingsError(f"Draft type {name!r} cannot be used: {reason}")
        return MAKERS[name](self.target, self.draft_model)


def describe_device(model: LanguageModel) -> Device:
    """What a trace says about where it was made."""
    kind = model.device.type
    name = torch.cuda.get_device_name(model.device) if kind == "cuda" else _processor()
    return Device(name, kind, str(model.dtype).removeprefix("torch."), torch.get_num_threads(), model.path)


def _processor() -> str:
    """The processor's own name and how many cores it lends us, such as 'AMD EPYC, 2 cores'."""
    name = platform.processor() or platform.machine()
    if platform.system() == "Linux":
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        name = models[0] if models else name
    return f"{name}, {psutil.cpu_count()} cores"
