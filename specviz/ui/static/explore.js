// The Explore pane: two of the kept runs or races, drawn by figures that Python makes from the runs themselves.
// Nothing is asked for or drawn before the pane is opened. Held by tests/browser/test_explore.py.
(function (sv) {
  "use strict";

  const NAMES = ["tokens", "steps", "position", "passes", "calibration", "time"];
  const WHAT = {
    steps: ["draft tokens by fate, and the rate so far", "the rate so far"],
    time: ["milliseconds of each step", "milliseconds of the mean step"],
  };

  // A run without the listed distributions: no figure here reads them, and they are most of its size.
  const light = (run) => ({
    ...run,
    steps: run.steps.map((step) => ({
      ...step,
      tokens: step.tokens.map((token) => ({ ...token, top_p: null, top_q: null, residual: null })),
    })),
  });

  class Explore {
    constructor(root, server) {
      this.root = root;
      this.server = server;
      this.part = (name) => root.querySelector(`[data-part="${name}"]`);
      this.chosen = { a: null, b: null };
      this.part("open").addEventListener("click", () => this.toggle());
      for (const name of ["a", "b"]) {
        this.part(name).addEventListener("change", (event) => {
          this.chosen[name] = sv.kept[Number(event.target.value)] || null;
          this.draw();
        });
      }
      document.addEventListener("sv-kept", () => this.renew());
      this.renew();
    }

    get open() {
      return this.root.dataset.state === "open";
    }

    toggle() {
      this.root.dataset.state = this.open ? "closed" : "open";
      this.part("body").hidden = !this.open;
      this.part("open").textContent = this.open ? "Close" : "Open";
      this.part("open").setAttribute("aria-expanded", String(this.open));
      this.draw();
    }

    // A takes what has just ended; B stays, as long as it is kept.
    renew() {
      this.chosen.a = sv.kept[0] || null;
      if (!sv.kept.includes(this.chosen.b) || this.chosen.b === this.chosen.a) this.chosen.b = null;
      for (const name of ["a", "b"]) {
        const options = sv.kept.map(({ title }, i) => [i, title]);
        if (name === "b") options.unshift([-1, "nothing"]);
        this.part(name).replaceChildren(...options.map(([value, text]) => {
          const option = sv.el("option", "", text);
          option.value = value;
          return option;
        }));
        this.part(name).value = String(sv.kept.indexOf(this.chosen[name]));
      }
      this.draw();
    }

    runs() {
      const groups = [this.chosen.a, this.chosen.b].filter((group, i, all) => group && all.indexOf(group) === i);
      return groups.flatMap(({ runs }, i) => runs.map(({ name, run }) => ({ name: groups.length > 1 ? `${"AB"[i]} ${name}` : name, run: light(run) })));
    }

    async draw() {
      if (!this.open) return;
      const runs = this.runs();
      if (!runs.length) {
        this.part("state").textContent = "Nothing to show yet: run or race something first.";
        return;
      }
      const ticket = (this.ticket = {});
      this.part("state").textContent = "Drawing…";
      let answer;
      try {
        answer = await this.server.figures(JSON.stringify(runs));
      } catch {
        answer = { error: "The server did not answer: is it still running?" };
      }
      if (this.ticket !== ticket) return;
      this.part("state").textContent = answer.error || "";
      if (answer.error) return;
      this.charts = this.charts || Object.fromEntries(NAMES.map((name) => [name, new sv.Chart(this.part(name), true)]));
      for (const [name, words] of Object.entries(WHAT)) this.part(`${name}-what`).textContent = words[runs.length > 1 ? 1 : 0];
      for (const name of NAMES) {
        this.charts[name].setFigure(answer.figures[name]);
        // One chart at a time, so that the page stays alive.
        await new Promise((resolve) => requestAnimationFrame(resolve));
      }
      this.root.dataset.drawn = runs.length;
    }
  }

  sv.mountExplore = (element, props, watch, trigger, server) => new Explore(element.querySelector(".sv-explore"), server);
})((window.specviz = window.specviz || {}));
