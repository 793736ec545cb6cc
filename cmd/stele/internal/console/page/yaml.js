// An object as lines of YAML, each with the path of its field.
import { isRaw, plain } from './text.js';

const word = /^[A-Za-z_][\w./-]*( [\w./-]+)*$/, reserved = /^(true|false|null|yes|no|on|off|~|y|n)$/i;

// longest is how many characters of a string are shown.
const longest = 2000;

function scalar(value) {
  if (isRaw(value)) return { text: value.rawJSON, kind: 'number' };
  if (typeof value !== 'string') return { text: String(value), kind: value === null ? 'null' : typeof value };
  const bare = word.test(value) && !reserved.test(value) && value.length < 500;
  if (bare) return { text: value, kind: 'string' };
  const long = value.length > longest;
  return { text: plain(JSON.stringify(long ? value.slice(0, longest) : value), Infinity) + (long ? `… (${value.length.toLocaleString('en')} characters)` : ''), kind: 'string' };
}

const keyText = (key) => (word.test(key) && !reserved.test(key) ? key : plain(JSON.stringify(key), 300));

// lines returns {indent, key, text, kind, path, dash} for each line. A path is a list of keys and indexes.
export function lines(value) {
  const out = [];
  const add = (indent, dash, key, value, path) => {
    const composite = value && typeof value === 'object' && !isRaw(value), empty = composite && !Object.keys(value).length;
    if (composite && !empty) {
      const list = Array.isArray(value);
      let first = true;
      if (key !== undefined) {
        out.push({ indent, dash, key: keyText(key), text: '', path });
        dash = 0;
      }
      const deeper = key === undefined ? indent : list ? indent : indent + 1;
      for (const [name, item] of Object.entries(value)) {
        const at = [...path, list ? Number(name) : name], mine = key === undefined && first ? dash : 0;
        if (list) add(deeper + 1, mine + 1, undefined, item, at);
        else add(deeper, mine, name, item, at);
        first = false;
      }
      return;
    }
    if (typeof value === 'string' && value.length < 20_000 && /^\S[^]*\n/.test(value) && !/\n\n$/.test(value)) {
      out.push({ indent, dash, key: key === undefined ? '' : keyText(key), text: value.endsWith('\n') ? '|' : '|-', kind: 'mark', path });
      for (const line of value.replace(/\n$/, '').split('\n')) out.push({ indent: indent + (key === undefined ? 0 : 1), dash: 0, key: '', text: plain(line), kind: 'string', path });
      return;
    }
    const { text, kind } = empty ? { text: Array.isArray(value) ? '[]' : '{}', kind: 'mark' } : scalar(value);
    out.push({ indent, dash, key: key === undefined ? '' : keyText(key), text, kind, path });
  };
  for (const [name, item] of Object.entries(value)) add(0, 0, name, item, [name]);
  return out;
}

// pathText returns a path as the server writes it, with indexes.
export const pathText = (path) => path.map((s, i) => (typeof s === 'number' ? `[${s}]` : /^[\w-]+$/.test(s) ? (i ? '.' : '') + s : `[${JSON.stringify(s)}]`)).join('');

// leaves returns the values of an object by the text of their path.
export function leaves(value, path = [], out = new Map()) {
  if (value && typeof value === 'object' && !isRaw(value) && Object.keys(value).length) {
    for (const [name, item] of Object.entries(value)) leaves(item, [...path, Array.isArray(value) ? Number(name) : name], out);
  } else if (path.length) {
    out.set(pathText(path), value);
  }
  return out;
}

// differences returns {path, then, now} of the fields that differ.
export function differences(before, after) {
  const a = leaves(before ?? {}), b = leaves(after ?? {}), out = [];
  for (const path of new Set([...a.keys(), ...b.keys()])) {
    if (JSON.stringify(a.get(path)) !== JSON.stringify(b.get(path))) out.push({ path, then: a.get(path), now: b.get(path) });
  }
  return out;
}
