// The kinds that the control plane serves at a moment.
import { read, below, asDiscovery } from './server.js';

// Kinds that Kubernetes' clients bring, and that most people look for last.
const builtin = /(^|\.)k8s\.io$|^flow\.stele\.dev$|^log\.stele\.dev$|^policy\.stele\.dev$/;

// loadKinds returns {id, group, version, resource, kind, namespaced, verbs, own} of the kinds that can be listed, own ones first.
export async function loadKinds(at, signal) {
  const kinds = [], seen = new Set();
  for (const root of ['/api', '/apis']) {
    const list = await read(below(at) + root, { accept: asDiscovery, signal });
    for (const group of list.items) {
      for (const version of group.versions) {
        for (const r of version.resources ?? []) {
          const g = group.metadata?.name ?? '', key = g + '/' + r.resource;
          if (!r.verbs.includes('list') || seen.has(key)) continue; // the preferred version comes first
          seen.add(key);
          kinds.push({ id: `${r.resource}.${version.version}.${g}`, group: g, version: version.version, resource: r.resource, kind: r.responseKind.kind,
            namespaced: r.scope === 'Namespaced', verbs: r.verbs, short: r.shortNames ?? [], own: g !== '' && !builtin.test(g) });
        }
      }
    }
  }
  const rank = (k) => (k.own ? 0 : k.group === '' ? 1 : 2);
  return kinds.sort((a, b) => rank(a) - rank(b) || (a.resource < b.resource ? -1 : 1));
}

// findKind returns the kind of an address, whatever its version is.
export const findKind = (kinds, id) => kinds?.find((k) => k.id === id) ?? kinds?.find((k) => sameResource(k, id));

function sameResource(kind, id) {
  const [resource, , ...group] = (id ?? '').split('.');
  return kind.resource === resource && kind.group === group.join('.');
}

export const rootOf = (k) => (k.group ? `/apis/${k.group}/${k.version}` : `/api/${k.version}`);

// listPath returns the path of the objects of a kind, in one namespace or in all.
export const listPath = (k, ns, at) => `${below(at)}${rootOf(k)}/${k.namespaced && ns ? `namespaces/${encodeURIComponent(ns)}/` : ''}${k.resource}`;

export const objectPath = (k, ns, name, at) => `${listPath(k, ns, at)}/${encodeURIComponent(name)}`;
