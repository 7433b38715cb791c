// One lane of a race: its text, and its time as a strip of blocks, one draft, verify and host block for every step.
// A strip is three SVG paths, drawn once; replaying it moves a clip and, close up, the view box, never the blocks.
// Held by tests/browser/test_race.py.
(function (sv) {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";
  const HEIGHT = 20;
  // [class, the step's own field, top of the block]: height is the second mark beside colour.
  const PARTS = [["draft", "draft_s", 7], ["verify", "verify_s", 0], ["host", "host_s", 14]];

  // Short times in milliseconds, so that a narrow finish is not 0.00 s.
  sv.moment = (seconds) => (seconds < 0.1 ? sv.milliseconds(seconds) : sv.seconds(seconds));

  sv.laneName = ({ draft, detail }) => (detail ? `${sv.draftName(draft)} (${detail})` : sv.draftName(draft));

  function blocks(steps) {
    const paths = { draft: [], verify: [], host: [] };
    for (const step of steps) {
      let at = step.t_start;
      for (const [kind, field, top] of PARTS) {
        const wide = step[field];
        if (wide > 0) paths[kind].push(`M${at.toFixed(6)} ${top}h${wide.toFixed(6)}V${HEIGHT}h${(-wide).toFixed(6)}z`);
        at += wide;
      }
    }
    return paths;
  }

  sv.Lane = class Lane {
    constructor(lane, index, total) {
      this.lane = lane;
      this.name = sv.laneName(lane);
      this.run = lane.runs[lane.shown] || lane.runs[0];
      this.steps = this.run.steps;
      sv.nameSpecials(this.steps, this.run.target);
      this.tally = new sv.Tally();
      this.steps.forEach((step) => this.tally.push(step));
      this.time = this.steps.length ? this.steps[this.steps.length - 1].t_end : 0;
      this.tokens = this.run.summary.tokens;
      this._text(index, total);
      this._strip(index);
    }

    _text(index, total) {
      this.root = sv.el("article", `sv-lane sv-lane-${index}`);
      const text = sv.el("div", "sv-stream sv-lane-stream");
      text.tabIndex = 0;
      text.setAttribute("role", "region");
      text.setAttribute("aria-label", `${this.name}: text of lane ${index + 1} of ${total}`);
      this.root.append(sv.el("h3", "sv-lane-name", this.name), text);
      this.stream = new sv.TokenStream(text, false);
      if (this.run.output.finish_reason === "eos") this.stream.markEnd(this.steps);
    }

    _strip(index) {
      this.row = sv.el("div", `sv-strip-row sv-strip-row-${index}`);
      const head = sv.el("div", "sv-strip-head");
      this.finish = sv.el("span", "sv-finish");
      this.now = sv.el("span", "sv-strip-now");
      this.speed = sv.el("span", "sv-lane-speed");
      head.append(sv.el("span", "sv-strip-name", this.name), this.finish, this.now, this.speed);
      this.strip = sv.el("div", "sv-strip");
      this.svg = document.createElementNS(SVG, "svg");
      this.svg.setAttribute("preserveAspectRatio", "none");
      this.svg.setAttribute("role", "img");
      this.svg.setAttribute("aria-label", `${this.name}: ${sv.plural(this.steps.length, "step")} in ${sv.seconds(this.time)}, drawn as draft, verify and host blocks`);
      for (const [kind, d] of Object.entries(blocks(this.steps))) {
        const path = document.createElementNS(SVG, "path");
        path.classList.add(`sv-block-${kind}`);
        path.setAttribute("d", d.join(""));
        this.svg.append(path);
      }
      this.flag = sv.el("i", "sv-strip-flag");
      this.line = sv.el("i", "sv-strip-line");
      this.strip.append(this.svg, this.flag, this.line);
      this.row.append(head, this.strip);
      this.strip.addEventListener("pointermove", (event) => this._look(event));
      this.strip.addEventListener("pointerleave", () => {
        this.looked = null;
        this._say(this.count ?? 0, this.clock ?? 0);
      });
    }

    _look(event) {
      const box = this.strip.getBoundingClientRect();
      const at = this.view.from + ((event.clientX - box.left) / box.width) * this.view.wide;
      const index = this.steps.findIndex((step) => at <= step.t_end);
      this.looked = index >= 0 && at <= this.clock ? index : null;
      this._say(this.count, this.clock);
    }

    // What happens at this moment, or what the step under the pointer took.
    _say(count, time) {
      const step = this.steps[this.looked ?? count];
      let text = "";
      if (this.looked !== null && this.looked !== undefined) {
        const kept = step.tokens.filter(({ fate }) => sv.EMITTED.has(fate)).length;
        text = `step ${this.looked + 1}: draft ${sv.milliseconds(step.draft_s)}, verify ${sv.milliseconds(step.verify_s)}, host ${sv.milliseconds(step.host_s)}; ${sv.plural(kept, "token")}`;
      } else if (step && time >= step.t_start) {
        const into = time - step.t_start;
        const what = into < step.draft_s ? "drafting" : into < step.draft_s + step.verify_s ? "verifying" : "host";
        text = `step ${count + 1}, ${what}`;
      }
      if (this.now.textContent !== text) this.now.textContent = text;
    }

    // view: {from, wide} in seconds, the same for all lanes; `first`: when the first lane finished.
    show(count, time, place, view, first) {
      this.count = count;
      this.clock = time;
      this.stream.show(this.steps, count);
      const row = this.tally.at(count);
      const done = count === this.steps.length && count > 0;
      const rate = done ? this.run.summary.tokens_per_second : time > 0 ? row.tokens / time : 0;
      this.speed.textContent = `${sv.number(rate, 1)} tok/s`;
      for (const node of [this.root, this.row]) node.classList.toggle("sv-done", done);
      this.finish.textContent = done ? `${place} ${sv.moment(this.time)}` : sv.plural(row.tokens, "token");
      this._say(count, time);
      this._draw(time, view, first);
    }

    _draw(time, view, first) {
      const share = (at) => ((at - view.from) / view.wide) * 100;
      if (!this.view || this.view.from !== view.from || this.view.wide !== view.wide) {
        this.svg.setAttribute("viewBox", `${view.from} 0 ${view.wide} ${HEIGHT}`);
        this.view = view;
      }
      const seen = Math.min(Math.max(share(Math.min(time, this.time)), 0), 100);
      this.svg.style.clipPath = `inset(0 ${(100 - seen).toFixed(3)}% 0 0)`;
      const mark = (node, at, when) => {
        const inside = when && at >= view.from && at <= view.from + view.wide;
        node.hidden = !inside;
        if (inside) node.style.left = `${share(at).toFixed(3)}%`;
      };
      mark(this.flag, this.time, time >= this.time - 1e-9);
      mark(this.line, first, time >= first - 1e-9 && this.time !== first);
    }

    // Tokens written by `time`.
    tokensAt(time) {
      let count = 0;
      while (count < this.steps.length && this.steps[count].t_end <= time + 1e-9) count += 1;
      return this.tally.at(count).tokens;
    }
  };
})((window.specviz = window.specviz || {}));
