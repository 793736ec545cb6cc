// The state of the page is in the fragment of its address, so that a link opens what was seen, and the browser's back button works.
import { useState, useEffect } from './ui.js';

const listeners = new Set();
let current = parse();

function parse() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

// state returns the fields of the address: view, kind, ns, name, tab, at and those of the views.
export const state = () => current;

// address returns the address of a state.
export function address(fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== '' && value !== undefined && value !== null);
  return '#' + new URLSearchParams(given);
}

// go changes fields of the address. With replace, the back button skips the state before.
export function go(changes, { replace = false } = {}) {
  const next = address({ ...current, ...changes });
  if (next === address(current)) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', next);
  tell();
}

// to returns the address of another view at the same moment.
export const to = (fields) => address({ at: current.at, ...fields });

function tell() {
  current = parse();
  for (const listener of listeners) listener(current);
}

addEventListener('hashchange', tell);
addEventListener('popstate', tell);

// useAddress returns the state, and draws again when it changes.
export function useAddress() {
  const [value, set] = useState(current);
  useEffect(() => {
    set(current);
    listeners.add(set);
    return () => listeners.delete(set);
  }, []);
  return value;
}
