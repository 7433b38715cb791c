// What a run knows of one token besides its test: where it stands, whom it replaced, where it came from.
// Held by tests/browser/test_microscope.py and tests/browser/test_trees.py.
(function (sv) {
  "use strict";

  // Where it stands among what was drafted.
  function place(step, token) {
    const depth = sv.depth(step, token) + 1;
    if (!sv.branches(step)) return `${depth} of ${step.gamma}`;
    const siblings = sv.siblings(step, token);
    return `child ${siblings.indexOf(token) + 1} of ${siblings.length} at depth ${depth}`;
  }

  sv.facts = function (step, token, run) {
    const facts = sv.el("dl", "sv-facts");
    const fact = (name, ...value) => {
      const pair = sv.el("div");
      const text = sv.el("dd");
      text.append(...value);
      pair.append(sv.el("dt", "", name), text);
      facts.append(pair);
      return pair;
    };
    const refused = sv.OWN.has(token.fate) ? sv.refusedAt(step, token) : [];
    const output = token.fate === "rejected" ? sv.outputAt(step, token) : null;
    if (output) fact("replaced by", sv.quote(output));
    if (refused.length) fact("in place of", refused.map((other) => sv.quote(other)).join(", "));
    fact("position", sv.num("position", token.position, String));
    fact("token id", sv.num("id", token.id, String));
    if (!sv.OWN.has(token.fate)) fact("in the draft", place(step, token));
    if (token.special !== undefined) fact("kind", "special token: a mark of the model's own that adds no text");
    else if (token.text === "") fact("text", "part of a character, which is shown with the last of its tokens");
    if (step.draft !== run.settings.draft) fact("draft type", sv.draftName(step.draft));
    if (token.source) fact("source", token.source);
    if (step.note && token.fate !== "sampled") fact("about this step", step.note).classList.add("sv-fact-wide");
    return facts;
  };
})((window.specviz = window.specviz || {}));
