// View 1: the kinds, and the objects of one of them as kubectl's table, now or at a moment.
import { html, useEffect, useMemo, useRef, useState } from './ui.js';
import { go, to, useAddress } from './state.js';
import { pages, read, watch, pause, useRead, asTable, below, now } from './server.js';
import { loadKinds, findKind, listPath } from './kinds.js';
import { Problem, Choice, Rows } from './parts.js';
import { plain, age, resourceName } from './text.js';
import { ObjectView } from './object.js';

const pageSize = 1000;

export function ObjectsView({ about }) {
  const { at, kind: id, ns, name } = useAddress();
  const kinds = useRead((signal) => loadKinds(at, signal), [at]);
  const kind = findKind(kinds.value, id) ?? (id ? undefined : kinds.value?.[0]);
  return html`<div class="objects">
    <${Kinds} kinds=${kinds.value} chosen=${kind} />
    <main>
      <${Problem} error=${kinds.error} what="the kinds" />
      ${kinds.value && id && !kind && html`<div class="problem" role="alert"><b>There is no such kind here.</b> ${at ? `At revision ${at}` : 'Now'} the control plane does not serve ${plain(id, 200)}. Choose another moment or kind.</div>`}
      ${kind && (name ? html`<${ObjectView} key=${kind.id + ns + name} kind=${kind} />` : html`<${ObjectList} key=${kind.id} kind=${kind} about=${about} />`)}
    </main>
  </div>`;
}

function Kinds({ kinds, chosen }) {
  if (!kinds) return html`<nav class="kinds" aria-label="Kinds"></nav>`;
  const groups = [['Own kinds', kinds.filter((k) => k.own)], ['Core', kinds.filter((k) => !k.own && !k.group)], ['Others', kinds.filter((k) => !k.own && k.group)]];
  const link = (k) => to({ view: 'objects', kind: k.id });
  return html`<nav class="kinds" aria-label="Kinds">
    <label class="narrow">Kind <${Choice} options=${kinds.map((k) => [k.id, resourceName(k)])} value=${chosen?.id} onChange=${(e) => go({ kind: e.target.value, name: '', tab: '', filter: '' })} /></label>
    ${groups.filter(([, list]) => list.length).map(([title, list]) => html`<div class="wide"><h2>${title}</h2><ul>${list.map((k) => html`<li key=${k.id}><a href=${link(k)} aria-current=${k === chosen ? 'page' : undefined} title=${plain(resourceName(k), 120)}>${plain(k.resource, 40)}${k.own || !k.group ? '' : html` <small>${plain(k.group.replace(/\.(k8s\.io|stele\.dev)$/, ''), 40)}</small>`}</a></li>`)}</ul></div>`)}
  </nav>`;
}

const keyOf = (row) => (row.object.metadata.namespace ?? '') + '/' + row.object.metadata.name;

function selectorQuery(labels, fields) {
  const q = new URLSearchParams();
  if (labels) q.set('labelSelector', labels);
  if (fields) q.set('fieldSelector', fields);
  return q.size ? '?' + q : '';
}

// useTable returns the rows of a list by key, which a watch keeps current if the list is of now.
function useTable(kind, ns, labels, fields, at, most) {
  const [table, set] = useState({ loading: true, rows: new Map(), columns: [] });
  useEffect(() => {
    const abort = new AbortController(), { signal } = abort;
    const path = listPath(kind, ns, at), query = selectorQuery(labels, fields);
    let rows, columns, version, moment, frame = 0;
    const draw = (more) => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => signal.aborted || set({ loading: false, rows: new Map(rows), columns, version, moment, ...more }));
    };
    const list = async () => {
      rows = new Map();
      let left = 0;
      for await (const page of pages(path + query, pageSize, { accept: asTable, signal })) {
        columns = page.columnDefinitions ?? columns;
        version = page.metadata.resourceVersion;
        moment = page.$revision ?? '';
        for (const row of page.rows ?? []) rows.set(keyOf(row), row);
        left = page.metadata.remainingItemCount ?? (page.metadata.continue ? 1 : 0);
        draw({ left });
        if (rows.size >= most && left) break;
      }
      return left;
    };
    (async () => {
      set((before) => ({ ...before, loading: true, error: null }));
      for (let wait = 500; !signal.aborted; wait = Math.min(2 * wait, 8000)) {
        try {
          const left = await list();
          wait = 500;
          if (at || !kind.verbs.includes('watch')) return;
          for (let fresh = true; fresh && !signal.aborted;) {
            const events = watch(`${path}${query || '?'}${query ? '&' : ''}watch=1&allowWatchBookmarks=true&resourceVersion=${version}`, { accept: asTable, signal });
            let came = false;
            for await (const event of events) {
              if (event.type === 'ERROR') { fresh = false; break; }
              came = true;
              const row = event.object?.rows?.[0];
              if (row?.object?.metadata?.resourceVersion) version = row.object.metadata.resourceVersion;
              if (event.type === 'BOOKMARK') continue;
              if (event.type === 'DELETED') rows.delete(keyOf(row));
              else if (row) rows.set(keyOf(row), { ...row, fresh: Date.now() });
              draw({ left });
            }
            if (!came) await pause(500, signal);
          }
        } catch (error) {
          if (signal.aborted) return;
          set((before) => ({ ...before, loading: false, error, ...(error.away ? {} : { rows: new Map() }) }));
          if (!error.away) return;
        }
        await pause(wait, signal);
      }
    })();
    return () => { abort.abort(); cancelAnimationFrame(frame); };
  }, [kind.id, ns, labels, fields, at, most]);
  return table;
}

// marked returns the rows of then, with those of now that differ from them.
function marked(then, today) {
  if (!today) return [...then.values()];
  const all = new Map(then);
  for (const [key, row] of today) {
    const was = then.get(key);
    if (!was) all.set(key, { ...row, mark: 'added' });
    else if (was.object.metadata.resourceVersion !== row.object.metadata.resourceVersion) all.set(key, { ...was, mark: 'changed', today: row });
  }
  for (const [key, row] of then) if (!today.has(key)) all.set(key, { ...row, mark: 'removed' });
  return [...all.values()];
}

const marks = { added: '+', changed: '~', removed: '−' };
const markWords = { added: 'created since then', changed: 'changed since then', removed: 'deleted since then' };

function ObjectList({ kind, about }) {
  const { at, ns = '', labels = '', fields = '', filter = '', compare, wide } = useAddress();
  const [most, setMost] = useState(5000), [, setTick] = useState(0);
  const table = useTable(kind, ns, labels, fields, at, most);
  const today = useRead(async (signal) => {
    if (!at || !compare) return null;
    const rows = new Map();
    for await (const page of pages(listPath(kind, ns) + selectorQuery(labels, fields), pageSize, { accept: asTable, signal })) for (const row of page.rows ?? []) rows.set(keyOf(row), row);
    return rows;
  }, [kind.id, ns, labels, fields, at, compare]);
  const namespaces = useRead((signal) => (kind.namespaced ? read(below(at) + '/api/v1/namespaces', { signal }).then((l) => l.items.map((n) => n.metadata.name)).catch(() => []) : []), [kind.id, at]);
  useEffect(() => {
    const timer = setInterval(() => setTick((n) => n + 1), 10_000); // ages grow
    return () => clearInterval(timer);
  }, []);
  const shownNames = kind.namespaced && !ns;
  const rows = useMemo(() => {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const all = marked(table.rows, at && compare ? today.value : null);
    return all.filter((row) => !words.length || words.every((w) => keyOf(row).toLowerCase().includes(w) || row.cells.some((c) => String(c).toLowerCase().includes(w))))
      .sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
  }, [table.rows, today.value, filter, at, compare]);
  const columns = [];
  if (at && compare) columns.push({ name: '', title: 'What happened since then', class: 'mark', text: (r) => marks[r.mark] ?? '', of: (r) => r.mark && html`<b title=${markWords[r.mark]} aria-label=${markWords[r.mark]}>${marks[r.mark]}</b>` });
  if (shownNames) columns.push({ name: 'Namespace', text: (r) => r.object.metadata.namespace ?? '' });
  table.columns.forEach((c, i) => {
    if (c.priority > 0 && !wide) return;
    const isAge = c.type === 'date' && c.name === 'Age', isName = c.name === 'Name' && i === 0;
    const text = (r) => (isAge && !at ? age(now() - Date.parse(r.object.metadata.creationTimestamp)) : r.cells[i] === null || r.cells[i] === undefined ? '' : String(r.cells[i]));
    const changed = (r) => at && compare && !isAge && r.today && String(r.today.cells[i] ?? '') !== String(r.cells[i] ?? '');
    columns.push({ name: c.name, title: c.description ? plain(c.description, 300) : undefined, text: (r) => text(r) + (changed(r) ? ' ' + (r.today.cells[i] ?? '') : ''), class: `${c.type === 'integer' || c.type === 'number' ? 'number' : ''} ${isName ? 'name' : ''}`,
      of: isName ? (r) => html`<a class="text" href=${to({ ...linkOf(kind, r), compare })}>${plain(text(r), 260)}</a>`
        : (r) => (changed(r) ? html`<del class="text">${plain(text(r), 120)}</del> <ins class="text">${plain(r.today.cells[i] ?? '', 120)}</ins>` : plain(text(r), 300)) });
  });
  const open = (row) => go(linkOf(kind, row));
  const field = (key, label, size) => html`<input class="field" value=${{ labels, fields }[key]} placeholder=${label} aria-label=${label} size=${size} spellcheck="false" onChange=${(e) => go({ [key]: e.target.value.trim() }, { replace: true })} />`;
  return html`
    <div class="bar tools">
      <h1>${plain(resourceName(kind), 100)} <small>${table.loading && !rows.length ? '…' : rows.length.toLocaleString('en')}${table.left ? '+' : ''}</small></h1>
      ${kind.namespaced && html`<input class="field" list="namespaces" value=${ns} placeholder="all namespaces" aria-label="Namespace" size="14" spellcheck="false" onChange=${(e) => go({ ns: e.target.value.trim() }, { replace: true })} />
        <datalist id="namespaces">${(namespaces.value ?? [about?.namespace]).map((n) => html`<option value=${n}></option>`)}</datalist>`}
      <input id="search" class="field" type="search" value=${filter} placeholder="filter  /" aria-label="Filter by text" size="14" spellcheck="false" onInput=${(e) => go({ filter: e.target.value }, { replace: true })} />
      ${field('labels', 'label selector', 12)}
      ${field('fields', 'field selector', 12)}
      <label class="small"><input type="checkbox" checked=${!!wide} onChange=${(e) => go({ wide: e.target.checked ? '1' : '' }, { replace: true })} /> all columns</label>
      ${at && html`<label class="small"><input type="checkbox" checked=${!!compare} onChange=${(e) => go({ compare: e.target.checked ? '1' : '' }, { replace: true })} /> then and now</label>`}
    </div>
    <${Problem} error=${table.error} what=${resourceName(kind) + (kind.namespaced && !ns ? ' of all namespaces; a namespace may be allowed' : '')} />
    <${Problem} error=${at && compare ? today.error : null} what="the objects of now" />
    ${!(table.error && !rows.length) && html`<${Rows} label=${resourceName(kind)} moment=${table.loading ? undefined : table.moment} columns=${columns.length ? columns : [{ name: 'Name', text: () => '' }]} rows=${rows} keyOf=${keyOf} onOpen=${open}
      onEnd=${table.left && rows.length >= most ? () => setMost(most * 2) : undefined} rowClass=${(r) => (r.mark ? 'is-' + r.mark : '') + (r.fresh > Date.now() - 2000 ? ' fresh' : '')}
      empty=${table.loading ? 'Reading…' : at ? `There were none at revision ${at}.` : 'There are none.'} />`}`;
}

const linkOf = (kind, row) => ({ view: 'objects', kind: kind.id, ns: row.object.metadata.namespace ?? '', name: row.object.metadata.name });
