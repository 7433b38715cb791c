// Steps drawn as tokens. Append-only while it grows: a group once drawn is never changed but in its classes, going back
// in time takes groups off the end. The last group may be a step that is still being drafted: its tokens are ghosts
// until the verdict. textContent of a token is exactly its text; visible marks are CSS.
// Held by tests/browser/test_page.py::test_run_matches_the_run and tests/browser/test_timeline.py.
(function (sv) {
  "use strict";

  function fillText(node, text) {
    if (text === "") {
      node.classList.add("sv-empty");
      return;
    }
    if (/^ +$/.test(text)) node.classList.add("sv-space");
    let plain = "";
    const flush = () => {
      if (plain) node.append(plain);
      plain = "";
    };
    for (const char of text) {
      const mark = char === "\n" ? "↵" : char === "\t" ? "⇥" : char === "\r" ? "␍" : sv.isControl(char) ? sv.codePoint(char) : null;
      if (mark === null) {
        plain += char;
        continue;
      }
      flush();
      const hidden = sv.el("span", "sv-mark", char);
      hidden.dataset.mark = mark;
      if (mark.startsWith("U+")) hidden.classList.add("sv-code");
      node.append(hidden);
    }
    flush();
  }

  function tokenNode(token, stepIndex, tokenIndex, focusable) {
    const node = sv.el("span", `sv-tok sv-${token.fate}`);
    node.dataset.token = tokenIndex;
    if (focusable) {
      node.setAttribute("role", "button");
      node.tabIndex = -1;
      node.dataset.step = stepIndex;
      node.setAttribute("aria-label", `${sv.label(token)}, ${token.fate}`);
    }
    fillText(node, token.text);
    if (token.special !== undefined) {
      node.classList.add("sv-special");
      node.dataset.special = sv.visible(token.special);
    }
    return node;
  }

  // Letters that join the next one, as a reader of Arabic expects; an element without inline content lets them.
  const CURSIVE_END = /[\p{Script=Arabic}\p{Script=Syriac}\p{Script=Nko}]\p{M}*$/u;
  const CURSIVE_START = /^\p{M}*[\p{Script=Arabic}\p{Script=Syriac}\p{Script=Nko}]/u;

  // Whether the text goes on from `step` to `next` in the middle of such a word.
  function joined(step, next) {
    const emitted = ({ tokens }) => tokens.filter(({ fate }) => sv.EMITTED.has(fate));
    const before = emitted(step).findLast(({ text }) => text !== "");
    const behind = emitted(next).find(({ text }) => text !== "");
    return Boolean(before && behind) && CURSIVE_END.test(before.text) && CURSIVE_START.test(behind.text);
  }

  // A part of a character has no text of its own; in such a word its mark must not stand between the letters.
  function closeParts(kept) {
    kept.forEach(({ token, node }, i) => {
      if (token.text !== "" || token.special !== undefined) return;
      const next = kept.slice(i + 1).find((other) => other.token.text !== "");
      const before = kept.slice(0, i).findLast((other) => other.token.text !== "");
      if (next ? CURSIVE_START.test(next.token.text) : before && CURSIVE_END.test(before.token.text)) node.classList.add("sv-part");
    });
  }

  // A step's tokens are a tree. Along the kept path each token stands behind the siblings that were not taken: the
  // refused ones, then those never tried, each with what was drafted behind it, as one branch.
  sv.stepNode = function (step, stepIndex, focusable, mark) {
    const group = sv.el("span", "sv-step");
    if (mark) group.dataset.change = mark;
    const kept = [];
    const draw = (index, host) => {
      const token = step.tokens[index];
      const node = tokenNode(token, stepIndex, index, focusable);
      if (host === group) kept.push({ token, node });
      host.append(node);
    };
    const branch = (index, host) => {
      draw(index, host);
      for (const child of sv.children(step, index)) branch(child, host);
    };
    let at = -1;
    while (at !== null) {
      let next = null;
      for (const index of sv.children(step, at)) {
        const { fate } = step.tokens[index];
        if (sv.EMITTED.has(fate)) {
          draw(index, group);
          next = index;
          continue;
        }
        const box = sv.el("span", fate === "rejected" ? "sv-branch" : "sv-branch sv-ghost");
        branch(index, box);
        group.append(box);
      }
      at = next;
    }
    closeParts(kept);
    return group;
  };

  sv.TokenStream = class TokenStream {
    // `focusable`: tokens take focus and carry their indices, for the card.
    constructor(host, focusable) {
      this.host = host;
      this.focusable = focusable;
      this.reset();
      if (focusable) host.addEventListener("keydown", (event) => this._arrow(event));
    }

    reset() {
      this.groups = [];
      this.shown = 0;
      this.active = null;
      this.ghost = null;
      this.host.replaceChildren();
    }

    // Show the first `count` of `steps` and, as ghosts, the tokens of the step behind them down to `depth`.
    show(steps, count, depth = 0) {
      if (count === this.shown && depth === (this.ghost?.depth ?? 0)) return;
      // Measured before writing, so that following the end costs one layout at most.
      const follow = this.host.scrollHeight - this.host.scrollTop - this.host.clientHeight < 48;
      if (this.ghost && this.ghost.at !== count) this._settle(this.ghost.at < count);
      if (count > this.shown) {
        const fragment = document.createDocumentFragment();
        for (let i = this.shown; i < count; i++) {
          this.groups[i] = this.groups[i] || this._group(steps, i);
          if (!this.groups[i].isConnected) fragment.append(this.groups[i]);
        }
        this.host.append(fragment);
      } else {
        for (let i = this.shown - 1; i >= count; i--) this.groups[i].remove();
      }
      this.shown = count;
      if (depth) this._drafting(steps, count, depth);
      else if (this.ghost) this._settle(false);
      if (follow || count === 0) this.host.scrollTop = this.host.scrollHeight;
      if (this.focusable && !(this.active && this.active.isConnected)) this._makeActive(this.host.querySelector(".sv-tok"));
    }

    // Step `at` while it is drafted: only what stands less than `depth` levels deep is there yet.
    _drafting(steps, at, depth) {
      const group = (this.groups[at] = this.groups[at] || this._group(steps, at));
      for (const node of group.querySelectorAll(".sv-tok")) {
        const token = steps[at].tokens[node.dataset.token];
        node.classList.toggle("sv-unborn", sv.OWN.has(token.fate) || sv.depth(steps[at], token) >= depth);
      }
      if (!group.isConnected) this.host.append(group);
      group.classList.add("sv-drafting");
      this.ghost = { at, depth };
    }

    // The verdict is there (`decided`), or time went back before the draft.
    _settle(decided) {
      const group = this.groups[this.ghost.at];
      this.ghost = null;
      group.classList.remove("sv-drafting");
      for (const node of group.querySelectorAll(".sv-unborn")) node.classList.remove("sv-unborn");
      if (!decided) group.remove();
    }

    _group(steps, i) {
      const group = sv.stepNode(steps[i], i, this.focusable, this.focusable ? sv.changeAt(steps[i], steps[i - 1]) : null);
      if (i > 0 && joined(steps[i - 1], steps[i])) group.classList.add("sv-joined");
      return group;
    }

    // The last emitted token ended the text: say so instead of showing an empty mark.
    markEnd(steps) {
      for (let s = steps.length - 1; s >= 0; s--) {
        for (let i = steps[s].tokens.length - 1; i >= 0; i--) {
          const token = steps[s].tokens[i];
          if (!sv.EMITTED.has(token.fate)) continue;
          this.groups[s] = this.groups[s] || this._group(steps, s);
          if (token.text === "") this.groups[s].querySelector(`[data-token="${i}"]`).classList.add("sv-eos");
          return;
        }
      }
    }

    _makeActive(node) {
      if (this.active) this.active.tabIndex = -1;
      this.active = node;
      if (node) node.tabIndex = 0;
    }

    focus(node) {
      this._makeActive(node);
      node.focus({ preventScroll: true });
      node.scrollIntoView({ block: "nearest" });
    }

    _arrow(event) {
      const node = event.target.closest(".sv-tok");
      if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
      const visible = () => Array.from(this.host.querySelectorAll(".sv-tok")).filter((token) => token.offsetParent !== null);
      const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
      let goal = null;
      if (event.key in moves) {
        const all = visible();
        const at = all.indexOf(node) + moves[event.key];
        goal = all[Math.min(Math.max(at, 0), all.length - 1)];
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        goal = nearestLine(visible(), node, event.key === "ArrowDown" ? 1 : -1);
      } else return;
      event.preventDefault();
      if (goal) this.focus(goal);
    }
  };

  function nearestLine(all, node, direction) {
    const from = node.getBoundingClientRect();
    let best = null;
    let bestScore = Infinity;
    for (const other of all) {
      const box = other.getBoundingClientRect();
      const down = (box.top - from.top) * direction;
      if (down < from.height * 0.6) continue;
      const score = down * 1000 + Math.abs(box.left - from.left);
      if (score < bestScore) [best, bestScore] = [other, score];
    }
    return best;
  }

  // Running counts after every step, so that a scrubbed view knows its figures without counting again.
  sv.Tally = class Tally {
    constructor() {
      const zero = { tokens: 0, steps: 0, time: 0, levels: 0, held: 0 };
      for (const fate of sv.FATES) zero[fate] = 0;
      this.rows = [zero];
    }

    push(step) {
      const row = { ...this.rows[this.rows.length - 1] };
      for (const token of step.tokens) {
        row[token.fate] += 1;
        if (sv.EMITTED.has(token.fate)) row.tokens += 1;
      }
      const levels = sv.levels(step);
      row.levels += levels.tested;
      row.held += levels.accepted;
      row.steps += 1;
      row.time = step.t_end;
      this.rows.push(row);
    }

    at(count) {
      return this.rows[Math.min(count, this.rows.length - 1)];
    }
  };
})((window.specviz = window.specviz || {}));
