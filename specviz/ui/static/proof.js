// The proof: a verdict, three figures and two charts, all made from one specviz.lab.proof.Proof.
// Held by tests/browser/test_proof.py.
(function (sv) {
  "use strict";

  const chance = (value) => (value === 0 ? "< 1e-300" : value < 0.001 ? value.toExponential(1) : value.toFixed(3));
  const small = (value) => (value === null ? "–" : value === 0 || value >= 1e-4 ? value.toFixed(4) : value.toExponential(1));

  class ProofView extends sv.Pane {
    constructor(root) {
      super(root);
      this.charts = { distance: new sv.Chart(this.part("chart-distance")), law: new sv.Chart(this.part("chart-law")) };
      this.listen();
    }

    _on_proof_progress({ done, of }) {
      const what = done ? `Sampling: ${done.toLocaleString("en-GB")} of ${of.toLocaleString("en-GB")} runs of the engine's loop.` : "The law is enumerated; sampling begins.";
      this._state("running", what, done / of);
    }

    _on_stopped() {
      this._state("stopped", this.proof ? "Stopped. What stands below is the proof before." : "Stopped before it was complete; nothing is claimed.");
    }

    _on_error({ message }) {
      super._on_error({ message: this.proof ? `${message} What stands below is the proof before.` : message });
    }

    _on_proof({ proof }) {
      this.proof = proof;
      const [, opening, rest] = proof.verdict.match(/^([^:]+): (.*)$/s) || [null, "", proof.verdict];
      const word = opening || (proof.passed ? "Lossless" : "Not lossless");
      this.root.classList.add("sv-has-proof");
      this.root.classList.toggle("sv-failed-proof", !proof.passed);
      this.part("big").textContent = `${proof.passed ? "✓" : "✗"} ${word}`;
      this.part("verdict").textContent = rest.charAt(0).toUpperCase() + rest.slice(1);
      this.part("what").textContent = [
        `${sv.draftName(proof.draft)}, gamma ${proof.gamma}`,
        `rule ${sv.RULE_NAMES[proof.verify].toLowerCase()}`,
        `temperature ${proof.temperature}, top-k ${proof.top_k}`,
        `texts of ${proof.length} tokens over ${proof.vocabulary} letters`,
        `${proof.n.toLocaleString("en-GB")} samples`,
      ].join(" · ");
      this.part("exact").textContent = small(proof.tv_exact);
      this.part("enumerated").textContent = proof.tv_exact === null ? "cannot be enumerated here" : "every draft and acceptance enumerated";
      this.part("tv").textContent = small(proof.tv);
      this.part("floor").textContent = `chance alone gives ${small(proof.floor.low)} to ${small(proof.floor.high)}`;
      this.part("p").textContent = chance(proof.p_value);
      this.part("chi2").textContent = `how often chance alone would be as far off; χ² = ${sv.number(proof.chi2, 1)} at ${sv.plural(proof.dof, "degree")} of freedom`;
      this._state("done", proof.mistake ? "Measured with the mistake switched on." : "Measured on the engine as it is.");
      this.part("announce").textContent = proof.verdict;
    }

    _on_figure({ name, figure }) {
      this.charts[name].setFigure(figure);
    }
  }

  sv.mountProof = sv.mountPane(ProofView, ".sv-proof");
})((window.specviz = window.specviz || {}));
