// One clock for everything that moves. A Player holds items {t, …} sorted by t and tells its view how many of them
// are due; run and race, live and replayed, go through the same code. Held by tests/browser/test_page.py.
(function (sv) {
  "use strict";

  sv.Player = class Player {
    // view: {show(count, t), changed(player)}; show is called at most once per animation frame.
    constructor(view) {
      this.view = view;
      this.speed = 1;
      this.load([]);
    }

    load(items, duration) {
      this.items = items;
      this.length = duration ?? (items.length ? items[items.length - 1].t : 0);
      this.time = 0;
      this.count = 0;
      this.playing = false;
      this.live = false;
      this.view.changed(this);
      this._draw();
    }

    // Live: every appended item is due at once.
    startLive() {
      this.load([]);
      this.live = true;
      this.view.changed(this);
    }

    append(item) {
      this.items.push(item);
      this.length = Math.max(this.length, item.t);
      if (this.live) this.time = this.length;
      this._draw();
    }

    endLive() {
      this.live = false;
      this.seek(this.length);
      this.view.changed(this);
    }

    get ended() {
      return this.time >= this.length;
    }

    play() {
      if (this.live || !this.items.length || this.playing) return;
      if (this.ended) this.time = 0;
      this.playing = true;
      this._last = null;
      this.view.changed(this);
      this._frame();
    }

    pause() {
      if (!this.playing) return;
      this.playing = false;
      this.view.changed(this);
    }

    toggle() {
      this.playing ? this.pause() : this.play();
    }

    seek(time) {
      this.time = Math.min(Math.max(time, 0), this.length);
      this._last = null;
      this._draw();
    }

    // To the next or the previous item.
    stepBy(direction) {
      this.pause();
      const due = this._due(this.time);
      const target = direction > 0 ? due : due - 2;
      this.seek(target < 0 ? 0 : this.items[Math.min(target, this.items.length - 1)].t);
    }

    setSpeed(speed) {
      this.speed = speed;
      this.view.changed(this);
    }

    _due(time) {
      let low = 0;
      let high = this.items.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.items[middle].t <= time + 1e-9) low = middle + 1;
        else high = middle;
      }
      return low;
    }

    _frame() {
      requestAnimationFrame((now) => {
        if (!this.playing) return;
        // A hidden tab gets no frames: one long gap must not skip the whole recording.
        const passed = this._last === null ? 0 : Math.min((now - this._last) / 1000, 0.25);
        this._last = now;
        this.time = Math.min(this.time + passed * this.speed, this.length);
        this._show();
        if (this.ended) this.pause();
        else this._frame();
      });
    }

    _draw() {
      if (this._pending) return;
      this._pending = true;
      requestAnimationFrame(() => {
        this._pending = false;
        this._show();
      });
    }

    _show() {
      this.count = this._due(this.time);
      this.view.show(this.count, this.time);
    }
  };

  const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];

  // The buttons of a Player: play/pause, scrub, time, speed.
  sv.Transport = class Transport {
    constructor(host, player, label) {
      this.player = player;
      this.button = sv.el("button", "sv-play");
      this.button.type = "button";
      this.icon = sv.el("span", "sv-play-icon");
      this.icon.setAttribute("aria-hidden", "true");
      this.word = sv.el("span", "sv-play-word");
      this.button.append(this.icon, this.word);
      this.scrub = sv.el("input", "sv-scrub");
      Object.assign(this.scrub, { type: "range", min: 0, max: 1000, value: 0 });
      this.scrub.setAttribute("aria-label", `${label}: position in time`);
      this.clock = sv.el("span", "sv-clock");
      this.speed = sv.el("select", "sv-speed");
      this.speed.setAttribute("aria-label", `${label}: speed`);
      for (const value of SPEEDS) {
        const option = sv.el("option", "", `${value}×`);
        option.value = value;
        this.speed.append(option);
      }
      this.speed.value = 1;
      host.append(this.button, this.scrub, this.clock, this.speed);
      this.button.addEventListener("click", () => player.toggle());
      this.scrub.addEventListener("input", () => {
        player.pause();
        player.seek((this.scrub.value / 1000) * player.length);
      });
      this.speed.addEventListener("change", () => player.setSpeed(Number(this.speed.value)));
    }

    show(time) {
      const length = this.player.length;
      this.scrub.value = length ? Math.round((time / length) * 1000) : 0;
      this.scrub.style.setProperty("--sv-at", `${length ? (time / length) * 100 : 0}%`);
      this.scrub.setAttribute("aria-valuetext", `${time.toFixed(1)} of ${length.toFixed(1)} seconds`);
      this.clock.textContent = `${time.toFixed(2)} / ${length.toFixed(2)} s`;
    }

    changed() {
      const { playing, live, items } = this.player;
      const word = live ? "Live" : playing ? "Pause" : "Play";
      if (this.word.textContent !== word) this.word.textContent = word;
      this.button.classList.toggle("sv-playing", playing);
      this.button.classList.toggle("sv-live", live);
      for (const control of [this.button, this.scrub, this.speed]) control.disabled = live || !items.length;
    }
  };
})((window.specviz = window.specviz || {}));
