// The frame of the admin pages. It looks at the address, loads the module of that page, and lets it fill the place.
//
// A page is a module `./<id>.js` that exports `title` and `show(place, context)`. `show` may be asynchronous, and a page that
// is left hears it by `context.signal`. `context` has `params` (of the address), `go(path)` (to another page, such as
// `go('log?channel=…')`), `me` (who looks: `{principal, may(operation), maySomewhere(operation)}`) and `signal`.

import { h, replace } from '../shared/dom.js';
import { ApiError, base, get } from '../shared/api.js';
import { mark, topBar } from '../shared/frame.js';
import { takeFromAddress } from '../shared/token.js';

/** The pages that there are, with the one of the navigation that each belongs to. A new page is a line here and a module. */
const PAGES = {
  overview: 'overview',
  sessions: 'sessions',
  session: 'sessions',
  time: 'sessions',
  log: 'log',
  people: 'people',
  agents: 'agents',
  configuration: 'configuration',
};

const ADMIN = new URL('admin/', base);
const bar = topBar(null);
let leaving = new AbortController();
let me = null;

takeFromAddress();
replace(document.body, h('a.skip', { href: '#main' }, 'To the content'), bar, h('main', { id: 'main' }));
document.addEventListener('click', follow);
// Another token may be somebody else's.
addEventListener('scrollback.token', () => (me = null));
addEventListener('popstate', open);
open();

async function open() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const address = new URL(location.href);
  const id = address.pathname.slice(ADMIN.pathname.length) || 'overview';
  const place = h('main.page', { id: 'main', tabIndex: -1 });
  // What is asked of this page is asked no more; news in the corner, and the question for a token, stay.
  for (const dialog of document.querySelectorAll('dialog:not(.token-dialog)')) dialog.close('');
  document.getElementById('main').replaceWith(place);
  mark(bar, PAGES[id], me);
  document.title = 'Scrollback';
  try {
    if (!Object.hasOwn(PAGES, id)) throw new ApiError(404, 'not-found', 'There is no such page.');
    me ??= await whoAmI();
    mark(bar, PAGES[id], me);
    const page = await import(`./${id}.js`);
    if (signal.aborted) return;
    document.title = `${page.title} · Scrollback`;
    await page.show(place, { params: address.searchParams, go, me, signal });
  } catch (error) {
    if (!signal.aborted) fail(place, error);
  }
  if (!signal.aborted) place.dataset.shown = id;
}

/** Who looks, and what they may do. The host asks again with each request; this only says what to leave out. */
async function whoAmI() {
  const said = await get('api/me');
  const [may, somewhere] = [new Set(said.may), new Set(said.maySomewhere)];
  return { principal: said.principal, may: (operation) => may.has(operation), maySomewhere: (operation) => somewhere.has(operation) };
}

function fail(place, error) {
  const forbidden = error.status === 403;
  replace(
    place,
    h('h1', {}, forbidden ? 'Not for you' : 'That did not work'),
    h('p.notice', { data: { kind: 'error' }, role: 'alert' }, error.message),
    h('p', {}, h('button', { type: 'button', onclick: open }, 'Try again')),
  );
}

/** To another admin page, without loading the shell again. */
function go(path) {
  history.pushState(null, '', new URL(path, ADMIN));
  open().then(() => {
    const main = document.getElementById('main');
    // A page may have put the focus where it is needed first.
    if (main?.contains(document.activeElement)) return;
    main?.focus({ preventScroll: true });
    scrollTo(0, 0);
  });
}

/** Links between admin pages stay in this shell; everything else is the browser's. */
function follow(event) {
  const link = event.target.closest?.('a[href]');
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
  const to = new URL(link.href);
  if (to.origin !== location.origin || !to.pathname.startsWith(ADMIN.pathname) || link.getAttribute('href').startsWith('#')) return;
  event.preventDefault();
  go(to.pathname.slice(ADMIN.pathname.length) + to.search + to.hash);
}
