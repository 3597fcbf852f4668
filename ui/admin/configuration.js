// Every key of the configuration, with its value and where it came from. It is changed in the file, the environment or the flags.

import { h, replace } from '../shared/dom.js';
import { get } from '../shared/api.js';
import { count } from '../shared/format.js';

export const title = 'Configuration';

export async function show(place, { signal }) {
  const settings = await get('api/config', {}, { signal });
  const search = h('input', { type: 'search', id: 'key', autocomplete: 'off', spellcheck: false, placeholder: 'max_, timeout, listen' });
  const set = h('input', { type: 'checkbox', id: 'set' });
  const found = h('p.hint', { role: 'status' });
  const body = h('tbody');
  const paint = () => {
    const words = search.value.trim().toLowerCase();
    const shown = settings.filter(({ key, from }) => key.toLowerCase().includes(words) && (!set.checked || from !== 'default'));
    replace(body, shown.map(row));
    found.textContent = `${count(shown.length)} of ${count(settings.length)} keys.`;
  };
  search.addEventListener('input', paint);
  set.addEventListener('change', paint);
  replace(
    place,
    h('div.page-head', {}, h('h1', {}, title), h('p.lead', {}, 'How this host is set up. A flag beats the environment, that beats the file. Secrets are not among the values.')),
    h('form.search', { role: 'search', onsubmit: (event) => event.preventDefault() }, h('div.field.grow', {}, h('label', { htmlFor: 'key' }, 'Find a key'), search), h('div.check', {}, set, h('label', { htmlFor: 'set' }, 'Only what was set'))),
    found,
    h('div.scroll-x', { tabIndex: 0, role: 'region', aria: { label: 'Keys' } }, h('table.settings', {}, h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Key'), h('th', { scope: 'col' }, 'Value'), h('th', { scope: 'col' }, 'From'))), body)),
  );
  paint();
}

function row({ key, value, from }) {
  return h('tr', { data: { set: from !== 'default' } }, h('th', { scope: 'row' }, h('code', {}, key)), h('td', {}, h('code.value', {}, typeof value === 'string' ? value : JSON.stringify(value))), h('td', {}, from === 'default' ? h('span.hint', {}, 'default') : h('span.chip', { data: { kind: 'running' } }, from)));
}
