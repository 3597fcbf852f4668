// People.

import { h, replace } from '../shared/dom.js';

export const title = 'People';

export async function show(place) {
  replace(place, h('div.page-head', {}, h('h1', {}, title), h('p.lead', {}, 'Who may come in, and what they may do.')));
}
