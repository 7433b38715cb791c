// A step's tokens as a tree, one column a level: the draft's tokens, the target's own, and the path that was kept.
// A chain is the tree of one row. Fates have their marks, edges differ in stroke. Held by
// tests/browser/test_microscope.py::test_a_tree_shows_the_kept_path.
(function (sv) {
  "use strict";

  const COLUMN = 116;
  const ROW = 38;
  const NODE = 96;
  const HEIGHT = 28;
  const ROOT = 22;

  // The accepted one goes on in its parent's row; what the target drew in the place of refused ones stands below them.
  const order = ({ fate }) => (fate === "accepted" ? 0 : sv.OWN.has(fate) ? 2 : 1);
  const inOrder = (step, at) => sv.children(step, at).sort((a, b) => order(step.tokens[a]) - order(step.tokens[b]) || a - b);

  // [{index, column, row}]: branches stand below where they leave the accepted path.
  sv.treeLayout = function (step) {
    const places = [];
    let free = 0;
    const put = (index, column, row) => {
      places.push({ index, column, row });
      inOrder(step, index).forEach((child, i) => put(child, column + 1, i === 0 ? row : ++free));
    };
    inOrder(step, -1).forEach((child, i) => put(child, 0, i === 0 ? 0 : ++free));
    return places;
  };

  const edgeKind = ({ fate }) => (sv.EMITTED.has(fate) ? "kept" : fate === "rejected" ? "refused" : "unused");

  // pick(index): a token was chosen.
  sv.stepTree = function (step, current, pick) {
    const places = sv.treeLayout(step);
    const at = new Map(places.map((place) => [place.index, place]));
    const width = ROOT + (1 + Math.max(...places.map(({ column }) => column))) * COLUMN;
    const height = (1 + Math.max(...places.map(({ row }) => row))) * ROW;
    const box = sv.el("div", "sv-tree");
    box.style.width = `${width}px`;
    box.style.height = `${height}px`;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-hidden", "true");
    const root = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    root.setAttribute("cx", 4);
    root.setAttribute("cy", ROW / 2);
    root.setAttribute("r", 4);
    svg.append(root);
    box.append(svg);
    for (const { index, column, row } of places) {
      const token = step.tokens[index];
      const from = at.get(token.parent);
      const x = ROOT + column * COLUMN;
      const y = row * ROW + ROW / 2;
      const start = from ? { x: x - COLUMN + NODE, y: from.row * ROW + ROW / 2 } : { x: 4, y: ROW / 2 };
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", `M${start.x} ${start.y}C${start.x + 10} ${start.y} ${x - 12} ${y} ${x} ${y}`);
      path.classList.add("sv-edge", `sv-edge-${edgeKind(token)}`);
      if (sv.OWN.has(token.fate)) path.classList.add("sv-edge-own");
      svg.append(path);
      box.append(node(token, index, { x, y: y - HEIGHT / 2 }, index === current, pick));
    }
    return box;
  };

  function node(token, index, { x, y }, isCurrent, pick) {
    const button = sv.el("button", `sv-node sv-tok sv-${token.fate}`);
    button.type = "button";
    button.dataset.index = index;
    Object.assign(button.style, { left: `${x}px`, top: `${y}px`, width: `${NODE}px`, height: `${HEIGHT}px` });
    button.append(sv.el("span", `sv-node-text${sv.byName(token)}`, sv.short(token)));
    if (token.accept_prob !== null && token.accept_prob !== undefined) button.style.setProperty("--sv-chance", `${Math.min(token.accept_prob, 1) * 100}%`);
    if (sv.OWN.has(token.fate)) button.classList.add("sv-node-own");
    button.setAttribute("aria-label", `${sv.label(token)}, ${token.fate}`);
    button.title = `${sv.label(token)}: ${token.fate}`;
    if (isCurrent) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => pick(index));
    return button;
  }
})((window.specviz = window.specviz || {}));
