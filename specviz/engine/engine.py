"""`Engine`: a target, its tokenizer and its draft types; turns a prompt and settings into a `Decoding`.

Bad input is refused here, before anything runs, in one sentence; a model's generation_config changes nothing but
which ids end a run. Held by tests/unit/test_engine.py.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import numbers
import platform
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import psutil
import torch

import specviz
from specviz.drafters import MAKERS, Drafter, Head, Kit, heads_used
from specviz.drafters.heads import NEEDS, Heads
from specviz.drafters.protocol import drive, together
from specviz.engine.calibrate import calibrate, code
from specviz.engine.decode import Decoding, Parts
from specviz.engine.gamma import AdaptiveGamma, FixedGamma, Gamma
from specviz.engine.model import LanguageModel
from specviz.engine.noise import noise_of
from specviz.engine.record import TOP_MAX, StepRecorder
from specviz.engine.verify import RULES
from specviz.errors import SettingsError
from specviz.settings import TREES, Settings, shown
from specviz.trace import Calibration, Device, Draft, Prompt, Run, Target

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Costs(Protocol):
    """Keeps calibrations by a key of plain JSON values; `specviz.zoo.costs.CostFiles` does on disk."""

    def read(self, key: Mapping[str, Any]) -> Calibration | None: ...

    def write(self, key: Mapping[str, Any], calibration: Calibration) -> None: ...


class Engine:
    """Decodes with one target, one run at a time: the first step of a run ends the one before.

    Args:
        target: the model whose distribution comes out.
        tokenizer: shared by target and draft model.
        draft_model: for draft type `model`, or None.
        draft_unavailable: the sentence that says why there is no draft model.
        eos_token_ids: the ids that end a run unless asked otherwise; default: the tokenizer's own.
        heads: the trained drafts by kind (`specviz.drafters.heads.KINDS`), each ready, or made when it is asked for
            (`Found`), or the sentence that says why there is none; that of kind `model` is the draft model where none
            was named.

    `costs` keeps between starts what steps were measured to cost; None keeps it as long as the engine lives.
    `makers`, `rules` and `noise_of` are how drafters, acceptance rules and noise are made; `specviz.lab.proof` puts
    wrong ones in their place to show what goes wrong.
    """

    def __init__(
        self,
        target: LanguageModel,
        tokenizer: PreTrainedTokenizerBase,
        draft_model: LanguageModel | None = None,
        draft_unavailable: str | None = None,
        eos_token_ids: Iterable[int] | None = None,
        heads: Mapping[str, Head | str] | None = None,
    ) -> None:
        self.target, self.tokenizer, self.draft_model = target, tokenizer, draft_model
        self.makers, self.rules, self.noise_of = dict(MAKERS), dict(RULES), noise_of
        self._draft_unavailable = draft_unavailable or "No draft model was loaded: name one with draft_model."
        self.heads = Heads(heads)
        own = tokenizer.eos_token_id
        # What `text` leaves out, by name; the whole of it comes with every run and stays small beside its steps.
        added = tokenizer.added_tokens_decoder.items()
        self._special = {str(number): token.content for number, token in added if token.special}
        self.eos_token_ids = tuple(eos_token_ids) if eos_token_ids is not None else () if own is None else (own,)
        self.device = describe_device(target)
        self.costs: Costs | None = None
        self._calibrations: dict[str, Calibration] = {}
        self._serial = 0

    def use_head(self, kind: str, head: Head | str) -> None:
        """Draft with another trained head of a kind, or with none because of a reason."""
        self.heads.put(kind, head)

    @property
    def drafting_model(self) -> LanguageModel | None:
        """The model that draft type `model` drafts with: the one that was named, else the distilled one."""
        return self.draft_model or self.heads.get("model")

    @property
    def models(self) -> list[LanguageModel]:
        """Those that hold a memory: the target, and the draft model once a run has needed it."""
        draft = self.draft_model or self.heads.made().get("model")
        return [self.target] if draft is None else [self.target, draft]

    def drafts(self) -> dict[str, str | None]:
        """Every draft type; None when it can be used here, else the sentence that says why not."""
        return {name: self._why_not(name) for name in self.makers}

    def _why_not(self, draft: str) -> str | None:
        if draft == "model" and self.drafting_model is None:
            return self._draft_unavailable
        if (kind := NEEDS.get(draft)) and (reason := self.heads.why_not(kind)):
            return reason
        # Without a draft model trees draft with the target's first layers.
        model = self.drafting_model if draft in ("tree", "tree-dynamic") else None
        early_exit = draft == "layer_skip" or (draft in ("tree", "tree-dynamic") and model is None)
        if early_exit and self.target.layers < 2:
            return f"{self.target.name} has a single layer: there is nothing to skip."
        if early_exit and (reason := self.target.refuses_exit()):
            return reason
        if draft in TREES and (reason := self.target.refuses_trees()):
            return f"Trees cannot be verified: {reason}"
        if model and (reason := model.refuses_trees()):
            return f"Trees cannot be drafted: {reason}"
        return None

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Decoding:
        """Decode `prompt` step by step.

        Args:
            prompt: a text, or a list of ids that is read as it is.
            trace: False leaves probabilities out of the steps; the ids are the same.
            top: how many of the best tokens of p, q and the residual each traced token lists (0 to 8).
            cancelled: called between draft and verify and between steps; true ends the run.
            calibration: what adaptive gamma is to decide with (that of an earlier run repeats it); default: measured
                at the first step of the first run with a draft type.
            **options: the fields of `specviz.settings.Settings`.

        Returns:
            An iterator of `Step`; its `run` is the whole `Run`, filled as it goes.

        Raises:
            SettingsError: at once, for a prompt or a setting that cannot be used.
            NumericsError: while iterating, when the model's logits are not finite.
        """
        trace, top = options.pop("trace", True), options.pop("top", 0)
        cancelled: Callable[[], bool] = options.pop("cancelled", None) or (lambda: False)
        calibration = options.pop("calibration", None)
        if not isinstance(top, int) or not 0 <= top <= TOP_MAX:
            raise SettingsError(f"top must be a whole number from 0 to {TOP_MAX}, not {top!r}.")
        if calibration is not None and not (isinstance(calibration, Calibration) and calibration.is_sound):
            raise SettingsError(
                f"calibration must be the `calibration` of an earlier run, with finite costs, not {shown(calibration)}."
            )
        settings = self._resolve(Settings.of(**options), prompt)
        token_ids = self.encode(prompt, settings.chat)
        drafter = self.drafter(settings.draft, settings)
        run = Run(
            id=uuid.uuid4().hex[:12],
            created_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            app_version=specviz.__version__,
            device=self.device,
            target=Target(self.target.name, self.target.params, self._special),
            draft=Draft(drafter.type, drafter.name, drafter.params),
            settings=settings.to_dict(),
            prompt=Prompt(prompt if isinstance(prompt, str) else self.text(token_ids), token_ids),
            calibration=calibration,
        )
        parts = Parts(
            target=self.target,
            drafter=drafter,
            drafter_of=lambda draft: self.drafter(draft, settings),
            rule=self.rules[settings.verify],
            noise=self.noise_of(settings.verify, settings.seed),
            gamma_of=lambda known: self._gamma(settings, drafter, known),
            decode=self.text,
            recorder=StepRecorder(self.text, trace, top),
            cancelled=cancelled,
            claim=self.claim,
        )
        return Decoding(run, settings, parts)

    def claim(self, capacity: int, texts: int = 1) -> Callable[[], bool]:
        """Take the models' memory for `texts` texts of `capacity` rows; the result is false once somebody else has."""
        self._serial += 1
        serial = self._serial
        for model in self.models:
            model.clear(capacity, texts)
        return lambda: self._serial == serial

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Run:
        """Decode `prompt` to the end; options and errors as for `stream`."""
        decoding = self.stream(prompt, **options)
        for _ in decoding:
            pass
        return decoding.run

    @torch.inference_mode()
    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[int]],
        settings: Sequence[Settings | Mapping[str, Any]] = (),
        **options: Any,
    ) -> list[Run]:
        """Decode several prompts side by side: passes that are wanted at the same time run as one.

        Each prompt has its own settings, seed, cache position and accept length, and gets the ids it would get alone
        (float32). A run that ends early leaves its place in the passes; nothing waits for the slowest.

        Args:
            prompts: texts or lists of ids, of any lengths.
            settings: for each prompt a `Settings` or a mapping of its fields; empty for the defaults.
            **options: as for `stream`, the same for all; fields of `Settings` hold where `settings` does not say.

        Raises:
            SettingsError: at once, naming the prompt it is about.
            NumericsError: the logits of one of them are not finite; the whole batch ends.
        """
        prompts, settings = _listed("prompts", prompts), _listed("settings", settings or ())
        if settings and len(settings) != len(prompts):
            raise SettingsError(f"{len(prompts)} prompts and {len(settings)} settings: give one for each prompt.")
        decodings = []
        for number, prompt in enumerate(prompts):
            own = settings[number] if settings else {}
            own = own.given() if isinstance(own, Settings) else own
            try:
                if not isinstance(own, Mapping) or not all(isinstance(name, str) for name in own):
                    raise SettingsError(
                        f"its settings must be a Settings or a mapping of its fields, not {shown(own)}."
                    )
                decodings.append(self.stream(prompt, **{**options, **own}))
            except SettingsError as error:
                raise SettingsError(f"Prompt {number + 1} of {len(prompts)}: {error}") from error
        for decoding in decodings:
            decoding.prepare()
        self.claim(max((decoding.capacity for decoding in decodings), default=0), len(decodings))
        for decoding in decodings:
            decoding.begin()
        return drive(together([decoding.rest() for decoding in decodings]))

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

    def drafter(self, draft: str, settings: Settings) -> Drafter:
        """A new drafter of a type.

        Raises:
            SettingsError: it cannot be used here, or not with the settings' rule.
        """
        settings = settings.with_draft(draft)
        reason = self._why_not(draft)
        if reason is not None:
            raise SettingsError(f"Draft type {draft!r} cannot be used: {reason}")
        return self.makers[draft](self.kit(settings))

    def kit(self, settings: Settings) -> Kit:
        """What drafters are made of here."""
        return Kit(self.target, self.draft_model, settings, self.heads)

    def calibration(
        self, settings: Settings, *, fresh: bool = False, progress: Callable[[float], None] = lambda _: None
    ) -> Calibration:
        """What steps cost with a draft type on this machine: measured the first time, then kept.

        Args:
            fresh: measure again although it is known.
            progress: called with the share that is done, while it is measured.

        Raises:
            SettingsError: the draft type cannot be used here.
        """
        key = self._cost_key(settings)
        name = json.dumps(key, sort_keys=True)
        if fresh or name not in self._calibrations:
            known = None if fresh or self.costs is None else self.costs.read(key)
            self._calibrations[name] = known or calibrate(self, settings, progress)
            if self.costs is not None and known is None:
                self.costs.write(key, self._calibrations[name])
        return self._calibrations[name]

    def _cost_key(self, settings: Settings) -> dict[str, Any]:
        """All that the cost of a step depends on, as plain JSON."""
        drafter = self.drafter(settings.draft, settings)
        return {
            "target": self.target.name,
            "params": self.target.params,
            "draft": drafter.type,
            "draft_name": drafter.name,
            "draft_params": drafter.params,
            "candidates": settings.candidates,
            "exit_layer": settings.exit_layer,
            **dataclasses.asdict(self.device),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "specviz": specviz.__version__,
            "code": code(),
            "heads": {kind: self.heads.digest(kind) for kind in heads_used(settings.draft, self.kit(settings))},
        }

    def _gamma(
        self, settings: Settings, drafter: Drafter, calibration: Calibration | None
    ) -> tuple[Gamma, Calibration | None]:
        """What chooses gamma, and the costs it goes by: measured now, unless they are known or not needed."""
        if not settings.adaptive:
            return FixedGamma(settings.gamma), calibration
        calibration = calibration or self.calibration(settings)
        return AdaptiveGamma(settings.gamma, calibration, drafter.width(1)), calibration


def _listed(name: str, values: Any) -> list:
    # A text is a sequence too, of prompts of one letter each.
    if isinstance(values, (str, bytes, bytearray, Mapping)) or not isinstance(values, Iterable):
        raise SettingsError(f"{name} must be a list with one entry for each prompt, not {type(values).__name__}.")
    return list(values)


def describe_device(model: LanguageModel) -> Device:
    """What a trace says about where it was made."""
    kind = model.device.type
    name = torch.cuda.get_device_name(model.device) if kind == "cuda" else _processor()
    return Device(name, kind, model.precision, torch.get_num_threads(), model.path)


def _processor() -> str:
    """The processor's own name and how many cores it lends us, such as 'AMD EPYC, 2 cores'."""
    name = platform.processor() or platform.machine()
    if platform.system() == "Linux":
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        name = models[0] if models else name
    return f"{name}, {psutil.cpu_count()} cores"
