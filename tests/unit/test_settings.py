"""Every bound is enforced in one place, in one sentence that names the value."""

import math

import pytest

from specviz.errors import SettingsError
from specviz.settings import Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", 0), ("gamma", 999), ("gamma", "x"), ("gamma", 2.5), ("gamma", True),
        ("temperature", -1), ("temperature", math.nan), ("temperature", math.inf), ("temperature", "hot"),
        ("top_p", 7), ("top_p", -0.1), ("top_k", -1), ("min_p", 2), ("max_new_tokens", 0), ("seed", -1),
        ("seed", 2**63),
        ("draft", "foo"), ("verify", "hope"), ("chat", "yes"), ("ignore_eos", 1), ("stop", [""]), ("stop", [3]),
        ("stop", 5), ("stop", ["\ud800"]), ("logit_bias", {"²": 1}), ("seed", None), ("temperature", None),
        ("eos_token_id", -2), ("repetition_penalty", 0), ("logit_bias", [1]), ("adaptive", True),
    ],
)  # fmt: skip
def test_a_bad_value_is_named_in_one_sentence(name, value):
    with pytest.raises(SettingsError) as caught:
        Settings.of(**{name: value})
    sentence = str(caught.value)
    named = value[0] if isinstance(value, list) and name == "stop" else "²" if isinstance(value, dict) else value
    assert ("is empty" if value is None else repr(named)) in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("name", ["seed", "gamma", "top_k", "temperature"])
def test_a_number_of_a_thousand_digits_is_refused_in_a_short_sentence(name):
    with pytest.raises(SettingsError, match=name) as caught:
        Settings.of(**{name: -(10**1000)})
    assert len(str(caught.value)) < 200


def test_an_unknown_setting_suggests_the_near_one():
    with pytest.raises(SettingsError, match="did you mean 'gamma'"):
        Settings.of(gama=3)


def test_values_come_out_in_canonical_types():
    settings = Settings.of(gamma=5.0, temperature=1, stop="x", eos_token_id=3, logit_bias={"7": 1})
    assert (settings.gamma, settings.temperature, settings.stop) == (5, 1.0, ("x",))
    assert settings.eos_token_id == (3,)
    assert settings.logit_bias == {7: 1.0}


def test_plain_decoding_has_gamma_zero_whatever_was_given():
    assert Settings.of(draft="none", gamma=7).gamma == 0
    assert Settings.of(draft="none").gamma == 0
    with pytest.raises(SettingsError, match="999"):
        Settings.of(draft="none", gamma=999)


def test_nothing_is_warped_unless_asked():
    settings = Settings()
    assert (settings.top_k, settings.top_p, settings.min_p) == (0, 1.0, 0.0)
    assert (settings.repetition_penalty, settings.frequency_penalty, settings.logit_bias) == (1.0, 0.0, {})
