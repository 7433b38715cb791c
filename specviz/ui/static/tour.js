// The tour: a card beside the page, never over all of it. Its stops are data (specviz/ui/tour.py); what a stop shows
// it shows by pressing the page's own controls, so nothing here draws a number. The place is kept in localStorage.
// Held by tests/browser/test_tour.py.
(function (sv) {
  "use strict";

  const KEPT = "specviz-tour";
  const SLOW = "0.25";
  const RETRY_MS = 100;
  const RETRIES = 30;

  const one = (selector) => document.querySelector(selector);
  const seen = (node) => Boolean(node && node.getClientRects().length);
  const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));

  // {at: index of the stop to go on with, known: whether the offer was answered}. A browser may forbid storage: then
  // the place lasts as long as the page.
  let kept = { at: 0, known: false };
  try {
    kept = { ...kept, ...JSON.parse(localStorage.getItem(KEPT) || "{}") };
  } catch (error) {
    console.info(`The tour starts at its first stop: what was kept of it could not be read (${error.message}).`);
  }
  const keep = function (change) {
    Object.assign(kept, change);
    try {
      localStorage.setItem(KEPT, JSON.stringify(kept));
    } catch (error) {
      console.info(`The place in the tour is not kept beyond this page (${error.message}).`);
    }
    drawDoor();
  };

  // The button in the header, and the offer beside it on a first visit.
  let door = null;
  function drawDoor() {
    if (!door) return;
    door.button.textContent = kept.at ? `Resume tour, stop ${kept.at + 1}` : "Tour";
    door.offer.hidden = kept.known;
  }
  sv.tourDoor = function (root) {
    const part = (name) => root.querySelector(`[data-part="${name}"]`);
    door = { button: part("tour"), offer: part("offer") };
    door.button.addEventListener("click", () => sv.tour?.open());
    part("offer-yes").addEventListener("click", () => sv.tour?.open());
    part("offer-no").addEventListener("click", () => {
      keep({ known: true });
      door.button.focus();
    });
    drawDoor();
  };

  // What the stops do. Each may return a sentence to say instead of what it could not do.
  let undo = []; // what leaving the stop puts back: a run of one's own should not crawl because a stop was slow
  const drive = function (pane, { at, speed, play }) {
    const scrub = one(`${pane} .sv-scrub`);
    scrub.value = at;
    scrub.dispatchEvent(new Event("input", { bubbles: true })); // pauses, too
    const choice = one(`${pane} .sv-speed`);
    const choose = (value) => {
      choice.value = value;
      choice.dispatchEvent(new Event("change", { bubbles: true }));
    };
    if (speed && choice.value !== speed) {
      const before = choice.value;
      undo.push(() => choose(before));
      choose(speed);
    }
    if (play) one(`${pane} .sv-play`).click();
  };
  const raced = () => one(".sv-race.sv-has-race");
  const closeUp = function (on) {
    const box = one(".sv-race [data-part=near]");
    if (box.checked === on) return;
    box.click();
    undo.push(() => box.checked === on && box.click());
  };
  const NO_RACE = "There is no race to show yet: press Race.";
  const NO_RUN = "There is no run to show yet: press Run.";

  // Opens the microscope on the token that `find` picks from the whole run, at one of its beats.
  async function look(find, beat, none) {
    if (!one(".sv-run.sv-has-run")) return NO_RUN;
    drive(".sv-run", { at: 1000 });
    await frames();
    const node = find(one(".sv-run .sv-stream"));
    if (!node) return none;
    if (!node.classList.contains("sv-shown")) node.click();
    one(`.sv-scope .sv-beat-names li:nth-child(${beat}) button`).click();
    return null;
  }
  // The first one with a text to be seen.
  const refused = (stream) => stream.querySelector(".sv-rejected:not(.sv-empty):not(.sv-space)") || stream.querySelector(".sv-rejected");
  const NONE_REFUSED = "No token was rejected in this run: a higher temperature gives some.";

  sv.tourActs = {
    look: () => null,
    race_slowly() {
      if (!raced()) return NO_RACE;
      closeUp(true);
      drive(".sv-race", { at: 0, speed: SLOW, play: true });
      return null;
    },
    race_play() {
      if (!raced()) return NO_RACE;
      closeUp(false);
      drive(".sv-race", { at: 0, speed: "1", play: true });
      return null;
    },
    run_slowly() {
      if (!one(".sv-run.sv-has-run")) return NO_RUN;
      drive(".sv-run", { at: 0, speed: SLOW, play: true });
      return null;
    },
    kept_step() {
      const most = (stream) =>
        [...stream.querySelectorAll(".sv-step")]
          .map((step) => step.querySelectorAll(".sv-accepted"))
          .reduce((best, tokens) => (tokens.length > best.length ? tokens : best), [])[0];
      return look(most, 2, "No token was accepted in this run: a lower temperature gives some.");
    },
    rejected_token: () => look(refused, 3, NONE_REFUSED),
    resampled_token: () => look((stream) => refused(stream)?.closest(".sv-step").querySelector(".sv-resampled") || stream.querySelector(".sv-resampled"), 3, NONE_REFUSED),
    prove: () => void one("#sv-prove-button").click(),
    async run_with_gamma(gamma) {
      if (sv.choices.draft === "none") one("#sv-draft-picker input[value=ngram]").click();
      const box = one("#sv-gamma input[type=number]");
      box.value = gamma;
      box.dispatchEvent(new Event("input", { bubbles: true }));
      await frames(); // gradio takes it over
      one("#sv-run-button").click();
    },
    preset(title) {
      [...document.querySelectorAll(".sv-preset")].find((chip) => chip.textContent.trim() === title).click();
      return null;
    },
    race: () => void one("#sv-race-button").click(),
  };

  const PRESSES = { run: "#sv-run-button", race: "#sv-race-button", prove: "#sv-prove-button" };

  const putBack = function () {
    undo.reverse().forEach((act) => act());
    undo = [];
  };

  class Tour {
    constructor(root, stops) {
      Object.assign(this, { root, stops, at: 0, said: "" });
      this.part = (name) => root.querySelector(`[data-part="${name}"]`);
      this.part("bar").append(...stops.map(() => sv.el("i")));
      this.part("close").addEventListener("click", () => this.close());
      this.part("back").addEventListener("click", () => this.turn(-1));
      this.part("next").addEventListener("click", () => this.turn(1));
      root.addEventListener("keydown", (event) => this._key(event));
      document.addEventListener("keydown", (event) => this._escape(event), true);
      sv.key({ keys: ["t"], shows: "T", words: "take the tour, or go on with it", act: () => this.open() });
      // Whether the model is there, and whether a job is going on, decides which buttons can be pressed.
      const follow = new MutationObserver(() => this._ready());
      follow.observe(document.body, { subtree: true, attributes: true, attributeFilter: ["disabled", "data-state"] });
    }

    get isOpen() {
      return !this.root.hidden;
    }

    open() {
      if (!this.isOpen) {
        this.root.hidden = false;
        // So that the end of the page can be moved out from under the card.
        document.documentElement.style.setProperty("--sv-tour-room", "max(340px, 44vh)");
        this.show(Math.min(kept.at, this.stops.length - 1));
      }
      this.part("said").focus({ preventScroll: true });
      return true;
    }

    close(done = false) {
      const inside = this.root.contains(document.activeElement);
      this.root.hidden = true;
      document.documentElement.style.removeProperty("--sv-tour-room");
      this._outline(null);
      putBack();
      keep({ at: done ? 0 : this.at });
      if (inside && door) door.button.focus({ preventScroll: true });
    }

    turn(by) {
      const to = this.at + by;
      if (to >= this.stops.length) this.close(true);
      else if (to >= 0) this.show(to);
    }

    show(index) {
      putBack();
      this.at = index;
      keep({ at: index, known: true });
      const stop = this.stops[index];
      this.said = "";
      this.part("count").textContent = `${index + 1} of ${this.stops.length}`;
      [...this.part("bar").children].forEach((mark, i) => mark.classList.toggle("sv-tour-past", i <= index));
      const words = [...stop.words, ...(stop.still && sv.stillMotion() ? [stop.still] : [])];
      this.note = sv.el("p", "sv-tour-note");
      const attempt = sv.el("p", "sv-tour-try");
      attempt.append(sv.el("b", "", "Try: "), stop.to_try);
      const count = sv.el("span", "sv-sr", `Stop ${index + 1} of ${this.stops.length}: `);
      const title = sv.el("h2", "sv-tour-title");
      title.append(count, stop.title);
      this.part("said").replaceChildren(title, ...words.map((text) => sv.el("p", "", text)), attempt, this.note);
      this.part("said").scrollTop = 0;
      const back = this.part("back");
      if (index === 0 && document.activeElement === back) this.part("next").focus();
      back.disabled = index === 0;
      this.part("next").textContent = index + 1 === this.stops.length ? "Finish" : "Next";
      this._shows(stop);
      this._outline(stop.at);
    }

    _shows(stop) {
      this.part("shows").replaceChildren(...stop.shows.map((show) => {
        const button = sv.el("button", "sv-plain-button sv-tour-show", show.label);
        button.type = "button";
        button.addEventListener("click", () => this._act(show));
        show.button = button;
        return button;
      }));
      this._ready();
    }

    async _act(show) {
      const stop = this.at;
      const sorry = await sv.tourActs[show.act](show.given);
      if (this.at !== stop || !this.isOpen) return;
      this.said = sorry || "";
      this._ready();
      this._outline(show.at);
    }

    // A button that presses one of the page's is off while that one is, and the card says why.
    _ready() {
      if (!this.isOpen) return;
      const state = one(".sv-header").dataset.state;
      let why = "";
      for (const { needs, button } of this.stops[this.at].shows) {
        const missing = needs && needs !== "prove" && state !== "ready";
        const off = Boolean(needs) && (missing || one(PRESSES[needs]).disabled);
        if (button.disabled !== off) button.disabled = off; // written again it would be heard again, without end
        if (missing) why = state === "failed" ? "This needs the model, which could not be loaded: the header says why. Run tries again." : "This needs the model, which is still loading.";
        else if (off && !why) why = "A job is going on: wait for its end or press Stop.";
      }
      const text = [this.said, why].filter(Boolean).join(" ");
      if (this.note.textContent !== text) this.note.textContent = text;
    }

    // Outlines the first of `selectors` that is to be seen, and brings it into view; a proof or a run may take a moment
    // to appear, so an element that is not there yet is waited for.
    _outline(selectors) {
      this.marked?.classList.remove("sv-tour-at");
      this.marked = null;
      clearTimeout(this._waiting);
      if (selectors) this._mark(selectors, 0);
    }

    _mark(selectors, tries) {
      const node = selectors.map(one).find(seen);
      if (!node) {
        if (tries < RETRIES) this._waiting = setTimeout(() => this._mark(selectors, tries + 1), RETRY_MS);
        return;
      }
      this.marked = node;
      node.classList.add("sv-tour-at");
      const box = node.getBoundingClientRect();
      const card = this.root.getBoundingClientRect();
      const wide = card.width < window.innerWidth * 0.9;
      const free = wide && box.right <= card.left ? window.innerHeight : card.top;
      if (box.top >= 0 && box.bottom <= free) return;
      node.scrollIntoView({ block: "start", behavior: sv.stillMotion() ? "auto" : "smooth" });
    }

    // Within the card the arrows turn its pages; anywhere else they belong to the timeline.
    _key(event) {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key !== "Escape" && !by) return;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      if (by) this.turn(by);
      else this.close();
    }

    // Esc elsewhere closes what is open on the page first. Asked before the others, who would have closed theirs by then.
    _escape(event) {
      if (event.key !== "Escape" || !this.isOpen || this.root.contains(event.target)) return;
      if (event.target.closest?.("input:not([type=range]), textarea, select") || [...document.querySelectorAll("dialog[open], .sv-scope, .sv-card")].some(seen)) return;
      this.close();
    }
  }

  sv.mountTour = function (element, props) {
    sv.tour = new Tour(element.querySelector(".sv-tour"), JSON.parse(props.value));
  };
})((window.specviz = window.specviz || {}));
