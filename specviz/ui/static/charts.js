// Charts: figures come from Python (specviz/ui/plots.py) as JSON; here they only get their data and the page's colours.
// Held by tests/browser/test_page.py::test_charts.
(function (sv) {
  "use strict";

  const REDRAW_MS = 250;
  // A long chart takes longer to draw, and gains less from each step: the share of the time that it takes stays small.
  const REDRAW_MS_PER_STEP = 2;
  const CONFIG = { displayModeBar: false, responsive: true };
  // Its background is the page's own: a transparent one could not be read elsewhere.
  const keep = (format) => (host) => window.Plotly.downloadImage(
    { data: host.data, layout: { ...host.layout, paper_bgcolor: pageColours().panel } },
    { format, filename: `specviz-${host.dataset.part}`, width: host.clientWidth, height: host.clientHeight, scale: format === "png" ? 2 : 1 },
  );
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
    copy.modebar = { color: ink, activecolor: ink, bgcolor: "rgba(0,0,0,0)" };
    copy.hoverlabel = { ...copy.hoverlabel, bgcolor: panel, bordercolor: line, font: { color: ink } };
    for (const key of Object.keys(copy)) {
      if (/^[xy]axis\d*$/.test(key)) Object.assign(copy[key], { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line });
    }
    return copy;
  }

  const written = (word) => ({ svg: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 18"><text x="0" y="15" font-family="system-ui, sans-serif" font-size="14" font-weight="700">${word}</text></svg>` });
  const download = (format) => ({ name: `Download as ${format.toUpperCase()}`, icon: written(format.toUpperCase()), click: keep(format) });
  // A chart with tools can be zoomed and kept as a picture. Its buttons are listed one by one, because plotly's own
  // choice has one that sends the figure to another host.
  const TOOLS = {
    displaylogo: false,
    responsive: true,
    displayModeBar: true,
    plotlyServerURL: "",
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"], [download("png"), download("svg")]],
  };

  class Chart {
    constructor(host, withTools = false) {
      this.host = host;
      this.config = withTools ? TOOLS : CONFIG;
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
      await Plotly.react(this.host, this.traces(), themed(this.figure.layout), this.config);
    }
  }
  sv.Chart = Chart;

  // Acceptance per step: three stacked bars and the running rate; data grow with the steps, four times a second and slower when long.
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
      }, Math.max(REDRAW_MS, this.wanted * REDRAW_MS_PER_STEP));
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
