// The three beats of one place: what was drafted, what the target said of it, what was decided; as DOM, from sv.place.
// Held by tests/browser/test_microscope.py.
(function (sv) {
  "use strict";

  const UNLISTED = "not among the best tokens that this run lists";

  // A figure that is not in the JSON itself but follows from it; `how` is its formula.
  const derived = function (how, value, format = sv.prob) {
    const node = sv.el("span", "sv-num", format(value));
    node.dataset.derived = how;
    node.title = `${how} = ${value}`;
    return node;
  };

  const line = (className, ...parts) => {
    const node = sv.el("p", className);
    node.append(...parts);
    return node;
  };
  // Formulas: p, q, u, h and w are variables and stand in italics.
  const formula = (...parts) =>
    line(
      "sv-formula",
      ...parts.flatMap((part) => (typeof part === "string" ? part.split(/\b([pquhwx])\b/).map((piece, i) => (i % 2 ? sv.el("i", "", piece) : piece)) : [part])),
    );

  const fill = (kind, share) => {
    const node = sv.el("span", `sv-bar-fill sv-bar-${kind}`);
    node.style.width = `${Math.min(share, 1) * 100}%`;
    return node;
  };

  // One row a token: its bars in the columns asked for, and their numbers.
  function table(place, columns, caption) {
    const box = sv.el("table", "sv-dist");
    box.append(sv.el("caption", "", caption));
    const head = sv.el("tr");
    const names = { q: "q", p: "p", share: "min(p, q)" };
    head.append(sv.el("th", "", "token"), sv.el("th", "sv-dist-bars"), ...columns.map((key) => sv.el("th", `sv-dist-${key}`, names[key])));
    head.querySelectorAll("th").forEach((cell) => (cell.scope = "col"));
    const body = sv.el("tbody");
    for (const row of place.rows) body.append(distRow(place, row, columns));
    const top = sv.el("thead");
    top.append(head);
    box.append(top, body);
    return box;
  }

  function distRow({ subject, own }, row, columns) {
    const line = sv.el("tr");
    const name = sv.el("th", `sv-dist-name${sv.byName(row)}`, sv.short(row));
    name.scope = "row";
    name.title = sv.label(row);
    if (subject && row.id === subject.id) name.append(sv.el("span", "sv-dist-role", "drafted"));
    if (own && row.id === own.id && columns.includes("p")) name.append(sv.el("span", "sv-dist-role", "drawn"));
    const bars = sv.el("td", "sv-dist-bars");
    const track = sv.el("span", "sv-dist-track");
    if (columns.includes("share") && row.share) track.append(fill("share", row.share));
    for (const key of ["p", "q"]) if (columns.includes(key) && row[key]) track.append(fill(key, row[key]));
    bars.append(track);
    line.append(name, bars);
    for (const key of columns) {
      const cell = sv.el("td", `sv-bar-value sv-dist-${key}`);
      if (row[key] === null) cell.title = UNLISTED;
      cell.append(key === "share" && row.share !== null ? derived("min(p, q)", row.share) : sv.num(`${key}:${row.id}`, row[key]));
      line.append(cell);
    }
    return line;
  }

  const untraced = (token) =>
    sv.el("p", "sv-none", token.p === null || token.p === undefined ? "This run was traced without numbers: only what became of its tokens is known." : "This run was traced without distributions, so there are no bars: what it knows are the numbers of this token.");

  const beat = (...parts) => {
    const words = sv.el("div", "sv-beat-words");
    const figure = sv.el("div", "sv-beat-figure");
    for (const part of parts) if (part) (part.matches(".sv-dist, .sv-axis, .sv-versus, .sv-none, .sv-left") ? figure : words).append(part);
    const box = sv.el("div", "sv-beat");
    box.append(words, figure);
    return box;
  };

  function draft(place, step, token) {
    const { subject, onehot, greedy } = place;
    const who = sv.draftName(step.draft);
    if (!subject) {
      const why = token.fate === "bonus" ? `${who} proposed ${sv.plural(step.gamma, "token")}; this place is behind the last of them.` : "Nothing was proposed in this step.";
      return beat(line("", why), line("", "So there is no q here: the target draws alone."));
    }
    const where = sv.branches(step) ? `as a branch of its tree, ${sv.plural(sv.depth(step, subject) + 1, "token")} deep` : `as token ${sv.depth(step, subject) + 1} of ${step.gamma}`;
    const said = line("", `${who} proposed `, sv.el("b", "", sv.quote(subject)), ` ${where}, before the target had read any of them. In all the step's drafting took `, sv.num("draft_s", step.draft_s, sv.milliseconds), ".");
    if (subject.q === null) return beat(said, untraced(subject));
    const chance = formula(`q(x) = `, sv.num("q", subject.q));
    const best = "At temperature 0 all of q is on the draft's most likely token. The bars show q before temperature.";
    const about = greedy && subject.top_q ? best : onehot || subject.q === 1 ? "It named this one token and nothing else, so q is 1 here and 0 everywhere else." : "q is the chance with which the draft drew this token.";
    const sure = subject.confidence === null ? null : line("sv-dim", "Its own confidence in it: ", sv.num("confidence", subject.confidence), ".");
    return beat(said, chance, line("", about), sure, place.known ? table(place, ["q"], greedy ? "The draft's q, before temperature" : "The draft's q") : untraced(subject));
  }

  function verify(place, step, token) {
    const { subject, greedy, rule } = place;
    const one = subject || token;
    const read = step.gamma ? `read the pending token and ${step.gamma === 1 ? "the drafted one" : `all ${step.gamma} drafted ones`} at once` : "read the pending token";
    const said = line("", `One pass of the target `, `${read}, in `, sv.num("verify_s", step.verify_s, sv.milliseconds), ".");
    if (one.p === null || one.p === undefined) return beat(said, untraced(one));
    const parts = [said, formula("p(x) = ", sv.num("p", one.p), ` for ${sv.quote(one)}`)];
    if (greedy) parts.push(line("", "At temperature 0 all of p is on the target's most likely token. The bars show p before temperature."));
    else if (subject && subject.overlap !== null) {
      parts.push(formula("Σ min(p, q) = ", sv.num("overlap", subject.overlap)));
      const kept = rule === "coupled" ? "This overlap says how alike both are here; with shared noise they agree a little less often." : "This overlap is the expected acceptance: the chance that a token drawn from q would be kept here, whichever it is.";
      parts.push(line("", kept));
      if (place.known && place.tail > 0.0005) parts.push(line("sv-dim", "Tokens that are not listed add ", derived("overlap − Σ listed", place.tail), " to that sum."));
    }
    const columns = subject ? ["q", "p", ...(greedy ? [] : ["share"])] : ["p"];
    const caption = greedy ? "Target p (filled) and draft q (hatched), before temperature" : subject ? "Target p (filled), draft q (hatched), what they share (shaded)" : "The target's p";
    return beat(...parts, place.known ? table(place, columns, caption) : untraced(one));
  }

  // u as a needle on the axis from 0 to 1: below the chance the token is kept, above it is refused.
  function axis(token, rule) {
    const name = rule === "block" ? "h" : rule === "coupled" ? "agree" : "min(1, p/q)";
    const box = sv.el("div", "sv-axis");
    const track = sv.el("div", "sv-axis-track");
    const keep = sv.el("span", "sv-axis-keep");
    keep.style.width = `${Math.min(token.accept_prob, 1) * 100}%`;
    track.append(keep);
    const at = sv.el("span", `sv-axis-limit${token.accept_prob > 0.5 ? " sv-axis-left" : ""}`);
    at.style.left = `${Math.min(token.accept_prob, 1) * 100}%`;
    at.append(`${name} = `, sv.num("accept_prob", token.accept_prob));
    track.append(at);
    if (token.u !== null) {
      const needle = sv.el("span", `sv-axis-needle${token.u > 0.5 ? " sv-axis-left" : ""}`);
      needle.style.left = `${token.u * 100}%`;
      const label = sv.el("span", "sv-axis-u");
      label.append("u = ", sv.num("u", token.u));
      needle.append(label);
      track.append(needle);
    }
    const ends = sv.el("div", "sv-axis-ends");
    ends.append(sv.el("span", "", "0: kept"), sv.el("span", "", "refused: 1"));
    box.append(track, ends);
    return box;
  }

  function compare(token, rule) {
    const sign = token.u < token.accept_prob ? " < " : " ≥ ";
    const limit = rule === "block" ? " = h" : " = min(1, p/q)";
    return formula("u = ", sv.num("u", token.u), sign, sv.num("accept_prob", token.accept_prob), limit);
  }

  // What other draws would have led to.
  function otherwise({ subject, rule, own }) {
    if (subject.u === null || rule !== "rejection") return null;
    const words = line("", "Another u could have ended otherwise: ", sv.num("accept_prob", subject.accept_prob, sv.percent), " of all draws keep it");
    if (subject.accept_prob >= 1) words.append(", so none refuses it.");
    else words.append(", ", derived("1 − min(1, p/q)", 1 - subject.accept_prob, sv.percent), own || subject.fate === "rejected" ? " refuse it, as here." : " refuse it, and the target draws from what is left of p.");
    return words;
  }

  function residual({ left, own, subject }) {
    if (!left || !left.rows.length) return null;
    const box = sv.el("div", "sv-left");
    box.append(sv.el("p", "sv-left-title", left.traced ? "What was left of p, from which the target drew" : subject.fate === "accepted" ? "What would have been left of p, had it been refused" : "What is left of p behind it"));
    const grid = sv.el("div", "sv-left-rows");
    for (const row of left.rows) {
      const { id, prob } = row;
      const name = sv.el("span", `sv-dist-name${own && left.traced && own.id === id ? " sv-this" : ""}${sv.byName(row)}`, sv.short(row));
      const track = sv.el("span", "sv-dist-track");
      if (prob) track.append(fill("left", prob));
      const value = sv.el("span", "sv-bar-value");
      value.append(left.traced ? sv.num(`residual:${id}`, prob) : derived("max(0, p − q) / (1 − overlap)", prob));
      grid.append(name, track, value);
    }
    const rest = 1 - left.rows.reduce((sum, { prob }) => sum + prob, 0);
    if (rest > 0.0005) grid.append(sv.el("span", "sv-dim", "all others"), sv.el("span"), derived("1 − Σ listed", rest));
    box.append(grid);
    return box;
  }

  function versus({ rows, subject, own }) {
    const best = rows.reduce((a, b) => ((b.p ?? -1) > (a?.p ?? -1) ? b : a), null);
    if (!best || !subject) return null;
    const box = sv.el("div", "sv-versus");
    const same = subject.p === 1;
    const target = same ? subject : own || best;
    box.append(sv.el("span", "sv-dim", "the draft's"), sv.el("span"), sv.el("span", "sv-dim", "the target's most likely"));
    box.append(sv.el("b", "", sv.quote(subject)), sv.el("span", "", same ? "=" : "≠"), sv.el("b", "", sv.quote(target)));
    return box;
  }

  function decide(place, step, token, run) {
    const { subject, greedy, rule, before, left } = place;
    const why = sv.el("p", "sv-why", sv.why(token, step, run));
    if (!subject || subject.accept_prob === null || subject.accept_prob === undefined) return beat(why, residual(place));
    if (greedy) return beat(why, versus(place), residual(place));
    const parts = [why];
    if (subject.u !== null) parts.push(compare(subject, rule));
    if (before.length) parts.push(line("sv-dim", "p is here what the refused siblings left of it."));
    parts.push(otherwise(place));
    if (left && left.rows.length && rule === "rejection" && !before.length) parts.push(formula("left = max(0, p − q) / (1 − ", sv.num("overlap", subject.overlap), ")"));
    return beat(...parts, axis(subject, rule), residual(place));
  }

  sv.beats = (place, step, token, run) => [draft(place, step, token), verify(place, step, token), decide(place, step, token, run)];
})((window.specviz = window.specviz || {}));
