// The parts of an answer. Each has a view that is made once and told of its part whenever that is another object.

import { h, icon, replace, text } from '../shared/dom.js';
import { Growing, markdown } from '../shared/markdown.js';
import { QuestionView } from './question.js';
import { ToolView } from './tool.js';

/** Makes the view of a part: `{element, update(part, context)}`. */
export function viewOf(part, model) {
  const View = VIEWS[part.kind] ?? UnknownView;
  return new View(part, model);
}

/** What a part is known by in its turn. */
export function keyOf(part, at) {
  if (part.kind === 'toolCall') return `tool ${part.toolCall.toolCallId}`;
  if (part.kind === 'inputRequest') return `question ${part.request.id} ${at}`;
  return `${part.kind} ${part.id ?? at}`;
}

class MarkdownView {
  element = h('div.markdown');
  #said = new Growing(this.element);
  update(part) {
    this.#said.show(part.content);
  }
}

class ReasoningView {
  body = h('div.markdown');
  #said = new Growing(this.body);
  label = h('span', {}, 'Thinking');
  element = h('details.reasoning', {}, h('summary', {}, icon('think'), this.label), this.body);
  update(part, { running, last }) {
    this.#said.show(part.content);
    text(this.label, running && last ? 'Thinking…' : 'Thought');
  }
}

class NoticeView {
  element = h('div.system-notice');
  update(part) {
    replace(this.element, markdown(typeof part.content === 'string' ? part.content : (part.content?.markdown ?? '')));
  }
}

class ErrorView {
  element = h('div.notice.turn-error', { data: { kind: 'error' } });
  constructor(_, model) {
    this.model = model;
  }
  update(part, { turn, lastTurn, running }) {
    const limit = part.error._meta?.['scrollback.limit'];
    const resets = limit?.resetsAt ? `Goes on by itself at ${new Date(limit.resetsAt).toLocaleTimeString()}.` : null;
    const resumable = part.resumable && lastTurn && !running;
    replace(
      this.element,
      h('p', {}, h('strong', {}, part.error.errorType), ` ${part.error.message}`),
      resets ? h('p', {}, resets) : null,
      resumable
        ? h('button.small', { type: 'button', disabled: !this.model.may('chat:send'), onclick: () => this.model.act(this.model.resume(turn.id)) }, 'Resume')
        : null,
    );
  }
}

class ContentView {
  element = h('p.content-ref');
  update(part) {
    replace(this.element, 'Content: ', h('code', {}, part.uri), part.contentType ? ` (${part.contentType})` : '');
  }
}

class UnknownView {
  element = h('p.hint');
  update(part) {
    text(this.element, `A part that this page does not know: ${part.kind}`);
  }
}

const VIEWS = {
  markdown: MarkdownView,
  reasoning: ReasoningView,
  toolCall: ToolView,
  inputRequest: QuestionView,
  systemNotification: NoticeView,
  error: ErrorView,
  contentRef: ContentView,
};
