// Talk mode: ?talk=1 or P. One scene of a prepared sequence fills the screen, arrows and clickers go from one to the
// next; what is shown are the page's own views (talkviews.js), laid out anew by talk.css. Prompt and settings of a scene
// go into the page's own controls and come back out when it is over. Held by tests/browser/test_talk.py.
(function (sv) {
  "use strict";

  const KEPT = "specviz-talk";
  const POLL_MS = 50;
  // A page just opened does not know yet that the model is there; a job that is stopped ends within one step.
  const KNOWN_MS = 2000;
  const FREE_MS = 15000;

  let scenes = [];
  let defaults = {}; // of the controls that a scene sets, in their order behind the prompt
  let part = null;
  let send = () => {};
  let stage = null; // the box around the whole page

  let on = false;
  let at = 0;
  let show = "title";
  let entered = false; // whether what is shown had data
  let own = null; // what the controls held before the talk
  let goal = null; // what they are to hold
  let then = null; // what to do once they do
  let ready = false; // whether the page has read its address
  let before = null;
  let wide = false; // whether the full screen was asked for here

  const { body } = document;
  const one = (selector) => document.querySelector(selector);
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const until = async function (test, ms) {
    for (let left = ms; left > 0 && !test(); left -= POLL_MS) await wait(POLL_MS);
    return test();
  };
  const keep = () => sessionStorage.setItem(KEPT, JSON.stringify({ at, own }));
  const asked = () => new URLSearchParams(location.search).get("talk") === "1";
  const say = function (words) {
    part("said").textContent = part("announce").textContent = words;
    sv.talkSettle(show);
  };

  function address() {
    const url = new URL(location.href);
    if (on) url.searchParams.set("talk", "1");
    else url.searchParams.delete("talk");
    history.replaceState(history.state, "", url);
  }

  function open() {
    before = { back: sv.talkMark(), scroll: window.scrollY, focus: document.activeElement };
    on = true;
    address();
    body.classList.add("sv-talk");
    stage.classList.add("sv-talking");
    go(at);
  }

  function close() {
    leaveView();
    on = false;
    address();
    body.classList.remove("sv-talk", "sv-talk-dark");
    stage.classList.remove("sv-talking");
    delete stage.dataset.talk;
    delete stage.dataset.pane;
    if (wide && document.fullscreenElement) document.exitFullscreen();
    wide = false;
    before.back();
    window.scrollTo(0, before.scroll);
    if (before.focus instanceof HTMLElement && before.focus.isConnected) before.focus.focus({ preventScroll: true });
    if (own) set("own", null);
    say("Talk mode is over.");
  }

  async function widen() {
    try {
      await document.documentElement.requestFullscreen();
      wide = true;
    } catch (error) {
      console.info(`The browser keeps its window (${error.message}).`);
    }
  }
  document.addEventListener("fullscreenchange", () => {
    if (!wide || document.fullscreenElement) return;
    wide = false;
    if (on) close();
  });

  function go(number, back = false) {
    leaveView();
    at = Math.min(Math.max(number, 0), scenes.length - 1);
    keep();
    const scene = scenes[at];
    part("title").textContent = scene.title;
    part("text").textContent = scene.text || "";
    part("place").textContent = `${at + 1} / ${scenes.length}`;
    part("back").disabled = at === 0;
    part("next").disabled = at === scenes.length - 1;
    part("note").textContent = scene.note || "There is no note to this scene.";
    part("note").hidden = true;
    body.classList.remove("sv-talk-dark");
    say("");
    view(scene.show);
    enter(back);
    part("announce").textContent = `Talk mode, scene ${at + 1} of ${scenes.length}: ${scene.title}`;
    part("title").focus({ preventScroll: true });
    window.scrollTo(0, 0);
    set(scene.prompt !== null || scene.settings !== null ? scene : null, scene.live && !back ? () => live(scene.show) : null);
  }

  function view(name) {
    show = name;
    stage.dataset.talk = name;
    stage.dataset.pane = sv.talkViews[name].pane || "";
    part("text").hidden = name !== scenes[at].show; // it speaks of what the scene shows
  }

  function enter(back) {
    const pane = sv.talkPane(show);
    entered = !sv.talkViews[show].pane || Boolean(pane);
    if (!pane) return;
    if (pane.root.dataset.state === "failed") say(sv.talkRecall(pane));
    const words = sv.talkViews[show].enter(pane, back, scenes[at]);
    if (words) say(words);
  }

  function leaveView() {
    const pane = sv.talkPane(show);
    if (pane) sv.talkViews[show].leave?.(pane);
  }

  // Prompt and settings into the page's own controls: a scene's, or "own". A scene with settings is a whole set-up:
  // what it does not name stands at its default.
  function set(wanted, after) {
    goal = wanted;
    then = after;
    if (!ready) return;
    if (goal) send();
    else filled();
  }

  function fill(now) {
    if (on && !own) {
      own = now;
      keep();
    }
    if (goal === "own") return own;
    if (!goal) return now;
    const [prompt, ...values] = now;
    const { settings } = goal;
    return [goal.prompt ?? prompt, ...(settings ? Object.entries(defaults).map(([name, value]) => settings[name] ?? value) : values)];
  }

  function filled() {
    if (goal === "own" && !on) {
      own = goal = null;
      keep();
    }
    const act = then;
    then = null;
    // Gradio hands the new values on in the frame after this one.
    if (act) requestAnimationFrame(() => requestAnimationFrame(act));
  }

  // A scene starts its run or race itself only where the model is there; else the recorded one stays, and it says so.
  async function live(kind) {
    const here = at;
    const state = () => one(".sv-header").dataset.state;
    await until(() => state() !== "loading", KNOWN_MS);
    if (!on || at !== here) return;
    if (state() === "ready") await start(kind);
    else if (sv.talkPane(show)?.root.classList.contains("sv-is-recorded")) say(`Recorded ${kind}: the model ${state() === "failed" ? "is not available" : "is still loading"}.`);
  }

  async function start(kind) {
    const here = at;
    const button = `#sv-${kind}-button`;
    if (one(button).disabled) {
      sv.press("#sv-stop-button");
      say("Stopping what was going on…");
      if (!(await until(() => !one(button).disabled, FREE_MS))) return say("The model is busy: stop what is going on first.");
      if (!on || at !== here) return;
    }
    say("");
    leaveView();
    view(kind);
    sv.press(button);
  }

  const failed = () => sv.talkPane(show)?.root.dataset.state === "failed";

  // What failed gives way to what can be shown.
  function recall() {
    const words = sv.talkRecall(sv.talkPane(show));
    enter(false);
    say(words);
    return true;
  }

  // From a run, a race or a token that was asked for between back to what the scene shows.
  function returned() {
    const scene = scenes[at].show;
    if (show === scene || scene === "title") return false;
    leaveView();
    view(scene);
    enter(scene !== "scope");
    return true;
  }

  const lit = () => !body.classList.contains("sv-talk-dark") || (body.classList.remove("sv-talk-dark"), false);

  function next() {
    if (!lit() || (failed() && recall())) return;
    const pane = sv.talkPane(show);
    if (pane && sv.talkViews[show].next?.(pane)) return;
    if (returned()) return;
    if (at + 1 < scenes.length) go(at + 1);
    else say("This is the last scene.");
  }

  function back() {
    if (!lit()) return;
    const pane = sv.talkPane(show);
    if (pane && sv.talkViews[show].back?.(pane)) return;
    if (returned()) return;
    if (at > 0) go(at - 1, true);
  }

  function toggle() {
    if (failed() && recall()) return;
    const pane = sv.talkPane(show);
    if (pane) sv.talkViews[show].toggle?.(pane);
  }

  function step(by) {
    const pane = sv.talkPane(show);
    if (pane) sv.talkViews[show].step?.(pane, by);
  }

  sv.listeners.push((pane, event) => {
    if (!on || pane !== sv.talkPane(show)) return;
    // A recording may come after the scene that shows it.
    if (!entered && (event.type === "end" || event.type === "race")) enter(false);
    if (event.type !== "error") return;
    const spare = sv.talkSpare(pane);
    say(spare ? `It failed. The next press shows the ${spare === "recorded" ? "recorded one" : "one before"}.` : "It failed.");
  });

  // A press on a token asks the microscope, which opens by itself, for its place on the screen.
  document.addEventListener("click", (event) => {
    if (on && show === "run" && event.target.closest(".sv-run .sv-stream .sv-tok") && sv.talkPane("scope").scope.at) {
      say("");
      view("scope");
    } else if (event.target.closest("[data-part='talk']") && !on) enterTalk();
  });

  function enterTalk() {
    open();
    widen();
  }

  const key = (keys, shows, words, act, more = {}) => sv.key({ keys, shows, words, act: (event) => act(event), where: "talk", ...more });
  sv.key({ keys: ["p"], shows: "P", words: "talk mode on and off: large, one thing at a time", act: () => (on ? close() : enterTalk()), where: "both", needs: "#sv-talk-view" });
  key(["ArrowRight", "PageDown"], "→ PgDn", "next beat of the scene, then the next scene", (event) => (event.shiftKey ? step(1) : next()));
  key(["ArrowLeft", "PageUp"], "← PgUp", "the one before", (event) => (event.shiftKey ? step(-1) : back()));
  key([], "Shift ← →", "one step of the run or the race", () => {});
  key(["Home"], "Home", "the first scene", () => go(0));
  key(["End"], "End", "the last scene", () => go(scenes.length - 1));
  key(Array.from("123456789"), "1 – 9", "that scene", (event) => Number(event.key) <= scenes.length && go(Number(event.key) - 1));
  key([" "], "Space", "pause or go on", toggle);
  key(["Enter"], "Enter", "run this prompt live", () => start("run"));
  key(["r"], "R", "race this prompt live", () => start("race"));
  key(["n"], "N", "the speaker note", () => (part("note").hidden = !part("note").hidden) || true);
  key(["b", "."], "B .", "dark screen on and off", () => body.classList.toggle("sv-talk-dark") || true);
  key(["f"], "F", "full screen", () => (document.fullscreenElement ? ((wide = false), document.exitFullscreen()) : widen()) && true);
  key(["Escape"], "Esc", "leave talk mode", () => close());

  sv.talk = {
    ready() {
      ready = true;
      if (on) set(goal, then);
      // The tab came back without talk mode: what was there before the talk is due.
      else if (own) set("own", null);
    },
    fill,
    filled,
  };

  sv.mountTalk = function (element, props, watch, trigger) {
    part = (name) => element.querySelector(`[data-part="${name}"]`);
    send = () => trigger("fill");
    stage = element.closest(".contain > .column");
    ({ scenes, defaults } = JSON.parse(props.value));
    const kept = JSON.parse(sessionStorage.getItem(KEPT) || "{}");
    at = Math.min(kept.at || 0, scenes.length - 1);
    own = kept.own || null;
    part("back").addEventListener("click", back);
    part("next").addEventListener("click", next);
    part("leave").addEventListener("click", close);
    if (asked()) open();
  };
})((window.specviz = window.specviz || {}));
