// The race: lanes recorded one after another, each alone on the device, replayed here on one clock.
// Held by tests/browser/test_page.py::test_race.
(function (sv) {
  "use strict";

  class Lane {
    constructor(lane, index, total) {
      this.lane = lane;
      this.run = lane.runs[lane.shown] || lane.runs[0];
      this.steps = this.run.steps;
      this.tally = new sv.Tally();
      this.steps.forEach((step) => this.tally.push(step));
      this.time = this.steps.length ? this.steps[this.steps.length - 1].t_end : 0;
      this.tokens = this.run.summary.tokens;
      this.root = sv.el("article", `sv-lane sv-lane-${index}`);
      const head = sv.el("header", "sv-lane-head");
      this.finish = sv.el("span", "sv-finish");
      this.speed = sv.el("span", "sv-lane-speed");
      head.append(sv.el("h3", "sv-lane-name", sv.draftName(lane.draft)), this.finish, this.speed);
      this.bar = sv.el("div", "sv-lane-bar");
      this.fill = sv.el("span", "sv-lane-fill");
      this.bar.append(this.fill);
      const text = sv.el("div", "sv-stream sv-lane-stream");
      text.tabIndex = 0;
      text.setAttribute("role", "region");
      text.setAttribute("aria-label", `${sv.draftName(lane.draft)}: text of lane ${index + 1} of ${total}`);
      this.root.append(head, this.bar, text);
      this.stream = new sv.TokenStream(text, false);
      if (this.run.output.finish_reason === "eos") this.stream.markEnd(this.steps);
    }

    show(count, time, place) {
      this.stream.show(this.steps, count);
      const row = this.tally.at(count);
      const done = count === this.steps.length && count > 0;
      this.fill.style.transform = `scaleX(${this.tokens ? row.tokens / this.tokens : 0})`;
      const rate = done ? this.run.summary.tokens_per_second : time > 0 ? row.tokens / time : 0;
      this.speed.textContent = `${sv.number(rate, 1)} tok/s`;
      this.root.classList.toggle("sv-done", done);
      this.finish.textContent = done ? `${place} ${sv.seconds(this.time)}` : sv.plural(row.tokens, "token");
    }
  }

  class RaceView extends sv.Pane {
    constructor(root) {
      super(root);
      this.lanes = [];
      this.player = new sv.Player(this);
      this.transport = new sv.Transport(this.part("transport"), this.player, "Race");
      this.transport.changed();
      this.listen();
    }

    _start(page) {
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

    _on_race_progress({ round, rounds, lane, warmup, tokens, of }) {
      const what = warmup ? "Warming up" : `Round ${Math.max(round, 1)} of ${rounds}`;
      this._state("running", `${what}: ${sv.draftName(lane)}, ${tokens} of ${of} tokens. Each lane runs alone on the device; the replay on one clock follows.`, of ? tokens / of : undefined);
    }

    _on_race({ race }) {
      this.race = race;
      this.lanes = race.lanes.map((lane, i) => new Lane(lane, i, race.lanes.length));
      this.part("lanes").replaceChildren(...this.lanes.map((lane) => lane.root));
      const items = this.lanes.flatMap((lane, index) => lane.steps.map((step) => ({ t: step.t_end, lane: index })));
      items.sort((a, b) => a.t - b.t);
      this._results(race);
      this.root.classList.add("sv-has-race");
      this.root.classList.toggle("sv-is-recorded", this.recorded);
      this._origin(this.lanes[0].run.device, race.created_at);
      this._state(this.recorded ? "recorded" : "done", this.recorded ? "A recorded race. Press Play to replay it, or Race to measure your own prompt." : "Measured. Both lanes are replayed on one clock.");
      this.player.load(items);
      if (this.recorded || sv.stillMotion()) this.player.seek(this.player.length);
      else this.player.play();
      if (!this.recorded) this.part("announce").textContent = race.verdict;
    }

    // The Player's view: `count` items of all lanes are due.
    show(count, time) {
      this.transport.show(time);
      const due = this.lanes.map(() => 0);
      for (let i = 0; i < count; i++) due[this.player.items[i].lane] += 1;
      const order = [...this.lanes].sort((a, b) => a.time - b.time);
      const tie = order.length > 1 && order[0].time === order[1].time;
      this.lanes.forEach((lane, i) => lane.show(due[i], time, tie ? "tie," : order[0] === lane ? "first," : `+${sv.seconds(lane.time - order[0].time)},`));
      this.part("photo").textContent = this._photo(count, order);
    }

    changed() {
      if (this.transport) this.transport.changed();
    }

    _photo(count, order) {
      if (order.length < 2 || count < this.player.items.length) return "";
      const [first, second] = order;
      const gap = second.time - first.time;
      if (gap === 0) return "Photo finish: a dead heat in this round.";
      const tokens = first.tokens === second.tokens ? `${first.tokens} tokens each` : `${first.tokens} and ${second.tokens} tokens`;
      return `Photo finish: ${sv.draftName(first.lane.draft)} ahead by ${sv.seconds(gap)} in the rounds shown (${tokens}).`;
    }

    _results(race) {
      const ratio = race.speedup;
      this.part("speedup").textContent = `${sv.number(ratio.median, 2)}×`;
      this.part("speedup-range").textContent = race.rounds === 1 ? "one round" : `${sv.number(ratio.low, 2)}× to ${sv.number(ratio.high, 2)}× over ${race.rounds} rounds`;
      this.part("verdict").textContent = race.verdict;
      this.part("same").textContent = this._same(race);
      this.part("order").textContent = race.order.map((lanes, i) => `${i + 1}. ${lanes.map((name) => sv.draftName(name)).join(" → ")}`).join("\n");
      this.part("prompt").textContent = this.lanes[0].run.prompt.text;
      const range = (figure, digits) => `${sv.number(figure.median, digits)} (${sv.number(figure.low, digits)}–${sv.number(figure.high, digits)})`;
      const rows = race.lanes.map((lane) => {
        const row = sv.el("tr");
        const name = sv.el("th", "", sv.draftName(lane.draft));
        name.scope = "row";
        row.append(name, sv.el("td", "", range(lane.tokens_per_second, 1)), sv.el("td", "", range(lane.prefill_s, 2)));
        return row;
      });
      this.part("table").replaceChildren(...rows);
    }

    _same(race) {
      return race.same_output === null ? "Above temperature 0 the lanes draw different random numbers, so their texts differ; their distribution is the same." : "";
    }
  }

  sv.mountRace = sv.mountPane(RaceView, ".sv-race");
})((window.specviz = window.specviz || {}));
