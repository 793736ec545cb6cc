// Requests to the control plane, which the program sends on with the credentials of the user's kubeconfig.
import { useState, useEffect } from './ui.js';

// The key of the session is in the link's address, and then where only pages of this origin can read it.
const keyName = 'stele-console-key';
const start = new URLSearchParams(location.hash.slice(1));
if (start.has('key')) {
  localStorage.setItem(keyName, start.get('key'));
  start.delete('key');
  history.replaceState(null, '', '#' + start);
}
const key = localStorage.getItem(keyName) ?? '';

export class ServerError extends Error {
  constructor(status, code) {
    const later = status?.message?.match(/Too large resource version: (\d+), current: (\d+)/);
    super(later ? `Revision ${later[1]} does not exist: the newest is ${later[2]}.` : status?.message || `The answer has the code ${code}.`);
    this.code = code;
    this.reason = status?.reason ?? '';
    this.status = status;
  }
  // away is true if the server may answer later.
  get away() { return this.code === 0 || this.code === 502 || this.code === 503 || this.code === 504 && this.reason === 'Console' || this.code === 429; }
}

// The difference between the server's clock and that of this machine, in milliseconds.
export const clock = { ahead: 0 };
export const now = () => Date.now() + clock.ahead;

export const asTable = 'application/json;as=Table;g=meta.k8s.io;v=v1';
export const asDiscovery = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';

// path returns the path of a request at a moment: '' for now.
export const below = (at) => (at ? '/at/' + encodeURIComponent(at) : '');

async function request(path, { signal, accept = 'application/json', method = 'GET', body } = {}) {
  const headers = { Accept: accept, 'Stele-Console-Key': key };
  if (body) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body), redirect: 'error' });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new ServerError({ message: 'The console has ended, or cannot be reached: start stele console again.' }, 0);
  }
  const date = Date.parse(response.headers.get('Date') ?? '');
  if (date) clock.ahead = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
  if (!response.ok) {
    let status;
    try { status = await response.json(); } catch { /* the code says it */ }
    throw new ServerError(status, response.status);
  }
  return response;
}

// warnings returns the texts of the header Warning.
function warnings(response) {
  return [...(response.headers.get('Warning') ?? '').matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)].map((m) => m[1].replace(/\\(.)/g, '$1'));
}

// parse reads JSON. With exact, a number that JavaScript would write otherwise, such as one of 64 bits, stays as it was sent.
export function parse(text, exact) {
  if (!exact || !JSON.rawJSON) return JSON.parse(text);
  return JSON.parse(text, (key, value, context) => (typeof value === 'number' && String(value) !== context.source ? JSON.rawJSON(context.source) : value));
}

// read returns the JSON of a path of the server; warnings come as the property that begins with a dollar.
export async function read(path, options) {
  const response = await request('/server' + path, options);
  const value = parse(await response.text(), options?.exact);
  Object.defineProperty(value, '$warnings', { value: warnings(response) });
  Object.defineProperty(value, '$revision', { value: response.headers.get('Stele-Revision') });
  return value;
}

export async function readText(path, options) {
  return (await request('/server' + path, { accept: '*/*', ...options })).text();
}

export const about = () => request('/console').then((r) => r.json());

// ask creates what is answered and not stored, and returns its status.
export async function ask(path, kind, spec, options) {
  const [, , group, version] = path.split('/');
  return (await read(path, { ...options, method: 'POST', body: { apiVersion: group + '/' + version, kind, spec } })).status;
}

// watch yields the events of a watch until it ends.
export async function* watch(path, options) {
  const response = await request('/server' + path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines) if (line) yield JSON.parse(line);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// pages yields the pages of a list.
export async function* pages(path, size, options) {
  let token = '';
  do {
    const page = await read(`${path}${path.includes('?') ? '&' : '?'}limit=${size}${token && '&continue=' + encodeURIComponent(token)}`, options);
    token = page.metadata?.continue ?? '';
    yield page;
  } while (token);
}

export const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
});

// useRead returns what a function reads, again when its inputs change. What was read before stays until then. It asks again while
// the server is away.
export function useRead(load, inputs) {
  const [result, set] = useState({ loading: true });
  useEffect(() => {
    const abort = new AbortController();
    set((before) => ({ ...before, loading: true }));
    (async () => {
      for (let wait = 500; !abort.signal.aborted; wait = Math.min(2 * wait, 8000)) {
        try {
          const value = await load(abort.signal);
          if (!abort.signal.aborted) set({ value, loading: false });
          return;
        } catch (error) {
          if (abort.signal.aborted) return;
          set((before) => ({ value: error.away ? before.value : undefined, error, loading: false }));
          if (!error.away) return;
          await pause(wait, abort.signal);
        }
      }
    })();
    return () => abort.abort();
  }, inputs);
  return result;
}
