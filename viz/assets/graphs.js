"use strict";
/* The graphs of the page as data: who feeds whom, what is known of a node, what each box opens to, what a node is in another graph. */

/* What the page holds, unpacked. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/* A column: the distinct values, and for each place which of them it has. */
function values([distinct, places]) { return places.map(k => (k < 0 ? undefined : distinct[k])); }

class Graph {
  constructor(raw, number) {
    Object.assign(this, raw);
    this.number_in_page = number;
    this.nodes = Array.from({ length: raw.size }, () => ({}));
    for (const [name, [distinct, places]] of Object.entries(raw.columns)) {
      places.forEach((k, n) => { if (k >= 0) this.nodes[n][name] = distinct[k]; });
    }
    const { source, target, kind, label } = raw.edges, kinds = values(kind), labels = values(label);
    this.edges = source.map((s, k) => ({ source: s, target: target[k], kind: kinds[k], label: labels[k] || "" }));
    this.inputs = this.nodes.map(() => []);
    this.users = this.nodes.map(() => []);
    for (const { source, target, kind } of this.edges) {
      if (kind === "back" || kind === "capture") continue;
      this.users[source].push(target);
      this.inputs[target].push(source);
    }
    this.frameOf = new Map(raw.frames.map(([id, title, kind, parent]) => [id, { id, title, kind, parent }]));
    this.folds = raw.folds.map((fold, k) => new Fold(this, fold, k));
    this.byRuns = new Map();
  }

  /* What a box opens to: its folding, or the nodes in it where they are few. */
  opened(box) {
    if (box.inside >= 0) return this.folds[box.inside];
    if (!this.byRuns.has(box.key)) {
      this.byRuns.set(box.key, new Fold(this, { notes: [], frames: [], boxes: box.members.map(m => [m, this.nodes[m].frame ?? null]) }, box.key));
    }
    return this.byRuns.get(box.key);
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
}

/* Boxes that stand for a part of a graph or all of it; `members` of a box are numbers of nodes, `key` says which they are. */
class Fold {
  constructor(graph, raw, number) {
    this.number = number;
    this.notes = raw.notes;
    this.frameOf = new Map([...graph.frameOf, ...raw.frames.map(([id, title, kind, parent]) => [id, { id, title, kind, parent }])]);
    this.boxes = raw.boxes.map(([what, frame, title, subtitle, family, inside]) => {
      if (!Array.isArray(what)) {
        const n = graph.nodes[what];
        return { key: String(what), kind: n.kind, family: n.family, title: n.title, subtitle: n.subtitle || "", frame, members: [what], inside: -1 };
      }
      return { key: what.join(";"), kind: "group", family, title, subtitle, frame, members: expand(what), inside };
    });
  }

  /* The box that stands for a node. */
  boxOf(node) { return this.boxes.find(b => b.members.length === 1 ? b.members[0] === node : b.members.includes(node)); }
}

const openable = box => box.kind === "group" && (box.inside >= 0 || box.members.length <= FEW);

/* A box of at most so many nodes needs no folding of its own. */
const FEW = 200;

function expand(runs) {
  const found = [];
  for (const [first, count] of runs) for (let k = 0; k < count; k++) found.push(first + k);
  return found;
}

/* --- the page's data, set by `load` */
let DATA, GRAPHS, MAPS, FIELDS, OVERLAYS, SHARDINGS;

function load(data) {
  DATA = data;
  GRAPHS = data.graphs.map((raw, k) => new Graph(raw, k));
  MAPS = mapsBetween(data.pairs);
  FIELDS = fieldsOf(GRAPHS);
  const places = new Map();
  for (const n of GRAPHS.flatMap(g => g.nodes)) if (n.sharding) places.set(n.sharding[0], (places.get(n.sharding[0]) || 0) + 1);
  SHARDINGS = [...places.keys()].sort((a, b) => places.get(b) - places.get(a));
  OVERLAYS = data.measures.map(([name, about, unit]) => ({ name, about, text: UNITS[unit] })).filter(m => FIELDS.numbers.has(m.name));
}

/* Maps between graphs: those that are paired directly, and through others. */
function mapsBetween(pairs) {
  const maps = GRAPHS.map(() => new Map());
  for (const { a, b, nodes } of pairs) {
    maps[a].set(b, new Map(nodes));
    maps[b].set(a, new Map(nodes.map(([x, y]) => [y, x])));
  }
  return maps;
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
function fieldsOf(graphs) {
  const found = {
    texts: new Set(["op", "name", "family", "type"]), numbers: new Set(["users", "inputs"]), flags: new Set(["param"]),
    binary: new Set(["bytes", "moved", "apart"]),
  };
  for (const { columns } of graphs) {
    for (const [name, [distinct]] of Object.entries(columns)) {
      if (name === "flags") distinct.flat().forEach(flag => found.flags.add(flag));
      else if (typeof distinct[0] === "number" && name !== "frame") found.numbers.add(name);
      else if (Array.isArray(distinct[0])) found.texts.add(name);
    }
  }
  return found;
}

/* What boxes can be coloured by. */
const NO_PLAN = "not decided", SEVERAL = "several shardings";

/* How the values of some nodes lie on the mesh: the one sharding that all have, several, or none. */
function shardingOf(nodes) {
  const found = new Set(nodes.map(n => n.sharding?.[0]).filter(Boolean));
  return found.size > 1 ? SEVERAL : found.size ? [...found][0] : NO_PLAN;
}

/* The colour of a sharding: by its place among all that occur, the frequent ones first; what is whole on every device has none. */
function shardingColour(text) {
  if (text === NO_PLAN) return "var(--ground)";
  if (text === SEVERAL) return "color-mix(in srgb, var(--faint) 45%, var(--ground))";
  if (!/"/.test(text)) return "color-mix(in srgb, var(--faint) 15%, var(--ground))";
  return `color-mix(in srgb, hsl(${(SHARDINGS.indexOf(text) * 137) % 360} 80% 50%) 40%, var(--ground))`;
}

/* How amounts are written, by unit. */
const UNITS = { bytes: size, count, ms: v => v >= 1 ? v.toFixed(2) + " ms" : (v * 1000).toFixed(1) + " µs", ratio: v => v.toExponential(1) };

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
