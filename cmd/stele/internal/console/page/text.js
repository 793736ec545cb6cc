// How texts, times and names are shown. Preact writes them as text; here they also lose what would hide or reorder it.

// Controls, marks of direction and separators of lines, which would change how other text is shown.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const longest = 2000;

// plain returns a text in which hidden characters are visible, and of which no more is shown than anybody reads.
export function plain(value, most = longest) {
  if (value === null || value === undefined) return '';
  let text = typeof value === 'string' ? value : typeof value === 'object' ? JSON.stringify(value) : String(value);
  const length = text.length;
  if (length > most) text = text.slice(0, most);
  text = text.replace(hidden, (c) => '⟨U+' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0') + '⟩');
  return length > most ? `${text}… (${length.toLocaleString('en')} characters)` : text;
}

const two = (n) => String(n).padStart(2, '0');

// timeOf returns a local time.
export function timeOf(value, { date = true, fraction = false } = {}) {
  const t = new Date(value);
  if (isNaN(t)) return plain(value);
  const clock = `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}` + (fraction ? '.' + String(t.getMilliseconds()).padStart(3, '0') : '');
  return date ? `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${clock}` : clock;
}

// age returns a duration in two units, as kubectl does.
export function age(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 120) return s + 's';
  if (s < 7200) return Math.floor(s / 60) + 'm' + (s < 600 && s % 60 ? (s % 60) + 's' : '');
  if (s < 172800) return Math.floor(s / 3600) + 'h';
  return Math.floor(s / 86400) + 'd';
}

// isRaw reports whether a value is a number as it was sent.
export const isRaw = (value) => JSON.isRawJSON?.(value) ?? false;

// userOf returns the user of a change, with the one who impersonates.
export const userOf = (actor) => (actor ? (actor.impersonator ? `${actor.impersonator} as ${actor.user}` : actor.user) : 'the log');

// objectName returns namespace/name.
export const objectName = (o) => (o.namespace ? o.namespace + '/' : '') + o.name;

// resourceName returns databases.example.com.
export const resourceName = (o) => o.resource + (o.group ? '.' + o.group : '');

// hue returns a colour class of a text: the same for the same text.
export function hue(text) {
  let h = 2166136261;
  for (const c of text ?? '') h = Math.imul(h ^ c.codePointAt(0), 16777619);
  return 'hue' + ((h >>> 0) % 8);
}

// inLine returns a value in one line.
export const inLine = (value) => plain(typeof value === 'string' ? value : JSON.stringify(value), 160);
