// Small helpers every other file uses. Data becomes DOM only through textContent, never through markup, so
// hostile text stays text. Held by tests/browser/test_page.py::test_hostile_text.
(function (sv) {
  "use strict";

  sv.el = function (tag, className, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined && text !== null) node.textContent = text;
    return node;
  };

  sv.FATES = ["accepted", "rejected", "resampled", "bonus", "sampled", "discarded", "trimmed"];
  sv.EMITTED = new Set(["accepted", "resampled", "bonus", "sampled"]);
  sv.FATE_WORDS = {
    accepted: "drafted and kept",
    rejected: "drafted and refused",
    resampled: "the target's correction",
    bonus: "the target's extra token",
    sampled: "drawn by the target alone",
    discarded: "drafted and not used",
    trimmed: "behind the end",
  };
  sv.FATE_SENTENCES = {
    accepted: "The draft proposed it, the target tested it and it was kept: part of the answer.",
    rejected: "The draft proposed it and the target refused it: not part of the answer.",
    resampled: "What the target wrote in the place of a refused token.",
    bonus: "The draft was kept to its end, so the same pass gave one more.",
    sampled: "Nothing was proposed in this step; the target wrote one token, as in plain decoding.",
    discarded: "Proposed behind a refused token or on a branch not taken. It counts in no rate.",
    trimmed: "Behind the end of the answer or its length limit: cut off, and in no rate.",
  };
  sv.DRAFT_NAMES = {
    none: "Plain decoding",
    ngram: "N-gram lookup",
    "ngram-smoothed": "Smoothed n-gram",
    model: "Draft model",
    eagle: "Trained head",
    "eagle-tree": "Trained tree",
    medusa: "Medusa",
    feedforward: "Feed-forward",
    layer_skip: "Layer skipping",
    hybrid: "Hybrid",
    tree: "Static tree",
    "tree-dynamic": "Dynamic tree",
    pool: "Pool of drafts",
  };
  sv.RULE_NAMES = { rejection: "Rejection", block: "Block", coupled: "Coupled" };
  sv.draftName = (type) => sv.DRAFT_NAMES[type] || String(type);

  sv.number = function (value, digits) {
    return value === null || value === undefined ? "–" : Number(value).toFixed(digits);
  };
  // Probabilities keep two significant digits, so that 0.004 does not read as 0.00.
  sv.prob = function (value) {
    if (value === null || value === undefined) return "–";
    if (value !== 0 && value < 0.001) return value.toExponential(1);
    return value < 0.1 && value > 0 ? value.toPrecision(2) : value.toFixed(2);
  };
  // A number of the run's JSON: rounded for the eye, exact in its title; `field` says which one it is.
  sv.num = function (field, value, format = sv.prob) {
    const node = sv.el("span", "sv-num", format(value));
    if (value === null || value === undefined) return node;
    node.dataset.field = field;
    node.dataset.exact = node.title = String(value);
    return node;
  };
  sv.percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value * 100)}\u00a0%`);
  sv.seconds = (value) => (value === null || value === undefined ? "–" : `${Number(value).toFixed(2)} s`);
  sv.milliseconds = function (value) {
    if (value === null || value === undefined) return "–";
    const ms = value * 1000;
    return `${ms >= 10 ? ms.toFixed(ms >= 100 ? 0 : 1) : ms.toFixed(ms >= 1 ? 2 : 3)}\u00a0ms`;
  };
  sv.megabytes = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`;
  sv.plural = (count, word) => `${count} ${word}${count === 1 ? "" : word.endsWith("s") ? "es" : "s"}`;
  sv.day = function (iso) {
    const when = new Date(iso);
    return isNaN(when) ? String(iso) : when.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" });
  };
  sv.device = (device) => (device ? `${device.name}, ${device.dtype}` : "");

  const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;
  sv.isControl = (char) => CONTROL.test(char);
  sv.codePoint = (char) => `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

  // Text with everything invisible made visible, for labels (the stream itself keeps the true text).
  sv.visible = function (text) {
    if (text === "") return "(no text of its own)";
    return Array.from(text, (char) => {
      if (char === "\n") return "↵";
      if (char === "\r") return "␍";
      if (char === "\t") return "⇥";
      if (char === " ") return "␣";
      return sv.isControl(char) ? sv.codePoint(char) : char;
    }).join("");
  };

  // What special tokens of the tokenizer are called. They add nothing to the text, so each gets its name beside it, as
  // `special`; not enumerable, because the file that is saved of a run is what the server sent.
  sv.nameSpecials = function (steps, { special = {} }) {
    for (const { tokens } of steps) {
      for (const token of tokens) {
        const name = token.text === "" ? special[token.id] : undefined;
        if (name !== undefined) Object.defineProperty(token, "special", { value: String(name) });
      }
    }
  };

  // A token {text, special?} in a label, in a narrow place, in a sentence.
  sv.label = ({ text, special }) => (special === undefined ? sv.visible(text) : `${sv.visible(special)} (special token)`);
  sv.byName = ({ special }) => (special === undefined ? "" : " sv-by-name");
  // A token that is a part of a character has no text alone.
  sv.short = ({ text, special }) => sv.visible(special ?? (text || "∅"));
  sv.quote = ({ text, special }) => (special !== undefined ? `“${sv.visible(special)}” (a special token)` : text === "" ? "(no text)" : `“${sv.visible(text)}”`);

  sv.stillMotion = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  sv.reveal = function (node) {
    const box = node.getBoundingClientRect();
    // On a phone half a window of it is not enough: the text would begin below the fold.
    const room = window.innerWidth > 900 ? 0.6 : 0.2;
    if (box.top >= 0 && box.top < window.innerHeight * room) return;
    node.scrollIntoView({ block: "start", behavior: sv.stillMotion() ? "auto" : "smooth" });
  };

  // Called with (pane, event) after every event of any pane: thousands in a run, too many for events of the document.
  sv.listeners = [];

  // The value of a component is a growing text of JSON lines whose first line is {"type":"page","number":n}.
  // Returns a function that takes the whole text and hands on only the lines not seen yet.
  sv.feedReader = function ({ onStart, onEvent }) {
    let current = -1;
    let consumed = 0;
    return function pull(text) {
      if (typeof text !== "string") return;
      const head = text.indexOf("\n");
      if (head < 0) return;
      const page = JSON.parse(text.slice(0, head));
      if (page.number < current) return;
      if (page.number > current) {
        current = page.number;
        consumed = head + 1;
        onStart(page);
      }
      const whole = text.lastIndexOf("\n") + 1;
      if (whole <= consumed) return;
      const lines = text.slice(consumed, whole).split("\n");
      consumed = whole;
      for (const line of lines) if (line) onEvent(JSON.parse(line));
    };
  };
})((window.specviz = window.specviz || {}));
