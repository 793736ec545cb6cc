// The page: its frame, its menu and its keys.
import { html, render, useEffect, useRef } from './ui.js';
import { go, state, to, useAddress } from './state.js';
import { about, useRead, read, ask } from './server.js';
import { useActivity, step } from './activity.js';
import { Timeline } from './timeline.js';
import { active, Problem } from './parts.js';
import { plain } from './text.js';
import { ObjectsView } from './objects.js';
import { IncidentView } from './incident.js';
import { AccessView } from './access.js';
import { PolicyView } from './policy.js';
import { HealthView } from './health.js';

const views = { objects: ['Objects', ObjectsView], incident: ['Changes', IncidentView], access: ['Access', AccessView], policy: ['Policy', PolicyView], health: ['Health', HealthView] };

const keys = [
  ['/', 'filter, or the first field'], ['j k', 'next and previous row'], ['Enter', 'open the row'], ['u', 'back to the list'],
  ['[ ]', 'previous and next revision'], ['m', 'type a moment: 14:00, 10m, 1200'], ['n', 'back to now'], ['1 … 5', 'views'], ['?', 'this list'],
];

function Page() {
  const { view = 'objects', at } = useAddress();
  useActivity();
  const here = useRead(about, []);
  const me = useRead((signal) => ask('/apis/authentication.k8s.io/v1/selfsubjectreviews', 'SelfSubjectReview', undefined, { signal }).then((s) => s.userInfo), []);
  const help = useRef();
  const [title, View] = views[view] ?? views.objects;
  useEffect(() => { document.title = `${state().name || title}${at ? ' @' + at : ''} · stele`; });
  useEffect(() => {
    const press = (event) => {
      const field = event.target.closest?.('input, select, textarea');
      if (event.key === 'Escape' && field) return field.blur();
      if (event.ctrlKey || event.metaKey || event.altKey || field && field.type !== 'checkbox' && field.type !== 'range') return;
      const names = Object.keys(views);
      const act = {
        '/': () => document.getElementById('search')?.focus(),
        j: () => active.move?.(1), k: () => active.move?.(-1), Enter: () => !event.target.closest?.('a, button') && active.open?.(),
        u: () => document.getElementById('up')?.click(),
        '[': () => go({ at: step(state().at, -1) }, { replace: true }), ']': () => state().at && go({ at: step(state().at, 1) }, { replace: true }),
        m: () => document.getElementById('moment')?.select(), n: () => go({ at: '' }),
        '?': () => help.current.showModal(),
      }[event.key] ?? (names[event.key - 1] && (() => { location.hash = to({ view: names[event.key - 1] }); }));
      if (!act || event.key === 'Enter' && !active.open) return;
      if (event.key !== 'Enter') event.preventDefault();
      act();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
  const user = me.value?.username;
  return html`
    <header class="top">
      <span class="brand">stele</span>
      <nav aria-label="Views">${Object.entries(views).map(([id, [name]]) => html`<a href=${to({ view: id })} aria-current=${id === view ? 'page' : undefined}>${name}</a>`)}</nav>
      <span class="grow"></span>
      <span class="where text" title=${plain(here.value?.server, 200)}>${plain(here.value?.context || here.value?.server, 60)}${user ? html` <span class="dim">as ${plain(user, 80)}</span>` : ''}</span>
      <button type="button" class="small" onClick=${() => help.current.showModal()} aria-label="Keys">?</button>
    </header>
    ${view !== 'health' && html`<${Timeline} />`}
    <${Problem} error=${here.error ?? (me.error?.code === 401 ? me.error : null)} what="who you are" />
    <${View} about=${here.value} />
    <dialog ref=${help} aria-label="Keys" onClick=${(e) => e.target === help.current && help.current.close()}><h2>Keys</h2><dl>${keys.map(([k, what]) => html`<dt><kbd>${k}</kbd></dt><dd>${what}</dd>`)}</dl>
      <p class="dim">stele ${plain(here.value?.version, 40)}. The page reads; it writes nothing.</p><form method="dialog"><button>Close</button></form></dialog>`;
}

render(html`<${Page} />`, document.getElementById('page'));
