// Overview.

import { h, replace } from '../shared/dom.js';

export const title = 'Overview';

export async function show(place) {
  replace(place, h('div.page-head', {}, h('h1', {}, title), h('p.lead', {}, 'What this host is doing now.')));
}
