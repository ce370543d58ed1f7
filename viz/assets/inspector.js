"use strict";
/* What is selected: the inspector beside the panes, tooltips, copying, and the address of the page that leads back to it. */

function refresh() { return panes.map(p => p.refresh()); }  // what each pane has selected

/* Selects nodes, which a box of a pane stands for; `focus` moves the keyboard there. */
function select(graph, nodes, box, pane, focus = false) {
  state.selected = graph === null ? null : { graph, nodes, box };
  if (pane) state.pane = pane.number;
  const chosen = refresh();
  panes.forEach((p, k) => {
    const found = p.scene.boxes.find(b => chosen[k].has(b.n));
    if (found && p !== pane) p.reveal(found);
    if (found && p === pane && focus) p.boxes[found.n].g.focus({ preventScroll: true });
  });
  inspect();
  remember();
}

/* Shows a node in a pane, with a box of its own, and so what it is in the other panes. */
function goto(pane, node) {
  reach(pane, node);
  for (const other of panes) {
    if (other === pane) continue;
    const [partner] = mapped([node], pane.graph.number_in_page, other.graph.number_in_page);
    if (partner !== undefined) reach(other, partner);
  }
  const box = pane.scene.boxOf(node);
  select(pane.graph.number_in_page, [node], box, pane);
  if (box) pane.reveal(box);  // the inspector that has opened takes room
}

/* Opens what is around a node, closes what was only open for the one before. */
function reach(pane, node) {
  let way = wayTo(pane.graph, pane.fold, node);
  if (way === null) {
    pane.remember();
    pane.fold = pane.graph.folds[0];
    way = wayTo(pane.graph, pane.fold, node);
  }
  const sought = way.filter(key => !pane.open.has(key)), same = sought.length === pane.sought.size && sought.every(key => pane.sought.has(key));
  if (!same || pane.scene.boxOf(node) === null) {
    pane.sought = new Set(sought);
    pane.rebuild({});
  }
  const box = pane.scene.boxOf(node);
  if (box) pane.center(box);
}

function describe(graph, box) {
  if (box.members.length > 1) return `${box.title}\n${box.subtitle}\n${openable(box) ? "double-click or Enter opens it" : ""}`.trim();
  const n = graph.nodes[box.members[0]];
  return n.tip || [`${n.at || ""} ${n.title}`.trim(), n.name ? `name ${n.name}` : "", (n.type && [].concat(n.type)[0]) || ""].filter(Boolean).join("\n");
}

function tip(event, text) {
  const t = $("tip");
  t.textContent = text;
  t.hidden = false;
  t.style.left = Math.min(event.clientX + 14, innerWidth - t.offsetWidth - 8) + "px";
  t.style.top = Math.min(event.clientY + 14, innerHeight - t.offsetHeight - 8) + "px";
}

/* --- the inspector */

function section(parent, title, rows) {
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
  const tools = make(side, "div", { className: "tools" });
  make(tools, "button", { title: "copy the name (y)", onclick: copyName }, "copy name");
  make(tools, "button", { title: "copy a link to this selection (l)", onclick: copyLink }, "copy link");
  make(tools, "button", { title: "close (Escape)", "aria-label": "close the inspector", onclick: () => select(null) }, "×");
  if (nodes.length > 1) inspectBox(side, graph, nodes, box);
  else inspectNode(side, graph, nodes[0]);
}

function inspectBox(side, graph, nodes, box) {
  make(side, "h2", {}, box ? box.title : `${nodes.length} nodes`);
  if (box) make(side, "p", {}, box.subtitle);
  if (box && openable(box)) {
    const tools = make(side, "div", { className: "tools" });
    make(tools, "button", { onclick: () => panes[state.pane].enter(box) }, "open (Enter)");
    make(tools, "button", { onclick: () => panes[state.pane].alone(box) }, "show alone (a)");
  }
  section(side, "together", OVERLAYS.map(m => [m.name, m.text(nodes.reduce((sum, k) => sum + (graph.nodes[k][m.name] || 0), 0))]));
  section(side, "contains", listed(graph, nodes));
}

function inspectNode(side, graph, k) {
  const n = graph.nodes[k];
  make(side, "h2", {}, `${n.at || ""} ${n.title}`.trim());
  if (n.diff && n.diff !== "same") make(side, "p", {}, n.how ? `${n.diff}: ${n.how}` : n.diff);
  if (n.tip) make(side, "p", {}, n.tip);
  const scope = (n.scope || []).reduce((a, b) => (b.length > a.length ? b : a), "");
  section(side, "", [["name", n.name], ["type", n.type && [].concat(n.type)[0]], ["scope", scope], ["phase", (n.phase || [])[0]],
    ["function", (n.function || [])[0]], ["calls", (n.callee || [])[0]],
    ["not fused", (n.declined || [])[0]]].filter(([, text]) => text));
  section(side, "attributes", (n.attr || []).filter(t => t.includes("=")).map(t => [t.slice(0, t.indexOf("=")), t.slice(t.indexOf("=") + 1)]));
  section(side, "contains", (n.has || []).map(op => ["", op]));
  section(side, "cost", [...OVERLAYS.filter(m => n[m.name] !== undefined).map(m => [m.name, m.text(n[m.name])]),
    ...["share", "elements", "depth", "loops"].filter(f => n[f]).map(f => [f, f === "share" ? `${n[f].toFixed(1)}%` : n[f].toLocaleString("en")])]);
  section(side, "inputs", listed(graph, graph.inputs[k]));
  section(side, "users", listed(graph, graph.users[k]));
  section(side, "source", (n.origin || []).map(line => [`line ${line}`, graph.lines[line] || ""]));
  section(side, "rewritten by", (n.rewrite || []).map(name => ["", name]));
  for (const [title, ...lines] of n.views || []) section(side, title, lines.map(line => ["", line]));
  for (const [title, rows] of DATA.operations[n.op] || []) section(side, title, rows);
}

const LISTED = 40;

function listed(graph, nodes) {
  return nodes.slice(0, LISTED).map(k => [graph.nodes[k].op || graph.nodes[k].kind, graph.label(k), k])
    .concat(nodes.length > LISTED ? [["", `and ${nodes.length - LISTED} more`]] : []);
}

/* --- copying */

/* What a user calls the selection: the name of a node or its address, the title of a box. */
function nameOf({ graph, nodes, box }) {
  const n = GRAPHS[graph].nodes[nodes[0]];
  return nodes.length > 1 ? (box ? box.title : "") : n.name || n.at || n.title;
}

function copyName() { if (state.selected) copy(nameOf(state.selected)); }

function copyLink() { remember(); copy(location.href); }

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a file has no clipboard of its own in some browsers
    const area = make(document.body, "textarea", { value: text, className: "unseen" });
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`copied: ${text.slice(0, 80)}`);
}

/* --- the address of the page: what is selected, searched and coloured */

function remember() {
  const words = new URLSearchParams(), { selected } = state;
  if (selected) {
    const first = GRAPHS[selected.graph].nodes[selected.nodes[0]];
    if (selected.graph) words.set("graph", selected.graph);
    words.set("node", first.at || selected.nodes[0]);
    if (selected.nodes.length > 1) words.set("of", selected.nodes.length);
  } else if (DATA.timeline && panes[0].graph.number_in_page) words.set("graph", panes[0].graph.number_in_page);
  if (state.query) words.set("search", state.query);
  if (state.overlay !== "none") words.set("overlay", state.overlay);
  const text = words.toString();
  if (text === location.hash.slice(1)) return;
  try { history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search); } catch { /* a page inside another has no address */ }
}

/* Shows what the address says. */
function recall() {
  const words = new URLSearchParams(location.hash.slice(1)), number = Number(words.get("graph")) || 0, graph = GRAPHS[number];
  if (words.get("overlay") && [...$("overlay").options].some(o => o.value === words.get("overlay"))) $("overlay").value = state.overlay = words.get("overlay");
  if (DATA.timeline && graph) stage(number);
  if (words.get("search")) { $("search").value = words.get("search"); search(words.get("search")); } else refresh();
  const pane = panes.find(p => p.graph === graph), wanted = words.get("node");
  if (!pane || !wanted) return;
  const node = graph.nodes.findIndex((n, k) => n.at === wanted || String(k) === wanted);
  if (node < 0) { say(`there is no node ${wanted}`); return; }
  const many = Number(words.get("of"));
  if (!many) { goto(pane, node); return; }
  const box = boxAt(graph, node, many);
  if (!box) return;
  pane.sought = new Set(box.way);
  pane.rebuild();
  const shown = pane.scene.boxes.find(b => b.key === box.key);
  if (shown) { pane.center(shown); select(number, shown.members, shown, pane); }
}

/* The box of so many nodes that a node is in. */
function boxAt(graph, node, many) {
  const way = [];
  for (let fold = graph.folds[0]; ;) {
    const box = fold.boxOf(node);
    if (!box || box.members.length < many || way.includes(box.key)) return null;
    if (box.members.length === many) return { key: box.key, way };
    way.push(box.key);
    fold = graph.opened(box);
  }
}
