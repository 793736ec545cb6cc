// View 5: what the server does now: replicas, checks, priority levels and flows, and seats over time.
import { html, useEffect, useRef, useState } from './ui.js';
import { read, readText, pause } from './server.js';
import { Problem } from './parts.js';
import { plain, timeOf } from './text.js';

const every = 2000, kept = 150; // five minutes

// usePoll reads again and again while the view is shown.
function usePoll(load) {
  const [result, set] = useState({});
  useEffect(() => {
    const abort = new AbortController();
    (async () => {
      while (!abort.signal.aborted) {
        try {
          const value = await load(abort.signal);
          if (!abort.signal.aborted) set({ value });
        } catch (error) {
          if (!abort.signal.aborted) set((before) => ({ value: error.away ? before.value : undefined, error }));
          if (!error.away) return;
        }
        await pause(every, abort.signal);
      }
    })();
    return () => abort.abort();
  }, []);
  return result;
}

export function HealthView() {
  const levels = usePoll((signal) => read('/apis/flow.stele.dev/v1/prioritylevels', { signal }));
  const flows = usePoll((signal) => read('/apis/flow.stele.dev/v1/flows', { signal }));
  const replicas = usePoll((signal) => read('/apis/log.stele.dev/v1/replicas', { signal }));
  // A check that fails makes the answer 500, with the checks in its text.
  const checks = usePoll((signal) => readText('/readyz?verbose', { signal }).catch((e) => { if (e.status?.message) return e.status.message; throw e; }));
  const past = useRef(new Map());
  const seen = useRef(null);
  if (levels.value && levels.value !== seen.current) {
    seen.current = levels.value;
    for (const { metadata, status } of levels.value.items) {
      const list = past.current.get(metadata.name) ?? [];
      list.push(status.seats + (status.waitingSeats ?? 0));
      past.current.set(metadata.name, list.slice(-kept));
    }
  }
  return html`<main class="health pane" tabindex="0">
    <h1>Health</h1>
    <h2>Checks</h2><${Problem} error=${checks.error} what="the checks" />
    <div class="checks">${(checks.value ?? '').split('\n').filter((l) => /^\[[+-]\]/.test(l)).map((l) => html`<span class=${l.startsWith('[+]') ? 'good' : 'bad'}><b>${l.startsWith('[+]') ? '✓' : '✗'}</b> ${plain(l.slice(3).replace(/ ok(: |$)/, ' ').replace(/^(policy )([0-9a-f]{12})[0-9a-f]{52}/, '$1$2'), 200)}</span>`)}</div>
    <h2>Replicas</h2><${Problem} error=${replicas.error} what="the replicas" />
    ${replicas.value && html`<table class="grid"><thead><tr><th>Name</th><th>Address</th><th>Build</th><th>Live</th><th>Leader</th><th>Applied</th><th>Lag</th><th>Renewed</th></tr></thead><tbody>${replicas.value.items.map(({ metadata, status: s }) => html`<tr><td>${plain(metadata.name, 80)}${s.self ? html` <small class="dim">answers</small>` : ''}</td><td>${plain(s.address, 80)}</td><td>${plain(s.build, 40)}</td><td class=${s.live ? 'good' : 'bad'}>${s.live ? 'yes' : 'no'}</td><td>${s.leader ? 'yes' : ''}</td><td class="number">${s.applied}</td><td class="number">${s.lag}</td><td>${timeOf(s.renewed)}</td></tr>`)}</tbody></table>`}
    <h2>Priority levels</h2><${Problem} error=${levels.error} what="the priority levels" />
    ${levels.value && html`<table class="grid"><thead><tr><th>Level</th><th>Seats wanted, five minutes</th><th>Seats</th><th>Of</th><th>Executing</th><th>Waiting</th><th>Longest wait</th><th>Dispatched</th><th>Refused</th></tr></thead><tbody>${levels.value.items.map(({ metadata, status: s }) => html`<tr><td>${plain(metadata.name, 80)}</td><td><${Spark} values=${past.current.get(metadata.name) ?? []} limit=${s.exempt ? 0 : s.currentSeats} name=${metadata.name} /></td><td class="number">${s.seats}</td><td class="number">${s.exempt ? '∞' : s.currentSeats}</td><td class="number">${s.executing}</td><td class="number">${s.waiting}</td><td>${plain(s.longestWait, 20)}</td><td class="number">${s.dispatched}</td><td class=${'number ' + (s.refused ? 'bad' : '')}>${s.refused}</td></tr>`)}</tbody></table>`}
    <h2>Flows</h2><${Problem} error=${flows.error} what="the flows" />
    ${flows.value && html`<table class="grid"><thead><tr><th>Flow schema</th><th>Of</th><th>Level</th><th>Executing</th><th>Seats</th><th>Waiting</th><th>Watches</th><th>Refused</th></tr></thead><tbody>${flows.value.items.slice(0, 500).map(({ metadata, status: s }) => html`<tr key=${metadata.name}><td>${plain(s.flowSchema, 80)}</td><td class="text">${plain(s.distinguisher, 120)}</td><td>${plain(s.priorityLevel, 80)}</td><td class="number">${s.executing}</td><td class="number">${s.seats}</td><td class="number">${s.waiting}</td><td class="number">${s.watches}${s.watchLimit ? ' of ' + s.watchLimit : ''}</td><td class=${'number ' + (s.refused ? 'bad' : '')}>${s.refused}</td></tr>`)}</tbody></table>`}
  </main>`;
}

function Spark({ values, limit, name }) {
  const most = Math.max(1, limit, ...values);
  const points = values.map((v, i) => `${i * 2},${23 - (v / most) * 22}`).join(' ');
  return html`<svg class="spark" viewBox=${`0 0 ${kept * 2} 24`} preserveAspectRatio="none" role="img" aria-label=${`Seats wanted of ${name}: now ${values.at(-1) ?? 0}`}>
    ${limit > 0 && html`<line x1="0" x2=${kept * 2} y1=${23 - (limit / most) * 22} y2=${23 - (limit / most) * 22} class="limit" />`}<polyline points=${points} class="curve" /></svg>`;
}
