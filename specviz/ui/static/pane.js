// What the panes for a run and for a race share: their parts, their state line, and the events that come before data.
// Held by tests/browser/test_page.py.
(function (sv) {
  "use strict";

  const WATCH_MS = 4000;

  sv.Pane = class Pane {
    constructor(root) {
      this.root = root;
      this.part = (name) => root.querySelector(`[data-part="${name}"]`);
      this.part("stop").addEventListener("click", () => document.querySelector("#sv-stop-button")?.click());
      document.addEventListener("click", (event) => this.busy && event.target.closest?.("#sv-stop-button") && this._state(this.root.dataset.state, "Stopping…"));
      setInterval(() => this._watch(), WATCH_MS);
      document.addEventListener("sv-status", () => this._loads());
    }

    get busy() {
      return !this.recorded && ["waiting", "running"].includes(this.root.dataset.state);
    }

    // A server that has gone says nothing more: ask it when nothing has come for a while.
    async _watch() {
      if (!this.busy || Date.now() - this.heard < WATCH_MS) return;
      try {
        await fetch("gradio_api/startup-events", { cache: "no-store" });
      } catch {
        if (this.busy) this._event({ type: "error", message: "The connection to the server is lost. Start it again and reload the page; the prompt is kept." });
      }
    }

    // To be called once everything that handlers use is there.
    listen() {
      this.pull = sv.feedReader({ onStart: (page) => this._start(page), onEvent: (event) => this._event(event) });
    }

    // `kind` names the look: recorded, waiting, running, done, stopped, failed; `share` fills the bar.
    _state(kind, sentence, share) {
      this.root.dataset.state = kind;
      this.part("stop").hidden = !this.busy;
      this.part("state").textContent = sentence;
      const bar = this.part("bar");
      bar.hidden = share === undefined;
      if (share !== undefined) bar.value = share;
    }

    _start(page) {
      this.recorded = Boolean(page.recorded);
      this.heard = Date.now();
      if (this.recorded) return;
      this.ahead = 0;
      this._state("waiting", "Sent to the model…");
      sv.reveal(this.root);
    }

    _event(event) {
      this.heard = Date.now();
      const handler = this[`_on_${event.type}`];
      if (handler) handler.call(this, event);
      for (const heard of sv.listeners) heard(this, event);
    }

    // A job that meets the first loading waits for it without a word of its own: the page's header knows how far it is.
    _loads() {
      if (this.busy && this.root.dataset.state === "waiting" && !this.ahead && sv.status?.state === "loading") this._on_loading(sv.status);
    }

    _on_queued({ position }) {
      this.ahead = position;
      const ahead = position === 1 ? "1 run is" : `${position} runs are`;
      this._state("waiting", position > 0 ? `Waiting in line: ${ahead} before yours.` : "Next in line.");
    }

    _on_loading({ stage, done, total }) {
      const amount = total ? ` ${sv.megabytes(done)} of ${sv.megabytes(total)}` : "";
      this._state("waiting", `${stage}${amount}`, total ? done / total : undefined);
    }

    _on_error({ message }) {
      this._state("failed", message);
    }

    // After a failure: what is drawn is once more what it was before.
    rest(words) {
      this.recorded = this.root.classList.contains("sv-is-recorded");
      this._state(this.recorded ? "recorded" : "done", words);
    }

    _origin(device, day) {
      const where = this.recorded ? `Recorded on ${device.name}, ${sv.day(day)}` : `Measured live on ${device.name}`;
      this.part("origin").textContent = `${where} · ${device.dtype}`;
    }
  };

  sv.mountPane = (View, selector) => (element, props, watch, trigger, ask) => {
    const view = new View(element.querySelector(selector), ask);
    watch("value", () => view.pull(props.value));
    view.pull(props.value);
  };
})((window.specviz = window.specviz || {}));
