// The microscope: the step of one token in three beats, draft, verify and decide. A click or Enter on a token opens it
// and lets the beats pass in slow motion; whoever chooses a beat or another token stops that. All three beats stand in
// the same place of the page, so that going from one to the next moves nothing.
// Held by tests/browser/test_microscope.py.
(function (sv) {
  "use strict";

  const BEAT_MS = 1500;
  const BEATS = ["Draft", "Verify", "Decide"];

  const button = (className, text) => {
    const node = sv.el("button", className, text);
    node.type = "button";
    return node;
  };

  sv.Microscope = class Microscope {
    // lookup(stepIndex, tokenIndex) -> {step, token, run, steps}; say(text) announces politely.
    constructor(root, stream, lookup, say) {
      Object.assign(this, { root, stream, lookup, say, at: null, beat: BEATS.length - 1 });
      const { host } = stream;
      host.addEventListener("click", (event) => this._open(event));
      host.addEventListener("keydown", (event) => {
        if ((event.key !== "Enter" && event.key !== " ") || !event.target.closest(".sv-tok")) return;
        event.preventDefault();
        this._open(event);
      });
      host.addEventListener("focusin", (event) => {
        const node = event.target.closest(".sv-tok:focus-visible"); // moved to by a key: a click comes by itself
        if (this.at && node) this.show(Number(node.dataset.step), Number(node.dataset.token));
      });
      sv.key({ keys: ["n"], shows: "N", words: "in the microscope: the next beat", act: () => this._turn(1) });
      sv.key({ keys: ["b"], shows: "B", words: "in the microscope: the beat before", act: () => this._turn(-1) });
      document.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || !this.at || document.querySelector("dialog[open]")) return;
        this.close();
      });
      this._frame();
    }

    // What stays while tokens change: title, beats, buttons.
    _frame() {
      const head = sv.el("header", "sv-scope-head");
      this.title = sv.el("h3", "sv-h3");
      const close = button("sv-plain-button sv-scope-close", "Close");
      close.addEventListener("click", () => this.close());
      head.append(this.title, close);
      this.tree = sv.el("div", "sv-tree-frame");
      this.tree.tabIndex = 0;
      this.tree.setAttribute("role", "group");
      this.tree.setAttribute("aria-label", "Tokens of this step");
      const bar = sv.el("div", "sv-beat-bar");
      const names = sv.el("ol", "sv-beat-names");
      this.names = BEATS.map((name, i) => {
        const item = sv.el("li");
        const choice = button("sv-beat-name", `${i + 1} ${name}`);
        choice.addEventListener("click", () => this._pick(i));
        item.append(choice);
        names.append(item);
        return choice;
      });
      this.back = button("sv-plain-button", "Back");
      this.next = button("sv-plain-button", "Next beat");
      this.back.setAttribute("aria-keyshortcuts", "B");
      this.next.setAttribute("aria-keyshortcuts", "N");
      this.back.addEventListener("click", () => this._turn(-1));
      this.next.addEventListener("click", () => this._turn(1));
      bar.append(names, this.back, this.next);
      this.body = sv.el("div", "sv-beats");
      this.facts = sv.el("div", "sv-scope-facts");
      this.root.replaceChildren(head, this.tree, bar, this.body, this.facts);
    }

    _open(event) {
      const node = event.target.closest(".sv-tok");
      if (!node) return;
      if (this.node === node) return this.close();
      const first = !this.at;
      this.stream.focus(node);
      this.show(Number(node.dataset.step), Number(node.dataset.token));
      if (first) this.root.scrollIntoView({ block: "nearest", behavior: sv.stillMotion() ? "auto" : "smooth" });
      if (!sv.stillMotion()) this._slowly(0);
    }

    _slowly(beat) {
      this._show(beat);
      if (beat + 1 < BEATS.length) this._timer = setTimeout(() => this._slowly(beat + 1), BEAT_MS);
    }

    _pick(beat) {
      clearTimeout(this._timer);
      this._show(beat);
      this.say(`Beat ${beat + 1} of ${BEATS.length}, ${BEATS[beat]}. ${this.body.children[beat].querySelector(".sv-beat-words").textContent}`);
    }

    _turn(by) {
      if (!this.at) return false;
      const beat = this.beat + by;
      if (beat >= 0 && beat < BEATS.length) this._pick(beat);
      return true;
    }

    show(stepIndex, tokenIndex) {
      if (this.at && this.at[0] === stepIndex && this.at[1] === tokenIndex) return;
      clearTimeout(this._timer);
      this.at = [stepIndex, tokenIndex];
      this._mark();
      const { step, token, run, steps } = this.lookup(stepIndex, tokenIndex);
      this.title.replaceChildren(sv.el("span", "sv-dim", `Step ${step.index + 1} of ${steps}`), sv.el("span", `sv-tok sv-${token.fate}`, sv.label(token)), sv.el("span", "", token.fate), sv.el("span", "sv-dim sv-scope-words", sv.FATE_WORDS[token.fate]));
      this._tree(step, stepIndex, tokenIndex);
      this.body.replaceChildren(...sv.beats(sv.place(step, token, run), step, token, run));
      this.facts.replaceChildren(sv.facts(step, token, run));
      this.root.hidden = false;
      this._show(this.beat);
    }

    // Another token of the step may be hidden in the stream (a discarded one); its own node has the focus only if shown.
    _tree(step, stepIndex, tokenIndex) {
      const hadFocus = this.tree.contains(document.activeElement);
      const tree = sv.stepTree(step, tokenIndex, (index) => this.show(stepIndex, index));
      this.tree.replaceChildren(tree);
      const current = tree.querySelector("[aria-current]");
      if (hadFocus) current.focus({ preventScroll: true });
      this.tree.scrollLeft = Math.max(0, current.offsetLeft - this.tree.clientWidth / 2);
      this.tree.scrollTop = Math.max(0, current.offsetTop - this.tree.clientHeight / 2);
    }

    _mark() {
      if (this.node) this.node.classList.remove("sv-shown");
      const [step, token] = this.at || [];
      this.node = this.at ? this.stream.host.querySelector(`[data-step="${step}"][data-token="${token}"]`) : null;
      if (this.node) this.node.classList.add("sv-shown");
    }

    _show(beat) {
      this.beat = beat;
      this.root.dataset.beat = beat + 1;
      Array.from(this.body.children).forEach((box, i) => box.classList.toggle("sv-beat-on", i === beat));
      this.names.forEach((name, i) => (i === beat ? name.setAttribute("aria-current", "step") : name.removeAttribute("aria-current")));
      this.back.disabled = beat === 0;
      this.next.disabled = beat === BEATS.length - 1;
    }

    close() {
      const node = this.node;
      const inside = this.root.contains(document.activeElement);
      this.hide();
      if (inside && node && node.isConnected) this.stream.focus(node);
    }

    hide() {
      clearTimeout(this._timer);
      this.at = null;
      this._mark();
      this.root.hidden = true;
      this.beat = BEATS.length - 1;
    }
  };
})((window.specviz = window.specviz || {}));
