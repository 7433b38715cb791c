// The last runs and races of this page, for the Explore pane: kept when they end, whatever brought them here.
// Loaded before the panes are: a recording ends as soon as its own pane is there.
// Held by tests/browser/test_explore.py.
(function (sv) {
  "use strict";

  const MOST = 6;
  const counts = { Run: 0, Race: 0 };

  // Newest first: {kind, title, shipped, runs: [{name, run}]}.
  sv.kept = [];

  // One's own and opened files first; of the two recordings that ship the race, in whichever order they come.
  const rank = ({ shipped, kind }) => (shipped ? (kind === "Race" ? 1 : 2) : 0);

  function keep(kind, { recorded, opened }, runs, what) {
    if (!recorded) counts[kind] += 1;
    const title = `${recorded ? `${opened ? "Opened" : "Recorded"} ${kind.toLowerCase()}` : `${kind} ${counts[kind]}`}: ${what}`;
    sv.kept.unshift({ kind, title, runs, shipped: recorded && !opened });
    sv.kept.sort((a, b) => rank(a) - rank(b));
    sv.kept.length = Math.min(sv.kept.length, MOST);
    document.dispatchEvent(new CustomEvent("sv-kept"));
  }

  const described = function ({ draft, gamma, adaptive }) {
    if (!gamma) return sv.draftName(draft);
    return `${sv.draftName(draft)}, ${adaptive ? "adaptive gamma" : `gamma ${gamma}`}`;
  };

  sv.listeners.push((pane, event) => {
    if (event.type === "race") {
      const runs = event.race.lanes.map((lane) => ({ name: sv.laneName(lane), run: lane.runs[lane.shown] }));
      keep("Race", pane, runs, runs.map(({ name }) => name).join(", "));
    } else if (event.type === "end" && pane.run && pane.steps && pane.steps.length) {
      const run = { ...pane.run, steps: pane.steps, output: event.output, summary: event.summary };
      keep("Run", pane, [{ name: described(run.settings), run }], described(run.settings));
    }
  });
})((window.specviz = window.specviz || {}));
