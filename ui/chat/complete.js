// What a message may go on with: the agent's commands behind `/`, paths behind `@`, chats and files behind `#`.
//
// The field keeps the focus, and names the option that is chosen in the list. Nothing is chosen before somebody does, so that
// Enter sends what stands there; Tab takes the first.

import { h, replace, text } from '../shared/dom.js';

const ASK_AFTER = 120;
const ASKS = /(^|\n)\/\S*$|(^|[\s([{<"'`])[@#]\S*$/;

export class Completions {
  list = h('ul.completions', { id: 'completions', role: 'listbox', aria: { label: 'What the message may go on with' }, hidden: true });
  said = h('p.said', { role: 'status' });
  #items = [];
  #chosen = -1;
  #asked = null;
  /** What was taken into messages, with what goes along: `{chat, insertText, attachment}`. */
  #taken = [];

  constructor(field, model) {
    this.field = field;
    this.model = model;
    for (const [name, value] of [['autocomplete', 'list'], ['haspopup', 'listbox'], ['controls', 'completions']]) field.setAttribute(`aria-${name}`, value);
    field.addEventListener('input', () => this.#soon());
    field.addEventListener('blur', () => this.close());
    // The field keeps the focus.
    this.list.addEventListener('pointerdown', (event) => event.preventDefault());
    this.list.addEventListener('mousedown', (event) => event.preventDefault());
  }

  get isOpen() {
    return !this.list.hidden;
  }

  close() {
    clearTimeout(this.#asked);
    this.#show([]);
  }

  /** What goes along with a message into `chat`, of what was taken and still stands in it. A command says all by its name. */
  attachments(written, chat) {
    const of = this.#taken.filter((one) => one.chat === chat && written.includes(one.insertText) && one.attachment.type !== 'simple');
    return [...new Map(of.map((one) => [one.insertText, one.attachment])).values()];
  }

  /** Whether the key was one for the list. */
  key(event) {
    if (!this.isOpen || event.isComposing) return false;
    const last = this.#items.length - 1;
    if (event.key === 'ArrowDown') this.#choose(this.#chosen < last ? this.#chosen + 1 : 0);
    else if (event.key === 'ArrowUp') this.#choose(this.#chosen > 0 ? this.#chosen - 1 : last);
    else if (event.key === 'Escape') this.close();
    else if (event.key === 'Tab' && !event.shiftKey) this.#take(this.#items[Math.max(this.#chosen, 0)]);
    else if (event.key === 'Enter' && !event.shiftKey && this.#chosen >= 0) this.#take(this.#items[this.#chosen]);
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  #before() {
    const { value, selectionStart, selectionEnd } = this.field;
    return selectionStart === selectionEnd ? value.slice(0, selectionStart) : '';
  }

  #soon() {
    clearTimeout(this.#asked);
    if (!ASKS.test(this.#before()) || !this.model.may('session:state')) return this.#show([]);
    this.#asked = setTimeout(() => this.#ask(), ASK_AFTER);
  }

  async #ask() {
    const { field, model } = this;
    const [chat, written, offset] = [model.chat, field.value, field.selectionStart];
    const { items } = await model.completions(written, offset).catch(() => ({ items: [] }));
    // What was asked for may not stand there any more.
    if (chat === model.chat && field.value === written && field.selectionStart === offset && document.activeElement === field) this.#show(items);
  }

  #show(items) {
    this.#items = items;
    this.list.hidden = !items.length;
    replace(this.list, items.map((item, at) => h('li', { id: `completion-${at}`, role: 'option', onclick: () => this.#take(item) }, labelOf(item))));
    text(this.said, items.length ? `${items.length} to choose from` : '');
    this.#choose(-1);
  }

  #choose(at) {
    this.#chosen = at;
    [...this.list.children].forEach((option, i) => option.setAttribute('aria-selected', String(i === at)));
    if (at < 0) return this.field.removeAttribute('aria-activedescendant');
    this.field.setAttribute('aria-activedescendant', `completion-${at}`);
    this.list.children[at].scrollIntoView({ block: 'nearest' });
  }

  #take({ insertText, rangeStart, rangeEnd, attachment }) {
    const { field } = this;
    const [start, end] = [rangeStart ?? field.selectionStart, rangeEnd ?? field.selectionStart];
    const space = /^\s/.test(field.value.slice(end)) ? '' : ' ';
    this.#taken.push({ chat: this.model.chat, insertText, attachment });
    field.setRangeText(insertText + space, start, end, 'end');
    field.dispatchEvent(new Event('input'));
    this.close();
  }
}

function labelOf({ insertText, attachment }) {
  const about = attachment._meta?.['scrollback.description'] ?? (attachment.type === 'chat' ? 'chat' : attachment.displayKind);
  return [h('span.completion', {}, insertText), about ? h('span.hint', {}, ` ${about}`) : null];
}
