// All sessions, newest first: searched by title, URI and people, in pages.

import { h, replace } from '../shared/dom.js';
import { get, pause } from '../shared/api.js';
import { tellError } from '../shared/dialog.js';
import { count, dateTime, when } from '../shared/format.js';
import { note, statusChip, to } from './links.js';

export const title = 'Sessions';

const PAGE = 50;
/** How long somebody has to stop typing before it is searched, in milliseconds. */
const STILL = 150;

export async function show(place, { params, me, signal }) {
  const field = h('input', { type: 'search', id: 'search', value: params.get('search') ?? '', placeholder: 'Title, URI, or somebody', autocomplete: 'off', spellcheck: false });
  const readsLog = me.maySomewhere('log:read');
  const disposed = h('input', { type: 'checkbox', id: 'disposed', checked: params.get('disposed') === 'true' });
  const found = h('p.hint', { role: 'status' });
  const rows = h('ul.sessions', { aria: { label: 'Sessions' } });
  const more = h('button', { type: 'button', hidden: true }, 'Show more');
  replace(
    place,
    h('div.page-head', {}, h('h1', {}, title), h('p.lead', {}, 'Every session of this host, the one with the newest turn first.')),
    h(
      'form.search',
      { role: 'search', onsubmit: (event) => event.preventDefault() },
      h('div.field.grow', {}, h('label', { htmlFor: 'search' }, 'Find'), field),
      readsLog ? h('div.check', {}, disposed, h('label', { htmlFor: 'disposed' }, 'Disposed ones too')) : null,
    ),
    found,
    rows,
    more,
  );

  let looking = new AbortController();
  let cursor = null;
  const ask = (from) =>
    get('api/sessions', { search: field.value.trim(), disposed: disposed.checked ? 'true' : null, limit: PAGE, cursor: from }, { signal: looking.signal });

  const begin = async () => {
    looking.abort();
    looking = new AbortController();
    note({ search: field.value.trim(), disposed: disposed.checked });
    const page = await ask(null);
    rows.replaceChildren();
    add(page);
  };
  const add = (page) => {
    rows.append(...page.sessions.map(row));
    cursor = page.nextCursor ?? null;
    more.hidden = !cursor;
    const behind = page.newest - page.peopleUpTo;
    const people = behind > 0 && field.value ? ` People are known up to event ${count(page.peopleUpTo)} of ${count(page.newest)}: the log is being read for them.` : '';
    const none = field.value ? 'No session has all of these words.' : 'There is no session yet.';
    found.textContent = rows.childElementCount ? `${count(rows.childElementCount)}${cursor ? ' and more' : ''} ${field.value ? 'found' : rows.childElementCount === 1 ? 'session' : 'sessions'}.${people}` : none + people;
  };
  let typed = 0;
  field.addEventListener('input', async () => {
    const mine = ++typed;
    await pause(STILL, signal);
    if (mine === typed && !signal.aborted) begin().catch(tellError);
  });
  disposed.addEventListener('change', () => begin().catch(tellError));
  more.addEventListener('click', () => {
    const before = rows.childElementCount;
    more.disabled = true;
    const shown = (page) => {
      add(page);
      rows.children[before]?.querySelector('a')?.focus();
    };
    ask(cursor).then(shown).catch(tellError).finally(() => (more.disabled = false));
  });
  signal.addEventListener('abort', () => looking.abort());
  await begin();
  field.focus({ preventScroll: true });
}

function row(session) {
  const chats = session.chats?.length ?? 0;
  return h(
    'li',
    {},
    h('a.session-title', { href: to('session', { uri: session.resource }) }, session.title || 'Untitled'),
    h('span.chips', {}, session.disposed ? h('span.chip', {}, 'disposed') : null, statusChip(session.status), h('span.chip', {}, session.provider), chats > 1 ? h('span.chip', {}, `${chats} chats`) : null),
    h('time', { dateTime: session.modifiedAt, title: dateTime(session.modifiedAt) }, when(session.modifiedAt)),
    h('code.uri', {}, session.resource),
    h('span.people', {}, session.people.join(', ')),
  );
}
