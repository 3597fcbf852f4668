// People, their roles, grants and tokens. A token is shown once, when it is made.

import { h, iconButton, replace } from '../shared/dom.js';
import { get, post, remove } from '../shared/api.js';
import { copied } from '../shared/clipboard.js';
import { ask, field, tell, tellError } from '../shared/dialog.js';
import { dateTime } from '../shared/format.js';
import { needs, to } from './links.js';

export const title = 'People';

const ROLES = [
  ['admin', 'everything'],
  ['member', 'works in all sessions, reads and writes files'],
  ['guest', 'reads all sessions'],
];

export async function show(place, { me, signal }) {
  const changes = me.may('user:change');
  const list = h('div.people-list');
  const more = changes ? h('button.primary', { type: 'button', onclick: () => add(paint).catch(tellError) }, 'Add somebody') : null;
  const paint = async () => {
    const people = await get('api/users', {}, { signal });
    const focused = list.contains(document.activeElement) ? document.activeElement : null;
    replace(list, table(people, changes ? { paint } : null));
    // The focus stays on what it was on; where that is gone, with the person; else where the next one is added.
    const [label, name] = [focused?.getAttribute('aria-label'), focused?.closest('tr')?.dataset.name];
    const of = (selector) => list.querySelector(selector);
    if (name) (of(`[aria-label="${CSS.escape(label)}"]`) ?? of(`tr[data-name="${CSS.escape(name)}"] button`) ?? more)?.focus();
  };
  replace(
    place,
    h('div.page-head', {}, h('h1', {}, title), h('p.lead', {}, 'Who may come in, and what they may do. The deployment’s own token may do everything and is not listed.')),
    changes ? h('div.buttons', {}, more) : needs('user:change', 'Changing people'),
    list,
    me.maySomewhere('log:read') ? h('p', {}, h('a', { href: to('log', { type: 'host/user*' }) }, 'Who granted what, and when'), ' stands in the log.') : null,
  );
  await paint();
}

function table(people, change) {
  if (!people.length) return h('p.empty', {}, 'There is nobody yet: whoever has the deployment’s token may do everything.');
  return h(
    'div.scroll-x',
    { tabIndex: 0, role: 'region', aria: { label: 'People' } },
    h(
      'table',
      {},
      h('thead', {}, h('tr', {}, ['Name', 'Roles', 'Grants', 'Tokens'].map((name) => h('th', { scope: 'col' }, name)), change ? h('th', { scope: 'col' }, 'Change') : null)),
      h('tbody', {}, people.map((person) => row(person, change))),
    ),
  );
}

function row(person, change) {
  const { name, principal, roles, grants, tokens = [] } = person;
  const taken = (what, value) => (change ? iconButton('close', `Take ${value} from ${name}`, () => take(person, what, value, change.paint).catch(tellError)) : null);
  const list = (what, values) => (values.length ? h('ul.granted', {}, values.map((value) => h('li', {}, h('span.chip', {}, value), taken(what, value)))) : h('span.hint', {}, 'none'));
  return h(
    'tr',
    { data: { name } },
    h('th', { scope: 'row' }, h('strong', {}, name), h('code.uri', {}, principal)),
    h('td', {}, list('roles', roles)),
    h('td', {}, list('grants', grants)),
    h('td', {}, tokens.length ? h('ul.granted', {}, tokens.map((token) => h('li', {}, `made ${dateTime(token.madeAt)}`, token.expiresAt ? `, until ${dateTime(token.expiresAt)}` : ''))) : h('span.hint', {}, 'none')),
    change
      ? h(
          'td',
          {},
          h(
            'div.buttons',
            {},
            h('button.small', { type: 'button', aria: { label: `Grant ${name} more` }, onclick: () => grant(person, change.paint).catch(tellError) }, 'Grant'),
            h('button.small', { type: 'button', aria: { label: `Make a token for ${name}` }, onclick: () => makeToken(person, change.paint).catch(tellError) }, 'Token'),
            h('button.small.danger', { type: 'button', aria: { label: `Remove ${name}` }, onclick: () => drop(person, change.paint).catch(tellError) }, 'Remove'),
          ),
        )
      : null,
  );
}

const path = (name, rest = '') => `api/users/${encodeURIComponent(name)}${rest}`;

function roleBoxes(except = []) {
  const boxes = ROLES.filter(([role]) => !except.includes(role)).map(([role, words]) => ({ role, words, box: h('input', { type: 'checkbox', id: `role-${role}`, value: role }) }));
  const element = boxes.length ? h('fieldset.roles', {}, h('legend', {}, 'Roles'), boxes.map(({ role, words, box }) => h('div.check', {}, box, h('label', { htmlFor: box.id }, role, h('span.hint', {}, ` – ${words}`))))) : null;
  return { element, read: () => boxes.filter(({ box }) => box.checked).map(({ role }) => role) };
}

function grantField() {
  const input = h('textarea', { rows: 2, spellcheck: false, placeholder: 'session:read@ahp-session:/s1' });
  return { element: field('Grants, one on a line', input, 'SUBJECT:OPERATION, or SUBJECT:OPERATION@SESSION-URI for one session.'), read: () => input.value.split(/\s+/).filter(Boolean) };
}

function expiryField() {
  const input = h('input', { type: 'text', placeholder: 'never', spellcheck: false });
  return { element: field('The token ends after', input, 'Such as 30d or 12h; empty for never.'), read: () => input.value.trim() || undefined };
}

async function add(paint) {
  const name = h('input', { type: 'text', required: true, autocomplete: 'off', spellcheck: false });
  const [roles, grants, expires] = [roleBoxes(), grantField(), expiryField()];
  const read = () => ({ name: name.value.trim(), roles: roles.read(), grants: grants.read(), expires: expires.read() });
  const wanted = await ask({ title: 'Add somebody', fields: [field('Name', name), roles.element, grants.element, expires.element], confirm: 'Add', read });
  if (!wanted) return;
  const made = await post('api/users', wanted);
  await paint();
  await showToken(made);
}

async function grant(person, paint) {
  const [roles, grants] = [roleBoxes(person.roles), grantField()];
  const wanted = await ask({ title: `Grant ${person.name} more`, fields: [roles.element, grants.element].filter(Boolean), confirm: 'Grant', read: () => ({ roles: roles.read(), grants: grants.read() }) });
  if (!wanted) return;
  await post(path(person.name, '/grant'), wanted);
  await paint();
  tell(`${person.name} may do more now.`);
}

async function take(person, what, value, paint) {
  const sure = await ask({ title: `Take ${value} from ${person.name}?`, lead: 'It ends at once, on open connections too.', confirm: 'Take it', danger: true });
  if (!sure) return;
  await post(path(person.name, '/revoke'), { [what]: [value] });
  await paint();
  tell(`${person.name} has ${value} no more.`);
}

async function makeToken(person, paint) {
  const replaces = h('input', { type: 'checkbox', id: 'replaces' });
  const expires = expiryField();
  const fields = [h('div.check', {}, replaces, h('label', { htmlFor: 'replaces' }, 'End the tokens before it')), expires.element];
  const wanted = await ask({ title: `A token for ${person.name}`, fields, confirm: 'Make it', read: () => ({ replace: replaces.checked, expires: expires.read() }) });
  if (!wanted) return;
  const made = await post(path(person.name, '/token'), wanted);
  await paint();
  await showToken(made);
}

async function drop(person, paint) {
  const sure = await ask({ title: `Remove ${person.name}?`, lead: 'Their tokens end at once. What they did stays in the log.', confirm: 'Remove', danger: true });
  if (!sure) return;
  await remove(path(person.name));
  await paint();
  tell(`${person.name} is gone.`);
}

async function showToken({ name, token }) {
  const shown = h('input.mono', { type: 'text', readOnly: true, value: token, id: 'made-token', onfocus: () => shown.select() });
  const copy = h('button.small', { type: 'button', onclick: async () => ((await copied(token)) ? (copy.textContent = 'Copied') : shown.select()) }, 'Copy');
  await ask({ title: `The token of ${name}`, lead: 'It is shown this once: the host keeps only a hash of it. Hand it over now.', fields: [field('Token', shown), h('div', {}, copy)], confirm: 'I have it' });
}
