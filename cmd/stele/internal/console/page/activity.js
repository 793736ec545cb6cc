// The activity of the log: its newest changes, as far as the user may see them, and those that come.
import { useState, useEffect } from './ui.js';
import { read, watch, pause } from './server.js';

const path = '/apis/log.stele.dev/v1/changes';
// The first page is small, so that something is shown soon.
const firstPage = 500, nextPage = 5000;

// A page that is open for days forgets the oldest changes. Typed moments reach them still.
const most = 200_000;

// activity has changes by revision. Each is {revision, time, user, agent, type, object, rule, source, policy}.
// Invariant: changes are sorted by revision, and their times never decrease.
export const activity = { changes: [], error: null, older: false, loading: true, from: 1 };

const listeners = new Set();
let drawn = 0;
// tell draws at most once a frame, because a busy log has thousands of changes a second.
function tell() {
  if (drawn) return;
  drawn = requestAnimationFrame(() => {
    drawn = 0;
    for (const listener of listeners) listener({});
  });
}

function entry(change) {
  return {
    revision: change.revision, time: Date.parse(change.time), type: change.type, object: change.object, policy: change.policy,
    actor: change.actor, user: change.actor?.user ?? '', agent: change.request?.userAgent ?? '', verb: change.request?.verb ?? '',
    rule: change.decision?.rule ?? '', source: change.decision?.source ?? '', auditID: change.request?.auditID ?? '',
  };
}

let token = ''; // where older changes begin

// loadOlder reads changes before those that are there, and returns the newest revision.
export async function loadOlder(size = nextPage) {
  const page = await read(`${path}?difference=false&fieldSelector=since%3D1&limit=${size}${token && '&continue=' + encodeURIComponent(token)}`);
  token = page.metadata.continue ?? '';
  const found = page.items.map(entry).reverse();
  activity.changes = found.concat(activity.changes);
  activity.older = !!token;
  activity.loading = false;
  tell();
  return page.metadata.resourceVersion;
}

// follow reads the newest changes, and then each that comes, until the page is closed.
async function follow() {
  let revision = '';
  for (let wait = 500; ; wait = Math.min(2 * wait, 10_000)) {
    try {
      if (!revision) {
        token = '', activity.changes = [];
        revision = await loadOlder(firstPage);
        if (token) loadOlder().catch(() => {}); // the button is still there
      }
      activity.error = null;
      tell();
      for await (const event of watch(`${path}?watch=1&difference=false&resourceVersion=${revision}`)) {
        if (event.type === 'ERROR') {
          if (event.object?.code === 410) revision = '';
          break;
        }
        if (event.type !== 'ADDED') continue;
        revision = event.object.metadata.resourceVersion;
        activity.changes.push(entry(event.object));
        if (activity.changes.length > most) {
          activity.changes = activity.changes.slice(-most / 2);
          activity.older = false; // those between would be missing
        }
        wait = 500;
        tell();
      }
    } catch (error) {
      activity.error = error;
      activity.loading = false;
      tell();
      if (error.code === 403 || error.code === 401 || error.code === 404) return;
    }
    await pause(wait);
  }
}

let started = false;

// useActivity returns the activity, and draws again when it changes.
export function useActivity() {
  const [, set] = useState();
  useEffect(() => {
    listeners.add(set);
    if (!started) {
      started = true;
      follow();
    }
    return () => listeners.delete(set);
  }, []);
  return activity;
}

// indexAt returns the index of the last change for which reaches is true, -1 if there is none.
export function lastIndex(changes, reaches) {
  let low = 0, high = changes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (reaches(changes[middle])) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// step returns the revision that is some changes away from a moment: '' for now.
export function step(at, by) {
  const { changes } = activity;
  const here = at ? lastIndex(changes, (c) => c.revision <= Number(at)) : changes.length - 1;
  const there = here + by;
  if (there >= changes.length - (at ? 0 : 1)) return '';
  if (there < 0) return changes.length ? String(changes[0].revision) : at ?? '';
  return String(changes[there].revision);
}

// changeAt returns the change of a moment.
export function changeAt(at) {
  const i = lastIndex(activity.changes, (c) => c.revision <= Number(at));
  return i < 0 ? undefined : activity.changes[i];
}
