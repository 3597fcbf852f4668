// Questions to whoever looks, and news that go away by themselves.

import { h, iconButton } from './dom.js';

let number = 0;

/**
 * Shows a dialog and resolves with what `read()` says when it is confirmed, or null. `fields` are the elements in it.
 * The browser keeps the focus inside and gives it back.
 */
export function ask({ title, lead, fields = [], confirm = 'OK', danger = false, read = () => true }) {
  const id = `dialog-${++number}`;
  return new Promise((resolve) => {
    const dialog = h(
      'dialog',
      { aria: { labelledby: id } },
      h(
        'form',
        { method: 'dialog' },
        h('h2', { id }, title),
        lead ? h('p', {}, lead) : null,
        fields,
        h(
          'div.buttons',
          {},
          h('button', { class: danger ? 'danger' : 'primary', type: 'submit', value: 'yes' }, confirm),
          h('button', { type: 'button', onclick: () => dialog.close('') }, 'Cancel'),
        ),
      ),
    );
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes' ? read() : null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A labelled field for `ask`. */
export function field(label, control, hint) {
  control.id ||= `field-${++number}`;
  return h('div.field', {}, h('label', { htmlFor: control.id }, label), control, hint ? h('p.hint', {}, hint) : null);
}

/** Says something in the corner. Errors, and news with something to do about them, a `{ label, run }`, stay until they are closed. */
export function tell(message, kind = 'info', action = null) {
  let corner = document.querySelector('.toasts');
  if (!corner) document.body.append((corner = h('div.toasts', { role: 'status', aria: { live: 'polite' } })));
  const run = () => {
    toast.remove();
    action.run();
  };
  const button = action && h('button.small', { type: 'button', onclick: run }, action.label);
  const toast = h('div.toast', { data: { kind } }, h('p', {}, message, button), iconButton('close', 'Close', () => toast.remove()));
  corner.append(toast);
  if (kind !== 'error' && !action) setTimeout(() => toast.remove(), 5000);
}

/** Says an error in the corner. For the end of a promise. */
export const tellError = (error) => {
  if (error?.name !== 'AbortError') tell(error?.message ?? String(error), 'error');
};
