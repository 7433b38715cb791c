// Prompt, settings and seed in the address of the page, so that a link is a set-up: read when the page opens, rewritten
// when something changes, without a request. They stand behind the #, which a browser keeps to itself: gradio sends what
// stands behind the ? along with every request. What a link holds is checked like any input and runs nothing.
// Held by tests/browser/test_share.py.
(function (sv) {
  "use strict";

  const MOST = 8000;
  const SOON_MS = 250;
  const KEPT = "specviz-prompt";
  const SHOWN = 40;

  let spec = null; // known once the address has been read; before that nothing may be written over it
  let restored = null; // what it came to
  let latest = null;
  let timer = null;
  let words = "";
  let tell = () => {};

  const title = (name) => name.replaceAll("_", " ");
  const short = (text) => `“${sv.visible(text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text)}”`;

  // {value} or {value, note} or {note}: what the text of one setting comes to.
  function setting(name, text, { kind, choices, low, high }) {
    if (kind === "choice") return choices.includes(text) ? { value: text } : { note: `${title(name)} ${short(text)} does not exist and was left out` };
    if (kind === "flag") return ["0", "1"].includes(text) ? { value: text === "1" } : { note: `${title(name)} is 0 or 1, not ${short(text)}, and was left out` };
    const number = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : NaN;
    if (!Number.isFinite(number) || (kind === "whole" && !Number.isInteger(number))) return { note: `${title(name)} is a ${kind === "whole" ? "whole number" : "number"}, not ${short(text)}, and was left out` };
    const value = Math.min(Math.max(number, low), high);
    return value === number ? { value } : { value, note: `${title(name)} goes from ${low} to ${high}: ${value} is used` };
  }

  // Behind the #, and for a link written by hand behind the ? as well.
  const asked = () => new URLSearchParams([...new URLSearchParams(location.search), ...new URLSearchParams(location.hash.slice(1))]);
  const last = (found, name) => found.getAll(name).at(-1);

  // `now`: [prompt, ...settings in the order of the spec] as they stand; returns what they become.
  sv.readLink = function (given, now) {
    const found = asked();
    const notes = [];
    const names = Object.keys(given.settings);
    const values = names.map((name, i) => {
      if (!found.has(name)) return now[i + 1];
      const { value, note } = setting(name, last(found, name), given.settings[name]);
      if (note) notes.push(note);
      return value ?? now[i + 1];
    });
    const rule = names.indexOf("verify");
    if (values[rule] === "block" && given.trees.includes(values[names.indexOf("draft")])) {
      values[rule] = given.settings.verify.default;
      notes.push("rule block judges chains and this draft is a tree, so the rule was left out");
    }
    words = notes.length ? `From the link: ${notes.join("; ")}.` : "";
    tell();
    const prompt = last(found, "prompt") ?? sessionStorage.getItem(KEPT) ?? now[0];
    spec = given;
    restored = JSON.stringify([prompt, ...values]);
    return [prompt, ...values];
  };

  function address([prompt, ...values]) {
    const url = new URL(location.href);
    const { settings } = spec;
    for (const name of ["prompt", ...Object.keys(settings)]) url.searchParams.delete(name);
    const held = new URLSearchParams();
    Object.keys(settings).forEach((name, i) => {
      const value = values[i];
      if (value === null || value === undefined || (value === settings[name].default && name !== "seed")) return;
      held.set(name, settings[name].kind === "flag" ? (value ? "1" : "0") : String(value));
    });
    const link = () => Object.assign(new URL(url), { hash: String(held) }).href;
    const bare = link();
    held.set("prompt", prompt ?? "");
    const whole = link();
    return whole.length > MOST ? { href: bare, cut: true } : { href: whole, cut: false };
  }

  function write() {
    timer = null;
    const { href, cut } = address(latest);
    if (href !== location.href) history.replaceState(history.state, "", href);
    // What was said of the link stays until something is changed.
    if (cut) words = "The prompt is too long for a link: it holds the settings alone.";
    else if (JSON.stringify(latest) !== restored) words = "";
    tell();
  }

  sv.writeLink = function (now) {
    if (now[0] !== null) sessionStorage.setItem(KEPT, now[0] ?? "");
    if (!spec) return;
    latest = now;
    timer ??= setTimeout(write, SOON_MS);
  };

  // A link opened in a tab that shows the page already.
  window.addEventListener("hashchange", () => location.hash.includes("=") && location.reload());

  sv.mountShare = function (element) {
    const button = element.querySelector("button");
    const said = element.querySelector("[role=status]");
    const field = element.querySelector("input");
    tell = (extra = "") => {
      said.textContent = [words, extra].filter(Boolean).join(" ");
    };
    tell();
    button.addEventListener("click", async () => {
      if (timer !== null) {
        clearTimeout(timer);
        write();
      }
      field.hidden = true;
      try {
        await navigator.clipboard.writeText(location.href);
        tell("Link copied.");
      } catch {
        // Not every address may use the clipboard: then it is there to be copied by hand.
        Object.assign(field, { hidden: false, value: location.href });
        field.select();
        tell("Copy the link from the field.");
      }
    });
  };
})((window.specviz = window.specviz || {}));
