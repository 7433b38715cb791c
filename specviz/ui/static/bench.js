// A benchmark: its sentences, tables and charts, drawn from a specviz.bench/1 document for the pane and for the page that
// `python -m specviz bench --html` writes. Held by tests/browser/test_bench.py.
(function (sv) {
  "use strict";

  const number = (value, digits) => (value === null || value === undefined ? "" : value.toFixed(digits));
  const share = (value) => (value === null || value === undefined ? "" : `${(100 * value).toFixed(0)} %`);
  const exact = (value) => (value === null || value === undefined ? "" : `${(100 * value).toFixed(2)} %`);
  const span = (ratio) => (ratio && ratio.low !== null ? `${ratio.low.toFixed(2)} to ${ratio.high.toFixed(2)}` : "");

  function table(heads, rows) {
    const box = sv.el("div", "sv-bench-scroll");
    const whole = sv.el("table", "sv-table sv-bench-table");
    const head = sv.el("tr");
    heads.forEach((text) => {
      const cell = sv.el("th", "", text);
      cell.scope = "col";
      head.append(cell);
    });
    whole.append(sv.el("thead"), sv.el("tbody"));
    whole.tHead.append(head);
    for (const row of rows) {
      const line = sv.el("tr");
      row.forEach((text, i) => {
        const cell = sv.el(i ? "td" : "th", "", text);
        if (!i) cell.scope = "row";
        line.append(cell);
      });
      whole.tBodies[0].append(line);
    }
    box.append(whole);
    return box;
  }

  function section(title, note, ...nodes) {
    const part = sv.el("section", "sv-bench-part");
    part.append(sv.el("h3", "sv-bench-h3", title));
    if (note) part.append(sv.el("p", "sv-bench-note", note));
    part.append(...nodes);
    return part;
  }

  function lanes(bench) {
    const found = new Map(bench.summary.lanes.map((row) => [row.lane, row]));
    const rows = bench.lanes.map((lane) => {
      const row = found.get(lane.name);
      if (!row) return [lane.name, lane.status === "planned" ? "not yet" : lane.status, "", "", "", "", "", "", ""];
      const all = row.overall;
      return [
        lane.name,
        number(all.tokens_per_second, 1),
        number(all.speedup && all.speedup.mean, 2),
        span(all.speedup),
        number(all.speedup && all.speedup.sd, 2),
        number(all.tokens_per_pass, 2),
        share(all.acceptance),
        share(row.same_text),
        number(all.perplexity, 2),
        number(all.prefill_s, 3),
      ];
    });
    const heads = ["lane", "tokens/s", "speed-up", "95 %", "sd", "tokens per pass", "accepted", "same text", "perplexity", "prefill s"];
    const note = `Speed-up is over the plain lane of the same precision and temperature: geometric mean over prompts, bootstrap interval, standard deviation of the single ratios. Perplexity of what was written is read in ${bench.reference || "no reference"}. Reading the prompt (prefill) is in no rate; of another engine it is the time to the first token.`;
    return section("Lanes", note, table(heads, rows));
  }

  function models(bench) {
    const rows = bench.summary.lanes.filter((row) => row.model).map((row) => {
      const m = row.model;
      const off = m.measured === null ? "" : `${m.measured / m.speedup >= 1 ? "+" : "−"}${Math.abs(100 * (m.measured / m.speedup - 1)).toFixed(0)} %`;
      return [row.lane, number(m.alpha, 3), number(m.c, 3), number(m.v, 2), number(m.h, 3), number(m.h0, 3), number(m.speedup, 2), number(m.from_tokens, 2), number(m.measured, 2), off];
    });
    if (!rows.length) return null;
    const heads = ["lane", "α", "c", "v", "h", "h0", "predicted", "by its tokens", "measured", "off by"];
    return section("Theory and measurement", "α is the overlap of draft and target in these runs, in a tree the share of levels that were kept; c, v, h and h0 are costs of draft, target pass and host in units of a one-row pass, measured before. “By its tokens” takes the tokens per pass as they were and only the time from these costs.", table(heads, rows));
  }

  function categories(bench) {
    const rows = bench.summary.lanes.flatMap((row) =>
      row.categories.map((part) => [row.lane, part.category, String(part.prompts), number(part.tokens_per_second, 1), number(part.tokens_per_pass, 2), share(part.acceptance), number(part.speedup && part.speedup.mean, 2), span(part.speedup), number(part.perplexity, 2)]),
    );
    if (new Set(rows.map((row) => row[1])).size < 2) return null;
    const means = bench.summary.lanes.filter((row) => row.categories_mean !== null).map((row) => [row.lane, number(row.categories_mean, 2), `${row.worst.category} ${row.worst.speedup.toFixed(2)}`]);
    const fold = sv.el("details", "sv-how");
    fold.append(sv.el("summary", "", "Every lane in every category"), table(["lane", "category", "prompts", "tokens/s", "tokens per pass", "accepted", "speed-up", "95 %", "perplexity"], rows));
    return section("Categories", "Geometric mean of the categories' speed-ups, so that each counts alike, and the worst one.", table(["lane", "mean over categories", "worst"], means), fold);
  }

  function quality(bench) {
    if (!bench.summary.quality.length) return null;
    const rows = bench.summary.quality.map((row) => [row.dtype, exact(row.agreement.value), `${exact(row.agreement.low)} to ${exact(row.agreement.high)}`, number(row.perplexity, 3), String(row.tokens)]);
    return section("What a precision costs", `How each precision reads the same texts, those of the plain lane: share of places where its likeliest token is that of ${bench.reference}, and its perplexity.`, table(["precision", "same likeliest token", "95 %", "perplexity", "tokens"], rows));
  }

  function origin(bench) {
    const settings = Object.entries(bench.settings).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
    const versions = Object.entries(bench.versions).map(([name, value]) => `${name} ${value}`);
    const notes = bench.lanes.filter((lane) => lane.note || lane.message).map((lane) => `${lane.name}: ${lane.message || lane.note}`);
    const rows = [
      ["command", bench.command || "the page's sweep"],
      ["target", bench.target],
      ["device", `${bench.device.name}, ${bench.device.threads} ${bench.device.threads === 1 ? "thread" : "threads"}`],
      ["versions", [`specviz ${bench.app_version}`, ...versions].join(", ")],
      ["settings", settings.join(", ")],
      ["prompts", `${bench.done} of ${bench.prompts.length} done`],
      ["measured", [...new Set([sv.day(bench.created_at), sv.day(bench.updated_at)])].join(" to ")],
      ...notes.map((text) => ["lane", text]),
    ];
    return section("How it was measured", "All lanes take turns, prompt by prompt, each alone on the device; who begins changes from prompt to prompt. Every lane is warmed up before.", table(["", ""], rows));
  }

  // Draws the whole report into `host`, in the place of what is there.
  sv.drawBench = function (host, { bench, figures }) {
    const said = sv.el("ul", "sv-bench-said");
    bench.summary.sentences.forEach((text) => said.append(sv.el("li", "", text)));
    const charts = figures.map(({ title, note, figure }) => {
      const box = sv.el("figure", "sv-chart");
      const caption = sv.el("figcaption", "", `${title} `);
      caption.append(sv.el("span", "sv-dim", note));
      const plot = sv.el("div", "sv-plot");
      plot.style.height = `${figure.layout.height || 300}px`;
      const columns = figure.data[0].type === "heatmap" ? figure.data[0].x.length : 0;
      plot.style.minWidth = `${columns && 180 + 46 * columns}px`; // or the numbers in the cells would run together
      const scroll = sv.el("div", "sv-bench-scroll");
      scroll.append(plot);
      box.append(caption, scroll);
      return { box, plot, figure };
    });
    host.replaceChildren(said, ...charts.map((chart) => chart.box), ...[lanes, models, categories, quality, origin].map((make) => make(bench)).filter(Boolean));
    charts.forEach(({ plot, figure }) => new sv.Chart(plot).setFigure(figure));
  };
})((window.specviz = window.specviz || {}));
