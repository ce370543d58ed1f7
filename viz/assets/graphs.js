"use strict";
/* The graphs of the page as data: who feeds whom, what is known of a node, which scene shows it, what it is in another graph. */
const DATA = JSON.parse(document.getElementById("data").textContent);

class Graph {
  constructor(raw, number) {
    Object.assign(this, raw);
    this.number_in_page = number;
    this.inputs = raw.nodes.map(() => []);
    this.users = raw.nodes.map(() => []);
    for (const [source, target, kind] of raw.edges) {
      if (kind === "back" || kind === "capture") continue;
      this.users[source].push(target);
      this.inputs[target].push(source);
    }
    this.scenes.forEach((scene, k) => {
      scene.number = k;
      scene.boxes = scene.boxes.map(([x, y, w, h, kind, family, title, subtitle, runs, inside], n) =>
        ({ n, x, y, w, h, kind, family, title, subtitle, inside, members: expand(runs) }));
    });
  }

  texts(k, field) {
    const n = this.nodes[k];
    if (field === "name") return [n.name || ""];
    if (field === "op") return [n.op || n.title.split(/[\s(]/)[0]];
    if (field === "family") return [n.family];
    const found = n[field];
    return found === undefined ? [] : Array.isArray(found) ? found : [String(found)];
  }

  number(k, field) {
    const n = this.nodes[k];
    if (field === "users" && n.users === undefined) return this.users[k].length;
    if (field === "inputs" && n.inputs === undefined) return this.inputs[k].length;
    return n[field];
  }

  flags(k) { return this.nodes[k].flags || (this.nodes[k].kind === "param" ? ["param"] : []); }

  label(k) { const n = this.nodes[k]; return [n.at, n.title, n.name].filter(Boolean).join(" "); }

  reached(starts, beside) {
    const seen = new Set(starts), stack = [...starts];
    while (stack.length) for (const n of beside[stack.pop()]) if (!seen.has(n)) { seen.add(n); stack.push(n); }
    return seen;
  }

  /* The box of a scene that stands for a node: the smallest one that is part of the scene. */
  boxOf(scene, node) {
    let found = null;
    for (const box of scene.boxes) {
      if (box.kind !== "outside" && box.members.includes(node) && (!found || box.members.length < found.members.length)) found = box;
    }
    return found;
  }

  /* The scene that shows a node best: the one at hand if the node has its own box there, else the first that gives it one. */
  sceneOf(node, at) {
    const own = scene => { const box = this.boxOf(scene, node); return box !== null && box.members.length === 1; };
    if (own(this.scenes[at])) return at;
    const levels = [...Array(this.top).keys()].reverse();
    const inner = this.scenes.map((_, k) => k).slice(this.top);
    const found = [...levels, ...inner].find(k => own(this.scenes[k]));
    if (found !== undefined) return found;
    let best = at, size = Infinity;
    for (const k of [...levels, ...inner]) {
      const box = this.boxOf(this.scenes[k], node);
      if (box && box.members.length < size) { best = k; size = box.members.length; }
    }
    return best;
  }
}

function expand(runs) {
  const found = [];
  for (const [first, count] of runs) for (let k = 0; k < count; k++) found.push(first + k);
  return found;
}

const GRAPHS = DATA.graphs.map((raw, k) => new Graph(raw, k));

/* Maps between graphs: those that are paired directly, and through others. */
const MAPS = GRAPHS.map(() => new Map());
for (const { a, b, nodes } of DATA.pairs) {
  MAPS[a].set(b, new Map(nodes));
  MAPS[b].set(a, new Map(nodes.map(([x, y]) => [y, x])));
}

function mapped(nodes, from, to) {
  if (from === to) return [...nodes];
  const before = new Map([[from, null]]), queue = [from];
  while (queue.length && !before.has(to)) {
    const k = queue.shift();
    for (const next of MAPS[k].keys()) if (!before.has(next)) { before.set(next, k); queue.push(next); }
  }
  if (!before.has(to)) return [];
  const way = [];
  for (let k = to; k !== null; k = before.get(k)) way.unshift(k);
  let found = [...nodes];
  for (let k = 1; k < way.length; k++) {
    const map = MAPS[way[k - 1]].get(way[k]);
    found = found.filter(n => map.has(n)).map(n => map.get(n));
  }
  return found;
}

/* The words of the query language that something on this page has. */
const FIELDS = {
  texts: new Set(["op", "name", "family", "type"]), numbers: new Set(["users", "inputs"]), flags: new Set(["param"]),
  binary: new Set(["bytes", "moved", "apart"]),
};
for (const graph of GRAPHS) {
  for (const node of graph.nodes) {
    for (const [key, value] of Object.entries(node)) {
      if (typeof value === "number") FIELDS.numbers.add(key);
      else if (Array.isArray(value) && typeof value[0] === "string" && key !== "flags") FIELDS.texts.add(key);
    }
    for (const flag of node.flags || []) FIELDS.flags.add(flag);
  }
}
const OVERLAYS = [
  ["time", v => v >= 1 ? v.toFixed(2) + " ms" : (v * 1000).toFixed(1) + " µs"], ["bytes", size], ["moved", size], ["flops", count], ["apart", size],
].filter(([name]) => FIELDS.numbers.has(name));

function size(v) {
  return scaled(v, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
}

function count(v) {
  return scaled(v, 1000, ["", "K", "M", "G", "T"]);
}

/* Three digits, as in every report of the program (units.py). */
function scaled(v, base, units) {
  let k = 0;
  for (; k + 1 < units.length && v >= base - 0.5; k++) v /= base;
  return (v < 99.95 ? +v.toPrecision(3) : Math.round(v)) + units[k];
}
