// What a race says beyond its times: whether the texts are the same, and why each draft won or lost. Every number is
// the race's own JSON (specviz/lab/why.py), written by sv.num. Held by tests/browser/test_race.py.
(function (sv) {
  "use strict";

  const LETTERS = { alpha: "α", c: "c", v: "v", h: "h", h0: "h0" };

  // One block for each draft: the same text, or where it parts and how close the call was.
  sv.sameTexts = function (race) {
    return race.lanes.slice(1).map((lane) => {
      const box = sv.el("div", "sv-same");
      box.dataset.lane = lane.key;
      const name = sv.laneName(lane);
      if (lane.same_output === null) {
        box.append(sv.el("p", "", `${name}: above temperature 0 the lanes draw different random numbers, so their texts differ; their distribution is the same.`));
      } else if (lane.same_output) {
        box.append(sv.el("p", "sv-same-yes", `${name} wrote the same text as plain decoding, token for token.`));
      } else if (lane.first_divergence) {
        box.append(...parted(name, lane.first_divergence));
      }
      return box;
    });
  };

  function parted(name, { index, texts, before, after, sentence }) {
    const opening = sv.el("p", "", `${name} wrote the same text as plain decoding for ${sv.plural(index, "token")}; then they part:`);
    const rows = ["Plain decoding", name].map((who, i) => {
      const row = sv.el("div", "sv-parted-row");
      const text = sv.el("span", "sv-parted-text");
      text.append(sv.el("span", "sv-dim", (index > 0 ? "…" : "") + before));
      const own = texts[i] ?? "";
      if (texts[i] === null) text.append(sv.el("mark", "sv-parted", "(the end)"));
      else if (own && after[i].startsWith(own)) text.append(sv.el("mark", "sv-parted", own), after[i].slice(own.length));
      else text.append(after[i]);
      row.append(sv.el("b", "sv-parted-name", who), text);
      return row;
    });
    return [opening, ...rows, sv.el("p", "", sentence)];
  }

  sv.drawWhys = function (host, race) {
    const lanes = race.lanes.slice(1);
    host.replaceChildren(...lanes.map((lane) => why(lane)));
  };

  function why(lane) {
    const box = sv.el("article", "sv-why-lane");
    box.dataset.lane = lane.key;
    box.append(sv.el("h4", "sv-h4", sv.laneName(lane)));
    if (!lane.why) {
      box.append(sv.el("p", "sv-why-line", absent(lane)));
      return box;
    }
    box.append(sv.el("p", "sv-why-line", lane.why.sentence), table(lane.why));
    return box;
  }

  function absent({ runs, shown }) {
    if (!runs[shown].calibration) return "What a step costs was not measured for this race, so there is no prediction. Press Race: your own race measures it first.";
    return "Nothing that it drafted was tested, so there is no α to predict from.";
  }

  const figure = (field, value) => sv.num(field, value, (given) => sv.number(given, 2));
  const cell = (...content) => {
    const node = sv.el("td");
    node.append(...content);
    return node;
  };

  function table({ factors, h0, h0_raced, blame }) {
    const node = sv.el("table", "sv-table sv-why-table");
    const head = sv.el("tr");
    const names = [["", ""], ["measured", "α in the rounds shown, the costs before the race"], ["in the race", "the same numbers as the rounds themselves had them; for α the acceptance rate"], ["breaks even at", "what it would have to be, the others as they are, for a predicted speed-up of 1"]];
    for (const [text, title] of names) {
      const name = sv.el("th", "", text);
      name.scope = "col";
      name.title = title;
      head.append(name);
    }
    const rows = factors.map((factor) => {
      const row = sv.el("tr", factor.name === blame ? "sv-blamed" : "");
      row.dataset.factor = factor.name;
      const name = sv.el("th", "", LETTERS[factor.name]);
      name.scope = "row";
      const even = factor.break_even === null ? ["nothing would do"] : [figure("break_even", factor.break_even)];
      if (factor.name === blame) even.push(sv.el("b", "sv-blame", "to blame"));
      row.append(name, cell(figure("value", factor.value)), cell(figure("raced", factor.raced)), cell(...even));
      return row;
    });
    const plain = sv.el("tr");
    const name = sv.el("th", "", LETTERS.h0);
    name.scope = "row";
    plain.append(name, cell(figure("h0", h0)), cell(figure("h0_raced", h0_raced)), cell());
    const top = sv.el("thead");
    top.append(head);
    const body = sv.el("tbody");
    body.append(...rows, plain);
    node.append(top, body);
    return node;
  }
})((window.specviz = window.specviz || {}));
