// One clock for everything that moves. A Player holds items {t, …} sorted by t and tells its view how many of them
// are due; run and race, live and replayed, go through the same code. A live run is played just behind what has
// arrived, and can be paused, dragged and slowed like any other. Held by tests/browser/test_timeline.py.
(function (sv) {
  "use strict";

  // A follower makes up what it lags behind within about this time.
  const CATCH_UP_S = 0.12;
  // ... and draws no more often than this: every drawing lays the last line out anew and paints the text, which takes
  // longer the more of it there is.
  const FOLLOW_S = 0.045;
  const FOLLOW_S_PER_ITEM = 0.00006;

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
      this.following = false;
      this.view.changed(this);
      this._draw();
    }

    // Live: items still arrive, and the clock follows the last of them.
    startLive() {
      this.load([]);
      this.live = true;
      this.follow();
    }

    append(item) {
      this.items.push(item);
      this.length = Math.max(this.length, item.t);
      // Without motion every item is due at once.
      if (this.atFront && sv.stillMotion()) this.time = this.length;
      this.playing ? this._frame() : this._draw();
    }

    endLive() {
      if (!this.live) return;
      this.live = false;
      if (this.atFront) {
        this.playing = false;
        this.seek(this.length);
      }
      this.following = false;
      this.view.changed(this);
    }

    get ended() {
      return this.time >= this.length;
    }

    // Whether it shows a live run as it arrives: not paused, not slowed, not left behind.
    get atFront() {
      return this.live && this.playing && this.following && this.speed >= 1;
    }

    // To the front of a live run.
    follow() {
      if (!this.live) return;
      this.playing = this.following = true;
      this.time = this.length;
      this.view.changed(this);
      this._frame();
    }

    play() {
      if (this.playing || (!this.items.length && !this.live)) return;
      if (this.ended) {
        if (this.live) this.following = true;
        else this.time = 0;
      }
      this.playing = true;
      this.view.changed(this);
      this._frame();
    }

    pause() {
      if (!this.playing) return;
      this.playing = this.following = false;
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

    // `steps` items on or back.
    stepBy(steps) {
      this.pause();
      if (!this.items.length) return;
      const target = Math.min(this._due(this.time) + steps - 1, this.items.length - 1);
      this.seek(target < 0 ? 0 : this.items[target].t);
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

    // One frame after another for as long as something moves; a follower that has seen all rests until more arrives.
    _frame() {
      if (this._moving) return;
      this._moving = true;
      this._last = null;
      const tick = (now) => {
        this._moving = false;
        if (!this.playing) return;
        if (this.atFront && this._last !== null && now - this._last < (FOLLOW_S + FOLLOW_S_PER_ITEM * this.items.length) * 1000) {
          this._moving = true;
          requestAnimationFrame(tick);
          return;
        }
        // A hidden tab gets no frames: one long gap must not skip the whole recording.
        const passed = this._last === null ? 0 : Math.min((now - this._last) / 1000, 0.25);
        this._last = now;
        const behind = this.length - this.time;
        const catchUp = this.atFront ? behind * Math.min(1, passed / CATCH_UP_S) : 0;
        this.time = Math.min(this.time + Math.max(passed * this.speed, catchUp), this.length);
        this._show();
        if (!this.ended) {
          this._moving = true;
          requestAnimationFrame(tick);
        } else if (this.live) {
          if (!this.following) {
            this.following = true;
            this.view.changed(this);
          }
        } else this.pause();
      };
      requestAnimationFrame(tick);
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
})((window.specviz = window.specviz || {}));
