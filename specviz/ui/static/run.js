// The run view: the model of one Run, grown line by line, and everything drawn from it.
// Held by tests/browser/test_page.py.
(function (sv) {
  "use strict";

  const ENDINGS = {
    eos: "Finished: the model ended its answer.",
    stop: "Finished: a stop text came up.",
    length: (run) => `Finished: the length limit of ${sv.plural(run.settings.max_new_tokens, "token")} was reached.`,
    context: "Finished: the model's context is full.",
    cancelled: (run, end) => `Stopped after ${sv.plural(end.summary.tokens, "token")}; the prompt is kept.`,
    error: "The run ended with an error.",
  };

  const TREES = new Set(["eagle-tree", "medusa", "tree", "tree-dynamic", "pool"]);

  class RunView extends sv.Pane {
    // `ask`: the server's functions; null in a file on its own.
    constructor(root, ask = null) {
      super(root);
      const part = this.part;
      this.files = ask && new sv.Files(part("files"), this, ask);
      this.stream = new sv.TokenStream(part("stream"), true);
      this.player = new sv.Player(this);
      this.transport = new sv.Transport(part("transport"), this.player, "Run", true);
      const lookup = (s, t) => ({ step: this.steps[s], token: this.steps[s].tokens[t], run: this.run, steps: this.steps.length });
      this.scope = new sv.Microscope(part("scope"), this.stream, lookup, (words) => (this.part("announce").textContent = words));
      // Behind the microscope, which marks the token that it shows: that one needs no card.
      this.card = new sv.Card(part("card"), this.stream, lookup);
      this._charts();
      this.transport.changed();
      document.documentElement.classList.add("sv-mounted");
      this._legend();
      this._reset();
      this._keys();
      part("ghosts").addEventListener("change", (event) => root.classList.toggle("sv-ghosts", event.target.checked));
      this.listen();
    }

    // None in a file on its own.
    _charts() {
      const steps = this.part("chart-steps");
      this.stepChart = steps && new sv.StepChart(steps);
      // Drawn when the run has ended.
      this.endCharts = steps ? { position: new sv.Chart(this.part("chart-position")), time: new sv.Chart(this.part("chart-time")) } : {};
    }

    _start(page) {
      this.opened = Boolean(page.opened);
      this.older = true; // until the new one begins
      super._start(page);
    }

    // A whole run from a file, with what the server made of it: shown to its end, to be played.
    open(run, events, words) {
      const { steps, output, summary, ...header } = run;
      this._start({ recorded: true, opened: true });
      this._event({ type: "run", run: header });
      for (const step of steps) this._event({ type: "step", step });
      this._event({ type: "end", output, summary });
      for (const event of events) this._event(event);
      this._state("recorded", words);
      this.player.seek(this.player.length);
    }

    get kind() {
      return "run";
    }

    get whole() {
      return Boolean(this.end);
    }

    // The run on show as its file holds it.
    json() {
      return JSON.stringify({ ...this.run, steps: this.steps, output: this.end.output, summary: this.end.summary });
    }

    name() {
      return `specviz-${String(this.run.id).replace(/[^\w-]/g, "").slice(0, 40) || "run"}`;
    }

    _reset() {
      this.run = null;
      this.end = null;
      this.steps = [];
      this.tally = new sv.Tally();
      this.stream.reset();
      this.card.hide();
      this.scope.hide();
      this.stepChart?.reset();
      this.files?.changed();
    }

    _keys() {
      const { player } = this;
      const step = (by) => {
        if (!this.steps.length) return false;
        player.stepBy(by);
        requestAnimationFrame(() => this._say());
        return true;
      };
      sv.key({ keys: [" "], shows: "Space", words: "pause or go on; run, while there is no run of your own", act: () => this._space() });
      sv.key({ keys: ["ArrowLeft"], shows: "←", words: "one step of the target back", act: () => step(-1), repeats: true });
      sv.key({ keys: ["ArrowRight"], shows: "→", words: "one step of the target on", act: () => step(1), repeats: true });
    }

    _space() {
      const { player } = this;
      // The recording that ships with the page is no run of one's own: once it rests at its end, Space makes one.
      if (this.root.classList.contains("sv-has-run") && !(this.shipped && player.ended)) {
        player.toggle();
        this._say(player.playing ? "Playing" : "Paused");
        return true;
      }
      return sv.press("#sv-run-button");
    }

    // Where the timeline stands, for those who cannot see it.
    _say(first) {
      const words = `step ${this.player.count} of ${this.steps.length}`;
      this.part("announce").textContent = first ? `${first}, ${words}` : words;
    }

    _legend() {
      this.counts = {};
      for (const fate of sv.FATES) {
        const item = sv.el("li", "sv-legend-item");
        item.dataset.fate = fate;
        item.title = sv.FATE_WORDS[fate];
        this.counts[fate] = sv.el("b", "sv-count", "0");
        item.append(sv.el("span", `sv-tok sv-${fate}`, fate), this.counts[fate]);
        this.part("legend").append(item);
        this.part("how").append(sv.el("dt", "", fate), sv.el("dd", "", sv.FATE_SENTENCES[fate]));
      }
    }

    _on_figure({ name, figure }) {
      if (name === "steps") this.stepChart.setFigure(figure);
      else {
        this.endCharts[name].setFigure(figure);
        this.endCharts[name].host.parentElement.classList.remove("sv-chart-empty");
      }
    }

    _on_error({ message }) {
      if (this.player.live) this.player.endLive();
      super._on_error({ message: message + this._older() });
    }

    _on_stopped() {
      this._state("stopped", `Stopped before it began; the prompt is kept.${this._older()}`);
    }

    _older() {
      return this.older && this.run ? " What stands below is the run before." : "";
    }

    _on_run({ run }) {
      this.player.pause();
      this._reset();
      this.older = false;
      this.run = run;
      this.shipped = this.recorded && !this.opened;
      this.drafts = [this._drafting(run.settings)];
      this.unit = TREES.has(run.settings.draft) ? "levels" : "tested";
      this.root.classList.toggle("sv-is-recorded", this.recorded);
      this.root.classList.add("sv-has-run");
      this.part("prompt").textContent = run.prompt.text;
      this._what();
      this._origin(run.device, run.created_at);
      for (const chart of Object.values(this.endCharts)) chart.host.parentElement.classList.add("sv-chart-empty");
      if (this.recorded) {
        this._state("recorded", "A recorded run: nothing has to load to watch it. Press Run for one of your own.");
        this.player.load([]);
      } else {
        this._state("running", `Running on ${run.device.name}…`);
        this.player.startLive();
      }
    }

    _what() {
      const { target, settings } = this.run;
      const rule = settings.verify === "rejection" ? null : `rule ${sv.RULE_NAMES[settings.verify].toLowerCase()}`;
      const parts = [target.name, this.drafts.join(", then "), rule, `temperature ${settings.temperature}`];
      this.part("what").textContent = parts.filter(Boolean).join(" · ");
    }

    _drafting({ draft, gamma, adaptive, candidates }) {
      const parts = [sv.draftName(draft)];
      if (gamma) parts.push(adaptive ? `gamma up to ${gamma}, adaptive` : `gamma ${gamma}`);
      if (TREES.has(draft)) parts.push(sv.plural(candidates, "candidate"));
      return parts.join(", ");
    }

    _on_step({ step }) {
      if (!this.run) return;
      sv.nameSpecials([step], this.run.target);
      this.steps.push(step);
      if (/^draft changed/.test(step.note || "")) this._changed(step);
      this.tally.push(step);
      this.player.append(this._item(step));
    }

    _item(step) {
      return { t: step.t_end, kept: step.tokens.filter((token) => sv.EMITTED.has(token.fate)).length };
    }

    // Another draft type took over in the middle of the run.
    _changed(step) {
      this.drafts.push(sv.draftName(step.draft));
      this._what();
      if (this.recorded) return;
      const words = `${sv.draftName(step.draft)} drafts from step ${step.index + 1} on.`;
      this._state("running", `Running on ${this.run.device.name}… ${words}`);
      this.part("announce").textContent = words;
    }

    _on_swap_refused({ message }) {
      if (this.run) this._state("running", `Running on ${this.run.device.name}… The draft stays as it was: ${message}`);
    }

    _on_end(end) {
      if (!this.run) return;
      this.end = end;
      this.files?.changed();
      if (end.output.finish_reason === "eos") this.stream.markEnd(this.steps);
      if (this.recorded) {
        this.player.load(this.steps.map(this._item));
        if (this.opened || sv.stillMotion()) this.player.seek(this.player.length);
        else this.player.play();
        return;
      }
      this.player.endLive();
      const ending = ENDINGS[end.output.finish_reason] || "Finished.";
      const sentence = typeof ending === "function" ? ending(this.run, end) : ending;
      this._state(end.output.finish_reason === "cancelled" ? "stopped" : "done", sentence);
      this.part("announce").textContent = `${sentence} ${sv.plural(end.summary.tokens, "token")}, ${sv.number(end.summary.tokens_per_second, 1)} tokens per second, acceptance rate ${sv.percent(end.summary.acceptance_rate.value)}.`;
    }

    // The Player's view.
    show(count, time) {
      this.stream.show(this.steps, count, sv.stillMotion() ? 0 : sv.drafted(this.steps[count], time));
      this.transport.show(time);
      this._figures(count);
      this.stepChart?.show(this.steps, this.tally, count);
    }

    changed() {
      if (this.transport) this.transport.changed();
    }

    // Figures so far while it grows; the run's own summary once all of it is shown.
    _figures(count) {
      const row = this.tally.at(count);
      for (const fate of sv.FATES) {
        const text = String(row[fate]);
        if (this.counts[fate].textContent !== text) this.counts[fate].textContent = text;
      }
      const whole = this.end && count === this.steps.length ? this.end.summary : null;
      const rate = whole ? whole.acceptance_rate : { value: row.levels ? row.held / row.levels : null, low: null, high: null };
      this._figure("speed", sv.number(whole ? whole.tokens_per_second : row.time ? row.tokens / row.time : null, 1), `${sv.plural(row.tokens, "token")} in ${sv.seconds(row.time)}, prompt apart`);
      this._figure("perpass", sv.number(whole ? whole.tokens_per_step : row.steps ? row.tokens / row.steps : null, 2), `${sv.plural(row.tokens, "token")}, ${sv.plural(row.steps, "target pass")}`);
      const note = rate.value === null ? "nothing drafted was tested" : rate.low === null ? `${row.held} of ${row.levels} ${this.unit}, so far` : `${row.held} of ${row.levels} ${this.unit}; 95 %: ${sv.percent(rate.low)} to ${sv.percent(rate.high)}`;
      this._figure("rate", sv.percent(rate.value), note);
    }

    _figure(name, value, note) {
      const box = this.part(`figure-${name}`);
      if (box.children[1].textContent !== value) box.children[1].textContent = value;
      if (box.children[2].textContent !== note) box.children[2].textContent = note;
    }
  }

  sv.RunView = RunView;
  sv.mountRun = sv.mountPane(RunView, ".sv-run");
})((window.specviz = window.specviz || {}));
