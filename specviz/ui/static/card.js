// The card of one token: its fate and its numbers. Hover and focus show it, a click or tap pins it, Escape closes it.
// Held by tests/browser/test_page.py::test_card.
(function (sv) {
  "use strict";

  sv.Card = class Card {
    // lookup(stepIndex, tokenIndex) -> {step, token, run}
    constructor(root, stream, lookup) {
      this.root = root;
      this.stream = stream;
      this.lookup = lookup;
      this.pinned = null;
      const host = stream.host;
      host.addEventListener("pointerover", (event) => event.pointerType === "mouse" && this._over(event));
      host.addEventListener("pointerleave", () => !this.pinned && this.hide());
      host.addEventListener("focusin", (event) => this._over(event));
      host.addEventListener("focusout", () => !this.pinned && this.hide());
      host.addEventListener("click", (event) => this._click(event));
      host.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          this._click(event);
        }
      });
      host.addEventListener("scroll", () => !this.pinned && !host.contains(document.activeElement) && this.hide(), { passive: true });
      document.addEventListener("keydown", (event) => event.key === "Escape" && this.hide());
      document.addEventListener("pointerdown", (event) => {
        if (this.pinned && !root.contains(event.target) && !event.target.closest(".sv-tok")) this.hide();
      });
    }

    _over(event) {
      const node = event.target.closest(".sv-tok");
      if (node && !this.pinned) this.show(node);
      else if (node && event.type === "focusin") this.show(node);
    }

    _click(event) {
      const node = event.target.closest(".sv-tok");
      if (!node) return;
      if (this.pinned === node) return this.hide();
      this.stream.focus(node);
      this.show(node);
      this.pinned = node;
    }

    hide() {
      this.pinned = null;
      if (this.node) this.node.classList.remove("sv-shown");
      this.node = null;
      this.root.hidden = true;
    }

    show(node) {
      if (this.node) this.node.classList.remove("sv-shown");
      this.node = node;
      if (this.pinned) this.pinned = node;
      node.classList.add("sv-shown");
      this.root.replaceChildren(...this._parts(this.lookup(Number(node.dataset.step), Number(node.dataset.token))));
      this.root.hidden = false;
      this._settle(node);
    }

    // Under the token where there is room, else over it; on a narrow screen CSS docks it to the bottom edge.
    _settle(node) {
      if (!this.root.offsetParent) {
        // Docked by CSS: only see to it that the card does not cover its own token.
        const top = node.getBoundingClientRect().top;
        if (top > window.innerHeight - this.root.offsetHeight - 48) window.scrollBy(0, top - window.innerHeight * 0.18);
        return;
      }
      const frame = this.root.offsetParent.getBoundingClientRect();
      const box = node.getClientRects()[0] || node.getBoundingClientRect();
      const width = this.root.offsetWidth;
      const height = this.root.offsetHeight;
      const left = Math.min(Math.max(box.left - frame.left - 12, 8), Math.max(frame.width - width - 8, 8));
      const below = box.bottom + 8 + height <= window.innerHeight || box.top - height - 8 < 0;
      const top = below ? box.bottom + 8 : box.top - height - 8;
      this.root.style.left = `${left}px`;
      this.root.style.top = `${top - frame.top}px`;
    }

    _parts({ step, token, run }) {
      const head = sv.el("div", "sv-card-head");
      head.append(sv.el("span", `sv-tok sv-${token.fate}`, sv.visible(token.text)), sv.el("strong", "", token.fate), sv.el("span", "sv-dim", sv.FATE_WORDS[token.fate]));
      const parts = [head, sv.el("p", "sv-why", sv.why(token, step, run)), this._test(token, run.settings), this._facts(step, token, run)];
      const bars = this._bars(token);
      if (bars) parts.push(bars);
      return parts.filter(Boolean);
    }

    // p and q as bars, and u as a needle against the accepted share; at temperature 0 p is 0 or 1 and u decides nothing.
    _test(token, { temperature, verify }) {
      const greedy = Number(temperature) === 0;
      const box = sv.el("div", "sv-test");
      const bar = (name, value, kind) => {
        const fill = sv.el("span", `sv-bar-fill sv-bar-${kind}`);
        fill.style.width = `${Math.min(value, 1) * 100}%`;
        const track = sv.el("span", "sv-bar");
        track.append(fill);
        box.append(sv.el("span", "sv-bar-name", name), track, sv.el("span", "sv-bar-value", sv.prob(value)));
        return track;
      };
      if (token.p !== null) bar(greedy ? "p at T=0" : "p target", token.p, "p");
      if (token.q !== null) bar("q draft", token.q, "q");
      if (token.accept_prob !== null) {
        const track = bar({ block: "h of block", coupled: "agree" }[verify] || "accept", token.accept_prob, "accept");
        if (token.u !== null && !greedy) {
          const needle = sv.el("span", "sv-needle");
          needle.style.left = `${token.u * 100}%`;
          track.append(needle);
          box.append(sv.el("span", "sv-bar-name", "u drawn"), sv.el("span", "sv-dim sv-u", `${token.u < token.accept_prob ? "below" : "above"} ${verify === "block" ? "h" : "accept"}`), sv.el("span", "sv-bar-value", sv.prob(token.u)));
        }
      }
      return box.childElementCount ? box : null;
    }

    _facts(step, token, run) {
      const facts = sv.el("dl", "sv-facts");
      const fact = (name, value) => {
        if (value === null || value === undefined) return;
        const pair = sv.el("div");
        pair.append(sv.el("dt", "", name), sv.el("dd", "", value));
        facts.append(pair);
      };
      const refused = sv.OWN.has(token.fate) ? sv.refusedAt(step, token) : [];
      const output = token.fate === "rejected" ? sv.outputAt(step, token) : null;
      if (output) fact("replaced by", sv.quote(output.text));
      if (refused.length) fact("in place of", refused.map((other) => sv.quote(other.text)).join(", "));
      if (token.overlap !== null) fact("overlap Σ min(p, q)", sv.prob(token.overlap));
      if (token.confidence !== null) fact("draft confidence", sv.prob(token.confidence));
      fact("position", String(token.position));
      fact("step", String(step.index + 1));
      if (!sv.OWN.has(token.fate)) fact("in the draft", this._place(step, token));
      if (step.draft !== run.settings.draft) fact("draft type", sv.draftName(step.draft));
      fact("source", token.source);
      fact("token id", String(token.id));
      if (step.note && token.fate !== "sampled") {
        fact("about this step", step.note);
        facts.lastChild.classList.add("sv-fact-wide");
      }
      return facts;
    }

    // Where it stands among what was drafted.
    _place(step, token) {
      const depth = sv.depth(step, token) + 1;
      if (!sv.branches(step)) return `${depth} of ${step.gamma}`;
      const siblings = sv.siblings(step, token);
      return `child ${siblings.indexOf(token) + 1} of ${siblings.length} at depth ${depth}`;
    }

    _bars(token) {
      if (!token.top_p && !token.top_q) return null;
      const rows = new Map();
      const add = (list, key) => (list || []).forEach(([id, text, prob, rawProb]) => {
        if (!rows.has(id)) rows.set(id, { text, p: null, q: null });
        rows.get(id)[key] = rawProb ?? prob;
      });
      add(token.top_p, "p");
      add(token.top_q, "q");
      const box = sv.el("div", "sv-top");
      box.append(sv.el("p", "sv-dim sv-top-title", token.top_q ? "Before temperature: target p (filled), draft q (hatched)" : "Before temperature: target p"));
      const best = [...rows.entries()].sort((a, b) => Math.max(b[1].p ?? 0, b[1].q ?? 0) - Math.max(a[1].p ?? 0, a[1].q ?? 0)).slice(0, 5);
      for (const [id, row] of best) {
        const name = sv.el("span", `sv-top-name${id === token.id ? " sv-this" : ""}`, sv.visible(row.text));
        const track = sv.el("span", "sv-top-bars");
        for (const key of ["p", "q"]) {
          if (row[key] === null) continue;
          const fill = sv.el("span", `sv-bar-fill sv-bar-${key}`);
          fill.style.width = `${row[key] * 100}%`;
          track.append(fill);
        }
        box.append(name, track, sv.el("span", "sv-bar-value", sv.prob(row.p ?? row.q)));
      }
      return box;
    }
  };
})((window.specviz = window.specviz || {}));
