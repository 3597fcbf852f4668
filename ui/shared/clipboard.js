// What is copied, also where the page has no clipboard.

import { h } from './dom.js';

/** Without a secure origin there is no clipboard, and a browser may refuse it: then what is selected is copied. */
export async function copied(words) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch {
    const focused = document.activeElement;
    const field = h('textarea', { class: 'said', value: words, readOnly: true });
    document.body.append(field);
    field.select();
    const done = document.execCommand('copy');
    field.remove();
    focused?.focus();
    return done;
  }
}
