// Moments: a revision, a time, or an age, as stele takes them on the command line.
import { read, now } from './server.js';

const units = { s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 };

// parseMoment returns {revision}, {time} or {} for now. It throws for what is none.
export function parseMoment(text, at = now()) {
  text = text.trim();
  if (text === '' || text === 'now') return {};
  if (/^\d+$/.test(text)) {
    if (!Number(text)) throw new Error('Revisions begin with 1.');
    return { revision: text };
  }
  const ago = text.replace(/ ago$/, '');
  if (/^(\d+(\.\d+)?[smhdw])+$/.test(ago)) {
    let ms = 0;
    for (const [, n, , unit] of ago.matchAll(/(\d+(\.\d+)?)([smhdw])/g)) ms += n * units[unit];
    return { time: new Date(at - ms) };
  }
  const clock = text.match(/^(?:(yesterday|today)\s*)?(\d\d?):(\d\d)(?::(\d\d(?:\.\d+)?))?$/);
  let time;
  if (clock) {
    time = new Date(at);
    time.setHours(clock[2], clock[3], 0, 0);
    time.setTime(time.getTime() + Math.round((clock[4] ?? 0) * 1000));
    if (clock[1] === 'yesterday') time.setDate(time.getDate() - 1);
  } else if (/^\d{4}-\d\d-\d\d/.test(text)) {
    time = new Date(text.length === 10 ? text + 'T00:00' : text.replace(' ', 'T'));
  }
  if (!time || isNaN(time)) throw new Error(`${JSON.stringify(text)} is not a moment: use a revision (1200), a time (14:00, yesterday 14:00, 2026-11-20 14:00), an age (10m, 3d), or now.`);
  if (time > at + 1000) throw new Error(`${text} is in the future.`);
  return { time };
}

// resolveMoment returns the revision of a text, '' for now. The server says which it is, and why there is none.
export async function resolveMoment(text) {
  const m = parseMoment(text);
  if (!m.revision && !m.time) return '';
  const found = await read(`/at/${m.revision ?? m.time.toISOString()}/version`);
  if (!found.$revision) throw new Error('The server does not serve past revisions: it is not stele, or an older version.');
  return found.$revision;
}
