// The boot of a file that holds one run: the same view as on the page, fed from the script element beside it. It opens
// showing the whole run. Held by tests/browser/test_replay.py.
(function (sv) {
  "use strict";

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const dress = () => document.body.classList.toggle("dark", dark.matches);
  dark.addEventListener("change", dress);
  dress();

  // Charts need a library that is larger than any run.
  document.querySelector(".sv-charts").remove();
  const run = JSON.parse(document.getElementById("specviz-run").textContent);
  const view = new sv.RunView(document.querySelector(".sv-run"));
  view.open(run, [], "The whole run. Play shows it as it happened; a click on a token, why.");
  document.title = `A run of ${run.target.name}`;
  document.querySelector(".sv-alone-foot button").addEventListener("click", () => sv.showKeys());
})((window.specviz = window.specviz || {}));
