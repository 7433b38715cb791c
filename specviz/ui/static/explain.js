// Why a token met its fate, in one sentence made of its own numbers. Pure functions, no DOM.
// Held by tests/browser/test_page.py::test_card.
(function (sv) {
  "use strict";

  // The token that the target put in the place of the refused one, and the other way round.
  sv.replacement = (step) => step.tokens.find((token) => token.fate === "resampled") || null;
  sv.refused = (step) => step.tokens.find((token) => token.fate === "rejected") || null;

  // How many draft tokens stand before this one on its own path.
  sv.depth = function (step, token) {
    let depth = 0;
    for (let at = token.parent; at >= 0 && depth < step.tokens.length; at = step.tokens[at].parent) depth += 1;
    return depth;
  };

  const raw = (rows, id) => {
    const row = (rows || []).find((entry) => entry[0] === id);
    return row ? row[3] : null;
  };

  function accepted(token, step, greedy) {
    if (greedy) {
      const share = raw(token.top_p, token.id);
      return share === null
        ? "It is the target's most likely token, so at temperature 0 it is kept."
        : `It is the target's most likely token (${sv.percent(share)} of its probability), so at temperature 0 it is kept.`;
    }
    if (token.q !== null && token.p >= token.q) {
      return `The target gives it p = ${sv.prob(token.p)}, no less than the draft's q = ${sv.prob(token.q)}, so it is always kept.`;
    }
    if (token.u === null) return "Draft and target chose the same token, so it was kept.";
    return `u = ${sv.prob(token.u)} was below p/q = ${sv.prob(token.accept_prob)}, so it was kept.`;
  }

  function rejected(token, step, greedy) {
    const other = sv.replacement(step);
    if (greedy && other) return `The target's most likely token is ${sv.quote(other.text)}, not ${sv.quote(token.text)}, so at temperature 0 it is refused.`;
    if (token.u === null) return "Draft and target chose different tokens, so it was refused.";
    return `u = ${sv.prob(token.u)} was above p/q = ${sv.prob(token.accept_prob)}, so it was refused.`;
  }

  function resampled(token, step, greedy) {
    const other = sv.refused(step);
    const place = other ? ` in place of the refused ${sv.quote(other.text)}` : "";
    if (greedy) return `The target's own most likely token${place}.`;
    return `Drawn by the target${place}, from what is left of p once q is taken away: max(0, p − q).`;
  }

  const REASONS = {
    accepted,
    rejected,
    resampled,
    bonus: (token, step) =>
      `All ${sv.plural(step.gamma, "drafted token")} of this step were kept, so the same target pass gives one more for free.`,
    sampled: (token, step) =>
      `Nothing was drafted in this step${step.note ? ` (${step.note})` : ""}, so the target pass gave its one token, as plain decoding does.`,
    discarded: (token, step) => {
      const other = sv.refused(step);
      return other ? `Drafted behind the refused ${sv.quote(other.text)}, so the target never had to test it.` : "Drafted on a path that was not taken, so it was never tested.";
    },
    trimmed: () => "It came after the end of the text, so it is not part of the output.",
  };

  sv.why = (token, step, run) => REASONS[token.fate](token, step, Number(run.settings.temperature) === 0);
})((window.specviz = window.specviz || {}));
