// The sessions, the newest first, and under the open one its chats as they came from each other.

import { h, icon, keyed, replace, text } from '../shared/dom.js';
import { when } from '../shared/format.js';
import { activityOf, isArchived, isRead } from '../shared/states.js';
import { ask, field, tellError } from '../shared/dialog.js';
import { ACTIVITIES, ORIGIN_ICONS, titleOfChat, titleOfSession } from './words.js';

export class Sidebar {
  constructor(model, { onNavigate }) {
    this.model = model;
    this.create = h('button.primary.new-session', { type: 'button', onclick: () => newSession(model).catch(tellError) }, icon('plus'), 'New session');
    this.list = h('ul.sessions');
    this.more = h('button.quiet.small', { type: 'button', onclick: () => model.listMore().catch(tellError) }, 'More sessions');
    this.archived = h('ul.sessions');
    this.archive = h('details.archive', {}, h('summary', {}, 'Archived'), this.archived);
    this.element = h('nav.sidebar', { id: 'sessions', aria: { label: 'Sessions' } }, this.create, this.list, this.more, this.archive);
    this.element.addEventListener('click', (event) => event.target.closest('a') && onNavigate());
  }

  update() {
    const { model } = this;
    const all = [...model.sessions.values()].sort((a, b) => (a.modifiedAt < b.modifiedAt ? 1 : -1));
    const shown = all.map((summary) => ({ summary, open: summary.resource === model.session, state: model.sessionState, chat: model.chat }));
    this.create.disabled = !(model.isOpen && model.me.maySomewhere.has('session:create'));
    this.more.hidden = !model.moreSessions;
    const archived = shown.filter(({ summary }) => isArchived(summary.status));
    this.archive.hidden = !archived.length;
    const draw = (place, items) => keyed(place, items, ({ summary }) => summary.resource, () => h('li'), drawSession);
    draw(this.list, shown.filter(({ summary }) => !isArchived(summary.status)));
    draw(this.archived, archived);
  }
}

function drawSession(item, { summary, open, state, chat }) {
  // Drawn anew only where something of it changed: what has the focus keeps it.
  const seen = JSON.stringify([summary.title, summary.status, summary.modifiedAt, open, open && state?.chats, open && chat, open && state?.status]);
  if (item.seen === seen) return;
  const focused = item.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
  item.seen = seen;
  const status = open && state ? (summary.status & 31) | (state.status & 32) : summary.status;
  replace(
    item,
    link({
      href: place(summary.resource),
      title: titleOfSession(summary),
      status,
      current: open,
      more: h('time', { dateTime: summary.modifiedAt }, when(summary.modifiedAt)),
      className: 'session',
    }),
    open && state?.chats.length > 1 ? branch(tree(state.chats), summary.resource, chat) : null,
  );
  if (focused) item.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

const place = (session, chat) => `#${new URLSearchParams({ session, ...(chat ? { chat } : {}) })}`;

function link({ href, title, status, current, more, iconName, className }) {
  const activity = activityOf(status);
  const words = ACTIVITIES[activity];
  const unread = !isRead(status) && activity === 'idle' && !current;
  return h(
    'a',
    { class: className, href, aria: { current: current ? 'true' : null }, data: { unread } },
    iconName ? icon(iconName) : null,
    h('span.name', {}, title),
    words ? h('span.chip', { data: { kind: activity } }, words) : null,
    unread ? h('span.said', {}, ' unread') : null,
    more,
  );
}

/** Chats under the one that each was made out of. */
function tree(chats) {
  const nodes = new Map(chats.map((chat) => [chat.resource, { chat, children: [] }]));
  const roots = [];
  for (const node of nodes.values()) (nodes.get(node.chat.origin?.chat)?.children ?? roots).push(node);
  return roots;
}

function branch(nodes, session, shown) {
  return h(
    'ul.chats',
    {},
    nodes.map(({ chat, children }) =>
      h(
        'li',
        {},
        link({
          href: place(session, chat.resource),
          title: titleOfChat(chat),
          status: chat.status,
          current: chat.resource === shown,
          iconName: ORIGIN_ICONS[chat.origin?.kind] ?? 'chat',
          className: 'chat-link',
        }),
        children.length ? branch(children, session, shown) : null,
      ),
    ),
  );
}

/** A session at once where there is one agent; else it is asked which. */
export async function newSession(model) {
  const agents = model.root?.agents ?? [];
  if (agents.length < 2) return model.createSession({});
  const agent = h('select', { name: 'agent' }, agents.map((one) => h('option', { value: one.provider }, one.displayName)));
  const about = h('p.hint');
  const say = () => text(about, agents.find((one) => one.provider === agent.value)?.description ?? '');
  agent.addEventListener('change', say);
  say();
  const directory = h('input', { name: 'directory', placeholder: 'file:///srv/projects/one', type: 'text' });
  const chosen = await ask({
    title: 'New session',
    fields: [field('Agent', agent), about, field('Directory', directory, 'Where the agent works. Empty: the default directory of the host.')],
    confirm: 'Begin',
    read: () => ({ provider: agent.value, directory: directory.value.trim() }),
  });
  if (chosen) await model.createSession(chosen);
}
