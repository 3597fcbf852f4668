// Addresses of the admin pages, and what is said of channels in all of them.

import { base, get, url } from '../shared/api.js';
import { h } from '../shared/dom.js';
import { short } from '../shared/format.js';

/** The address of an admin page with parameters; the empty ones are left out. */
export const to = (page, params = {}) => url(`admin/${page}`, params).href;

/** Changes parameters in the address of the page that is shown, without going anywhere. Empty ones go. */
export function note(params) {
  const address = new URL(location.href);
  for (const [name, value] of Object.entries(params)) {
    if (value === null || value === undefined || value === '' || value === false) address.searchParams.delete(name);
    else address.searchParams.set(name, value);
  }
  history.replaceState(history.state, '', address);
}

/** The chat page, open at this chat. */
export const toChat = (session, chat) => {
  const address = new URL(base);
  address.hash = new URLSearchParams({ session, chat }).toString();
  return address.href;
};

/** What a status says, in one word, and how it looks. */
export function status(bits) {
  const activity = bits & 0b11111;
  if (activity === 0b11000) return ['waits for an answer', 'waiting'];
  if (activity === 0b01000) return ['running', 'running'];
  if (activity === 0b00010) return ['failed', 'error'];
  return null;
}

/** A chip for a status, where there is something to say. */
export function statusChip(bits) {
  const said = status(bits);
  return said ? h('span.chip', { data: { kind: said[1] } }, said[0]) : null;
}

/** What somebody needs to do something that they may not: shown in its place. */
export const needs = (operation, what) => h('p.hint.needs', {}, `${what} needs `, h('code', {}, operation), '.');

/** What a channel is called, and the way to it: of a session or a chat that may be read, else its own short name. */
export async function named(channel, signal) {
  const found = await get('api/lineage', { session: channel, closed: null }, { signal }).catch((error) => {
    if (error.name === 'AbortError') throw error;
    return null;
  });
  const chat = found?.chats.find((one) => one.resource === channel);
  const session = found?.session;
  const title = (channel === session?.resource ? session.title : chat?.title) || short(channel);
  const crumbs = h(
    'nav.crumbs',
    { aria: { label: 'Way here' } },
    h('a', { href: to('sessions') }, 'Sessions'),
    session ? [' / ', h('a', { href: to('session', { uri: session.resource }) }, session.title || 'Untitled')] : null,
  );
  return { title, crumbs };
}
