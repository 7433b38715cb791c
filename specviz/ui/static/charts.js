// Charts: figures come from Python (specviz/ui/plots.py) as JSON; here they only get their data and the page's colours.
// Held by tests/browser/test_page.py::test_charts.
(function (sv) {
  "use strict";

  const REDRAW_MS = 250;
  const CONFIG = { displayModeBar: false, responsive: true };
  const charts = new Set();

  // plotly.min.js is large and loads beside the page; whoever needs it waits here.
  let ready = null;
  sv.plotly = function () {
    ready = ready || new Promise((resolve) => {
      const wait = () => (window.Plotly ? resolve(window.Plotly) : setTimeout(wait, 50));
      wait();
    });
    return ready;
  };

  function pageColours() {
    const style = getComputedStyle(document.body);
    const value = (name) => style.getPropertyValue(name).trim();
    return { ink: value("--sv-ink-2"), line: value("--sv-line"), panel: value("--sv-panel") };
  }

  // The page's font colour and grid, in whichever theme is on.
  function themed(layout) {
    const { ink, line, panel } = pageColours();
    const copy = structuredClone(layout);
    copy.font = { ...copy.font, color: ink };
    copy.hoverlabel = { ...copy.hoverlabel, bgcolor: panel, bordercolor: line, font: { color: ink } };
    for (const key of Object.keys(copy)) {
      if (/^[xy]axis\d*$/.test(key)) Object.assign(copy[key], { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line });
    }
    return copy;
  }

  class Chart {
    constructor(host) {
      this.host = host;
      charts.add(this);
    }

    setFigure(figure) {
      this.figure = figure;
      this.draw();
    }

    traces() {
      return structuredClone(this.figure.data);
    }

    async draw() {
      const Plotly = await sv.plotly();
      if (!this.figure || !this.host.isConnected) return;
      await Plotly.react(this.host, this.traces(), themed(this.figure.layout), CONFIG);
    }
  }
  sv.Chart = Chart;

  // Acceptance per step: three stacked bars and the running rate; data grow with the steps, at most four times a second.
  sv.StepChart = class StepChart extends Chart {
    constructor(host) {
      super(host);
      this.reset();
    }

    reset() {
      this.steps = [];
      this.wanted = 0;
      this.drawn = -1;
      this.tally = null;
      this._soon();
    }

    show(steps, tally, count) {
      if (count === this.wanted && this.steps === steps) return;
      this.steps = steps;
      this.tally = tally;
      this.wanted = count;
      this._soon();
    }

    _soon() {
      if (this._timer) return;
      this._timer = setTimeout(async () => {
        await this._update();
        this._timer = null;
        if (this.drawn !== this.wanted) this._soon();
      }, REDRAW_MS);
    }

    // Columns [accepted, rejected, discarded, running rate] for steps from..to.
    _columns(from, to) {
      const x = [];
      const columns = [[], [], [], []];
      for (let i = from; i < to; i++) {
        const now = this.tally.at(i + 1);
        const before = this.tally.at(i);
        x.push(i + 1);
        columns[0].push(now.accepted - before.accepted);
        columns[1].push(now.rejected - before.rejected);
        columns[2].push(now.discarded - before.discarded);
        columns[3].push(now.levels ? now.held / now.levels : null);
      }
      return { x, columns };
    }

    traces() {
      const { x, columns } = this._columns(0, this.drawing);
      return this.figure.data.map((trace, i) => ({ ...structuredClone(trace), x: [...x], y: columns[i] }));
    }

    async _update() {
      if (!this.figure) return;
      const Plotly = await sv.plotly();
      const to = this.wanted;
      if (to > this.drawn && this.drawn > 0 && this.host.data) {
        const { x, columns } = this._columns(this.drawn, to);
        await Plotly.extendTraces(this.host, { x: columns.map(() => x), y: columns }, columns.map((_, i) => i));
      } else if (to !== this.drawn) {
        await this.draw();
      }
      this.drawn = to;
    }

    async draw() {
      this.drawing = this.wanted;
      await super.draw();
    }
  };

  // Follow the theme: gradio puts `dark` on the body, whether by system setting or by ?__theme=dark.
  const watchTheme = () =>
    new MutationObserver(() => charts.forEach((chart) => chart.draw())).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  if (document.body) watchTheme();
  else document.addEventListener("DOMContentLoaded", watchTheme);
})((window.specviz = window.specviz || {}));
