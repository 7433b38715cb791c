// Runs and races as files: the one on show saved as JSON or as a page that replays it, and a file opened or dropped to
// be replayed.
// A file that cannot be used gets a sentence, and what was there stays. Held by tests/browser/test_replay.py.
(function (sv) {
  "use strict";

  const LIMIT = 64e6;

  // ASCII without "<", as specviz.replay.embed: nothing in it can end the script element it stands in.
  const embed = (json) => json.replace(/[<\u007f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  sv.Files = class Files {
    // view: {kind: "run" or "race", whole, json(), name(), busy, open(document, events, words)}; ask: the server's
    // functions replay_shell and, where files of any kind are opened, open_file.
    constructor(host, view, ask) {
      Object.assign(this, { view, ask });
      sv.Files.views[view.kind] = view;
      const button = (text, act) => {
        const node = sv.el("button", "sv-plain-button", text);
        node.type = "button";
        node.addEventListener("click", act);
        return node;
      };
      this.savers = [button("Save as JSON", () => this._json()), button("Save as a replay page", () => this._page())];
      this.words = sv.el("span", "sv-files-words");
      this.words.setAttribute("role", "status");
      host.append(...this.savers);
      if (ask.open_file) host.append(...this._opener(button));
      host.append(this.words);
      this.changed();
    }

    _opener(button) {
      this.input = sv.el("input");
      Object.assign(this.input, { type: "file", accept: ".json,application/json", hidden: true });
      this.input.setAttribute("aria-label", "The JSON file of a run or a race");
      this.input.addEventListener("change", () => {
        if (this.input.files.length) this._open(this.input.files[0]);
        this.input.value = "";
      });
      this._dropping();
      return [button("Open a file…", () => this.input.click()), this.input];
    }

    _dropping() {
      const holds = (event) => Array.from(event.dataTransfer?.types || []).includes("Files");
      document.addEventListener("dragover", (event) => {
        if (!holds(event)) return;
        event.preventDefault();
        document.body.classList.add("sv-dropping");
      });
      document.addEventListener("dragleave", (event) => !event.relatedTarget && document.body.classList.remove("sv-dropping"));
      document.addEventListener("drop", (event) => {
        if (!holds(event)) return;
        event.preventDefault();
        document.body.classList.remove("sv-dropping");
        if (event.dataTransfer.files.length) this._open(event.dataTransfer.files[0]);
      });
    }

    // Only what has ended is whole.
    changed() {
      for (const button of this.savers) button.disabled = !this.view.whole;
    }

    say(text, bad = false) {
      this.words.textContent = text;
      this.words.classList.toggle("sv-bad", bad);
    }

    _json() {
      save(`${this.view.name()}.json`, "application/json", this.view.json());
      this.say("");
    }

    async _page() {
      this.say("");
      try {
        const { shell, place } = await this.ask.replay_shell(this.view.kind);
        const at = shell.indexOf(place);
        save(`${this.view.name()}.html`, "text/html", shell.slice(0, at) + embed(this.view.json()) + shell.slice(at + place.length));
      } catch {
        this.say("The server does not answer: start it again, or save it as JSON and use `python -m specviz replay`.", true);
      }
    }

    async _open(file) {
      const busy = () => Object.values(sv.Files.views).some((view) => view.busy);
      const no = (why) => {
        this.say(`${sv.visible(file.name)} was not opened: ${why}`, true);
        sv.reveal(this.view.root);
        this.words.scrollIntoView({ block: "nearest" }); // it stands below the text, often out of sight
      };
      if (busy()) return no("a run is going on; stop it first.");
      if (file.size > LIMIT) return no(`it has ${sv.megabytes(file.size)}, and a file may have ${sv.megabytes(LIMIT)} at most.`);
      this.say(`Reading ${sv.visible(file.name)}…`);
      let answer;
      try {
        answer = await this.ask.open_file(await file.text());
      } catch {
        return no("the server does not answer; start it again.");
      }
      if (answer.error) return no(answer.error);
      if (busy()) return no("a run is going on; stop it first.");
      const view = sv.Files.views[answer.kind];
      view.open(JSON.parse(answer.document), JSON.parse(answer.events), `Replaying ${sv.visible(file.name)}.`);
      this.say("");
      sv.reveal(view.root);
    }
  };
  sv.Files.views = {};
})((window.specviz = window.specviz || {}));
