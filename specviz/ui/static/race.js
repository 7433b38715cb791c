// The race: lanes recorded one after another, each alone on the device, replayed here on one clock.
// Held by tests/browser/test_race.py.
(function (sv) {
  "use strict";

  // Close up, so many mean steps of the slowest lane are in view, and the present stands at this share of it.
  const NEAR_STEPS = 8;
  const PRESENT = 0.75;

  class RaceView extends sv.Pane {
    // `ask`: the server's functions; null in a file on its own, which has no chart either.
    constructor(root, ask = null) {
      super(root);
      this.lanes = [];
      this.files = ask && new sv.Files(this.part("files"), this, ask);
      this.player = new sv.Player(this);
      this.transport = new sv.Transport(this.part("transport"), this.player, "Race");
      this.whyChart = this.part("chart-why") && new sv.Chart(this.part("chart-why"), true);
      this.transport.changed();
      this.part("near").addEventListener("change", (event) => {
        this.near = event.target.checked;
        this.show(this.player.count, this.player.time);
      });
      this.listen();
    }

    get kind() {
      return "race";
    }

    get whole() {
      return Boolean(this.race);
    }

    // The race on show as its file holds it.
    json() {
      return JSON.stringify(this.race);
    }

    name() {
      return `specviz-race-${this.race.created_at.slice(0, 19).replace(/\D/g, "")}`;
    }

    // A race from a file, with what the server made of it: shown to its end, to be played.
    open(race, events, words) {
      this._start({ recorded: true, opened: true });
      this._event({ type: "race", race });
      for (const event of events) this._event(event);
      this._state("recorded", words);
    }

    _start(page) {
      this.opened = Boolean(page.opened);
      if (!page.recorded) this.player.pause();
      super._start(page);
    }

    _on_error({ message }) {
      super._on_error({ message: message + this._older() });
    }

    _older() {
      return this.race ? " What stands below is the race before." : "";
    }

    _on_stopped() {
      this._state("stopped", `The race was stopped before it was complete; nothing was measured.${this._older()}`);
    }

    _on_race_progress({ stage, round, rounds, draft, detail, tokens, of }) {
      const name = sv.laneName({ draft, detail });
      if (stage === "costs") {
        this._state("running", `Measuring what a step of ${name} costs here, for the prediction (${tokens + 1} of ${of}); the lanes run after that.`, of ? tokens / of : undefined);
        return;
      }
      const what = stage === "warmup" ? "Warming up" : `Round ${round} of ${rounds}`;
      this._state("running", `${what}: ${name}, ${tokens} of ${of} tokens. Each lane runs alone on the device; the replay on one clock follows.`, of ? tokens / of : undefined);
    }

    _on_race({ race }) {
      this.race = race;
      this.lanes = race.lanes.map((lane, i) => new sv.Lane(lane, i, race.lanes.length));
      this.order = [...this.lanes].sort((a, b) => a.time - b.time);
      this.length = Math.max(...this.lanes.map(({ time }) => time)) || 1;
      this.axis = sv.el("div", "sv-strip-axis");
      this.part("strips").replaceChildren(...this.lanes.map(({ row }) => row), this.axis);
      this.part("lanes").replaceChildren(...this.lanes.map(({ root }) => root));
      this.part("lanes").dataset.lanes = this.lanes.length;
      const items = this.lanes.flatMap((lane, index) => lane.steps.map((step) => ({ t: step.t_end, lane: index })));
      items.sort((a, b) => a.t - b.t);
      this._results(race);
      this._photo();
      sv.drawWhys(this.part("whys"), race);
      if (this.whyChart) this.part("why-figure").hidden = !race.lanes.some(({ why }) => why);
      this._what(race);
      this.root.classList.add("sv-has-race");
      this.files?.changed();
      this.root.classList.toggle("sv-is-recorded", this.recorded);
      this._origin(this.lanes[0].run.device, race.created_at);
      this._state(this.recorded ? "recorded" : "done", this.recorded ? "A recorded race. Press Play to replay it, or Race to measure your own prompt." : "Measured. All lanes are replayed on one clock.");
      this.player.load(items);
      if (this.recorded || sv.stillMotion()) this.player.seek(this.player.length);
      else this.player.play();
      if (!this.recorded) this.part("announce").textContent = race.verdict;
    }

    _on_figure({ figure }) {
      this.whyChart?.setFigure(figure);
    }

    // The Player's view: `count` items of all lanes are due.
    show(count, time) {
      this.transport.show(time);
      if (!this.race) return;
      const due = this.lanes.map(() => 0);
      for (let i = 0; i < count; i++) due[this.player.items[i].lane] += 1;
      const [first] = this.order;
      const tie = this.order[1].time === first.time;
      const view = this._view(time);
      this.lanes.forEach((lane, i) => {
        const place = lane.time === first.time ? (tie ? "tie," : "first,") : `+${sv.moment(lane.time - first.time)},`;
        lane.show(due[i], time, place, view, first.time);
      });
      this._scale(view);
      this.part("photo").classList.toggle("sv-taken", time >= first.time - 1e-9 && count > 0);
    }

    // The stretch of time that the strips show: all of it, or the last few steps before now.
    _view(time) {
      if (!this.near) return { from: 0, wide: this.length };
      const slowest = Math.max(...this.lanes.map((lane) => lane.time / (lane.steps.length || 1)));
      const wide = Math.min(NEAR_STEPS * slowest, this.length);
      return { from: Math.min(Math.max(time - PRESENT * wide, 0), this.length - wide), wide };
    }

    _scale(view) {
      const drawn = `${view.from} ${view.wide}`;
      if (drawn === this.scaled) return;
      this.scaled = drawn;
      const rough = view.wide / 5;
      const power = 10 ** Math.floor(Math.log10(rough));
      const gap = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
      const digits = Math.max(0, -Math.floor(Math.log10(gap) + 1e-9));
      const marks = [];
      for (let at = Math.ceil(view.from / gap) * gap; at <= view.from + view.wide * 0.97; at += gap) {
        const mark = sv.el("span", "", `${at.toFixed(digits)} s`);
        mark.style.left = `${((at - view.from) / view.wide) * 100}%`;
        marks.push(mark);
      }
      this.axis.replaceChildren(...marks);
    }

    changed() {
      if (this.transport) this.transport.changed();
    }

    // What all lanes have in common; what one has of its own is in its name.
    _what(race) {
      const { target, settings } = this.lanes[0].run;
      const drafting = this.lanes.find(({ lane, run }) => run.settings.gamma && !/gamma/.test(lane.detail));
      const { gamma, adaptive } = drafting ? drafting.run.settings : {};
      const rule = race.lanes.find(({ draft }) => draft !== "none")?.runs[0].settings.verify;
      const parts = [
        `plain decoding against ${sv.plural(race.lanes.length - 1, "draft")}, each alone on the device`,
        target.name,
        gamma && (adaptive ? `gamma up to ${gamma}, adaptive` : `gamma ${gamma}`),
        rule && rule !== "rejection" && `rule ${sv.RULE_NAMES[rule].toLowerCase()}`,
        `temperature ${settings.temperature}`,
      ];
      this.part("what").textContent = parts.filter(Boolean).join(" · ");
    }

    // Who was where when the first lane finished.
    _photo() {
      const [first, second] = this.order;
      const at = first.time;
      const heading = sv.el("h3", "sv-h3", "Photo finish");
      const gap = second.time - at;
      const words = gap === 0 ? "A dead heat in this round." : `${first.name} was the first to finish, ${sv.moment(gap)} ahead, in the round shown. Where the lanes stood then:`;
      const rows = this.order.map((lane) => {
        const row = sv.el("div", "sv-photo-row");
        const written = lane.tokensAt(at);
        const bar = sv.el("span", "sv-photo-bar");
        const fill = sv.el("span", "sv-photo-fill");
        fill.style.width = `${lane.tokens ? (written / lane.tokens) * 100 : 0}%`;
        bar.append(fill);
        const rest = lane.time > at ? `, ${sv.moment(lane.time - at)} to go` : ", done";
        row.append(sv.el("span", "sv-photo-name", lane.name), bar, sv.el("span", "sv-photo-count", `${written} of ${sv.plural(lane.tokens, "token")}${rest}`));
        return row;
      });
      // Texts that end at different places end at different times, whatever the speed.
      const lengths = [...new Set(this.lanes.map(({ tokens }) => tokens))].sort((a, b) => a - b);
      const uneven = lengths.length > 1 ? [sv.el("p", "sv-photo-words sv-dim", `The texts are not equally long (${lengths.join(", ")} tokens), so who finished first says little here: the speed-up compares tokens per second.`)] : [];
      this.part("photo").replaceChildren(heading, sv.el("p", "sv-photo-words", words), ...rows, ...uneven);
    }

    _results(race) {
      const several = race.lanes.length > 2;
      const best = race.lanes.slice(1).reduce((a, b) => (b.speedup.median > a.speedup.median ? b : a));
      this.part("speedup").replaceChildren(sv.num("speedup.median", best.speedup.median, (value) => `${sv.number(value, 2)}×`));
      this.part("speedup-what").textContent = several ? `speed-up of ${sv.laneName(best)}, median` : "speed-up, median";
      this.part("speedup-range").replaceChildren(...this._range(best.speedup, race.rounds));
      this.part("verdict").textContent = race.verdict;
      this.part("lane-verdicts").replaceChildren(...(several ? race.lanes.slice(1).map((lane) => sv.el("li", "", lane.verdict)) : []));
      const names = Object.fromEntries(race.lanes.map((lane) => [lane.key, sv.laneName(lane)]));
      this.part("order").textContent = race.order.map((lanes, i) => `${i + 1}. ${lanes.map((key) => names[key]).join(" → ")}`).join("\n");
      this.part("prompt").textContent = this.lanes[0].run.prompt.text;
      this.part("table").replaceChildren(...race.lanes.map((lane) => this._row(lane)));
      this.part("same").replaceChildren(...sv.sameTexts(race));
    }

    _range(spread, rounds) {
      if (rounds === 1) return ["one round"];
      const times = (value) => `${sv.number(value, 2)}×`;
      return [sv.num("speedup.low", spread.low, times), " to ", sv.num("speedup.high", spread.high, times), ` over ${rounds} rounds`];
    }

    _row(lane) {
      const row = sv.el("tr");
      row.dataset.lane = lane.key;
      const name = sv.el("th", "", sv.laneName(lane));
      name.scope = "row";
      const range = (field, figure, digits) => {
        const cell = sv.el("td");
        if (!figure) return cell;
        const part = (edge) => sv.num(`${field}.${edge}`, figure[edge], (value) => sv.number(value, digits));
        cell.append(part("median"), " (", part("low"), "\u2060–\u2060", part("high"), ")"); // a range stays on one line
        return cell;
      };
      row.append(name, range("tokens_per_second", lane.tokens_per_second, 1), range("speedup", lane.speedup, 2), range("prefill_s", lane.prefill_s, 2));
      return row;
    }
  }

  sv.RaceView = RaceView;
  sv.mountRace = sv.mountPane(RaceView, ".sv-race");
})((window.specviz = window.specviz || {}));
