// View 4: the policies that were in force, and the CUE of one of them.
import { html, useEffect, useMemo, useRef } from './ui.js';
import { to, go, useAddress } from './state.js';
import { read, useRead } from './server.js';
import { Problem, Choice } from './parts.js';
import { plain } from './text.js';

const base = '/apis/policy.stele.dev/v1/policies';

// inForce returns the policy in force at a revision.
export const inForce = (list, at) => (at ? list.flatMap((p) => (p.status.revisions ?? [p.status.revision]).map((r) => ({ p, r }))).filter((x) => x.r <= Number(at)).sort((a, b) => b.r - a.r)[0]?.p : list.find((p) => p.status.inForce));

export function PolicyView() {
  const { at, policy, file, line } = useAddress();
  const list = useRead((signal) => read(base, { signal }), []);
  const items = list.value?.items ?? [];
  const chosen = policy ?? inForce(items, at)?.status.digest;
  const one = useRead((signal) => (chosen ? read(`${base}/${encodeURIComponent(chosen)}`, { signal }) : null), [chosen]);
  const files = (one.value?.spec.files ?? []).filter((f) => f.data !== undefined).sort((a, b) => (a.path < b.path ? -1 : 1));
  const shown = files.find((f) => f.path === file) ?? files.find((f) => !f.path.startsWith('cue.mod/')) ?? files[0];
  const activations = useMemo(() => items.flatMap((p) => (p.status.revisions ?? [p.status.revision]).map((r) => ({ r, p }))).sort((a, b) => b.r - a.r), [list.value]);
  const current = inForce(items, at)?.status.digest;
  return html`<div class="objects">
    <nav class="kinds policies" aria-label="Policies and files">
      <h2>In force since</h2>
      <ul>${activations.map(({ r, p }) => html`<li key=${r}><a href=${to({ view: 'policy', policy: p.status.digest, file })} aria-current=${p.status.digest === chosen ? 'page' : undefined}>${r} <code>${plain(p.status.digest.slice(0, 12), 20)}</code>${p.status.digest === current ? html` <small class="good">${at ? 'then' : 'now'}</small>` : ''}</a></li>`)}</ul>
      <h2>Files</h2>
      <ul>${files.map((f) => html`<li key=${f.path}><a class="text" href=${to({ view: 'policy', policy, file: f.path })} aria-current=${f === shown ? 'page' : undefined}>${plain(f.path, 120)}</a></li>`)}</ul>
      <label class="narrow">File <${Choice} options=${files.map((f) => f.path)} value=${shown?.path} onChange=${(e) => go({ file: e.target.value, line: '' })} /></label>
    </nav>
    <main>
      <${Problem} error=${list.error ?? one.error} what="the policy" />
      ${one.value && html`<div class="bar tools"><h1><code>${plain(one.value.status.digest.slice(0, 12), 20)}</code> <small class="text">${plain(shown?.path, 200)}</small></h1>
        <span class="dim text">${one.value.status.cluster ? plain(one.value.status.cluster, 80) + ' · ' : ''}activated at ${plain((one.value.status.revisions ?? []).join(', '), 120)} by ${plain(one.value.status.actor, 120)}${one.value.spec.commit ? ' · commit ' + plain(one.value.spec.commit, 60) : ''}</span></div>`}
      ${file && shown && shown.path !== file && html`<p class="hint">This policy has no file ${plain(file, 200)}.</p>`}
      ${shown && html`<${Cue} key=${shown.path + chosen} text=${shown.data} line=${Number(line) || 0} />`}
    </main>
  </div>`;
}

const token = /(\/\/.*$)|("(?:[^"\\]|\\.)*")|\b(package|import|for|in|if|let|true|false|null)\b|([A-Za-z_$#][\w$#-]*|"[^"]*")(?=\??!?:)|(#[A-Z]\w*)|\b(\d[\d_.]*\w*)\b/g;

// colour returns the parts of a line of CUE, each with its class.
function colour(line) {
  const out = [];
  let at = 0;
  for (const m of line.matchAll(token)) {
    if (m.index > at) out.push([line.slice(at, m.index)]);
    const kind = m[1] ? 'comment' : m[2] ? (/^\s*\??!?:/.test(line.slice(m.index + m[0].length)) ? 'k' : 'string') : m[3] ? 'word' : m[4] ? 'k' : m[5] ? 'definition' : 'number';
    out.push([m[0], kind]);
    at = m.index + m[0].length;
  }
  if (at < line.length) out.push([line.slice(at)]);
  return out;
}

function Cue({ text, line }) {
  const box = useRef();
  useEffect(() => { box.current.querySelector('.is-chosen')?.scrollIntoView({ block: 'center' }); }, [line]);
  const all = useMemo(() => text.replace(/\n$/, '').split('\n').slice(0, 20_000).map((l) => (l.length > 2000 ? [[l]] : colour(l))), [text]);
  return html`<div class="cue pane" ref=${box} tabindex="0" role="region" aria-label="CUE">${all.map((parts, i) => html`<div class=${'line' + (i + 1 === line ? ' is-chosen' : '')}><a class="n" href=${to({ ...pickPolicy(), line: i + 1 })} tabindex="-1">${i + 1}</a><span>${parts.map(([t, kind]) => (kind ? html`<span class=${kind + ' text'}>${plain(t)}</span>` : html`<span class="text">${plain(t)}</span>`))}</span></div>`)}</div>`;
}

function pickPolicy() {
  const { view, policy, file } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  return { view, policy, file };
}
