// View 3: who may do something, why a request is decided as it is, and how two moments differ.
import { html, useState } from './ui.js';
import { go, useAddress } from './state.js';
import { ask, useRead } from './server.js';
import { loadKinds, findKind } from './kinds.js';
import { resolveMoment } from './moment.js';
import { Problem, Choice, Source } from './parts.js';
import { plain, resourceName, timeOf } from './text.js';

const verbs = ['get', 'list', 'watch', 'create', 'update', 'patch', 'delete', 'deletecollection', 'history'];
const policyPath = '/apis/policy.stele.dev/v1/';

// subject returns a user, group or service account as text.
const subject = (s) => (s.group ? 'group ' + s.group : s.serviceAccount ? 'service account ' + (s.serviceAccount.namespace ? s.serviceAccount.namespace + '/' + s.serviceAccount.name : JSON.stringify(s.serviceAccount)) : 'user ' + (s.user ?? JSON.stringify(s)));

export function AccessView() {
  const fields = useAddress(), { at, verb = 'get', kind: id, sub = '', ns = '', name = '', as = '', groups = '', from = '' } = fields;
  const kinds = useRead((signal) => loadKinds(at, signal), [at]);
  const kind = findKind(kinds.value, id) ?? kinds.value?.[0];
  const scope = kind && { group: kind.group, resource: kind.resource, subresource: sub || undefined };
  const who = useRead((signal) => scope && ask(policyPath + 'resourceaccessreviews', 'ResourceAccessReview', {
    verb, ...scope, name: name || undefined, ...(ns ? { namespace: ns } : kind.namespaced ? { anyNamespace: true } : {}), revision: at ? Number(at) : undefined,
  }, { signal }), [verb, kind?.id, sub, ns, name, at]);
  const needsName = ['get', 'update', 'patch', 'delete'].includes(verb);
  const explained = useRead((signal) => scope && verb !== 'history' && (name || !needsName) && (ns || !kind.namespaced || !needsName) ? ask(policyPath + 'explanations', 'Explanation', {
    verb, ...scope, version: kind.version, namespace: ns || undefined, name: needsName ? name : undefined, user: as || undefined, groups: as && groups ? groups.split(/[\s,]+/).filter(Boolean) : undefined,
  }, { signal }) : null, [verb, kind?.id, sub, ns, name, as, groups]);
  const compared = useRead((signal) => (from ? ask(policyPath + 'accessdifferences', 'AccessDifference', { from: { revision: Number(from) }, to: at ? { revision: Number(at) } : {} }, { signal }) : null), [from, at]);
  const set = (key) => (e) => go({ [key]: e.target.value.trim() }, { replace: true });
  const input = (key, value, label, size) => html`<input class="field" id=${key === 'name' ? 'search' : undefined} value=${value} placeholder=${label} aria-label=${label} size=${size} spellcheck="false" onChange=${set(key)} />`;
  return html`<main class="access pane" tabindex="0">
    <div class="bar tools"><h1>Who can</h1>
      <${Choice} class="field" options=${verbs} value=${verb} aria-label="Verb" onChange=${set('verb')} />
      <${Choice} class="field" options=${(kinds.value ?? []).map((k) => [k.id, resourceName(k)])} value=${kind?.id} aria-label="Kind" onChange=${set('kind')} />
      ${input('sub', sub, 'subresource', 10)}${input('ns', ns, 'any namespace', 14)}${input('name', name, 'any name', 14)}
    </div>
    <${Problem} error=${kinds.error ?? who.error} what="who may do it" />
    ${who.value && html`<p class="hint">By the policy <code>${plain(who.value.policy?.slice(0, 12), 20)}</code> of revision ${who.value.policyRevision}, as of revision ${who.value.revision}. Members of groups are not listed.</p>
      <table class="grid"><thead><tr><th>Who</th><th>Binding</th><th>Role</th><th>Namespaces</th><th>Names</th><th>Condition</th><th>Since</th></tr></thead><tbody>
      ${who.value.holders.map((h) => html`<tr class=${h.denied ? 'denied' : ''}><td class="text">${plain(subject(h.subject), 160)}${h.denied && html` <b class="bad">denied</b>`}</td><td><${Source} rule=${h.binding.id} source=${h.binding.source} policy=${who.value.policy} /></td><td>${plain(h.role, 80)} <${Source} source=${h.rule?.source} policy=${who.value.policy} /></td><td class="text">${plain((h.namespaces ?? []).join(', '), 120)}</td><td class="text">${plain((h.names ?? []).join(', '), 120)}</td><td class="text"><code>${plain(h.when, 200)}</code></td><td>${h.since ? html`${h.since.atLeast ? 'before ' : ''}${h.since.revision} <span class="dim">${h.since.time ? timeOf(h.since.time) : ''} ${plain(h.since.actor, 60)}</span>` : ''}</td></tr>`)}
      ${!who.value.holders.length && html`<tr><td colspan="7">Nobody, by the rules of the policy.</td></tr>`}</tbody></table>
      ${who.value.denies?.length > 0 && html`<table class="grid"><caption>Denies</caption><tbody>${who.value.denies.map((d) => html`<tr><td><${Source} rule=${d.id} source=${d.source} policy=${who.value.policy} /></td><td class="text">${plain((d.subjects ?? []).map(subject).join(', '), 200)}</td><td class="text">${plain(d.reason, 200)}</td></tr>`)}</tbody></table>`}
      ${who.value.outsiders?.length > 0 && html`<p class="hint">Authorizers outside the policy may decide otherwise: ${plain(who.value.outsiders.map((o) => o.authorizer).join(', '), 200)}.</p>`}`}

    <h2>Explain the request</h2>
    <div class="bar tools">${input('as', as, 'as yourself, or a user', 22)}${input('groups', groups, 'groups of that user', 22)}</div>
    <${Problem} error=${explained.error} what="why a request is decided so" />
    ${!explained.value && !explained.error && html`<p class="hint">Give ${needsName ? 'a name' : ''}${needsName && kind?.namespaced ? ' and ' : ''}${kind?.namespaced && needsName ? 'a namespace' : ''} above: then each stage's decision is shown. Nothing is written.</p>`}
    ${explained.value && html`<p class="hint">${explained.value.allowed ? html`<b class="good">Allowed</b>, as far as it is decided:` : html`<b class="bad">Refused</b>`} ${explained.value.code || ''} ${plain(explained.value.message, 400)}${at ? ' This is decided now, not at the moment.' : ''}</p>
      <ol class="stages">${explained.value.stages.map((s) => html`<li class=${s.verdict}><b>${plain(s.name, 40)}</b> <span class=${{ passed: 'good', refused: 'bad' }[s.verdict] ?? 'dim'}>${plain(s.verdict, 20)}</span> <${Source} rule=${s.rule} source=${s.source} policy=${explained.value.policy} /> <span class="text">${plain(s.message, 400)}</span>
        ${s.considered?.length > 0 && html`<ul>${s.considered.map((c) => html`<li><${Source} rule=${c.rule} source=${c.source} policy=${explained.value.policy} /> ${plain(c.verdict, 100)} <span class="dim text">${plain(c.reason, 200)}</span></li>`)}</ul>`}</li>`)}</ol>`}

    <h2>What changed since</h2>
    <${Since} value=${from} />
    <${Problem} error=${compared.error} what="who gained or lost access" />
    ${compared.value && html`<p class="hint">From revision ${compared.value.from.revision} to ${compared.value.to.revision}: ${compared.value.changes.length || 'no'} ${compared.value.changes.length === 1 ? 'change' : 'changes'}.</p>
      <table class="grid"><tbody>${compared.value.changes.map((c) => html`<tr><td>${plain(c.type, 30)}</td><td class="text">${plain(subject(c.subject), 160)}</td><td class="text">${plain(scopeText(c), 400)}</td><td>${(c.by ?? []).map((b) => html`<${Source} rule=${b.id} source=${b.source} policy=${compared.value.to.policy} /> `)}</td></tr>`)}</tbody></table>`}
  </main>`;
}

function scopeText(c) {
  const list = (title, has, except) => (has?.length || except?.length ? `${title} ${(has ?? ['*']).join(', ')}${except?.length ? ' except ' + except.join(', ') : ''}` : '');
  return [list('verbs', c.verbs, c.exceptVerbs), list('groups', c.apiGroups?.map((g) => g || 'core'), c.exceptAPIGroups), list('resources', c.resources, c.exceptResources), list('subresources', c.subresources, c.exceptSubresources),
    list('names', c.names, c.exceptNames), list('namespaces', c.namespaces, c.exceptNamespaces), list('paths', c.paths, c.exceptPaths), c.before && 'before: ' + c.before, c.after && 'after: ' + c.after].filter(Boolean).join('; ');
}

function Since({ value }) {
  const [error, setError] = useState('');
  const change = async (e) => {
    try {
      setError('');
      go({ from: await resolveMoment(e.target.value) }, { replace: true });
    } catch (x) {
      setError(x.message);
    }
  };
  return html`<div class="bar tools"><input class="field" value=${value} placeholder="a moment: 1h, 14:00, 1200" aria-label="Since which moment" size="26" onChange=${change} />${error && html`<span role="alert" class="wrong">${plain(error)}</span>`}</div>`;
}
