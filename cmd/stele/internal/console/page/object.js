// One object: as YAML, then and now, its history, and who gave each field its value.
import { html, useMemo, useState } from './ui.js';
import { go, to, useAddress } from './state.js';
import { read, ask, below, useRead, now } from './server.js';
import { objectPath, loadKinds } from './kinds.js';
import { useActivity } from './activity.js';
import { Problem, Choice, Copy, Source, objectLink } from './parts.js';
import { plain, age, hue, inLine, resourceName, timeOf, userOf } from './text.js';
import { lines, pathText, differences } from './yaml.js';
import { schemaOf, fieldOf, hide, hideValue, hasSecrets, hiddenText } from './schema.js';

const tabs = { yaml: 'YAML', compare: 'Then and now', history: 'History', blame: 'Blame' };

export function ObjectView({ kind }) {
  const { at, ns, name, tab = 'yaml' } = useAddress();
  const newest = useNewest(kind, ns, name);
  const object = useRead((signal) => read(objectPath(kind, ns, name, at), { signal, exact: true }), [kind.id, ns, name, at, at ? 0 : newest]);
  // What is secret is known from the schema, so nothing is shown before it is read.
  const schema = useRead(() => schemaOf(kind, at).catch((e) => { if (e.code === 404) return undefined; throw e; }), [kind.id, at]);
  const ready = !schema.loading && !schema.error;
  const up = to({ view: 'objects', kind: kind.id, ns: '' });
  return html`
    <div class="bar tools">
      <h1><a href=${up} title="Back to the list: u" id="up">${plain(resourceName(kind), 80)}</a> <span class="dim">/</span> ${ns && html`<span class="dim text">${plain(ns, 80)}</span> <span class="dim">/</span> `}<span class="text">${plain(name, 260)}</span></h1>
      <div role="tablist" class="tabs">${Object.entries(tabs).map(([id, title]) => html`<a role="tab" aria-selected=${id === tab} href=${to({ view: 'objects', kind: kind.id, ns, name, tab: id })}>${title}</a>`)}</div>
    </div>
    <div class="pane" tabindex="0" role="region" aria-label=${tabs[tab]} data-moment=${object.loading ? undefined : object.value?.$revision ?? ''}>
      <${Problem} error=${schema.error} what="the schema, which says which fields are secret" />
      ${ready && tab === 'yaml' && html`<${Problem} error=${object.error} what=${at ? `this object at revision ${at}` : 'this object'} />${object.value && html`<${Detail} kind=${kind} object=${object.value} schema=${schema.value} />`}`}
      ${ready && tab === 'compare' && html`<${Compare} kind=${kind} then=${object} schema=${schema.value} newest=${newest} />`}
      ${ready && tab === 'history' && html`<${History} kind=${kind} schema=${schema.value} newest=${newest} />`}
      ${ready && tab === 'blame' && html`<${Blame} kind=${kind} schema=${schema.value} />`}
    </div>`;
}

// useNewest returns the revision of the newest change of an object, so that what is shown of now is read again.
function useNewest(kind, ns, name) {
  const { changes } = useActivity();
  for (let i = changes.length - 1; i >= 0; i--) {
    const o = changes[i].object;
    if (o && o.name === name && o.resource === kind.resource && (o.group ?? '') === kind.group && (o.namespace ?? '') === (kind.namespaced ? ns ?? '' : '')) return changes[i].revision;
  }
  return 0;
}

function Detail({ kind, object, schema }) {
  const { at } = useAddress();
  const [managed, setManaged] = useState(false), [field, setField] = useState(null);
  const shown = useMemo(() => {
    const copy = hide(kind, schema, object);
    if (!managed) delete copy.metadata.managedFields;
    return copy;
  }, [object, schema, managed]);
  const all = useMemo(() => lines(shown), [shown]);
  const conditions = Array.isArray(object.status?.conditions) ? object.status.conditions : [];
  const owners = object.metadata.ownerReferences ?? [];
  const described = field && fieldOf(schema, field)?.description;
  return html`
    ${conditions.length > 0 && html`<table class="grid"><caption>Conditions</caption><thead><tr><th>Type</th><th>Status</th><th>Reason</th><th>Since</th><th>Message</th></tr></thead>
      <tbody>${conditions.map((c) => html`<tr><td class="text">${plain(c.type, 80)}</td><td class=${c.status === 'True' ? 'good' : c.status === 'False' ? 'bad' : ''}>${plain(c.status, 20)}</td><td class="text">${plain(c.reason, 80)}</td><td title=${timeOf(c.lastTransitionTime)}>${c.lastTransitionTime ? (at ? timeOf(c.lastTransitionTime) : age(now() - Date.parse(c.lastTransitionTime))) : ''}</td><td class="text">${plain(c.message, 400)}</td></tr>`)}</tbody></table>`}
    ${owners.length > 0 && html`<p class="owners">Owned by ${owners.map((o, i) => html`${i ? ', ' : ''}<${Owner} of=${o} ns=${object.metadata.namespace} />`)}</p>`}
    <${Events} object=${object} />
    <div class="bar small"><label><input type="checkbox" checked=${managed} onChange=${(e) => setManaged(e.target.checked)} /> managedFields</label><${Copy} text=${toText(all)} label="Copy YAML" />
      <span class="describe text" aria-live="polite">${described ? html`<b>${plain(pathText(field), 120)}</b> ${plain(described, 400)}` : ''}</span></div>
    <div class="yaml" role="group" aria-label="The object as YAML">${all.map((l) => html`<div class="line" onMouseEnter=${() => setField(l.path)}>${'  '.repeat(Math.max(0, l.indent - l.dash))}${'- '.repeat(l.dash)}${l.key && html`<span class="k text">${l.key}</span>: `}<span class=${'v text ' + (l.kind ?? '')}>${l.text}</span></div>`)}</div>`;
}

const toText = (all) => all.map((l) => '  '.repeat(Math.max(0, l.indent - l.dash)) + '- '.repeat(l.dash) + (l.key ? l.key + ': ' : '') + l.text).join('\n') + '\n';

function Owner({ of: o, ns }) {
  const { at } = useAddress();
  const kinds = useRead((signal) => loadKinds(at, signal), [at]);
  const [group] = o.apiVersion.includes('/') ? o.apiVersion.split('/') : [''];
  const kind = kinds.value?.find((k) => k.group === group && k.kind === o.kind);
  const text = plain(`${o.kind} ${o.name}`, 200);
  return kind ? html`<a class="text" href=${to({ view: 'objects', kind: kind.id, ns: kind.namespaced ? ns : '', name: o.name })}>${text}</a>` : html`<span class="text">${text}</span>`;
}

function Events({ object }) {
  const { at } = useAddress();
  const { namespace, uid } = object.metadata;
  const events = useRead(async (signal) => {
    if (!namespace) return [];
    const list = await read(`${below(at)}/api/v1/namespaces/${encodeURIComponent(namespace)}/events?limit=50&fieldSelector=involvedObject.uid%3D${uid}`, { signal });
    return list.items;
  }, [uid, at]);
  if (!events.value?.length) return null;
  return html`<table class="grid"><caption>Events</caption><tbody>${events.value.map((e) => html`<tr><td>${timeOf(e.lastTimestamp ?? e.eventTime ?? e.metadata.creationTimestamp)}</td><td class=${e.type === 'Warning' ? 'bad' : ''}>${plain(e.type, 20)}</td><td class="text">${plain(e.reason, 80)}</td><td class="text">${plain(e.message, 400)}</td></tr>`)}</tbody></table>`;
}

// Fields that the server keeps, which differ between any two versions.
const kept = /^metadata\.(resourceVersion|generation|managedFields)/;

function Compare({ kind, then, schema, newest }) {
  const { at, ns, name, all } = useAddress();
  const today = useRead((signal) => read(objectPath(kind, ns, name), { signal, exact: true }).catch((e) => { if (e.code === 404) return null; throw e; }), [kind.id, ns, name, newest]);
  if (!at) return html`<p class="hint">Choose a moment by the slider, or by <kbd>[</kbd>: this shows which fields differ between then and now.</p>`;
  const gone = then.error?.code === 404;
  if (then.error && !gone || today.error) return html`<${Problem} error=${today.error ?? then.error} what="this object then and now" />`;
  if (!then.value && !gone || today.value === undefined) return html`<p class="hint">Reading…</p>`;
  const before = gone ? null : hide(kind, schema, then.value), after = today.value && hide(kind, schema, today.value);
  const differ = differences(before, after).filter((d) => all || !kept.test(d.path));
  // A hidden value may differ, too.
  const secret = before && after && JSON.stringify(then.value) !== JSON.stringify(today.value) && !differ.length && differences(then.value, today.value).some((d) => !kept.test(d.path));
  return html`
    <p class="hint">${gone ? `It did not exist at revision ${at}.` : !after ? 'It is deleted since.' : `${differ.length} ${differ.length === 1 ? 'field differs' : 'fields differ'}.`}${secret ? ' A hidden value differs.' : ''} <label><input type="checkbox" checked=${!!all} onChange=${(e) => go({ all: e.target.checked ? '1' : '' }, { replace: true })} /> fields that the server keeps</label></p>
    <table class="grid compare"><thead><tr><th>Field</th><th>At revision ${at}</th><th>Now</th></tr></thead><tbody>
      ${differ.map((d) => html`<tr><td class="text">${plain(d.path, 300)}</td><td class="text then">${d.then === undefined ? html`<span class="dim">absent</span>` : plain(d.then, 600)}</td><td class="text now">${d.now === undefined ? html`<span class="dim">absent</span>` : plain(d.now, 600)}</td></tr>`)}
    </tbody></table>`;
}

const quote = (value) => String(value).replace(/[\\,=]/g, '\\$&');

// Differences lists the fields that a change changed. Without a schema for it, values of an object with secrets are hidden.
export function Differences({ of: list, kind, schema, sensitive, most = 30 }) {
  const unknown = sensitive && !(kind.kind === 'Secret' && !kind.group) && !(schema && hasSecrets(schema));
  const value = (d, v) => (unknown && !d.path.startsWith('metadata') && v !== undefined ? hiddenText : hideValue(kind, schema, d.path, v));
  return html`<ul class="diff">${(list ?? []).slice(0, most).map((d) => html`<li class=${d.op}><b>${{ add: '+', remove: '−', replace: '~' }[d.op]}</b> <span class="text path">${plain(d.path, 200)}</span> ${d.op === 'replace'
    ? html`<del class="text">${inLine(value(d, d.from))}</del> → <ins class="text">${inLine(value(d, d.to))}</ins>` : html`<span class="text">${inLine(value(d, d.op === 'add' ? d.to : d.from))}</span>`}</li>`)}${list?.length > most && html`<li class="dim">and ${list.length - most} more</li>`}</ul>`;
}

function History({ kind, schema, newest }) {
  const { at, ns, name } = useAddress();
  const changes = useRead((signal) => read(`/apis/log.stele.dev/v1/${kind.namespaced && ns ? `namespaces/${encodeURIComponent(ns)}/` : ''}changes?limit=200&fieldSelector=` + encodeURIComponent(
    `object.group=${quote(kind.group)},object.resource=${quote(kind.resource)},object.name=${quote(name)},object.namespace=${quote(kind.namespaced ? ns ?? '' : '')}`), { signal, exact: true }), [kind.id, ns, name, newest]);
  const list = changes.value?.items ?? [];
  const shown = at ? list.find((c) => c.revision <= Number(at)) : list[0];
  return html`<${Problem} error=${changes.error} what="the history of this object" />
    ${changes.value?.metadata.continue && html`<p class="hint">The newest 200 changes; <code>stele history</code> lists all.</p>`}
    <ol class="versions">${list.map((c) => html`<li key=${c.revision} class=${c === shown ? 'selected' : ''}>
      <a class="when" href=${objectLink({ ...kind, namespace: ns, name }, { at: String(c.revision), tab: 'history' })}><b>${c.revision}</b> ${timeOf(c.time, { fraction: true })}</a>
      <span class=${'who text ' + hue(c.actor?.user)}>${plain(userOf(c.actor), 120)}</span>
      <span class=${'type ' + c.type.toLowerCase()}>${plain(c.type.toLowerCase(), 30)}</span>
      <span class="dim text">${plain(c.request?.userAgent, 80)}</span>
      <${Source} rule=${c.decision?.rule} source=${c.decision?.source} policy=${c.policy} />
      <${Differences} of=${c.difference} kind=${kind} schema=${schema} sensitive=${c.object?.sensitive} />
    </li>`)}</ol>`;
}

function Blame({ kind, schema }) {
  const { at, ns, name, color = 'actor' } = useAddress();
  const blame = useRead((signal) => ask('/apis/log.stele.dev/v1/blames', 'Blame', { group: kind.group, version: kind.version, resource: kind.resource, namespace: kind.namespaced ? ns : undefined, name, revision: at ? Number(at) : undefined }, { signal, exact: true }), [kind.id, ns, name, at]);
  const fields = blame.value?.fields ?? [];
  const revisions = [...new Set(fields.map((f) => f.revision ?? 0))].sort((a, b) => b - a);
  const tint = (f) => (color === 'actor' ? (f.type === 'Server' ? 'age4' : hue(f.actor)) : 'age' + Math.min(4, Math.floor((revisions.indexOf(f.revision ?? 0) / revisions.length) * 5)));
  let before = '';
  return html`<${Problem} error=${blame.error} what="who gave this object its values" />
    <div class="bar small"><label>colour by <${Choice} options=${['actor', 'age']} value=${color} onChange=${(e) => go({ color: e.target.value }, { replace: true })} /></label>
      <span class="dim">${blame.value ? `as of revision ${blame.value.revision}; last written at ${blame.value.objectRevision}` : ''}</span></div>
    <table class="grid blame"><thead><tr><th>Revision</th><th>When</th><th>Who</th><th>How</th><th>Field</th><th>Value</th></tr></thead><tbody>
    ${fields.map((f) => {
      const parent = f.path.slice(0, Math.max(f.path.lastIndexOf('.'), 0)), same = parent && before.startsWith(parent + '.');
      before = f.path;
      const secret = hideValue(kind, schema, f.path, f.value);
      return html`<tr key=${f.path} class=${tint(f)}><td><a href=${to({ view: 'objects', kind: kind.id, ns, name, tab: 'blame', at: f.revision ? String(f.revision) : at })}>${f.revision ?? ''}</a></td><td class="t">${f.time ? timeOf(f.time) : ''}</td>
        <td class="text who">${f.type === 'Server' ? html`<span class="dim">the server</span>` : plain(userOf({ user: f.actor ?? '', impersonator: f.impersonator }), 120)}</td>
        <td>${f.type === 'Created' || f.type === 'Updated' ? plain(f.verb ?? f.type.toLowerCase(), 30) : plain(f.note || f.type.toLowerCase(), 80)} <${Source} rule=${f.rule} source=${f.source} policy=${f.policy} /></td>
        <td class="text path">${same ? html`<span class="dim">${plain(parent, 200)}</span>${plain(f.path.slice(parent.length), 200)}` : plain(f.path, 300)}</td><td class="text value">${plain(secret, 400)}</td></tr>`;
    })}</tbody></table>`;
}
