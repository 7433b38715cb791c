// The boot of a file that holds one run or race: the same view as on the page, fed from the script element beside it. It
// opens showing the whole of it. Held by tests/browser/test_replay.py.
(function (sv) {
  "use strict";

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const dress = () => document.body.classList.toggle("dark", dark.matches);
  dark.addEventListener("change", dress);
  dress();

  // Charts need a library that is larger than any run.
  document.querySelectorAll(".sv-charts, [data-part=why-figure]").forEach((node) => node.remove());
  const data = JSON.parse(document.getElementById("specviz-run").textContent);
  if (sv.RunView) {
    new sv.RunView(document.querySelector(".sv-run")).open(data, [], "The whole run. Play shows it as it happened; a click on a token, why.");
    document.title = `A run of ${data.target.name}`;
  } else {
    const view = new sv.RaceView(document.querySelector(".sv-race"));
    const step = (by) => view.player.stepBy(by);
    sv.key({ keys: [" "], shows: "Space", words: "pause or go on", act: () => view.player.toggle() });
    sv.key({ keys: ["ArrowLeft"], shows: "←", words: "one step back", act: () => step(-1), repeats: true });
    sv.key({ keys: ["ArrowRight"], shows: "→", words: "one step on", act: () => step(1), repeats: true });
    view.open(data, [], "The whole race. Play shows all lanes on one clock.");
    document.title = `A race of ${view.lanes[0].run.target.name}`;
  }
  document.querySelector(".sv-alone-foot button").addEventListener("click", () => sv.showKeys());
})((window.specviz = window.specviz || {}));
