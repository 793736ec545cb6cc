// The slider: the activity of the log as a histogram, on which each moment can be chosen.
import { html, useEffect, useRef, useState, useMemo } from './ui.js';
import { useActivity, lastIndex, loadOlder, step, changeAt } from './activity.js';
import { resolveMoment } from './moment.js';
import { useAddress, go } from './state.js';
import { now } from './server.js';
import { age, plain, resourceName, timeOf, userOf } from './text.js';
import { Problem, Choice } from './parts.js';

const spans = { all: Infinity, '7d': 6048e5, '24h': 864e5, '1h': 36e5, '10m': 6e5 };
const groups = 6;
const theme = matchMedia('(prefers-color-scheme: dark)');

const groupOf = { kind: (c) => (c.object ? resourceName(c.object) : 'policy and log'), actor: (c) => c.user || 'the log' };

// bins counts changes by column and group. The groups are those with the most changes; the last is of all others.
export function bins(changes, from, to, columns, by) {
  const of = groupOf[by], totals = new Map();
  const first = lastIndex(changes, (c) => c.time < from) + 1;
  for (let i = first; i < changes.length; i++) totals.set(of(changes[i]), (totals.get(of(changes[i])) ?? 0) + 1);
  const names = [...totals].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
  const shown = names.length > groups ? [...names.slice(0, groups - 1), null] : names;
  const index = new Map(shown.map((name, i) => [name, i]));
  const counts = shown.map(() => new Uint32Array(columns));
  for (let i = first; i < changes.length; i++) {
    const column = Math.min(columns - 1, Math.floor(((changes[i].time - from) / (to - from)) * columns));
    counts[index.get(of(changes[i])) ?? groups - 1][column]++;
  }
  const legend = shown.map((name, i) => ({ name: name ?? 'others', count: counts[i].reduce((a, b) => a + b, 0) }));
  return { counts, legend };
}

function draw(canvas, counts, columns, chosen) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const g = canvas.getContext('2d');
  // A canvas takes computed colours only.
  const color = (name) => {
    canvas.style.color = `var(${name})`;
    return getComputedStyle(canvas).color;
  };
  const hues = counts.map((_, i) => color('--hue' + i)), accent = color('--accent');
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  let most = 1;
  for (let x = 0; x < columns; x++) most = Math.max(most, counts.reduce((sum, c) => sum + c[x], 0));
  const w = width / columns;
  const scale = (n) => (Math.log1p(n) / Math.log1p(most)) * (height - 3); // one change beside thousands is visible
  for (let x = 0; x < columns; x++) {
    const total = counts.reduce((sum, c) => sum + c[x], 0);
    if (!total) continue;
    let y = height;
    const tall = Math.max(3, scale(total));
    for (let i = 0; i < counts.length; i++) {
      const h = (counts[i][x] / total) * tall;
      if (!h) continue;
      g.globalAlpha = x * w > chosen ? 0.35 : 1;
      g.fillStyle = hues[i];
      g.fillRect(x * w, y - h, Math.max(1, w - 1), h);
      y -= h;
    }
  }
  g.globalAlpha = 1;
  g.fillStyle = accent;
  g.fillRect(Math.min(width - 2, Math.max(0, chosen - 1)), 0, 2, height);
}

export function Timeline() {
  const { at, by = 'kind', span = 'all' } = useAddress();
  const activity = useActivity();
  const canvas = useRef(), [width, setWidth] = useState(900), [tick, setTick] = useState(0), [dark, setDark] = useState(theme.matches);
  useEffect(() => {
    const seen = new ResizeObserver(() => setWidth(canvas.current?.clientWidth || 900));
    seen.observe(canvas.current);
    const timer = setInterval(() => setTick((n) => n + 1), 5000); // now moves
    const repaint = (e) => setDark(e.matches);
    theme.addEventListener('change', repaint);
    return () => { seen.disconnect(); clearInterval(timer); theme.removeEventListener('change', repaint); };
  }, []);
  const { changes } = activity, newest = changes.at(-1)?.time ?? 0;
  const to = useMemo(() => Math.max(now(), newest + 1), [tick, changes.length, newest]);
  const from = Math.min(to - 1000, Math.max(changes[0]?.time ?? to - 6e4, to - (spans[span] ?? Infinity)));
  const columns = Math.max(10, Math.floor(width / 4));
  const { counts, legend } = useMemo(() => bins(changes, from, to, columns, by), [changes, changes.length, from, to, columns, by]);
  const here = at ? changeAt(at) : undefined;
  const time = here ? here.time : at ? from : to;
  const chosen = ((Math.min(to, Math.max(from, time)) - from) / (to - from)) * width;
  useEffect(() => draw(canvas.current, counts, columns, chosen), [counts, columns, chosen, width, dark]);

  const drag = (event) => {
    const value = Number(event.target.value);
    if (value >= 10_000) return go({ at: '' }, { replace: true });
    const i = Math.max(0, lastIndex(changes, (c) => c.time <= from + (value / 10_000) * (to - from)));
    if (changes[i]) go({ at: String(changes[i].revision) }, { replace: true });
  };
  const keys = (event) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
    const end = { Home: changes.length ? String(changes[0].revision) : '', End: '' }[event.key];
    if (by === undefined && end === undefined) return;
    event.preventDefault();
    go({ at: end ?? step(at, by) }, { replace: true });
  };
  const text = at ? `revision ${at}${here ? ', ' + timeOf(here.time) : ''}` : 'now';
  return html`<section class="time" aria-label="Time">
    <div class="bar">
      <${Moment} at=${at} />
      <span class="what">${here && Number(at) === here.revision
        ? html`${timeOf(here.time)} · ${age(now() - here.time)} ago · <b class="text">${plain(userOf(here.actor), 80)}</b> ${here.type.toLowerCase()} ${here.object ? plain(`${here.object.resource} ${here.object.namespace ?? ''}/${here.object.name}`, 120) : ''}`
        : at ? `as it was at revision ${at}` : 'live'}</span>
      <span class="grow"></span>
      <label class="small">by <${Choice} options=${['kind', 'actor']} value=${by} onChange=${(e) => go({ by: e.target.value }, { replace: true })} /></label>
      <label class="small">last <${Choice} options=${Object.keys(spans)} value=${span} onChange=${(e) => go({ span: e.target.value }, { replace: true })} /></label>
      ${activity.older && html`<button class="small" onClick=${() => loadOlder().catch((error) => { activity.error = error; setTick((n) => n + 1); })}>older</button>`}
    </div>
    <div class="histogram">
      <canvas ref=${canvas} aria-hidden="true"></canvas>
      <input type="range" id="moment-slider" min="0" max="10000" step="1" value=${Math.round(((Math.min(to, Math.max(from, time)) - from) / (to - from)) * 10_000)}
        aria-label="Moment" aria-valuetext=${text} onInput=${drag} onKeyDown=${keys} />
    </div>
    <div class="legend">
      <span>${timeOf(from)}</span>
      <span class="names">${legend.map(({ name, count }, i) => html`<span class="key"><i class=${'swatch s' + i}></i>${plain(name, 60)} ${count.toLocaleString('en')}</span>`)}</span>
      <span>now</span>
    </div>
    ${activity.error && html`<${Problem} error=${activity.error} what="the activity of the log" />`}
  </section>`;
}

// Moment is the field in which a moment is typed, and the buttons that step.
function Moment({ at }) {
  const [error, setError] = useState(''), field = useRef();
  useEffect(() => { field.current.value = at ?? ''; setError(''); }, [at]);
  const submit = async (event) => {
    event.preventDefault();
    try {
      const revision = await resolveMoment(field.current.value);
      setError('');
      field.current.value = revision;
      go({ at: revision });
      field.current.blur();
    } catch (e) {
      setError(e.message);
    }
  };
  return html`<form class="moment" onSubmit=${submit}>
    <button type="button" title="Previous revision: [" aria-label="Previous revision" onClick=${() => go({ at: step(at, -1) }, { replace: true })}>[</button>
    <input id="moment" ref=${field} class=${at ? 'past' : ''} aria-label="Moment: a revision, a time or an age" placeholder="now" autocomplete="off" spellcheck="false" size="18" />
    <button type="button" title="Next revision: ]" aria-label="Next revision" disabled=${!at} onClick=${() => go({ at: step(at, 1) }, { replace: true })}>]</button>
    ${at && html`<button type="button" class="live" onClick=${() => go({ at: '' })}>back to now</button>`}
    ${error && html`<span role="alert" class="wrong">${plain(error)}</span>`}
  </form>`;
}
