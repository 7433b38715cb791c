// A glimpse of the token under the pointer or the focus: its fate and why. The click that follows is the microscope's.
// Held by tests/browser/test_page.py::test_card.
(function (sv) {
  "use strict";

  sv.Card = class Card {
    // lookup(stepIndex, tokenIndex) -> {step, token, run}
    constructor(root, stream, lookup) {
      this.root = root;
      this.lookup = lookup;
      const host = stream.host;
      host.addEventListener("pointerover", (event) => event.pointerType === "mouse" && this._over(event));
      host.addEventListener("pointerleave", () => this.hide());
      host.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && this._over(event));
      host.addEventListener("focusout", () => this.hide());
      host.addEventListener("click", () => this.hide());
      host.addEventListener("scroll", () => !host.contains(document.activeElement) && this.hide(), { passive: true });
      document.addEventListener("keydown", (event) => event.key === "Escape" && this.hide());
    }

    _over(event) {
      const node = event.target.closest(".sv-tok");
      if (node && !node.classList.contains("sv-shown")) this.show(node);
      else this.hide();
    }

    hide() {
      this.root.hidden = true;
    }

    show(node) {
      const { step, token, run } = this.lookup(Number(node.dataset.step), Number(node.dataset.token));
      const head = sv.el("div", "sv-card-head");
      head.append(sv.el("span", `sv-tok sv-${token.fate}`, sv.label(token)), sv.el("strong", "", token.fate), sv.el("span", "sv-dim", sv.FATE_WORDS[token.fate]));
      this.root.replaceChildren(head, sv.el("p", "sv-why", sv.why(token, step, run)), sv.el("p", "sv-card-more", "Click or Enter: the step under the microscope"));
      this.root.hidden = false;
      this._settle(node);
    }

    // Under the token where there is room, else over it.
    _settle(node) {
      if (!this.root.offsetParent) return;
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
  };
})((window.specviz = window.specviz || {}));
