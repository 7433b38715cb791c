// The header's status (a JSON text from Python) and the choice of the draft type.
// Held by tests/browser/test_page.py.
(function (sv) {
  "use strict";

  sv.mountStatus = function (element, props, watch) {
    const root = element.querySelector(".sv-header");
    const part = (name) => root.querySelector(`[data-part="${name}"]`);
    function draw() {
      if (!props.value) return;
      const status = JSON.parse(props.value);
      const known = status.done !== null && status.total;
      root.dataset.state = status.state;
      const bar = part("bar");
      bar.hidden = status.state !== "loading";
      if (known) bar.value = status.done / status.total;
      else bar.removeAttribute("value");
      part("what").textContent = status.state === "failed" ? "Model not available" : status.target || "";
      part("detail").textContent = {
        loading: `${status.stage || "Loading the model"}${known ? ` · ${sv.megabytes(status.done)} of ${sv.megabytes(status.total)}` : ""}`,
        ready: `Ready on ${sv.device(status.device)}`,
        failed: "",
      }[status.state];
      part("failure").textContent = status.state === "failed" ? status.message : "";
    }
    watch("value", draw);
    draw();
  };

  // Radio buttons, each with its sentence; one that cannot be used is really disabled and says why.
  sv.mountDrafts = function (element, props, watch, trigger) {
    const host = element.querySelector(".sv-drafts");
    const inputs = {};
    function build() {
      for (const { type, name, sentence } of JSON.parse(props.words)) {
        const label = sv.el("label", "sv-draft");
        const input = sv.el("input");
        Object.assign(input, { type: "radio", name: "sv-draft", value: type });
        const note = sv.el("span", "sv-draft-note", sentence);
        const text = sv.el("span", "sv-draft-text");
        text.append(sv.el("span", "sv-draft-name", name), note);
        label.append(input, text);
        host.append(label);
        inputs[type] = { input, label, note, sentence };
        input.addEventListener("change", () => {
          props.value = type;
          trigger("change");
        });
      }
    }
    function draw() {
      const reasons = JSON.parse(props.reasons || "{}");
      for (const [type, { input, label, note, sentence }] of Object.entries(inputs)) {
        const reason = reasons[type] || null;
        input.disabled = reason !== null;
        input.checked = props.value === type;
        label.classList.toggle("sv-off", reason !== null);
        note.textContent = reason || sentence;
      }
    }
    build();
    watch(["value", "reasons"], draw);
    draw();
  };

  // On a narrow screen the settings fold away behind one button.
  sv.mountFold = function (element) {
    const button = element.querySelector(".sv-fold");
    const knobs = button.closest(".sv-knobs");
    button.addEventListener("click", () => {
      const open = knobs.classList.toggle("sv-open");
      button.setAttribute("aria-expanded", String(open));
    });
  };
})((window.specviz = window.specviz || {}));
