// The search, links to sections, and the list of pages: it is folded on narrow screens, and shows the current page on wide ones. The index is loaded when somebody first searches, by
// script elements: pages that are opened as files may not fetch.
'use strict';
(() => {
  const base = document.body.dataset.base;
  const pages = document.getElementById('pages');
  const wide = matchMedia('(min-width: 60rem)');
  const unfold = () => { pages.open = wide.matches; };
  wide.addEventListener('change', unfold);
  unfold();

  const nav = document.querySelector('nav');
  const current = nav.querySelector('[aria-current]');
  if (current && wide.matches) nav.scrollTop = current.offsetTop - nav.offsetTop - nav.clientHeight / 3;

  for (const heading of document.querySelectorAll('main :is(h2, h3, h4)[id]')) {
    const link = document.createElement('a');
    link.className = 'anchor';
    link.href = '#' + heading.id;
    link.textContent = '#';
    link.ariaLabel = 'Link to this section';
    heading.append(link);
  }

  const query = document.getElementById('query');
  const results = document.getElementById('results');
  const load = (name) => new Promise((loaded, failed) => {
    const script = document.createElement('script');
    script.src = base + name;
    script.onload = loaded;
    script.onerror = failed;
    document.head.append(script);
  });
  let index;
  const ready = () => index ??= load('minisearch.js').then(() => load('search-index.js'))
    .then(() => MiniSearch.loadJS(steleIndex.index, steleIndex.options))
    .catch((failure) => {
      index = undefined; // the next word that is typed loads it again
      throw failure;
    });

  const show = async () => {
    const text = query.value.trim();
    let found = [], problem = 'Nothing found';
    try {
      if (text !== '') found = (await ready()).search(text, steleIndex.search).slice(0, 12);
    } catch {
      problem = 'The index of the search could not be loaded. Type on to try again.';
    }
    if (text !== query.value.trim()) return; // typed on meanwhile
    results.replaceChildren(...found.map((f) => {
      const link = document.createElement('a');
      link.href = base + f.id;
      const title = document.createElement('b');
      title.textContent = f.title;
      const page = document.createElement('span');
      page.textContent = f.page;
      link.append(title, page);
      const item = document.createElement('li');
      item.append(link);
      return item;
    }));
    if (text !== '' && found.length === 0) results.textContent = problem;
    results.hidden = text === '';
  };
  query.addEventListener('focus', () => ready().catch(() => {})); // typing says what fails
  query.addEventListener('input', show);
  document.addEventListener('keydown', (event) => {
    const links = [...results.querySelectorAll('a')];
    const at = links.indexOf(document.activeElement);
    if (event.key === '/' && !event.target.matches('input, textarea')) {
      event.preventDefault();
      query.focus();
    } else if (event.key === 'Escape') {
      query.value = '';
      results.hidden = true;
    } else if (event.key === 'Enter' && event.target === query && links.length > 0) {
      links[0].click();
    } else if (event.key === 'ArrowDown' && links.length > 0 && (at >= 0 || event.target === query)) {
      event.preventDefault();
      links[Math.min(at + 1, links.length - 1)].focus();
    } else if (event.key === 'ArrowUp' && at >= 0) {
      event.preventDefault();
      (links[at - 1] ?? query).focus();
    }
  });
  results.addEventListener('click', (event) => { if (event.target.closest('a')) results.hidden = true; });
})();
