// Parts that several views show: problems, links, virtual lists.
import { html, useEffect, useLayoutEffect, useRef, useState } from './ui.js';
import { to } from './state.js';
import { plain } from './text.js';

// Problem says what could not be read, and what would show it.
export function Problem({ error, what = 'this' }) {
  if (!error) return null;
  let title = `The server did not answer ${what}.`, advice = '';
  const missing = error.code === 403 && error.message.match(/cannot (\S+) (?:resource|path) "([^"]+)"(?: in API group "([^"]*)")?(.*)$/s);
  if (missing) {
    title = `You may not see ${what}.`;
    advice = `The right that is missing: ${missing[1]} ${missing[2]}${missing[3] ? '.' + missing[3] : ''}. A rule of the policy that gives it to you shows this view.`;
  } else if (error.code === 401) {
    title = 'The server does not accept the credentials of your kubeconfig.';
    advice = 'They may have expired: log in again, and start stele console again.';
  } else if (error.code === 404) {
    title = `There is no such thing: ${what}.`;
  } else if (error.code === 410) {
    title = 'This is beyond what is kept, or what you may read of the past.';
    advice = 'Choose a later moment.';
  } else if (error.away) {
    title = 'The server is away.';
    advice = 'The page asks again until it answers.';
  }
  return html`<div class="problem" role="alert"><b>${title}</b> ${advice} <span class="text">${plain(error.message, 600)}</span></div>`;
}

export const Warnings = ({ of }) => (of?.$warnings?.length ? html`<div class="warning">${of.$warnings.map((w) => html`<div>${plain(w, 400)}</div>`)}</div>` : null);

// Source is a place in the policy, as a link to it.
export function Source({ rule, source, policy }) {
  if (!rule && !source) return null;
  const m = source?.match(/^(.+):(\d+)$/);
  const builtin = !m || m[1].startsWith('builtin/');
  return html`<span class="source">${rule && html`<span class="text">${plain(rule, 120)}</span> `}${source && (builtin ? html`<span class="dim text">${plain(source, 120)}</span>`
    : html`<a class="text" href=${to({ view: 'policy', policy, file: m[1], line: m[2] })}>${plain(source, 120)}</a>`)}</span>`;
}

// objectLink returns the address of an object of a change.
export const objectLink = (o, fields) => to({ view: 'objects', kind: `${o.resource}.${o.version || ''}.${o.group ?? ''}`, ns: o.namespace, name: o.name, ...fields });

export const ObjectName = ({ of: o, ...fields }) => html`<a class="text" href=${objectLink(o, fields)}>${plain(`${o.resource} ${o.namespace ? o.namespace + '/' : ''}${o.name}`, 160)}</a>`;

// Choice is a field with one of several values. Options are values, or pairs of a value and its text.
export const Choice = ({ options, value, ...rest }) => html`<select ...${rest}>${options.map((o) => {
  const [v, text] = Array.isArray(o) ? o : [o, o];
  return html`<option key=${v} value=${v} selected=${v === value}>${plain(text, 80)}</option>`;
})}</select>`;

// Copy is a button that copies a text.
export function Copy({ text, label = 'Copy' }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="small" onClick=${copy}>${done ? 'Copied' : label}</button>`;
}

// active is the list that j and k move in.
export const active = { move: null, open: null };

export const rowHeight = 26;

// Rows is a table of any length, of which only the visible rows are in the page. Columns are {name, of(row), text(row), class, most}.
export function Rows({ label, columns, rows, keyOf, onOpen, onEnd, selected, rowClass, moment, empty = 'There are none.' }) {
  const box = useRef(), at = useRef(-1), [scroll, setScroll] = useState(0), [height, setHeight] = useState(600), [cursor, setCursor] = useState(-1);
  useEffect(() => {
    const seen = new ResizeObserver(() => box.current && setHeight(box.current.clientHeight));
    seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  const show = (i) => {
    const body = box.current, top = i * rowHeight;
    if (top < body.scrollTop) body.scrollTop = top;
    else if (top + 2 * rowHeight > body.scrollTop + body.clientHeight) body.scrollTop = top + 2 * rowHeight - body.clientHeight;
  };
  const choose = (i) => {
    at.current = i; // keys may come faster than the page is drawn
    setCursor(i);
  };
  useLayoutEffect(() => {
    const mine = {
      move: (by) => {
        if (!rows.length) return;
        choose(Math.max(0, Math.min(rows.length - 1, at.current + by)));
        show(at.current);
      },
      open: () => rows[at.current] && onOpen?.(rows[at.current]),
    };
    Object.assign(active, mine);
    return () => { if (active.open === mine.open) active.move = active.open = null; };
  });
  const first = Math.max(0, Math.floor(scroll / rowHeight) - 10), last = Math.min(rows.length, Math.ceil((scroll + height) / rowHeight) + 10);
  // The widths come from the rows at the beginning, so that they do not change while one scrolls.
  const widths = columns.map((c) => {
    let most = c.name.length;
    for (let i = 0; i < Math.min(rows.length, 200); i++) most = Math.max(most, c.text(rows[i]).length);
    return Math.min(most, c.most ?? 48) + 3;
  });
  const grid = { gridTemplateColumns: widths.map((w, i) => (i < widths.length - 1 ? `${w}ch` : `minmax(${w}ch, 1fr)`)).join(' ') };
  const wide = { minWidth: `calc(${widths.reduce((a, b) => a + b, 0)}ch + 28px)` };
  const onScroll = (e) => {
    setScroll(e.target.scrollTop);
    if (onEnd && e.target.scrollTop + e.target.clientHeight > e.target.scrollHeight - 2000) onEnd();
  };
  return html`<div class="rows" ref=${box} onScroll=${onScroll} tabindex="0" role="table" data-moment=${moment} aria-label=${label} aria-rowcount=${rows.length + 1}
      onKeyDown=${(e) => e.key === 'Enter' && e.target === box.current && active.open?.()}>
    <div role="rowgroup" class="heads" style=${wide}><div role="row" class="row head" style=${grid} aria-rowindex="1">${columns.map((c) => html`<span role="columnheader" title=${c.title} class=${c.class?.includes('number') ? 'number' : undefined}>${plain(c.name, 60)}</span>`)}</div></div>
    <div role="rowgroup" class="body" style=${{ ...wide, height: rows.length * rowHeight + 'px' }}>
      ${rows.slice(first, last).map((row, i) => html`<div role="row" key=${keyOf(row)} aria-rowindex=${first + i + 2} style=${{ ...grid, top: (first + i) * rowHeight + 'px' }}
          class=${`row ${first + i === cursor ? 'cursor' : ''} ${selected?.(row) ? 'selected' : ''} ${onOpen ? 'opens' : ''} ${rowClass?.(row) ?? ''}`}
          onClick=${(e) => { choose(first + i); if (!e.target.closest('a, button') && !getSelection().toString()) onOpen?.(row); }}>
        ${columns.map((c) => html`<span role="cell" class=${'cell ' + (c.class ?? '')} title=${c.title === undefined && c.text(row).length > 12 ? plain(c.text(row), 300) : undefined}>${c.of ? c.of(row) : plain(c.text(row), 300)}</span>`)}
      </div>`)}
    </div>
    ${!rows.length && html`<div class="empty" role="row"><span role="cell">${empty}</span></div>`}
  </div>`;
}
