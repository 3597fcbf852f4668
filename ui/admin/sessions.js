// Sessions.

import { h, replace } from '../shared/dom.js';

export const title = 'Sessions';

export async function show(place) {
  replace(place, h('div.page-head', {}, h('h1', {}, title), h('p.lead', {}, 'All sessions and their chats.')));
}
