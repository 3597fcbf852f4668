// The turns of a chat, in order, the running one last. What did not change is not drawn again.

import { copied } from '../shared/clipboard.js';
import { h, icon, keyed, replace, text } from '../shared/dom.js';
import { duration, when } from '../shared/format.js';
import { tell } from '../shared/dialog.js';
import { keyOf, viewOf } from './parts.js';
import { sender } from './words.js';
import { visualFrame } from './visuals.js';

const ENDINGS = { cancelled: 'stopped', error: 'error' };

export class Transcript {
  constructor(model) {
    this.model = model;
    this.older = h('button.quiet.small', { type: 'button', onclick: () => model.act(model.olderTurns()) }, 'Show earlier');
    this.turns = h('ol.turns');
    /** Pages that belong to no turn, such as those of clients. */
    this.visuals = h('div.visuals');
    this.empty = h('p.empty', {}, 'Nothing was said here yet.');
    this.element = h('div.transcript', { role: 'region', aria: { label: 'Conversation' }, tabIndex: 0 }, h('div.column', {}, this.older, this.turns, this.visuals, this.empty));
    this.wrapped = new WeakMap();
    this.chat = null;
    this.following = true;
    this.element.addEventListener('scroll', () => (this.following = this.#isAtEnd()));
    new ResizeObserver(() => this.following && this.#toEnd()).observe(this.element);
  }

  update() {
    const { model, element } = this;
    const state = model.chatState;
    // Who has scrolled up to read stays where they are.
    const following = this.chat !== model.chat || this.following;
    const height = element.scrollHeight;
    const firstBefore = this.turns.firstElementChild;
    this.chat = model.chat;
    this.older.hidden = !state?.turnsNextCursor;
    this.older.disabled = !model.may('chat:turns');
    const items = state ? [...state.turns, ...(state.activeTurn ? [state.activeTurn] : [])] : [];
    const lastTurn = items.at(-1);
    const byTurn = Map.groupBy(model.visuals, (visual) => visual.turnId ?? null);
    const here = [model.isOpen, [...model.me.may].join(), model.ended, model.can('fork')].join(' ');
    keyed(this.turns, items.map((turn) => this.#wrap(turn, turn === lastTurn, byTurn.get(turn.id) ?? [], here)), ({ turn }) => turn.id, (item) => this.#make(item), (li, item) => li.show(item));
    keyed(this.visuals, state ? (byTurn.get(null) ?? []) : [], (visual) => visual.url, visualFrame);
    this.empty.hidden = !state || items.length > 0;
    if (following) this.#toEnd();
    else if (firstBefore && firstBefore !== this.turns.firstElementChild) element.scrollTop += element.scrollHeight - height;
  }

  #isAtEnd() {
    return this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight < 80;
  }

  #toEnd() {
    this.element.scrollTop = this.element.scrollHeight;
    this.following = true;
  }

  /** The same object for the same turn in the same circumstances. */
  #wrap(turn, last, visuals, around) {
    const here = [last, around, ...visuals.map((visual) => visual.url)].join(' ');
    const known = this.wrapped.get(turn);
    if (known?.here === here) return known;
    const item = { turn, last, visuals, here };
    this.wrapped.set(turn, item);
    return item;
  }

  #make() {
    const view = new TurnView(this.model);
    view.element.show = (item) => view.update(item);
    return view.element;
  }
}

class TurnView {
  who = h('span.who');
  at = h('time');
  words = h('div.words');
  attachments = h('ul.attachments', { hidden: true });
  parts = h('div.parts');
  visuals = h('div.visuals');
  foot = h('footer.turn-foot');
  chip = h('span.chip');
  facts = h('span.facts');
  working = h('p.working', { hidden: true }, h('span.dots', { aria: { hidden: 'true' } }), 'Working…');
  views = new WeakMap();

  constructor(model) {
    this.model = model;
    const button = (name, label, run) => h('button.quiet.small', { type: 'button', onclick: run }, icon(name), label);
    this.back = button('back', 'Go back to here', () => model.act(this.#goBack()));
    this.fork = button('fork', 'Fork', () => model.act(model.fork(this.turn.id)));
    this.side = button('side', 'Ask aside', () => model.act(model.sideChat(this.turn.id, selectionIn(this.parts))));
    this.copy = button('copy', 'Copy', () => this.#copy());
    this.foot.append(this.chip, this.facts, h('span.turn-actions', {}, this.copy, this.side, this.fork, this.back));
    this.element = h(
      'li.turn',
      {},
      h('div.message', {}, h('p.message-head', {}, this.who, this.at), this.words, this.attachments),
      h('div.answer', {}, this.parts, this.working, this.visuals, this.foot),
    );
  }

  update({ turn, last, visuals }) {
    const { model } = this;
    this.turn = turn;
    const running = !turn.state;
    const { message } = turn;
    this.element.dataset.turn = turn.id;
    this.element.dataset.state = turn.state ?? 'running';
    text(this.who, sender(message, model.me));
    if (turn.startedAt) {
      text(this.at, when(turn.startedAt));
      this.at.dateTime = turn.startedAt;
    }
    text(this.words, message.text);
    this.words.hidden = !message.text;
    this.attachments.hidden = !message.attachments?.length;
    replace(this.attachments, (message.attachments ?? []).map((one) => h('li.chip', {}, one.label)));
    this.#parts(turn, last, running);
    this.working.hidden = !running || turn.responseParts.some((part) => part.kind === 'markdown' || waits(part));
    keyed(this.visuals, visuals, (visual) => visual.url, visualFrame);
    const ending = ENDINGS[turn.state];
    this.chip.hidden = !ending;
    text(this.chip, ending ?? '');
    this.chip.dataset.kind = turn.state === 'error' ? 'error' : '';
    text(this.facts, facts(turn));
    this.#actions(turn, last, running);
  }

  #parts(turn, last, running) {
    const { model } = this;
    const at = new Map(turn.responseParts.map((part, i) => [part, i]));
    // A part is drawn again when it changed, and when what may be done with it did.
    const items = turn.responseParts.map((part) => ({ part, key: keyOf(part, at.get(part)) }));
    const here = JSON.stringify([last, running, model.isOpen, model.ended, model.me.may.size]);
    keyed(
      this.parts,
      items,
      ({ key }) => key,
      ({ part }) => {
        const view = viewOf(part, model);
        this.views.set(view.element, view);
        return view.element;
      },
      (element, { part }) => {
        const view = this.views.get(element);
        const isLast = at.get(part) === turn.responseParts.length - 1;
        const now = `${here}${isLast}`;
        if (view.shown === part && view.here === now) return;
        [view.shown, view.here] = [part, now];
        view.update(part, { turn, running, lastTurn: last, last: isLast });
      },
    );
  }

  #actions(turn, last, running) {
    const { model } = this;
    this.foot.hidden = running;
    this.back.hidden = last;
    this.back.disabled = !model.may('chat:truncate');
    this.fork.hidden = !model.can('fork') || turn.state !== 'complete';
    this.fork.disabled = !model.may('chat:create');
    this.side.hidden = !model.can('sideChat');
    this.side.disabled = !model.may('chat:create');
  }

  /** Nothing is lost by it, so it is not asked about before; how to have it again is said behind it. */
  async #goBack() {
    const { model } = this;
    const { session, chat } = model;
    const seq = await model.rewind(this.turn.id);
    const again = { label: 'Fork what was dropped', run: () => model.act(model.forkAt(session, chat, seq - 1)) };
    tell('The chat went back. The log keeps what it dropped.', 'info', model.may('chat:fork') ? again : null);
  }

  async #copy() {
    const said = this.turn.responseParts.filter((part) => part.kind === 'markdown').map((part) => part.content);
    const isCopied = await copied(said.join('\n\n').trim());
    tell(isCopied ? 'The answer was copied.' : 'The browser does not let this page copy.', isCopied ? 'info' : 'error');
  }
}

const waits = (part) =>
  (part.kind === 'inputRequest' && !part.response) || (part.kind === 'toolCall' && part.toolCall.status.startsWith('pending-'));

function facts({ duration: ms, usage }) {
  const tokens = usage && [usage.inputTokens && `${usage.inputTokens} in`, usage.outputTokens && `${usage.outputTokens} out`].filter(Boolean).join(', ');
  return [ms === undefined ? null : duration(ms), tokens ? `${tokens} tokens` : null, usage?.model].filter(Boolean).join(' · ');
}

/** What somebody marked in the answer: the side chat is about that. */
function selectionIn(element) {
  const selection = getSelection();
  if (!selection?.rangeCount || !element.contains(selection.getRangeAt(0).commonAncestorContainer)) return null;
  return selection.toString().trim() || null;
}
