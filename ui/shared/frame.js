// What stands around every page: the name, the way to the others, light and dark, and the token.

import { h, icon, iconButton } from './dom.js';
import { signOut, token } from './token.js';
import { base } from './api.js';

/** The pages, in the order of the navigation. `path` is from the root of the host, `needs` what one has to be granted to see anything there. */
export const PAGES = [
  { id: 'chat', path: '', title: 'Chat' },
  { id: 'overview', path: 'admin/', title: 'Overview', needs: 'host:read' },
  { id: 'sessions', path: 'admin/sessions', title: 'Sessions', needs: 'session:list' },
  { id: 'log', path: 'admin/log', title: 'Log', needs: 'log:read' },
  { id: 'people', path: 'admin/people', title: 'People', needs: 'user:read' },
  { id: 'agents', path: 'admin/agents', title: 'Agents', needs: 'host:read' },
  { id: 'configuration', path: 'admin/configuration', title: 'Configuration', needs: 'config:read' },
];

/** The bar at the top, with `current` marked. */
export function topBar(current, ...more) {
  const links = PAGES.map((page) =>
    h('a', { href: new URL(page.path, base).href, data: { page: page.id }, aria: { current: page.id === current ? 'page' : null } }, page.title),
  );
  return h(
    'header.top',
    {},
    more,
    h('a.brand', { href: base.href, aria: { label: 'Scrollback, to the chat' } }, h('span.mark', { aria: { hidden: 'true' } }), 'Scrollback'),
    h('nav', { aria: { label: 'Pages' } }, links),
    h('div.top-end', {}, themeButton(), tokenButton()),
  );
}

/** Marks the page that is shown, and leaves out those that `me`, where it is known, may see nothing of. */
export function mark(bar, current, me) {
  for (const { id, needs } of PAGES) {
    const link = bar.querySelector(`[data-page="${id}"]`);
    link.hidden = Boolean(me && needs && id !== current && !me.maySomewhere(needs));
    if (id === current) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

/** There where there is a token to be forgotten. */
function tokenButton() {
  const button = iconButton('key', 'Forget the token', signOut, { hidden: !token() });
  addEventListener('scrollback.token', () => (button.hidden = false));
  return button;
}

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
};

function themeButton() {
  const button = iconButton('moon', '', () => {
    const theme = isDark() ? 'light' : 'dark';
    document.documentElement.dataset.theme = theme;
    localStorage.setItem('scrollback.theme', theme);
    show();
  });
  const show = () => {
    const label = isDark() ? 'Light colours' : 'Dark colours';
    button.replaceChildren(icon(isDark() ? 'sun' : 'moon'));
    button.title = label;
    button.setAttribute('aria-label', label);
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
  show();
  return button;
}
