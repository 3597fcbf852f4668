// Configuration.

import { h, replace } from '../shared/dom.js';

export const title = 'Configuration';

export async function show(place) {
  replace(place, h('div.page-head', {}, h('h1', {}, title), h('p.lead', {}, 'How this host is set up.')));
}
