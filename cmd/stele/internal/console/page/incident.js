// View 2: what was written, by whom, in which order, and what was refused.
import { html, useMemo, useState } from './ui.js';
import { go, useAddress } from './state.js';
import { read, useRead } from './server.js';
import { useActivity, lastIndex } from './activity.js';
import { Problem, Warnings, Choice, Rows, Copy, Source, ObjectName, objectLink } from './parts.js';
import { plain, hue, objectName, resourceName, timeOf, userOf } from './text.js';
import { Differences } from './object.js';
import { schemaOf } from './schema.js';

// select returns the changes that the fields of the address select, the newest first.
export function select(changes, { actor, agent, since, until, resource }) {
  const first = since ? lastIndex(changes, (c) => c.revision < Number(since)) + 1 : 0;
  const end = until ? lastIndex(changes, (c) => c.revision <= Number(until)) + 1 : changes.length;
  const out = [];
  for (let i = end - 1; i >= first; i--) {
    const c = changes[i];
    if (actor && c.user !== actor || agent && !c.agent.startsWith(agent) || resource && (!c.object || resourceName(c.object) !== resource)) continue;
    out.push(c);
  }
  return out;
}

// The fields come from an address that somebody else may have written, so the command has them as words, and in one line.
const quoteShell = (s) => (/^[\w@:.,/+][\w@:.,/+-]*$/.test(s) ? s : `'${plain(s).replace(/\s+/g, ' ').replace(/'/g, `'\\''`)}'`);

// undoCommand returns the command that plans to take back what is shown: stele undo writes only with --yes, or after a question.
export function undoCommand({ actor, agent, since, until }) {
  if (!actor && !agent) return '';
  const number = (text) => (/^\d+$/.test(text) ? text : '');
  return ['stele undo', actor && `--actor ${quoteShell(actor)}`, agent && `--user-agent ${quoteShell(agent)}`, `--since ${number(since) || 1}`, number(until) && `--until ${until}`, '--dry-run'].filter(Boolean).join(' ');
}

// A cell of Markdown shows text as text.
const cell = (text) => plain(text, 300).replace(/[\\`*_{}[\]<>()#+!|~&-]/g, '\\$&').replace(/\s+/g, ' ');

export function toMarkdown(selected, refused, fields, server) {
  const actors = new Map();
  for (const c of selected) actors.set(userOf(c.actor), (actors.get(userOf(c.actor)) ?? 0) + 1);
  const out = [`# What happened on ${cell(server ?? 'the control plane')}`, ''];
  if (selected.length) out.push(`Revisions ${selected.at(-1).revision} to ${selected[0].revision}, ${new Date(selected.at(-1).time).toISOString()} to ${new Date(selected[0].time).toISOString()}.`, '');
  out.push('| user | changes |', '|---|---|', ...[...actors].map(([a, n]) => `| ${cell(a)} | ${n} |`), '');
  out.push('## Changes', '', '| revision | time | user | what | object | rule |', '|---|---|---|---|---|---|');
  for (const c of [...selected].reverse()) out.push(`| ${c.revision} | ${new Date(c.time).toISOString()} | ${cell(userOf(c.actor))} | ${c.type.toLowerCase()} | ${c.object ? cell(`${resourceName(c.object)} ${objectName(c.object)}`) : ''} | ${cell([c.rule, c.source].filter(Boolean).join(' '))} |`);
  if (refused?.length) {
    out.push('', '## Refused', '', '| time | user | verb | object | rule | why |', '|---|---|---|---|---|---|');
    for (const d of [...refused].reverse()) out.push(`| ${d.time} | ${cell(userOf(d.actor))} | ${cell(d.request?.verb)} | ${d.object ? cell(`${resourceName(d.object)} ${objectName(d.object)}`) : cell(d.request?.uri)} | ${cell([d.rule, d.source].filter(Boolean).join(' '))} | ${cell(d.message)} |`);
  }
  const command = undoCommand(fields);
  if (command) out.push('', '## To take it back', '', '```sh', command, '```');
  return out.join('\n') + '\n';
}

const refusedOutcomes = new Set(['Refused', 'Unauthenticated', 'Conflict', 'Failed']);

export function IncidentView({ about }) {
  const fields = useAddress(), { at, actor = '', agent = '', since = '', until = '', resource = '', change } = fields;
  const activity = useActivity();
  const last = until || at || '';
  const chosen = { actor, agent, since, until: last, resource };
  const selected = useMemo(() => select(activity.changes, chosen), [activity.changes, activity.changes.length, actor, agent, since, last, resource]);
  const names = useMemo(() => {
    const actors = new Map(), resources = new Set();
    for (const c of activity.changes) {
      if (c.user) actors.set(c.user, (actors.get(c.user) ?? 0) + 1);
      if (c.object) resources.add(resourceName(c.object));
    }
    return { actors: [...actors].sort((a, b) => b[1] - a[1]).map(([a]) => a), resources: [...resources].sort() };
  }, [activity.changes, activity.changes.length]);
  const decisions = useRead(async (signal) => {
    const selector = [actor && 'actor.user=' + escape(actor), `since=${since || 1}`, last && 'until=' + last, 'type!=Write'].filter(Boolean).join(',');
    const list = await read('/apis/log.stele.dev/v1/decisions?limit=500&fieldSelector=' + encodeURIComponent(selector), { signal });
    list.items = list.items.filter((d) => refusedOutcomes.has(d.outcome) && (!resource || d.object && resourceName(d.object) === resource) && (!agent || d.request?.userAgent?.startsWith(agent)));
    return list;
  }, [actor, agent, since, last, resource]);
  const refused = decisions.value?.items ?? [];
  const objects = useMemo(() => new Set(selected.map((c) => c.object && resourceName(c.object) + ' ' + objectName(c.object))).size, [selected]);
  const command = undoCommand(chosen);
  const markdown = () => toMarkdown(selected, refused, chosen, about?.server);
  const download = () => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([markdown()], { type: 'text/markdown' }));
    link.download = 'incident.md';
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const set = (key) => (e) => go({ [key]: e.target.value.trim() }, { replace: true });
  return html`<main class="incident">
    <div class="bar tools">
      <h1>Changes <small>${selected.length.toLocaleString('en')} of ${objects.toLocaleString('en')} objects</small></h1>
      <input id="search" class="field" list="actors" value=${actor} placeholder="any user  /" aria-label="User" size="18" spellcheck="false" onChange=${set('actor')} />
      <datalist id="actors">${names.actors.slice(0, 200).map((a) => html`<option value=${a}></option>`)}</datalist>
      <input class="field" value=${agent} placeholder="client begins with" aria-label="User agent begins with" size="14" spellcheck="false" onChange=${set('agent')} />
      <${Choice} class="field" options=${[['', 'all kinds'], ...names.resources]} value=${resource} aria-label="Kind" onChange=${set('resource')} />
      <input class="field" value=${since} placeholder="from revision" aria-label="From revision" size="10" inputmode="numeric" pattern="[0-9]*" onChange=${set('since')} />
      <input class="field" value=${until} placeholder=${at ? 'to ' + at : 'to now'} aria-label="To revision" size="10" inputmode="numeric" pattern="[0-9]*" onChange=${set('until')} />
      <${CopyLater} make=${markdown} /> <button type="button" class="small" onClick=${download}>Save Markdown</button>
    </div>
    ${activity.older && html`<p class="hint">These are the newest ${activity.changes.length.toLocaleString('en')} changes of the log. <q>older</q> beside the slider reads more.</p>`}
    ${command && selected.length > 0 && html`<p class="undo">To take it back: <code class="text">${plain(command, 400)}</code> <${Copy} text=${command} /> <span class="dim">It plans; without <code>--dry-run</code> it asks, and then writes.</span></p>`}
    <${Lanes} changes=${selected} refused=${refused} />
    <${Problem} error=${activity.error} what="the changes" />
    ${change && html`<${OneChange} revision=${change} />`}
    <${Rows} label="Changes" rows=${selected} keyOf=${(c) => c.revision} onOpen=${(c) => go({ change: String(c.revision) === change ? '' : String(c.revision) }, { replace: true })} selected=${(c) => String(c.revision) === change}
      columns=${[
        { name: 'Revision', class: 'number', text: (c) => String(c.revision) },
        { name: 'Time', most: 23, text: (c) => timeOf(c.time, { fraction: true }) },
        { name: 'User', most: 40, text: (c) => userOf(c.actor), of: (c) => html`<span class=${'who text ' + hue(c.user)}>${plain(userOf(c.actor), 160)}</span>` },
        { name: 'What', text: (c) => c.type.toLowerCase(), of: (c) => html`<span class=${'type ' + c.type.toLowerCase()}>${plain(c.type.toLowerCase(), 30)}</span>` },
        { name: 'Object', most: 60, text: (c) => (c.object ? `${c.object.resource} ${objectName(c.object)}` : ''), of: (c) => c.object && html`<${ObjectName} of=${c.object} at=${String(c.revision)} tab="history" />` },
        { name: 'Client', most: 30, text: (c) => c.agent },
        { name: 'Rule', most: 50, text: (c) => [c.rule, c.source].filter(Boolean).join(' '), of: (c) => html`<${Source} rule=${c.rule} source=${c.source} policy=${c.policy} />` },
      ]} empty=${activity.loading ? 'Reading…' : 'No change is selected.'} />
    <h2>Refused <small>${refused.length}${decisions.value?.metadata?.continue ? '+' : ''}</small></h2>
    <${Problem} error=${decisions.error} what="what was refused" /><${Warnings} of=${decisions.value} />
    ${refused.length > 0 && html`<div class="pane" tabindex="0" role="region" aria-label="Refused"><table class="grid"><thead><tr><th>Time</th><th>User</th><th>Request</th><th>Code</th><th>Stage</th><th>Rule</th><th>Why</th></tr></thead><tbody>
      ${refused.slice(0, 200).map((d) => html`<tr><td class="t">${timeOf(d.time, { fraction: true })}</td><td class=${'who text ' + hue(d.actor?.user)}>${plain(userOf(d.actor ?? { user: 'nobody' }), 120)}</td><td class="text">${plain(d.request?.verb, 20)} ${d.object?.resource ? plain(`${resourceName(d.object)} ${objectName(d.object)}`, 160) : plain(d.request?.uri, 160)}</td><td class="bad">${d.code}</td><td>${plain(d.stage, 30)}</td><td><${Source} rule=${d.rule} source=${d.source} policy=${d.policy} /></td><td class="text">${plain(d.message, 300)}</td></tr>`)}
    </tbody></table></div>`}
  </main>`;
}

function escape(value) { return String(value).replace(/[\\,=]/g, '\\$&'); }

function CopyLater({ make }) {
  const [text, setText] = useState(null);
  const copy = async () => {
    await navigator.clipboard.writeText(make());
    setText(true);
    setTimeout(() => setText(null), 1500);
  };
  return html`<button type="button" class="small" onClick=${copy}>${text ? 'Copied' : 'Copy as Markdown'}</button>`;
}

// Lanes draws a lane for each of the users with the most changes: a mark for each change, by its order, and one for each refusal.
function Lanes({ changes, refused }) {
  const lanes = useMemo(() => {
    if (!changes.length) return null;
    const to = changes[0].time, from = Math.min(changes.at(-1).time, to - 1);
    const all = new Map();
    const lane = (user) => { if (!all.has(user)) all.set(user, { user, marks: [], count: 0 }); return all.get(user); };
    const place = (t) => Math.round(((t - from) / (to - from)) * 990) + 5;
    for (const c of changes) {
      const l = lane(c.user || 'the log'), x = place(c.time);
      l.count++;
      if (l.marks.at(-1)?.x !== x || l.marks.at(-1).type !== c.type) l.marks.push({ x, type: c.type, c, n: 1 });
      else l.marks.at(-1).n++;
    }
    for (const d of refused) {
      const t = Date.parse(d.time);
      if (t < from || t > to) continue;
      const l = lane(d.actor?.user || 'nobody');
      l.marks.push({ x: place(t), type: 'Refused', n: 1 });
    }
    return { from, to, list: [...all.values()].sort((a, b) => b.count - a.count).slice(0, 8), more: Math.max(0, all.size - 8) };
  }, [changes, refused]);
  if (!lanes) return null;
  return html`<div class="lanes" role="group" aria-label="Changes by user and time">
    ${lanes.list.map((l) => html`<div class="lane"><button type="button" class=${'who text ' + hue(l.user)} title="Only this user" onClick=${() => go({ actor: l.user }, { replace: true })}>${plain(l.user, 60)} <small>${l.count}</small></button>
      <svg viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label=${`${l.count} changes of ${plain(l.user, 60)}`}>${l.marks.slice(0, 2000).map((m) => html`<rect x=${m.x - 2} y=${m.type === 'Refused' ? 0 : 4} width="4" height=${m.type === 'Refused' ? 20 : 12} class=${'m ' + m.type.toLowerCase()} onClick=${() => m.c && go({ change: String(m.c.revision) }, { replace: true })}></rect>`)}</svg></div>`)}
    <div class="axis"><span>${timeOf(lanes.from)}</span>${lanes.more > 0 && html`<span>and ${lanes.more} more users</span>`}<span>${timeOf(lanes.to)}</span></div>
  </div>`;
}

function OneChange({ revision }) {
  const change = useRead(async (signal) => {
    const list = await read(`/apis/log.stele.dev/v1/changes?limit=1&fieldSelector=${encodeURIComponent(`since=${revision},until=${revision}`)}`, { signal, exact: true });
    return list.items[0] ?? null;
  }, [revision]);
  const c = change.value, o = c?.object;
  const kind = o && { group: o.group ?? '', version: o.version, kind: o.kind, resource: o.resource };
  const schema = useRead(() => (kind ? schemaOf(kind, String(revision)).catch((e) => { if (e.code === 404 || e.code === 410) return undefined; throw e; }) : undefined), [revision, !!o]);
  if (change.error || schema.error) return html`<${Problem} error=${change.error ?? schema.error} what=${'change ' + plain(revision, 30)} />`;
  if (!c || schema.loading) return null;
  return html`<section class="one" aria-label="Change"><div class="bar small"><b>${c.revision}</b> ${timeOf(c.time, { fraction: true })} <span class=${'who text ' + hue(c.actor?.user)}>${plain(userOf(c.actor), 160)}</span> ${plain(c.type.toLowerCase(), 30)} ${o && html`<a class="text" href=${objectLink(o, { at: String(c.revision) })}>${plain(`${resourceName(o)} ${objectName(o)}`, 200)}</a>`}
      <span class="dim text">${plain([c.request?.userAgent, (c.request?.sourceIPs ?? []).join(' '), c.request?.auditID && 'audit ID ' + c.request.auditID].filter(Boolean).join(' · '), 300)}</span> <${Source} rule=${c.decision?.rule} source=${c.decision?.source} policy=${c.policy} />
      <button type="button" class="small" onClick=${() => go({ change: '' }, { replace: true })}>close</button></div>
    ${kind && html`<${Differences} of=${c.difference} kind=${kind} schema=${schema.value} sensitive=${o.sensitive} />`}</section>`;
}
