"use strict";
/* The query language of the command line and the terminal browser (deepx_graph/session/query.py), over what the page knows of its
   nodes. `compile(text, fields)` gives a function (graph, node number) -> boolean, or throws an Error that says what is wrong. */
const Query = (() => {
  const TOKEN = /\s*(?:([()])|([A-Za-z_]+)(!=|>=|<=|[:=<>])|("(?:[^"\\]|\\.)*")|([^\s()"]+))/y;
  const VALUE = /"(?:[^"\\]|\\.)*"|(?:[^\s()"]|\([^\s()]*\))+/y;
  const COMMA = /,(?![^[(]*[\])])/;
  const NUMBER = /^(-?\d+(?:\.\d+)?(?:e-?\d+)?)([kmgt]?)(?:i?b)?$/i;
  const RELATIONS = { before: g => g.inputs, after: g => g.users };
  const BESIDE = { uses: g => g.users, feeds: g => g.inputs };
  const SIGNS = { "=": (a, b) => a === b, ":": (a, b) => a === b, "!=": (a, b) => a !== b, ">": (a, b) => a > b,
    "<": (a, b) => a < b, ">=": (a, b) => a >= b, "<=": (a, b) => a <= b };

  const escape = text => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const unquoted = text => text.startsWith('"') ? text.slice(1, -1).replace(/\\(.)/g, "$1") : text;

  function pattern(value) {
    if (value.startsWith("~")) {
      const expression = new RegExp(unquoted(value.slice(1)), "i");
      return given => expression.test(given);
    }
    if (value.startsWith('"')) { const whole = unquoted(value); return given => given === whole; }
    const parts = value.split(COMMA).filter(Boolean).map(p => escape(p).replace(/\\\*/g, ".*"));
    const whole = new RegExp("^(?:" + parts.join("|") + ")$", "s");
    return given => whole.test(given);
  }

  function anchor(text) {
    return text.match(/^#\d+$/) ? (g, k) => g.nodes[k].at === text : (g, k) => g.nodes[k].name === text;
  }

  function anywhere(word) {
    if (word.match(/^#\d+$/)) return anchor(word);
    const low = word.toLowerCase();
    return (g, k) => (g.nodes[k].name || "").toLowerCase().includes(low) || g.texts(k, "op").some(t => t.includes(low));
  }

  function relation(name, value) {
    const fits = anchor(unquoted(value)), known = new Map();
    return (g, k) => {
      if (!known.has(g)) {
        const starts = g.nodes.map((_, n) => n).filter(n => fits(g, n));
        const beside = (RELATIONS[name] || BESIDE[name])(g);
        known.set(g, name in RELATIONS ? g.reached(starts, beside) : new Set(starts.flatMap(n => beside[n])));
      }
      return known.get(g).has(k);
    };
  }

  function compile(text, fields) {
    let at = 0, terms = 0, deep = 0;
    const fail = message => { throw new Error(message); };
    function peek() {
      if (!text.slice(at).trim()) return null;
      TOKEN.lastIndex = at;
      const m = TOKEN.exec(text) || fail("a quote is not closed");
      return { end: TOKEN.lastIndex, sign: m[1], field: m[2], is: m[3], quoted: m[4], word: m[5] };
    }
    function take(...words) {
      const m = peek();
      if (m === null || !words.includes(m.sign || m.word)) return false;
      at = m.end;
      return true;
    }
    function anyOf() {
      const tests = [allOf()];
      while (take("or", "|", "||")) tests.push(allOf());
      return (g, k) => tests.some(t => t(g, k));
    }
    function allOf() {
      const tests = [part()];
      for (let m = peek(); m !== null && m.sign !== ")" && !["or", "|", "||"].includes(m.word); m = peek()) {
        take("and", "&", "&&");
        tests.push(part());
      }
      return (g, k) => tests.every(t => t(g, k));
    }
    function part() {
      let negative = false, test;
      while (take("not", "!")) negative = !negative;
      if (take("(")) {
        if (++deep > 50) fail("too many parentheses");
        test = anyOf();
        if (!take(")")) fail("a parenthesis is not closed");
        deep -= 1;
      } else test = term();
      return negative ? (g, k) => !test(g, k) : test;
    }
    function term() {
      const m = peek();
      if (m === null || m.sign || ["or", "|", "||", "and", "&", "&&"].includes(m.word)) fail("a term is missing");
      if (++terms > 200) fail("too many terms");
      at = m.end;
      if (m.field) return field(m);
      if (m.quoted) return anywhere(unquoted(m.quoted));
      if (m.word.startsWith("!")) { at = m.end - m.word.length + 1; const inner = part(); return (g, k) => !inner(g, k); }
      if (fields.flags.has(m.word)) return (g, k) => g.flags(k).includes(m.word);
      return anywhere(m.word);
    }
    function field(m) {
      VALUE.lastIndex = at;
      const value = (VALUE.exec(text) || fail(`'${m.field}' has no value`))[0];
      at = VALUE.lastIndex;
      if (fields.numbers.has(m.field) && !(fields.texts.has(m.field) && m.is === ":")) return number(m, value);
      if (![":", "=", "!="].includes(m.is)) fail(`'${m.field}' is text and has no order, or nothing here has it`);
      if (m.field in RELATIONS || m.field in BESIDE) return relation(m.field, value);
      if (!fields.texts.has(m.field)) fail(`no field '${m.field}'; there are ${[...fields.texts, ...fields.numbers].join(", ")}`);
      const fits = pattern(value), wanted = m.is !== "!=";
      return (g, k) => g.texts(k, m.field).some(fits) === wanted;
    }
    function number(m, value) {
      const found = value.match(NUMBER) || fail(`'${m.field}' is compared with '${value}', which is no number`);
      const base = fields.binary.has(m.field) ? 1024 : 1000;
      const bound = Number(found[1]) * base ** ["", "k", "m", "g", "t"].indexOf(found[2].toLowerCase());
      return (g, k) => { const v = g.number(k, m.field); return v !== undefined && SIGNS[m.is](v, bound); };
    }
    if (!text.trim()) return () => true;
    const found = anyOf();
    if (peek() !== null) fail("a parenthesis is closed that was not opened");
    return found;
  }
  return { compile };
})();
