// Choices as radio buttons, what they make useless, and the fold of the settings.
// Held by tests/browser/test_controls.py.
(function (sv) {
  "use strict";

  // What stands chosen in each picker, by its name; whoever depends on it listens for `sv-choice`.
  sv.choices = {};
  const choose = function (name, value) {
    if (sv.choices[name] === value) return;
    sv.choices[name] = value;
    document.dispatchEvent(new CustomEvent("sv-choice"));
  };

  // How many choices a person has made on this page; a run is sent with the number that it knows of.
  sv.picks = 0;

  // One that cannot be used is really disabled and says why. The sentence shown is that of the choice under the
  // pointer or, with none there, of the chosen one.
  sv.mountPicker = function (element, props, watch, trigger) {
    const host = element.querySelector(".sv-picker");
    const groups = host.querySelector(".sv-choices");
    const note = host.querySelector(".sv-choice-note");
    const off = host.querySelector(".sv-choice-off");
    const name = props.name;
    const choices = new Map();
    let chosen = props.value;
    let looked = null;

    function build() {
      const boxes = new Map();
      for (const word of JSON.parse(props.words)) {
        if (!boxes.has(word.group)) {
          const box = sv.el("div", "sv-choice-group");
          if (word.group) {
            const title = sv.el("span", "sv-choice-title", word.group);
            title.id = `sv-${name}-group-${boxes.size}`;
            box.setAttribute("role", "group");
            box.setAttribute("aria-labelledby", title.id);
            box.append(title);
          }
          boxes.set(word.group, box);
          groups.append(box);
        }
        boxes.get(word.group).append(choice(word));
      }
    }

    function choice(word) {
      const label = sv.el("label", "sv-choice");
      const input = sv.el("input");
      const about = sv.el("span", "sv-sr");
      about.id = `sv-${name}-about-${word.value}`;
      Object.assign(input, { type: "radio", name: `sv-${name}`, value: word.value });
      input.setAttribute("aria-describedby", about.id);
      label.append(input, sv.el("span", "sv-choice-name", word.name));
      // Behind the label, not in it: a description is no part of the name.
      const row = sv.el("div", "sv-choice-row");
      row.append(label, about);
      input.addEventListener("change", () => {
        props.value = chosen = word.value;
        draw();
        // The choice travels in the event: what gradio holds of it may be older. Picks are separate requests, which the
        // server may meet in any order: the number says which is the last.
        sv.picks += 1;
        trigger("pick", { value: chosen, number: sv.picks });
      });
      label.addEventListener("pointerenter", () => look(word.value));
      label.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && look(null));
      label.addEventListener("click", () => look(input.disabled ? word.value : null));
      choices.set(word.value, { word, input, label, about });
      return row;
    }

    function look(value) {
      looked = value;
      tell();
    }

    function why({ word }) {
      const reason = JSON.parse(props.reasons || "{}")[word.value];
      if (reason) return reason;
      return word.clash && word.clash.values.includes(sv.choices[word.clash.with]) ? word.clash.sentence : null;
    }

    function tell() {
      const shown = choices.get(looked) || choices.get(chosen);
      if (!shown) return;
      note.replaceChildren(sv.el("b", "", shown.word.name), ` ${why(shown) || shown.word.sentence}`);
    }

    function draw() {
      const reasons = new Map();
      for (const one of choices.values()) {
        const reason = why(one);
        one.input.disabled = reason !== null;
        one.input.checked = chosen === one.word.value;
        one.label.classList.toggle("sv-off", reason !== null);
        one.about.textContent = reason || one.word.sentence;
        if (reason && !one.word.clash?.quiet) reasons.set(reason, [...(reasons.get(reason) || []), one.word.name]);
      }
      off.replaceChildren(...[...reasons].map(([reason, names]) => sv.el("span", "", `${names.join(", ")}: ${reason}`)));
      tell();
      choose(name, chosen);
      if (props.needs !== "{}") quieten();
    }

    // Controls that do nothing for this choice stay where they are, but grey and out of the keyboard's way.
    function quieten() {
      const noModel = Boolean(JSON.parse(props.reasons || "{}").model);
      for (const [id, need] of Object.entries(JSON.parse(props.needs))) {
        const used = need.types.includes(chosen) || (noModel && need.without_model.includes(chosen));
        const control = document.getElementById(id);
        if (!control || control.inert === !used) continue;
        control.inert = !used;
        control.classList.toggle("sv-idle", !used);
      }
    }

    build();
    watch(["value", "reasons"], () => {
      chosen = props.value;
      draw();
    });
    document.addEventListener("sv-choice", draw);
    // Gradio makes what stands in a closed accordion when it is opened.
    const knobs = element.closest(".sv-knobs");
    if (knobs && props.needs !== "{}") new MutationObserver(quieten).observe(knobs, { childList: true, subtree: true });
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
