// What a scene of talk mode shows: the page's own run and race, moved by their own players and the microscope's own
// buttons. Loaded before the panes are: a recording is on the page as soon as its pane is there.
// Held by tests/browser/test_talk.py.
(function (sv) {
  "use strict";

  const panes = { run: null, race: null };
  // The run that ships with the page, as RunView.open takes it: a live one that breaks off leaves nothing else.
  let shipped = null;

  sv.listeners.push((pane, event) => {
    if (event.type === "run" || event.type === "race") panes[event.type] = pane;
    if (pane !== panes.run || !pane.shipped) return;
    if (event.type === "end") shipped = { run: JSON.parse(pane.json()), events: [] };
    else if (event.type === "figure") shipped?.events.push(event);
  });

  function finish({ player }) {
    player.pause();
    player.seek(player.length);
  }

  // The end of its text, too: a stream follows its own end only while that grows.
  function rest(pane) {
    finish(pane);
    requestAnimationFrame(() => requestAnimationFrame(() => (pane.stream.host.scrollTop = pane.stream.host.scrollHeight)));
  }

  // From its beginning; a live one where it is now. Without motion, and coming back to it, all of it at once.
  function replay(pane, back) {
    const { player } = pane;
    if (player.live) player.follow();
    else if (back || sv.stillMotion()) (pane.stream ? rest : finish)(pane);
    else {
      player.pause();
      player.seek(0);
      player.play();
    }
  }

  // The first token of that fate, best of all one whose text can be read from afar.
  function find(steps, test) {
    let any = null;
    for (let s = 0; s < steps.length; s++) {
      for (let t = 0; t < steps[s].tokens.length; t++) {
        const token = steps[s].tokens[t];
        if (!test(token)) continue;
        if (/[\p{L}\p{N}]/u.test(token.text)) return [s, t];
        any ??= [s, t];
      }
    }
    return any;
  }

  // Returns a sentence where the run has no such token.
  function look(pane, back, { token }) {
    const fate = token || "rejected";
    const exact = find(pane.steps, (one) => one.fate === fate);
    const at = exact || find(pane.steps, (one) => sv.EMITTED.has(one.fate));
    finish(pane);
    if (!at) return "This run has no tokens.";
    pane.scope.show(...at);
    pane.scope.names[back ? pane.scope.names.length - 1 : 0].click();
    return exact ? "" : `No token of this run was ${fate}: here is another one.`;
  }

  const press = (button) => !button.disabled && (button.click(), true);

  // pane: whose data it shows; enter(pane, back, scene) may return what is to be said; next(pane): true where there was
  // something left to show of it; step(pane, by).
  sv.talkViews = {
    title: {},
    run: { pane: "run", enter: replay, toggle: ({ player }) => player.toggle(), step: ({ player }, by) => player.stepBy(by) },
    figures: { pane: "run", enter: finish },
    scope: {
      pane: "run",
      enter: look,
      next: ({ scope }) => Boolean(scope.at) && press(scope.next),
      back: ({ scope }) => Boolean(scope.at) && press(scope.back),
      step: ({ scope }, by) => press(by > 0 ? scope.next : scope.back),
      leave: ({ scope }) => scope.hide(),
    },
    race: {
      pane: "race",
      enter: replay,
      next: (pane) => Boolean(!pane.busy && !pane.player.ended && (finish(pane), true)),
      toggle: ({ player }) => player.toggle(),
      step: ({ player }, by) => player.stepBy(by),
    },
    why: { pane: "race", enter: finish },
  };

  // Words above the stream have come or gone, and its height with them.
  sv.talkSettle = function (show) {
    const pane = sv.talkPane(show);
    if (show === "run" && pane?.player.ended && !pane.player.live) rest(pane);
  };

  sv.talkPane = (show) => panes[sv.talkViews[show]?.pane] || null;

  // What can be shown in the place of a run or race that failed; null: nothing.
  sv.talkSpare = function (pane) {
    if (pane.end || pane.race) return pane.root.classList.contains("sv-is-recorded") ? "recorded" : "before";
    return pane === panes.run && shipped ? "recorded" : null;
  };

  // Show it, and say so.
  sv.talkRecall = function (pane) {
    const spare = sv.talkSpare(pane);
    const what = pane === panes.run ? "run" : "race";
    if (spare && !pane.end && !pane.race) pane.open(shipped.run, shipped.events, "A recorded run: the live one failed.");
    else pane.rest(spare ? "What stood here before the one that failed." : "It broke off.");
    return spare ? `${spare === "recorded" ? `Recorded ${what}` : `The ${what} before`}: the live one failed.` : `This ${what} broke off.`;
  };

  // Where the panes stand, and a function that puts them back there: nothing for one that has other data by then.
  sv.talkMark = function () {
    const { run, race } = panes;
    const marks = [[run, run?.run], [race, race?.race]].map(([pane, data]) => pane && { pane, data, time: pane.player.time, playing: pane.player.playing });
    const scope = run?.scope.at;
    return function () {
      for (const mark of marks) {
        if (!mark || mark.pane.player.live || (mark.pane.run || mark.pane.race) !== mark.data) continue;
        mark.pane.player.pause();
        mark.pane.player.seek(mark.time);
        if (mark.playing) mark.pane.player.play();
        if (scope && mark.pane === run) run.scope.show(...scope);
      }
    };
  };
})((window.specviz = window.specviz || {}));
