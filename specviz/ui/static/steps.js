// What a step's tokens are to one another: a tree given by `parent`, the draft's tokens and then the target's own.
// Pure functions, no DOM. Held by tests/browser/test_trees.py.
(function (sv) {
  "use strict";

  const TESTED = new Set(["accepted", "rejected"]);
  // The order among siblings: those tried and refused, those left, and last the one that went on.
  const rank = ({ fate }) => (sv.EMITTED.has(fate) ? 2 : fate === "rejected" ? 0 : 1);

  sv.OWN = new Set(["resampled", "bonus", "sampled"]);

  // Indices of the tokens behind token `at` (-1: behind the pending one), in the order they are shown.
  sv.children = function (step, at) {
    const found = [];
    step.tokens.forEach((token, index) => token.parent === at && found.push(index));
    return found.sort((a, b) => rank(step.tokens[a]) - rank(step.tokens[b]) || a - b);
  };

  // How many draft tokens stand before this one on its own path.
  sv.depth = function (step, token) {
    let depth = 0;
    for (let at = token.parent; at >= 0 && depth < step.tokens.length; at = step.tokens[at].parent) depth += 1;
    return depth;
  };

  // How many levels of a step's draft have been proposed at `time`, while it is not decided yet; 0 before and after.
  sv.drafted = function (step, time) {
    if (!step || !step.gamma || time <= step.t_start || time >= step.t_end) return 0;
    const levels = 1 + Math.max(...step.tokens.map((token) => (sv.OWN.has(token.fate) ? 0 : sv.depth(step, token))));
    return step.draft_s > 0 ? Math.ceil(levels * Math.min(1, (time - step.t_start) / step.draft_s)) : levels;
  };

  // The draft tokens proposed for the same place, in the order proposed: the order in which they are tried.
  sv.siblings = (step, token) => step.tokens.filter((other) => other.parent === token.parent && !sv.OWN.has(other.fate));

  sv.branches = (step) => step.tokens.some((token) => sv.siblings(step, token).length > 1);

  // What was refused in the place of this token, and what the output has in that place.
  sv.refusedAt = (step, token) => sv.siblings(step, token).filter((other) => other.fate === "rejected");
  sv.outputAt = (step, token) => step.tokens.find((other) => other.parent === token.parent && sv.EMITTED.has(other.fate)) || null;

  // A level is what was tested for one place and counts once, whatever the number of siblings (specviz/summary.py).
  sv.levels = function (step) {
    const places = new Map();
    for (const token of step.tokens) {
      if (TESTED.has(token.fate)) places.set(token.parent, places.get(token.parent) || token.fate === "accepted");
    }
    return { tested: places.size, accepted: [...places.values()].filter(Boolean).length };
  };

  const CHANGED = /^draft changed/;
  // A probe within a fallback is a single step: it is no way of its own.
  const isPlain = (step) => Boolean(step) && /(^|; )(fallback|probing)/.test(step.note || "");

  // What the stream says in front of a step that drafts otherwise than the one before; null where nothing changed.
  sv.changeAt = function (step, before) {
    if (CHANGED.test(step.note || "")) return `from here: ${sv.draftName(step.draft)}`;
    if (isPlain(step) === isPlain(before)) return null;
    return isPlain(step) ? "plain from here" : "drafting again";
  };
})((window.specviz = window.specviz || {}));
