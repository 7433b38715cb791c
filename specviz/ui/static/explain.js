// Why a token met its fate, in one sentence made of its own numbers and true of the run's rule. Pure functions, no
// DOM. Held by tests/browser/test_trees.py and tests/browser/test_page.py::test_card.
(function (sv) {
  "use strict";

  const raw = (rows, id) => {
    const row = (rows || []).find((entry) => entry[0] === id);
    return row ? row[3] : null;
  };
  const quoted = (tokens) => tokens.map((token) => sv.quote(token)).join(", ");

  // The refused siblings tried before this one: what they were refused for is no longer in p.
  const triedBefore = (step, token) => {
    const siblings = sv.siblings(step, token);
    return siblings.slice(0, siblings.indexOf(token)).filter((other) => other.fate === "rejected");
  };
  const behind = (before) => `Behind the refused ${quoted(before)} it was tested against what they left of p`;

  // At temperature 0 every rule comes to the same: p is 1 for one token and 0 for all others.
  const greedy = {
    accepted(token) {
      const share = raw(token.top_p, token.id);
      const most = share === null ? "It is the target's most likely token" : `It is the target's most likely token (${sv.percent(share)} of its probability)`;
      return `${most}, so at temperature 0 it is kept.`;
    },
    rejected(token, step) {
      const other = sv.outputAt(step, token);
      if (!other) return "It is not the target's most likely token, so at temperature 0 it is refused.";
      return `The target's most likely token is ${sv.quote(other)}, not ${sv.quote(token)}, so at temperature 0 it is refused.`;
    },
    resampled(token, step) {
      return `The target's own most likely token, in place of the refused ${quoted(sv.refusedAt(step, token))}.`;
    },
  };

  const rejection = {
    accepted(token, step) {
      const before = triedBefore(step, token);
      // Several drafts may propose the same token for one place; what is recorded is its first test.
      if (token.u >= token.accept_prob) return `u = ${sv.prob(token.u)} was above ${sv.prob(token.accept_prob)} in its first test; proposed more than once, it was tested again and kept.`;
      const chance = before.length ? `the chance ${sv.prob(token.accept_prob)} which that gives it` : `p/q = ${sv.prob(token.accept_prob)}`;
      if (before.length && token.accept_prob >= 1) return `${behind(before)}, which gives it no less than the draft's q = ${sv.prob(token.q)}, so it is kept.`;
      if (before.length) return `${behind(before)}: u = ${sv.prob(token.u)} was below ${chance}, so it was kept.`;
      if (token.p >= token.q) return `The target gives it p = ${sv.prob(token.p)}, no less than the draft's q = ${sv.prob(token.q)}, so it is always kept.`;
      return `u = ${sv.prob(token.u)} was below ${chance}, so it was kept.`;
    },
    rejected(token, step) {
      const before = triedBefore(step, token);
      if (before.length) return `${behind(before)}: u = ${sv.prob(token.u)} was above the chance ${sv.prob(token.accept_prob)} which that gives it, so it was refused too.`;
      if (token.p === 0) return "The target gives it p = 0 here, so it is always refused.";
      return `u = ${sv.prob(token.u)} was above p/q = ${sv.prob(token.accept_prob)}, so it was refused.`;
    },
    resampled(token, step) {
      const refused = sv.refusedAt(step, token);
      if (refused.length > 1) return `Drawn by the target in place of the refused ${quoted(refused)}, from what is left of p once the q of each is taken away in turn.`;
      return `Drawn by the target in place of the refused ${quoted(refused)}, from what is left of p once q is taken away: max(0, p − q).`;
    },
    discarded(token, step) {
      const above = step.tokens[token.parent];
      const kept = sv.outputAt(step, token);
      if (above && above.fate === "rejected") return `Drafted behind the refused ${sv.quote(above)}, so the target never had to test it.`;
      if (above && above.fate === "discarded") return `Drafted behind ${sv.quote(above)}, which is not in the output, so it was never tested.`;
      if (kept && !sv.OWN.has(kept.fate)) return `Its sibling ${sv.quote(kept)} was tried first and kept, so it was never tested.`;
      return "Drafted on a branch that was not taken, so it was never tested.";
    },
  };

  // Block verification: the longest stretch of the draft whose last token has u < h, whatever stands before that one.
  const block = {
    accepted(token, step) {
      const drafted = step.tokens.slice(0, step.gamma);
      const end = drafted.findLast((other) => other.u < other.accept_prob);
      if (end === token) return `u = ${sv.prob(token.u)} was below h = ${sv.prob(token.accept_prob)} here and for no later token, so the draft is kept up to this one.`;
      const own = token.u < token.accept_prob ? "below" : "not below";
      return `The draft is kept as one block up to ${sv.quote(end)}, where u was below h for the last time; here u = ${sv.prob(token.u)} was ${own} h = ${sv.prob(token.accept_prob)}, and did not decide.`;
    },
    rejected: (token) => `From this token on no u was below its h (here u = ${sv.prob(token.u)} and h = ${sv.prob(token.accept_prob)}), so the block ends before it.`,
    resampled: (token, step) => `Drawn by the target behind the block, in place of the refused ${quoted(sv.refusedAt(step, token))}, from max(0, w·p − q), where w is the weight with which the block was kept.`,
    discarded: (token) => `It stands behind the end of the block: u = ${sv.prob(token.u)} was not below its h = ${sv.prob(token.accept_prob)} either.`,
  };

  const coupled = {
    accepted: (token) => `The target, drawing with the noise that draft and target share at this position, drew this very token, so it is kept. The chance of that was ${sv.prob(token.accept_prob)}.`,
    rejected(token, step) {
      const other = sv.outputAt(step, token);
      const drew = other ? `drew ${sv.quote(other)}, not ${sv.quote(token)}` : "drew another token";
      return `The target, drawing with the noise that both share at this position, ${drew}, so it is refused. The chance to agree was ${sv.prob(token.accept_prob)}.`;
    },
    resampled: (token, step) => `What the target drew from its own p with the shared noise; the draft had proposed ${quoted(sv.refusedAt(step, token))}.`,
    discarded: (token, step) => rejection.discarded(token, step).replace("was tried first and kept", "agreed with the target and was kept"),
  };

  const always = {
    bonus: (token, step) =>
      sv.branches(step)
        ? "One branch of the draft was kept to its end, so the same target pass gives one more token for free."
        : `All ${sv.plural(step.gamma, "drafted token")} of this step were kept, so the same target pass gives one more for free.`,
    sampled: (token, step) =>
      `Nothing was drafted in this step${step.note ? ` (${step.note})` : ""}, so the target pass gave its one token, as plain decoding does.`,
    trimmed: () => "It came after the end of the text, so it is not part of the output.",
  };

  const RULES = { rejection, block, coupled };

  sv.why = function (token, step, run) {
    const rule = { ...RULES[run.settings.verify], ...always, ...(Number(run.settings.temperature) === 0 ? greedy : {}) };
    return rule[token.fate](token, step);
  };
})((window.specviz = window.specviz || {}));
