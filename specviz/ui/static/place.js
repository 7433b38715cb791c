// What was at stake at one place of a step: who was proposed there, p and q over the listed tokens, what they share and
// what a refusal leaves. Pure functions, no DOM. Every number is the run's own or follows from its p, q and overlap.
// Held by tests/browser/test_microscope.py.
(function (sv) {
  "use strict";

  const ROWS = 8;

  // The distributions at the place of `token`.
  //   subject: the draft token whose test is looked at (for the target's own token the last one refused there, or null)
  //   own: what the target drew itself at this place, or null
  //   before: siblings refused before the subject; `greedy`: temperature 0; `onehot`: the draft proposed without dice
  //   rows: [{id, text, p, q, share}], null where the run does not list it; `tail`: what the rows leave of the overlap
  //   left: {rows: [{id, text, prob}], traced} what a refusal leaves of p, or null where that is not known
  sv.place = function (step, token, run) {
    const refused = sv.refusedAt(step, token);
    const subject = sv.OWN.has(token.fate) ? refused[refused.length - 1] || null : token;
    const own = step.tokens.find((other) => other.parent === token.parent && sv.OWN.has(other.fate)) || null;
    const siblings = subject ? sv.siblings(step, subject) : [];
    const before = siblings.slice(0, siblings.indexOf(subject)).filter(({ fate }) => fate === "rejected");
    const greedy = Number(run.settings.temperature) === 0;
    const top = (subject || token).top_p;
    const onehot = Boolean(subject && top && !subject.top_q);
    const place = { subject, own, before, greedy, onehot, rule: run.settings.verify, known: Boolean(top) };
    place.special = run.target.special || {};
    place.rows = top ? rows(place, top, greedy) : [];
    const shared = place.rows.reduce((sum, { share }) => sum + (share ?? 0), 0);
    place.tail = subject && subject.overlap !== null && !greedy ? Math.max(subject.overlap - shared, 0) : null;
    place.left = left(place);
    return place;
  };

  // A token of a list, with the name of a special one.
  const named = (special, id, text) => (text === "" && special[id] !== undefined ? { id, text, special: String(special[id]) } : { id, text });

  function rows({ subject, own, onehot, special }, top, greedy) {
    const found = new Map();
    const column = greedy ? 3 : 2;
    const row = (id, text) => {
      if (!found.has(id)) found.set(id, { ...named(special, id, text), p: null, q: subject && onehot ? 0 : null, share: null });
      return found.get(id);
    };
    for (const entry of top) row(entry[0], entry[1]).p = entry[column];
    for (const entry of (subject && subject.top_q) || []) row(entry[0], entry[1]).q = entry[column];
    for (const one of [subject, own]) {
      if (!one) continue;
      const mine = row(one.id, one.text);
      if (!greedy) mine.p = one.p;
      if (one === subject && (onehot || !greedy)) mine.q = one.q;
    }
    const weight = ({ id, p, q }) => (subject && id === subject.id ? 2 : own && id === own.id ? 1 : 0) || Math.max(p ?? 0, q ?? 0);
    const all = [...found.values()].sort((a, b) => weight(b) - weight(a)).slice(0, ROWS);
    for (const one of all) if (!greedy && one.p !== null && one.q !== null) one.share = Math.min(one.p, one.q);
    return all.sort((a, b) => Math.max(b.p ?? 0, b.q ?? 0) - Math.max(a.p ?? 0, a.q ?? 0));
  }

  // Refusing x leaves max(0, p - q), which sums to 1 - overlap. Behind refused siblings, and under the rules that weigh
  // otherwise, only the run itself knows what is left.
  function left({ subject, own, before, greedy, rule, rows: listed, special }) {
    if (own && own.residual) return { traced: true, rows: own.residual.map(([id, text, prob]) => ({ ...named(special, id, text), prob })) };
    if (!subject || greedy || rule !== "rejection" || before.length || subject.overlap === null) return null;
    const mass = 1 - subject.overlap;
    if (mass < 1e-9) return { traced: false, mass, rows: [] };
    const owed = listed.filter(({ p, q }) => p !== null && q !== null && p > q);
    const found = owed.map(({ p, q, ...row }) => ({ ...row, prob: (p - q) / mass })).sort((a, b) => b.prob - a.prob);
    return found.length ? { traced: false, mass, rows: found.slice(0, 5) } : null;
  }
})((window.specviz = window.specviz || {}));
