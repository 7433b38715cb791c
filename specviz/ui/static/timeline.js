// The controls of a Player: step, play, drag, time and speed, with a tick for every step that has happened.
// Held by tests/browser/test_timeline.py.
(function (sv) {
  "use strict";

  const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
  const TICKS_MS = 200;
  const FULL_TICK = 8;
  const PAGE = 10;

  const button = (className, label) => {
    const node = sv.el("button", className);
    node.type = "button";
    if (label) node.setAttribute("aria-label", label);
    return node;
  };

  sv.Transport = class Transport {
    // `counts`: items are the steps of one run, {t, kept}: they are counted, and a tick is taller the more it kept.
    constructor(host, player, label, counts = false) {
      this.player = player;
      this.counts = counts;
      this.back = button("sv-nudge sv-nudge-back", `${label}: one step back`);
      this.forward = button("sv-nudge", `${label}: one step on`);
      this.button = button("sv-play");
      this.icon = sv.el("span", "sv-play-icon");
      this.icon.setAttribute("aria-hidden", "true");
      this.word = sv.el("span", "sv-play-word");
      this.button.append(this.icon, this.word);
      this.live = button("sv-follow");
      this.live.append(sv.el("span", "sv-follow-dot"), "Live");
      this.live.title = "Jump to what the model is writing now";
      this.clock = sv.el("span", "sv-clock");
      host.append(this.back, this.button, this.forward, this._track(label), this.live, this.clock, this._speed(label));
      this.back.addEventListener("click", () => player.stepBy(-1));
      this.forward.addEventListener("click", () => player.stepBy(1));
      this.button.addEventListener("click", () => player.toggle());
      this.live.addEventListener("click", () => player.follow());
    }

    _track(label) {
      const track = sv.el("div", "sv-track");
      this.ticks = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      this.ticks.classList.add("sv-ticks");
      this.ticks.setAttribute("preserveAspectRatio", "none");
      this.ticks.setAttribute("aria-hidden", "true");
      this.path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      this.ticks.append(this.path);
      this.scrub = sv.el("input", "sv-scrub");
      Object.assign(this.scrub, { type: "range", min: 0, max: 1000, value: 0 });
      this.scrub.setAttribute("aria-label", `${label}: position in time; arrow keys go step by step`);
      this.scrub.addEventListener("input", () => {
        this.player.pause();
        this.player.seek((this.scrub.value / 1000) * this.player.length);
      });
      this.scrub.addEventListener("keydown", (event) => {
        const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: PAGE, PageDown: -PAGE }[event.key];
        if (!steps || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        this.player.stepBy(steps);
      });
      track.append(this.ticks, this.scrub);
      return track;
    }

    _speed(label) {
      this.speed = sv.el("select", "sv-speed");
      this.speed.setAttribute("aria-label", `${label}: speed`);
      for (const value of SPEEDS) {
        const option = sv.el("option", "", `${value}×`);
        option.value = value;
        this.speed.append(option);
      }
      this.speed.value = 1;
      this.speed.addEventListener("change", () => this.player.setSpeed(Number(this.speed.value)));
      return this.speed;
    }

    show(time) {
      const { length, count, items } = this.player;
      const value = String(length ? Math.round((time / length) * 1000) : 0);
      if (this.scrub.value !== value) this.scrub.value = value;
      this.scrub.style.setProperty("--sv-at", `${length ? (time / length) * 100 : 0}%`);
      const steps = this.counts ? `step ${count} of ${items.length}` : "";
      const clock = `${time.toFixed(2)} / ${length.toFixed(2)} s`;
      const text = steps ? `${steps} · ${clock}` : clock;
      if (this.clock.textContent !== text) this.clock.textContent = text;
      if (this.spoken !== count) {
        this.spoken = count;
        this.scrub.setAttribute("aria-valuetext", `${steps && `${steps}, `}${time.toFixed(1)} of ${length.toFixed(1)} seconds`);
      }
      if (items !== this.ticked || items.length !== this.drawn) this._tickSoon();
    }

    // Ticks are drawn a few times a second at most: the scale of all of them changes with every new step.
    _tickSoon() {
      if (this.ticked !== this.player.items) return this._tick(); // another run
      this._timer ??= setTimeout(() => {
        this._timer = null;
        this._tick();
      }, TICKS_MS);
    }

    _tick() {
      const { items, length } = this.player;
      this.ticked = items;
      this.drawn = items.length;
      this.ticks.setAttribute("viewBox", `0 0 ${length || 1} 1`);
      const height = ({ kept }) => (this.counts ? 0.2 + (0.8 * Math.min(kept, FULL_TICK)) / FULL_TICK : 0.5);
      this.path.setAttribute("d", items.map((item) => `M${item.t.toFixed(4)} 1V${(1 - height(item)).toFixed(3)}`).join(""));
    }

    changed() {
      const { playing, live, items, atFront } = this.player;
      const word = playing ? "Pause" : "Play";
      if (this.word.textContent !== word) this.word.textContent = word;
      this.button.classList.toggle("sv-playing", playing);
      this.live.hidden = !live;
      this.live.setAttribute("aria-pressed", String(Boolean(atFront)));
      for (const control of [this.button, this.back, this.forward, this.scrub, this.speed]) control.disabled = !items.length && !live;
    }
  };
})((window.specviz = window.specviz || {}));
