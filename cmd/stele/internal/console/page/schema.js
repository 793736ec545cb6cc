// Schemas of kinds, from OpenAPI: descriptions of fields, and which of them are secret.
import { read, below } from './server.js';
import { isRaw } from './text.js';

const documents = new Map();

// schemaOf returns the schema of a kind at a moment, undefined if there is none.
export async function schemaOf(kind, at) {
  const path = `${below(at)}/openapi/v3/${kind.group ? `apis/${kind.group}/${kind.version}` : 'api/' + kind.version}`;
  if (!documents.has(path)) {
    if (documents.size > 20) documents.clear(); // each moment has its own
    documents.set(path, read(path));
  }
  const loading = documents.get(path);
  const all = (await loading.catch((e) => { documents.delete(path); throw e; })).components?.schemas ?? {};
  const is = (s) => s['x-kubernetes-group-version-kind']?.some((g) => g.group === kind.group && g.version === kind.version && g.kind === kind.kind);
  const root = Object.values(all).find(is);
  return root && { all, root };
}

function resolve(schema, node) {
  for (let i = 0; node && i < 10; i++) {
    const ref = node.$ref ?? node.allOf?.[0]?.$ref;
    if (!ref) return node;
    node = { description: node.description, ...schema.all[ref.split('/').pop()], ...(node.description ? { description: node.description } : {}) };
  }
  return node;
}

// fieldOf returns the schema of a field.
export function fieldOf(schema, path) {
  let node = schema && resolve(schema, schema.root);
  for (const part of path) {
    if (!node) return undefined;
    node = resolve(schema, typeof part === 'number' ? node.items : node.properties?.[part] ?? (typeof node.additionalProperties === 'object' ? node.additionalProperties : undefined));
  }
  return node;
}

export const hiddenText = '(hidden)';
const lastApplied = 'kubectl.kubernetes.io/last-applied-configuration';

function isSecretKind(kind) { return !kind.group && kind.kind === 'Secret'; }

// Annotations of Secrets may have copies of them.
const isSecretPath = (path) => path.length >= 2 && (path[0] === 'data' || path[0] === 'stringData') || path.length >= 3 && path[1] === 'annotations';

// hide returns a copy of an object without secret values: the data of Secrets, and the fields that the policy marks as sensitive.
export function hide(kind, schema, object) {
  let secret = isSecretKind(kind);
  const walk = (value, node, path) => {
    node = schema && node && resolve(schema, node);
    if (isSecretKind(kind) && isSecretPath(path)) return hiddenText;
    if (node?.format === 'password') {
      secret = true;
      return hiddenText;
    }
    if (Array.isArray(value)) return value.map((x, i) => walk(x, node?.items, [...path, i]));
    if (value && typeof value === 'object' && !isRaw(value)) {
      return Object.fromEntries(Object.entries(value).map(([k, x]) =>
        [k, walk(x, node?.properties?.[k] ?? (typeof node?.additionalProperties === 'object' ? node.additionalProperties : undefined), [...path, k])]));
    }
    return value;
  };
  const shown = walk(object, schema?.root, []);
  if (secret && shown.metadata?.annotations?.[lastApplied] !== undefined) shown.metadata.annotations[lastApplied] = hiddenText;
  return shown;
}

// steps parses a path of the server, such as spec.ports[name=http].port or metadata.labels["a.b/c"].
export function steps(path) {
  const out = [];
  for (const [, quoted, bracket, name] of path.matchAll(/\["((?:[^"\\]|\\.)*)"\]|\[([^\]]*)\]|\.?([^.[\]]+)/g)) {
    if (quoted !== undefined) out.push(JSON.parse(`"${quoted}"`));
    else if (bracket !== undefined) out.push(0);
    else out.push(name);
  }
  return out;
}

// hideValue returns the value of a field, or what stands for a secret one.
export function hideValue(kind, schema, path, value) {
  const at = steps(path);
  if (value === undefined || value === null) return value;
  if (isSecretKind(kind) && isSecretPath(at)) return hiddenText;
  for (let i = 1; i <= at.length; i++) if (schema && fieldOf(schema, at.slice(0, i))?.format === 'password') return hiddenText;
  const nested = at.reduceRight((inner, key) => (typeof key === 'number' ? [inner] : { [key]: inner }), value);
  if (typeof value === 'object' && !isRaw(value)) {
    const hidden = hide(kind, schema, nested);
    return at.reduce((v, key) => v?.[key], hidden);
  }
  if (at[0] === 'metadata' && at[2] === lastApplied && (!schema || hasSecrets(schema))) return hiddenText;
  return value;
}

// hasSecrets reports whether a kind has a sensitive field.
export function hasSecrets(schema) {
  const seen = new Set();
  const walk = (node) => {
    node = resolve(schema, node);
    if (!node || seen.has(node)) return false;
    seen.add(node);
    return node.format === 'password' || Object.values(node.properties ?? {}).some(walk) || walk(node.items) || typeof node.additionalProperties === 'object' && walk(node.additionalProperties);
  };
  return seen.size < 5000 && walk(schema.root);
}
