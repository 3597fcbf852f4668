// One session: its chats as a tree of where each came from, with the turns that rewinds dropped.

import { h, icon, replace } from '../shared/dom.js';
import { get } from '../shared/api.js';
import { count, dateTime, many, short } from '../shared/format.js';
import { forkButton } from './fork.js';
import { needs, statusChip, to, toChat } from './links.js';

export const title = 'Session';

const KINDS = { fork: ['fork', 'Fork'], sideChat: ['side', 'Side chat'], tool: ['worker', 'Worker'] };

export async function show(place, { params, me, go, signal }) {
  const uri = params.get('uri') ?? '';
  const reads = me.maySomewhere('log:read');
  const { session, disposed, chats } = await get('api/lineage', { session: uri, closed: reads ? 'true' : null }, { signal });
  document.title = `${session.title || short(session.resource)} · Scrollback`;
  const context = { session, me, go, reads };
  replace(
    place,
    h('nav.crumbs', { aria: { label: 'Way here' } }, h('a', { href: to('sessions') }, 'Sessions')),
    h('div.page-head', {}, h('h1', {}, session.title || 'Untitled'), disposed ? h('span.chip', {}, 'disposed') : null, statusChip(session.status)),
    h('dl.facts', {}, facts(session)),
    reads ? h('p', {}, h('a', { href: to('log', { channel: session.resource }) }, 'The log of the session'), ' – what happened to it beside its chats') : needs('log:read', 'The log of a session'),
    h('section.tree-section', {}, h('h2', {}, `Chats (${count(chats.length)})`), tree(chats, context)),
  );
}

function facts({ resource, provider, createdAt, modifiedAt, workingDirectories }) {
  const pairs = [
    ['URI', h('code', {}, resource)],
    ['Agent', provider],
    ['Created', dateTime(createdAt)],
    ['Newest turn', dateTime(modifiedAt)],
    ['Directories', workingDirectories?.length ? workingDirectories.map((uri) => h('code', {}, uri)) : null],
  ];
  return pairs.filter(([, value]) => value).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)));
}

/** Chats under the one that they came from; those whose source is elsewhere stand at the top. */
function tree(chats, context) {
  const known = new Set(chats.map((chat) => chat.resource));
  const under = Map.groupBy(chats, (chat) => (known.has(chat.parent) ? chat.parent : null));
  const drawn = new Set();
  const branch = (parent) => {
    const children = (under.get(parent) ?? []).filter((chat) => !drawn.has(chat.resource));
    children.forEach((chat) => drawn.add(chat.resource));
    return children.length ? h('ul.tree', {}, children.map((chat) => h('li', {}, node(chat, known, context), dropped(chat, context), branch(chat.resource)))) : null;
  };
  return branch(null) ?? h('p.empty', {}, 'It has no chats.');
}

function node(chat, known, { session, me, reads }) {
  const [drawing, kind] = KINDS[chat.origin?.kind] ?? ['chat', 'Chat'];
  const from = chat.parent && !known.has(chat.parent) ? h('span.hint', {}, 'from ', h('code', {}, short(chat.parent))) : null;
  const seen = me.maySomewhere('chat:turns') || reads;
  return h(
    'article.node',
    { data: { kind: chat.origin?.kind, closed: Boolean(chat.closed) } },
    h('div.node-head', {}, icon(drawing), h('h3', {}, chat.title || 'Untitled'), h('span.chips', {}, h('span.chip', {}, kind), chat.closed ? h('span.chip', {}, 'closed') : null, statusChip(chat.status), h('span.chip', {}, many(chat.turns, 'turn'))), from),
    h('code.uri', {}, chat.resource),
    h(
      'div.node-links',
      {},
      reads ? h('a', { href: to('log', { channel: chat.resource }) }, 'Log') : null,
      seen ? h('a', { href: to('time', { channel: chat.resource }) }, 'Time travel') : null,
      chat.closed ? null : h('a', { href: toChat(session.resource, chat.resource) }, 'Open the chat'),
    ),
  );
}

function dropped(chat, { me, go }) {
  if (!chat.branches.length) return null;
  return h(
    'ul.dropped',
    { aria: { label: `Dropped from ${chat.title || 'this chat'}` } },
    chat.branches.map((branch) =>
      h(
        'li',
        {},
        icon('back'),
        h('span', {}, `${many(branch.turns, 'turn')} that a rewind dropped, from “${branch.text || 'no text'}”`),
        h('span.node-links', {}, h('a', { href: to('time', { channel: chat.resource, at: branch.ended }) }, 'As it was'), forkButton({ chat: chat.resource, at: branch.ended, me, go, label: 'Fork there' })),
      ),
    ),
  );
}
