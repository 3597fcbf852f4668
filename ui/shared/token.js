// The token: taken from the address once, kept for the browser session, asked for where it is missing.

import { h } from './dom.js';

const KEY = 'scrollback.token';

/** Takes a token out of the address, so that it is in no history, no bookmark and no referrer. */
export function takeFromAddress() {
  const address = new URL(location.href);
  if (!address.searchParams.has('tkn')) return;
  const sent = address.searchParams.get('tkn');
  if (sent) sessionStorage.setItem(KEY, sent);
  address.searchParams.delete('tkn');
  history.replaceState(history.state, '', address);
}

export const token = () => sessionStorage.getItem(KEY);

/** Forgets the token and begins the page anew. */
export function signOut() {
  sessionStorage.removeItem(KEY);
  location.reload();
}

let asking = null;

/**
 * Asks for a token in a dialog, once however many ask. Resolves when somebody gave one, rejects when they would rather not.
 * `why` is the host's own sentence.
 */
export function askForToken(why) {
  asking ??= new Promise((resolve, reject) => {
    const field = h('input', { type: 'password', name: 'token', autocomplete: 'current-password', required: true, id: 'token' });
    const dialog = h(
      'dialog.token-dialog',
      { aria: { labelledby: 'token-title' } },
      h(
        'form',
        { method: 'dialog' },
        h('h2', { id: 'token-title' }, 'Token needed'),
        h('p', {}, why || 'This host asks for a token.'),
        h('label', { htmlFor: 'token' }, 'Token'),
        field,
        h('p.hint', {}, 'It is kept until this tab is closed, and sent to this host alone.'),
        h(
          'div.buttons',
          {},
          h('button.primary', { type: 'submit', value: 'open' }, 'Continue'),
          h('button', { type: 'button', onclick: () => dialog.close('') }, 'Cancel'),
        ),
      ),
    );
    dialog.addEventListener('close', () => {
      asking = null;
      dialog.remove();
      const given = field.value.trim();
      if (dialog.returnValue !== 'open' || !given) return reject(new Error('no token was given'));
      sessionStorage.setItem(KEY, given);
      dispatchEvent(new Event('scrollback.token'));
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}
