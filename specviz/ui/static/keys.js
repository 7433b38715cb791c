// Keys of the page. One listener on the document; whoever has a key adds it, and ? shows them all. A key never acts
// where it would be typed or would press something: in fields, with a modifier, during composition, Space on a button.
// Talk mode has keys of its own, and they come before whatever has the focus: a clicker always turns the scene.
// Held by tests/browser/test_timeline.py::test_keys.
(function (sv) {
  "use strict";

  const TYPED = "input:not(.sv-scrub), textarea, select, [contenteditable]:not([contenteditable='false'])";
  const PRESSED = "button, a[href], summary, label, [role='button'], [role='tab'], [role='option'], [role='menuitem']";
  const entries = [];

  // {keys: KeyboardEvent.key values, letters lower, shows: how they are written, words: what they do, act(event),
  // repeats: whether a key held down acts again, needs: selector of what it is for, where: "talk" for talk mode, "both",
  // or nothing for the page}.
  // `act` may return false: then the key was not meant for it and the next entry is asked.
  sv.key = function (entry) {
    // A pane may be mounted again: its keys replace the older ones.
    const old = entries.findIndex(({ shows, where }) => shows === entry.shows && where === entry.where);
    if (old >= 0) entries[old] = entry;
    else entries.push(entry);
  };

  const talking = () => document.body.classList.contains("sv-talk");
  const here = ({ where }) => where === "both" || (where === "talk") === talking();

  const isPress = (key) => key === " " || key === "Enter";
  const elsewhere = function (event) {
    const target = event.target instanceof Element ? event.target : document.body;
    if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return true;
    if (target.closest(TYPED) || target.isContentEditable) return true;
    if (document.querySelector("dialog[open]")) return true;
    return isPress(event.key) && Boolean(target.closest(PRESSED));
  };

  const ask = function (event) {
    if (elsewhere(event)) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    for (const entry of entries) {
      if (!here(entry) || !entry.keys.includes(key) || (event.repeat && !entry.repeats)) continue;
      if (entry.act(event) === false) continue;
      event.preventDefault();
      return;
    }
  };
  document.addEventListener("keydown", ask);
  const first = function (event) {
    if (!talking()) return;
    ask(event);
    if (event.defaultPrevented) event.stopPropagation();
  };
  document.addEventListener("keydown", first, true);

  // A button of the page, pressed as a click would; one that is off is left alone.
  sv.press = function (selector) {
    const button = document.querySelector(selector);
    if (!button || button.disabled) return false;
    button.click();
    return true;
  };

  let dialog = null;
  sv.showKeys = function () {
    if (!dialog) {
      dialog = sv.el("dialog", "sv-keys");
      dialog.setAttribute("aria-labelledby", "sv-keys-title");
      dialog.addEventListener("keydown", (event) => {
        if (event.key !== "?") return;
        event.preventDefault(); // or it would open again
        dialog.close();
      });
      dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    }
    if (dialog.open) return;
    // Where gradio's styles and the page's own both reach it.
    (document.querySelector(".gradio-container .contain") || document.body).append(dialog);
    const title = sv.el("h2", "sv-h2", "Keys");
    title.id = "sv-keys-title";
    const list = sv.el("dl", "sv-keys-list");
    for (const entry of entries.filter(here)) {
      const { shows, words, needs } = entry;
      if (needs && !document.querySelector(needs)) continue;
      const names = sv.el("dt");
      shows.split(" ").forEach((name) => names.append(sv.el("kbd", "", name)));
      list.append(names, sv.el("dd", "", words));
    }
    const close = sv.el("button", "sv-plain-button", "Close");
    close.type = "button";
    close.addEventListener("click", () => dialog.close());
    dialog.replaceChildren(title, list, close);
    dialog.showModal();
  };

  const preset = function ({ key }) {
    const chip = document.querySelectorAll(".sv-preset")[Number(key) - 1];
    if (!chip) return false;
    (chip.matches("button") ? chip : chip.querySelector("button")).click();
    return true;
  };
  sv.key({ keys: Array.from("123456789"), shows: "1 – 9", words: "take that one of the prompts to try", act: preset, needs: ".sv-preset" });
  sv.key({ keys: ["r"], shows: "R", words: "race this prompt with and without the draft", act: () => sv.press("#sv-race-button"), needs: "#sv-race-button" });
  sv.key({ keys: ["?"], shows: "?", words: "show these keys", act: () => sv.showKeys(), where: "both" });
  sv.key({ keys: [], shows: "Esc", words: "close what is open" });
})((window.specviz = window.specviz || {}));
