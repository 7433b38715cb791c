// The benchmark pane: lanes fill in while a sweep is measured, then the report takes their place.
// Held by tests/browser/test_bench.py.
(function (sv) {
  "use strict";

  class BenchView extends sv.Pane {
    constructor(root) {
      super(root);
      this.listen();
    }

    _start(page) {
      super._start(page);
      this.lanes = new Map();
      this.last = null;
      this.part("live").replaceChildren();
      this.part("live").hidden = true;
    }

    _on_bench_progress({ stage, lane, prompt, prompts, done, of, rate }) {
      this.last = { done, of };
      const what = stage === "measuring" ? "Measuring" : stage === "reading" ? "Reading what was written by" : "Loading and warming up";
      const where = prompt ? `Prompt ${prompt} of ${prompts}. ` : "";
      this._state("running", `${where}${what} ${lane}. ${done} of ${sv.plural(of, "run")} done.`, of ? done / of : 0);
      if (rate !== null) this._live(lane, rate);
    }

    // A line for each lane, its mean speed so far, beside the plain lane's.
    _live(lane, rate) {
      let row = this.lanes.get(lane);
      if (!row) {
        row = { rates: [], line: sv.el("div", "sv-bench-lane"), bar: sv.el("span", "sv-bench-fill"), value: sv.el("span", "sv-bench-rate") };
        const track = sv.el("span", "sv-bench-track");
        track.append(row.bar);
        row.line.append(sv.el("span", "sv-bench-name", lane), track, row.value);
        this.lanes.set(lane, row);
        this.part("live").append(row.line);
        this.part("live").hidden = false;
      }
      row.rates.push(rate);
      const mean = ({ rates }) => rates.reduce((sum, value) => sum + value, 0) / rates.length;
      const most = Math.max(...[...this.lanes.values()].map(mean));
      for (const one of this.lanes.values()) {
        one.bar.style.transform = `scaleX(${mean(one) / most})`;
        one.value.textContent = `${mean(one).toFixed(1)} tokens/s`;
      }
    }

    _on_stopped() {
      this.part("live").hidden = true; // rates of half a prompt claim nothing
      const { done, of } = this.last || {};
      const how = of ? `Stopped with ${done} of ${sv.plural(of, "run")} done, before one prompt had run in every lane` : "Stopped before the first run began";
      this._state("stopped", this.shown ? `${how}. What stands below is the benchmark before.` : `${how}; nothing is claimed. Fewer lanes or shorter answers are done sooner.`);
    }

    _on_bench({ bench, figures }) {
      this.shown = true;
      this.part("live").hidden = true;
      const whole = bench.done === bench.prompts.length;
      const count = `${sv.plural(bench.prompts.length, "prompt")}, ${sv.plural(bench.lanes.length, "lane")}`;
      const words = this.recorded ? `From a file: ${count}.` : whole ? `Measured: ${count}.` : `Stopped after ${bench.done} of ${sv.plural(bench.prompts.length, "prompt")}; what is whole is shown.`;
      this._state(whole || this.recorded ? "done" : "stopped", words);
      this._origin(bench.device, bench.updated_at);
      sv.drawBench(this.part("report"), { bench, figures });
      this.part("announce").textContent = bench.summary.sentences[0] || words;
    }
  }

  sv.mountBench = sv.mountPane(BenchView, ".sv-bench");
})((window.specviz = window.specviz || {}));
