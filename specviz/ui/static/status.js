// The header's status (a JSON text from Python).
// Held by tests/browser/test_page.py.
(function (sv) {
  "use strict";

  sv.mountStatus = function (element, props, watch) {
    const root = element.querySelector(".sv-header");
    const part = (name) => root.querySelector(`[data-part="${name}"]`);
    function draw() {
      if (!props.value) return;
      const status = (sv.status = JSON.parse(props.value));
      const known = status.done !== null && status.total;
      root.dataset.state = status.state;
      const bar = part("bar");
      bar.hidden = status.state !== "loading";
      if (known) bar.value = status.done / status.total;
      else bar.removeAttribute("value");
      part("what").textContent = status.state === "failed" ? "Model not available" : status.target || "Loading the model";
      part("detail").textContent = {
        loading: `${status.stage || "Starting"}${known ? ` · ${sv.megabytes(status.done)} of ${sv.megabytes(status.total)}` : ""}`,
        ready: `Ready on ${sv.device(status.device)}`,
        failed: "",
      }[status.state];
      part("failure").textContent = status.state === "failed" ? status.message : "";
      document.dispatchEvent(new CustomEvent("sv-status"));
    }
    part("keys").addEventListener("click", () => sv.showKeys());
    sv.tourDoor(root);
    watch("value", draw);
    draw();
  };
})((window.specviz = window.specviz || {}));
