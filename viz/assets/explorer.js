"use strict";
/* The page: panes of scenes that pan and zoom, a search, an inspector, overlays, a time line. Everything is made by createElement and
   textContent; no text of the data ever becomes markup. */
const SVG = "http://www.w3.org/2000/svg";
const CONTROL = new Set(["start", "if", "side", "region", "loop_begin", "loop_end", "phi"]);
const $ = id => document.getElementById(id);

function make(parent, name, properties = {}, text) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(properties)) k.includes("-") || k === "for" ? e.setAttribute(k, v) : (e[k] = v);
  if (text !== undefined) e.textContent = text;
  parent?.append(e);
  return e;
}

function draw(parent, name, attributes = {}, text) {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  parent?.append(e);
  return e;
}

const state = { overlay: "none", query: null, hits: [], hit: -1, selected: null, pane: 0 };
const panes = [];

/* --- shapes ---------------------------------------------------------------------------------------------------------- */

function outline({ x, y, w, h, kind }) {
  const poly = points => ["polygon", { points: points.map(p => p.join(",")).join(" ") }];
  const d = Math.min(10, h / 3), c = x + w / 2, m = y + h / 2;
  if (kind === "param") return poly([[x, y], [x + w, y], [x + w, y + h - d], [c, y + h], [x, y + h - d]]);
  if (kind === "result") return poly([[c, y], [x + w, y + d], [x + w, y + h], [x, y + h], [x, y + d]]);
  if (kind === "if") return poly([[c, y], [x + w, m], [c, y + h], [x, m]]);
  if (kind === "region" || kind === "loop_end") return poly([[x, y], [x + w, y], [x + w - d, y + h], [x + d, y + h]]);
  if (kind === "loop_begin") return poly([[x + d, y], [x + w - d, y], [x + w, y + h], [x, y + h]]);
  if (["phi", "side", "proj", "start"].includes(kind)) return ["ellipse", { cx: c, cy: m, rx: w / 2, ry: h / 2 }];
  return ["rect", { x, y, width: w, height: h, rx: kind === "constant" ? 1 : 6 }];
}

function drawBox(parent, box, graph) {
  const g = draw(parent, "g", { class: `box${CONTROL.has(box.kind) ? " control" : ""}${box.kind === "outside" ? " outside" : ""}` });
  if (box.kind === "group") { // two sheets behind it: it stands for several
    for (const k of [6, 3]) draw(g, "rect", { x: box.x + k, y: box.y - k, width: box.w, height: box.h, rx: 6, class: `shape f-${box.family}` });
  }
  const [name, attributes] = outline(box);
  draw(g, name, { ...attributes, class: `shape f-${box.family}` });
  if (box.kind === "phi") draw(g, "ellipse", { cx: box.x + box.w / 2, cy: box.y + box.h / 2, rx: box.w / 2 - 3, ry: box.h / 2 - 3, class: `shape f-${box.family}` });
  const below = box.subtitle ? box.subtitle.split("\n") : [];
  const pitch = Math.min(14, box.h / (below.length + 1)), first = box.y + box.h / 2 - pitch * below.length / 2 + 4;
  draw(g, "text", { x: box.x + box.w / 2, y: first, class: "t" }, box.title);
  below.forEach((line, k) => draw(g, "text", { x: box.x + box.w / 2, y: first + pitch * (k + 1), class: "s" }, line));
  return g;
}

/* Graphs that are compared open at the same level: the finest if all of them are readable there, else the coarsest. */
function firstLevel(graph) {
  const compared = DATA.timeline ? [graph] : GRAPHS;
  return compared.every(g => g.scenes[g.top - 1].boxes.length <= 150) ? graph.top - 1 : 0;
}

/* --- panes ----------------------------------------------------------------------------------------------------------- */

class Pane {
  constructor(graph, number) {
    this.number = number;
    this.root = make($("panes"), "div", { className: "pane", tabIndex: 0 });
    this.nav = make(this.root, "nav");
    this.svg = draw(this.root, "svg", { role: "img" });
    const marks = draw(this.svg, "defs");
    for (const kind of Object.keys(DATA.kinds)) {
      const m = draw(marks, "marker", { id: `m${number}-${kind}`, viewBox: "0 0 10 8", refX: kind === "data" ? 9 : 7, refY: 4, markerWidth: 8,
        markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" });
      draw(m, "path", { d: "M0,0L10,4L0,8z", class: `m-${kind}` });
    }
    this.world = draw(this.svg, "g");
    this.listen();
    this.show(graph, firstLevel(graph));
  }

  get scene() { return this.graph.scenes[this.at]; }

  show(graph, at) {
    this.graph = graph;
    this.trail = [];
    this.open(Math.min(at, graph.scenes.length - 1), false);
  }

  open(at, remember = true) {
    if (remember) this.trail.push({ at: this.at, view: { ...this.view } });
    this.at = at;
    this.navigation();
    this.render();
    this.fit();
    refresh();
  }

  back() {
    const last = this.trail.pop();
    if (!last) return;
    this.at = last.at;
    this.navigation();
    this.render();
    this.place(last.view);
    refresh();
  }

  navigation() {
    this.nav.replaceChildren();
    if (this.graph.title && (GRAPHS.length > 1)) make(this.nav, "span", { className: "title" }, this.graph.title);
    if (this.trail.length) make(this.nav, "button", { title: "back (Backspace)", onclick: () => this.back() }, "←");
    if (this.graph.top > 1 || this.at >= this.graph.top) this.graph.scenes.slice(0, this.graph.top).forEach((scene, k) =>
      make(this.nav, "button", { "aria-pressed": String(k === this.at), title: `level ${k + 1}`, onclick: () => this.at === k || this.open(k) }, scene.title));
    if (this.at >= this.graph.top) make(this.nav, "button", { "aria-pressed": "true" }, `inside ${this.scene.title}`);
    const notes = this.scene.notes.join("; ");
    make(this.nav, "span", { className: "note", title: notes }, notes);
  }

  render() {
    this.world.replaceChildren();
    const layers = ["frames", "edges", "boxes"].map(c => draw(this.world, "g", { class: c }));
    for (const [x, y, w, h, title, kind] of this.scene.frames) {
      draw(layers[0], "rect", { x, y, width: w, height: h, rx: 8, class: `frame c-${kind}` });
      draw(layers[0], "text", { x: x + w / 2, y: y + 13, class: "ft" }, title);
    }
    this.edges = this.scene.edges.map(([source, target, kind, path, label, x, y]) => {
      const mark = { "marker-end": `url(#m${this.number}-${kind})` };
      const e = draw(layers[1], "path", { d: path, class: `edge e-${kind}`, ...mark });
      if (label && x !== undefined) draw(layers[1], "text", { x, y: y + 3, class: "el" }, label);
      return { e, source, target };
    });
    this.boxes = this.scene.boxes.map(box => {
      const g = drawBox(layers[2], box, this.graph);
      g.addEventListener("click", () => this.moved || select(this.graph.number_in_page, box.members, box, this));
      g.addEventListener("dblclick", () => this.enter(box));
      g.addEventListener("pointerenter", event => tip(event, describe(this.graph, box)));
      g.addEventListener("pointerleave", () => { $("tip").hidden = true; });
      return { g, box };
    });
  }

  enter(box) {
    if (box.inside >= 0) this.open(box.inside);
    else if (box.kind === "outside") goto(this, box.members[0]);
  }

  /* --- pan and zoom */

  place(view) {
    this.view = view;
    this.world.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.k})`);
    this.world.classList.toggle("far", view.k < 0.45);
  }

  fit() {
    const { width, height } = this.svg.getBoundingClientRect(), [w, h] = this.scene.size;
    const k = Math.max(0.55, Math.min((width - 24) / w, (height - 24) / h, 1.4)); // a large picture starts at its top left, readable
    this.place({ k, x: Math.max(12, (width - w * k) / 2), y: Math.max(12, (height - h * k) / 2) });
  }

  whole() {
    const { width, height } = this.svg.getBoundingClientRect(), [w, h] = this.scene.size;
    const k = Math.min((width - 24) / w, (height - 24) / h, 1.4);
    this.place({ k, x: (width - w * k) / 2, y: (height - h * k) / 2 });
  }

  zoom(factor, x, y) {
    const { width, height } = this.svg.getBoundingClientRect();
    const px = x ?? width / 2, py = y ?? height / 2, k = Math.min(8, Math.max(0.02, this.view.k * factor));
    this.place({ k, x: px - (px - this.view.x) * k / this.view.k, y: py - (py - this.view.y) * k / this.view.k });
  }

  pan(dx, dy) { this.place({ ...this.view, x: this.view.x + dx, y: this.view.y + dy }); }

  center(box) {
    const { width, height } = this.svg.getBoundingClientRect(), k = Math.max(this.view.k, 0.7);
    this.place({ k, x: width / 2 - (box.x + box.w / 2) * k, y: height / 2 - (box.y + box.h / 2) * k });
  }

  reveal(box) {
    const { width, height } = this.svg.getBoundingClientRect(), { x, y, k } = this.view;
    const left = box.x * k + x, top = box.y * k + y;
    if (left < 0 || top < 0 || left + box.w * k > width || top + box.h * k > height) this.center(box);
  }

  listen() {
    let from = null;
    this.svg.addEventListener("pointerdown", e => { from = [e.clientX, e.clientY]; this.moved = false; state.pane = this.number; });
    window.addEventListener("pointermove", e => {
      if (!from) return;
      const dx = e.clientX - from[0], dy = e.clientY - from[1];
      if (!this.moved && Math.hypot(dx, dy) < 4) return;
      this.moved = true;
      this.svg.classList.add("moving");
      from = [e.clientX, e.clientY];
      this.pan(dx, dy);
    });
    window.addEventListener("pointerup", () => { from = null; this.svg.classList.remove("moving"); });
    this.svg.addEventListener("wheel", e => {
      e.preventDefault();
      const box = this.svg.getBoundingClientRect();
      this.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0016)), e.clientX - box.left, e.clientY - box.top);
    }, { passive: false });
    this.svg.addEventListener("click", e => { if (e.target === this.svg && !this.moved) select(null); });
    this.root.addEventListener("focus", () => { state.pane = this.number; });
  }

  /* --- what is lit */

  refresh() {
    const g = this.graph, mine = state.selected ? new Set(mapped(state.selected.nodes, state.selected.graph, g.number_in_page)) : new Set();
    const hits = state.query ? new Set(state.hits.filter(h => h.graph === g.number_in_page).map(h => h.node)) : null;
    const own = mine.size > 0 && this.boxes.some(b => b.box.kind !== "outside" && b.box.members.length === mine.size && mine.has(b.box.members[0]));
    const is = b => own ? b.box.members.length === mine.size && b.box.members.every(m => mine.has(m)) : b.box.members.some(m => mine.has(m));
    const chosen = new Set(mine.size ? this.boxes.filter(is).map(b => b.box.n) : []);
    const before = new Set(), after = new Set();
    for (const { e, source, target } of this.edges) {
      const into = chosen.has(target), out = chosen.has(source);
      if (into) before.add(source);
      if (out) after.add(target);
      e.classList.toggle("lit", into || out);
      e.classList.toggle("in", into);
      e.classList.toggle("out", out);
    }
    const overlay = this.values();
    for (const { g: e, box } of this.boxes) {
      e.classList.toggle("selected", chosen.has(box.n));
      e.classList.toggle("input", before.has(box.n) && !chosen.has(box.n));
      e.classList.toggle("user", after.has(box.n) && !chosen.has(box.n));
      const hit = hits !== null && box.members.some(m => hits.has(m));
      e.classList.toggle("hit", hit);
      e.classList.toggle("dim", hits !== null && !hit);
      this.heat(e, box, overlay);
    }
    return chosen;
  }

  values() {
    if (!OVERLAYS.some(([n]) => n === state.overlay)) return null;
    const of = box => box.kind === "outside" ? 0 : box.members.reduce((sum, m) => sum + (this.graph.nodes[m][state.overlay] || 0), 0);
    const all = this.scene.boxes.map(of), total = this.graph.nodes.reduce((sum, n) => sum + (n[state.overlay] || 0), 0);
    return { all, top: Math.max(...all, 1e-12), total };
  }

  heat(e, box, overlay) {
    e.querySelector(".tag")?.remove();
    e.classList.remove("d-added", "d-removed", "d-changed", "d-same");
    const shapes = e.querySelectorAll(".shape");
    if (overlay === null) shapes.forEach(s => { s.style.fill = ""; });
    if (overlay !== null) {
      const value = overlay.all[box.n], share = Math.sqrt(value / overlay.top);
      shapes.forEach(s => { s.style.fill = `color-mix(in srgb, var(--heat) ${Math.round(75 * share)}%, var(--ground))`; });
      if (value > 0) {
        const text = OVERLAYS.find(([n]) => n === state.overlay)[1](value);
        draw(e, "text", { x: box.x + box.w, y: box.y - 2, class: "tag" }, `${text} · ${(100 * value / overlay.total).toFixed(1)}%`);
      }
    } else if (state.overlay === "difference") {
      const kinds = box.members.map(m => this.graph.nodes[m].diff).filter(d => d);
      const odd = kinds.filter(d => d !== "same");
      const kind = odd.length === 0 ? "same" : box.members.length === odd.length && new Set(odd).size === 1 ? odd[0] : "changed";
      if (kinds.length) e.classList.add(`d-${kind}`);
      if (odd.length && box.members.length > 1) draw(e, "text", { x: box.x + box.w, y: box.y - 2, class: "tag" }, `${odd.length} differ`);
    }
  }
}

function refresh() { return panes.map(p => p.refresh()); }  // what each pane has selected

/* --- selection and inspector ------------------------------------------------------------------------------------------- */

function select(graph, nodes, box, pane) {
  state.selected = graph === null ? null : { graph, nodes, box };
  if (pane) state.pane = pane.number;
  const chosen = refresh();
  panes.forEach((p, k) => {
    const found = p.scene.boxes.find(b => chosen[k].has(b.n));
    if (found && p !== pane) p.reveal(found);
  });
  inspect();
}

/* Shows a node in a pane, in the scene that shows it best. */
function goto(pane, node) {
  const at = pane.graph.sceneOf(node, pane.at);
  if (at !== pane.at) pane.open(at);
  const box = pane.graph.boxOf(pane.scene, node);
  if (box) pane.center(box);
  select(pane.graph.number_in_page, [node], box, pane);
}

function describe(graph, box) {
  if (box.members.length > 1) return `${box.title}\n${box.subtitle}\n${box.inside >= 0 ? "double-click or Enter opens it" : ""}`.trim();
  const n = graph.nodes[box.members[0]];
  return n.tip || [`${n.at} ${n.title}`, n.name ? `name ${n.name}` : "", (n.type && [].concat(n.type)[0]) || ""].filter(Boolean).join("\n");
}

function tip(event, text) {
  const t = $("tip");
  t.textContent = text;
  t.hidden = false;
  t.style.left = Math.min(event.clientX + 14, innerWidth - t.offsetWidth - 8) + "px";
  t.style.top = Math.min(event.clientY + 14, innerHeight - t.offsetHeight - 8) + "px";
}

function section(parent, title, rows, graph) {
  if (!rows.length) return;
  if (title) make(parent, "h3", {}, title);
  const list = make(parent, "dl");
  for (const [label, text, node] of rows) {
    make(list, "dt", {}, label);
    const dd = make(list, "dd");
    if (node === undefined) dd.textContent = text;
    else make(dd, "button", { className: "link", onclick: () => goto(panes[state.pane], node) }, text);
  }
}

function inspect() {
  const side = $("side");
  side.replaceChildren();
  side.hidden = state.selected === null;
  if (side.hidden) return;
  const { graph: number, nodes, box } = state.selected, graph = GRAPHS[number];
  const list = some => some.slice(0, 40).map(k => [graph.nodes[k].op || graph.nodes[k].kind, graph.label(k), k])
    .concat(some.length > 40 ? [["", `and ${some.length - 40} more`]] : []);
  if (nodes.length > 1) {
    make(side, "h2", {}, box ? box.title : `${nodes.length} nodes`);
    if (box) make(side, "p", {}, box.subtitle);
    if (box && box.inside >= 0) make(side, "button", { onclick: () => panes[state.pane].enter(box) }, "open (Enter)");
    section(side, "contains", list(nodes), graph);
    return;
  }
  const k = nodes[0], n = graph.nodes[k];
  make(side, "h2", {}, `${n.at} ${n.title}`.trim());
  if (n.diff && n.diff !== "same") make(side, "p", {}, n.how ? `${n.diff}: ${n.how}` : n.diff);
  if (n.tip) make(side, "p", {}, n.tip);
  for (const [title, rows] of n.sections || []) section(side, title, rows, graph);
  section(side, "inputs", list(graph.inputs[k]), graph);
  section(side, "users", list(graph.users[k]), graph);
  for (const [title, rows] of DATA.operations[n.op] || []) section(side, title, rows, graph);
}

/* --- search ------------------------------------------------------------------------------------------------------------ */

function search(text) {
  const found = $("found");
  found.className = "";
  state.hit = -1;
  state.hits = [];
  state.query = null;
  try {
    if (text.trim()) {
      const test = Query.compile(text, FIELDS);
      const shown = new Set(panes.map(p => p.graph.number_in_page));
      for (const g of GRAPHS) if (shown.has(g.number_in_page)) g.nodes.forEach((n, k) => { if (n.at && test(g, k)) state.hits.push({ graph: g.number_in_page, node: k }); });
      state.query = text;
    }
    found.textContent = state.query ? `${state.hits.length} found` : "";
  } catch (error) {
    found.className = "bad";
    found.textContent = error.message;
  }
  refresh();
}

function step(by) {
  if (!state.hits.length) return;
  state.hit = (state.hit + by + state.hits.length) % state.hits.length;
  const { graph, node } = state.hits[state.hit];
  goto(panes.find(p => p.graph.number_in_page === graph) || panes[0], node);
  $("found").textContent = `${state.hit + 1} of ${state.hits.length}`;
}

/* --- time line --------------------------------------------------------------------------------------------------------- */

function stage(k) {
  const graph = GRAPHS[k], pane = panes[0], old = pane.graph;
  if (!graph) return;
  const kept = state.selected ? mapped(state.selected.nodes, state.selected.graph, k) : [];
  pane.show(graph, pane.at < old.top ? pane.at : 0);
  $("stage").value = k;
  $("stages").textContent = `${k + 1} of ${GRAPHS.length}: ${graph.title}${graph.note ? " · " + graph.note : ""}`;
  if (state.query) search($("search").value);
  if (kept.length) select(k, kept, null, pane);
  else select(null);
}

/* --- controls ---------------------------------------------------------------------------------------------------------- */

function cycle(control) {
  control.selectedIndex = (control.selectedIndex + 1) % control.options.length;
  control.dispatchEvent(new Event("change"));
}

function walk(side) {
  const chosen = state.selected, pane = panes[state.pane];
  if (!chosen || chosen.nodes.length !== 1 || chosen.graph !== pane.graph.number_in_page) return;
  const next = pane.graph[side][chosen.nodes[0]][0];
  if (next !== undefined) goto(pane, next);
}

function openSelected() {
  const pane = panes[state.pane], chosen = state.selected;
  const box = chosen && pane.scene.boxes.find(b => b.members.length === chosen.nodes.length && b.members[0] === chosen.nodes[0]);
  if (box) pane.enter(box);
}

const KEYS = [
  ["/", "search", () => $("search").focus()],
  ["n", "next match", () => step(1)],
  ["N", "previous match", () => step(-1)],
  ["Enter", "open the selected box", openSelected],
  ["Backspace", "back", () => panes[state.pane].back()],
  ["i", "first input of the selected node", () => walk("inputs")],
  ["u", "first user of the selected node", () => walk("users")],
  ["+", "zoom in", () => panes[state.pane].zoom(1.25)],
  ["-", "zoom out", () => panes[state.pane].zoom(0.8)],
  ["f", "readable size, at the top left", () => panes[state.pane].fit()],
  ["w", "the whole picture", () => panes[state.pane].whole()],
  ["ArrowLeft", "move", () => panes[state.pane].pan(80, 0)],
  ["ArrowRight", "move", () => panes[state.pane].pan(-80, 0)],
  ["ArrowUp", "move", () => panes[state.pane].pan(0, 80)],
  ["ArrowDown", "move", () => panes[state.pane].pan(0, -80)],
  ["1", "coarsest level", () => level(0)],
  ["2", "next level", () => level(1)],
  ["3", "next level", () => level(2)],
  ["o", "next overlay", () => cycle($("overlay"))],
  ["t", "theme: light, dark, or that of the system", () => cycle($("theme"))],
  [",", "previous stage", () => DATA.timeline && stage(panes[0].graph.number_in_page - 1)],
  [".", "next stage", () => DATA.timeline && stage(panes[0].graph.number_in_page + 1)],
  ["?", "this help", () => { $("help").hidden = !$("help").hidden; }],
  ["Escape", "close, clear", () => { if (!$("help").hidden) $("help").hidden = true; else { $("search").value = ""; search(""); select(null); } }],
];

function level(k) {
  const pane = panes[state.pane];
  if (k < pane.graph.top && k !== pane.at) pane.open(k);
}

function help() {
  const box = make(document.body, "div", { id: "help", hidden: true, role: "dialog", "aria-label": "help" });
  make(box, "h3", {}, "keys");
  const table = make(box, "table");
  for (const [key, what] of KEYS) {
    const row = make(table, "tr");
    make(make(row, "td"), "kbd", {}, key);
    make(row, "td", {}, what);
  }
  make(box, "p", {}, "Drag to move, turn the wheel to zoom, click to select, double-click to open a box that stands for several nodes.");
  make(box, "h3", {}, "search");
  make(box, "p", {}, "Words are looked for in names and operations; op:dot* name:~attn users>2 bytes>=1M not const (a or b) #17 before:#17");
  make(box, "p", {}, `fields: ${[...FIELDS.texts].join(", ")}; numbers: ${[...FIELDS.numbers].join(", ")}; words: ${[...FIELDS.flags].join(", ")}`);
  make(box, "button", { onclick: () => { box.hidden = true; } }, "close");
}

function option(select, value, text) { make(select, "option", { value }, text ?? value); }

function bar() {
  const head = make(document.body, "header");
  make(head, "h1", { title: DATA.title }, DATA.title || "graph");
  const input = make(head, "input", { id: "search", type: "search", placeholder: "search: a word, op:add, name:~attn, users>2   ( / )", "aria-label": "search" });
  make(head, "span", { id: "found", role: "status", "aria-live": "polite" });
  let wait;
  input.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(() => search(input.value), 120); });
  input.addEventListener("keydown", e => {
    if (e.key === "Enter") { clearTimeout(wait); if (state.query !== input.value) search(input.value); step(e.shiftKey ? -1 : 1); }
    if (e.key === "Escape") { input.blur(); input.value = ""; search(""); }
    e.stopPropagation();
  });
  make(head, "span", { className: "space" });
  const names = ["none", ...OVERLAYS.map(([n]) => n), ...(GRAPHS.some(g => g.nodes.some(n => n.diff)) ? ["difference"] : [])];
  if (names.length > 1) {
    const overlay = make(make(head, "label", {}, "overlay"), "select", { id: "overlay", "aria-label": "overlay" });
    names.forEach(n => option(overlay, n));
    overlay.addEventListener("change", () => { state.overlay = overlay.value; refresh(); });
    state.overlay = overlay.value = ["difference", "time", "apart"].find(n => names.includes(n)) || "none"; // what the page was asked for
  } else make(head, "select", { id: "overlay", hidden: true });
  const theme = make(make(head, "label", {}, "theme"), "select", { id: "theme", "aria-label": "theme" });
  ["auto", "light", "dark"].forEach(n => option(theme, n));
  theme.value = document.documentElement.dataset.theme;
  theme.addEventListener("change", () => { document.documentElement.dataset.theme = theme.value; });
  make(head, "button", { title: "help (?)", "aria-label": "help", onclick: () => { $("help").hidden = !$("help").hidden; } }, "?");
}

/* What the colours of differences mean. */
function differences() {
  if (DATA.timeline) return [["added", "new in this stage"], ["changed", "changed in this stage"]];
  const [here, there] = GRAPHS.length > 2 ? ["not in the next program", "not in the previous program"] : ["only in the first", "only in the second"];
  return [["removed", here], ["added", there], ["changed", "not the same in both"]];
}

function foot() {
  const bottom = make(document.body, "footer");
  if (DATA.timeline) {
    const time = make(bottom, "div", { id: "time" });
    make(time, "button", { title: "previous stage (,)", onclick: () => stage(panes[0].graph.number_in_page - 1) }, "◀");
    const slider = make(time, "input", { id: "stage", type: "range", min: 0, max: GRAPHS.length - 1, value: 0, "aria-label": "stage" });
    slider.addEventListener("input", () => stage(Number(slider.value)));
    make(time, "button", { title: "next stage (.)", onclick: () => stage(panes[0].graph.number_in_page + 1) }, "▶");
    make(time, "output", { id: "stages" });
  }
  const families = new Set(GRAPHS.flatMap(g => g.nodes.filter(n => !CONTROL.has(n.kind) && n.family !== "other").map(n => n.family)));
  const sample = (cls, name, text) => {
    const s = make(bottom, "span", { className: "sample" }), picture = draw(s, "svg", { viewBox: "0 0 14 10" });
    draw(picture, name, name === "rect" ? { x: 1, y: 1, width: 12, height: 8, rx: 2, class: cls } : { d: "M0,5L14,5", class: cls });
    s.append(text);
    return s;
  };
  for (const f of [...families].sort()) sample(`shape f-${f}`, "rect", f);
  const differ = new Set(GRAPHS.flatMap(g => g.nodes.map(n => n.diff)));
  for (const [kind, text] of differences()) if (differ.has(kind)) sample("shape", "rect", text).classList.add("difference", `d-${kind}`);
  const kinds = new Set(GRAPHS.flatMap(g => g.edges.map(e => e[2])));
  for (const [kind, text] of Object.entries(DATA.kinds)) {
    if (kinds.has(kind)) sample(`edge e-${kind}`, "path", text);
  }
}

function start() {
  bar();
  make(document.body, "main", { id: "panes" });
  make(document.body, "aside", { id: "side", hidden: true, "aria-label": "inspector" });
  foot();
  make(document.body, "div", { id: "tip", hidden: true, role: "tooltip" });
  help();
  (DATA.timeline ? GRAPHS.slice(0, 1) : GRAPHS).forEach((g, k) => panes.push(new Pane(g, k)));
  if (DATA.timeline) stage(0);
  window.addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey || (e.target.closest && e.target.closest("input,select"))) return;
    const found = KEYS.find(([key]) => key === e.key);
    if (found && !(e.key === "Enter" && e.target.closest("button"))) { e.preventDefault(); found[2](); }
  });
  window.addEventListener("resize", () => panes.forEach(p => p.fit()));
  refresh();
}

start();
