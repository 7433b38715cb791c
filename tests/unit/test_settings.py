"""Every bound is enforced in one place, in one sentence that names the value."""

import math

import pytest

from specviz.errors import SettingsError
from specviz.settings import DRAFTS, RULES, TITLES, TREES, Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", 0), ("gamma", 999), ("gamma", "x"), ("gamma", 2.5), ("gamma", True),
        ("temperature", -1), ("temperature", math.nan), ("temperature", math.inf), ("temperature", "hot"),
        ("top_p", 7), ("top_p", -0.1), ("top_k", -1), ("min_p", 2), ("max_new_tokens", 0), ("seed", -1),
        ("seed", 2**63),
        ("draft", "foo"), ("verify", "hope"), ("chat", "yes"), ("ignore_eos", 1), ("stop", [""]), ("stop", [3]),
        ("stop", 5), ("stop", ["\ud800"]), ("logit_bias", {"²": 1}), ("seed", None), ("temperature", None),
        ("eos_token_id", -2), ("repetition_penalty", 0), ("logit_bias", [1]), ("adaptive", 1),
        ("min_confidence", 1.1), ("candidates", 0), ("candidates", 5), ("exit_layer", -1), ("exit_layer", 1.5),
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


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("rule", RULES)
def test_block_verification_of_a_tree_is_refused_with_the_reason_and_nothing_else_is(draft, rule):
    if rule == "block" and draft in TREES:
        with pytest.raises(
            SettingsError, match=f"'block' verifies a chain as one block and .* '{draft}' proposes a tree"
        ):
            Settings.of(draft=draft, verify=rule)
        with pytest.raises(SettingsError, match="proposes a tree"):
            Settings.of(draft="ngram", verify="block").with_draft(draft)
    else:
        assert Settings.of(draft=draft, verify=rule).verify == rule
        assert Settings.of(draft="ngram", verify=rule).with_draft(draft).draft == draft


def test_every_draft_type_has_a_title_and_an_unknown_one_is_refused():
    assert set(TITLES) == set(DRAFTS)
    with pytest.raises(SettingsError, match="Unknown draft type 'tee': choose one of none, ngram"):
        Settings().with_draft("tee")


@pytest.mark.parametrize(
    "given", [{}, {"draft": "none"}, {"draft": "pool", "gamma": 7, "candidates": 3, "stop": ["x"]}]
)
def test_given_fields_make_the_same_settings_again(given):
    settings = Settings.of(**given)
    assert Settings.of(**settings.given()) == settings
    assert Settings.of(**{**settings.given(), "draft": "ngram"}).draft == "ngram"


def test_plain_decoding_is_never_adaptive():
    assert Settings.of(draft="none", adaptive=True).adaptive is False
    assert Settings.of(adaptive=True).adaptive is True
