// What the views are made of: Preact, its hooks, and HTML in template strings. All text becomes text, and never HTML.
import { h, render } from './vendor/preact.js';
import htm from './vendor/htm.js';

export { render };
export * from './vendor/hooks.js';
export const html = htm.bind(h);
