// A tool call: what it is about to do, the decision where one is asked for, and what came of it.

import { h, icon, replace, text } from '../shared/dom.js';
import { plain } from './words.js';

const STATES = {
  streaming: ['prepares', 'running'],
  'pending-confirmation': ['waits for you', 'waiting'],
  running: ['runs', 'running'],
  'auth-required': ['wants a token', 'waiting'],
  'pending-result-confirmation': ['waits for you', 'waiting'],
  completed: ['done', ''],
  cancelled: ['not run', 'error'],
};

export class ToolView {
  title = h('span.tool-title');
  chip = h('span.chip');
  body = h('div.tool-body');
  element = h('details.tool', {}, h('summary', {}, icon('tool'), this.title, this.chip), this.body);
  #status = null;

  constructor(_, model) {
    this.model = model;
  }

  update({ toolCall: call }, { turn }) {
    const [words, kind] = STATES[call.status] ?? [call.status, ''];
    const failed = call.status === 'completed' && !call.success;
    text(this.title, plain(call.pastTenseMessage ?? call.invocationMessage) || call.displayName);
    text(this.chip, failed ? 'failed' : words);
    this.chip.dataset.kind = failed ? 'error' : kind;
    this.element.dataset.status = call.status;
    const asks = call.status.startsWith('pending-');
    if (call.status !== this.#status) {
      // What waits for somebody is open before them; what they opened stays open.
      if (asks) this.element.open = true;
      else if (this.#status?.startsWith('pending-')) this.element.open = false;
      this.#status = call.status;
      this.form = null;
    }
    const decision = asks ? (this.form ??= call.status === 'pending-confirmation' ? this.#decision(call, turn) : this.#resultDecision(call, turn)) : null;
    const editing = decision?.querySelector('textarea');
    if (!this.body.contains(decision) || !decision) {
      replace(this.body, editing || !call.toolInput ? null : inputOf(call), outcome(call), decision);
    }
    const may = this.model.may('chat:answer');
    for (const control of decision?.querySelectorAll('button, textarea, input') ?? []) control.disabled = !may;
  }

  #decision(call, turn) {
    const { model } = this;
    const edited = call.editable && typeof call.toolInput === 'string' ? h('textarea.mono', { rows: 2, value: call.toolInput, aria: { label: 'Input' } }) : null;
    const reason = h('input', { type: 'text', placeholder: 'Why not, for the agent (optional)', aria: { label: 'Reason' } });
    const options = call.options ?? [
      { kind: 'approve', label: 'Allow' },
      { kind: 'deny', label: 'Deny' },
    ];
    const decide = (option) => {
      const changed = edited && edited.value !== call.toolInput ? edited.value : undefined;
      const more = option.kind === 'approve' ? { edited: changed } : { reason: reason.value.trim() };
      model.act(model.confirm(turn.id, call.toolCallId, option, more));
    };
    const button = (option, first) =>
      h('button', { class: option.kind === 'approve' && first ? 'primary' : option.kind === 'deny' ? 'danger' : '', type: 'button', onclick: () => decide(option) }, option.label);
    const first = options.findIndex((option) => option.kind === 'approve');
    return h(
      'div.decision',
      { role: 'group', aria: { label: 'Decision' } },
      h('p', {}, h('strong', {}, plain(call.confirmationTitle) || 'May this tool run?')),
      edited,
      call.riskAssessment ? h('p.hint', {}, plain(call.riskAssessment.message ?? call.riskAssessment)) : null,
      h('div.buttons', {}, options.map((option, at) => button(option, at === first))),
      options.some((option) => option.kind === 'deny') ? reason : null,
    );
  }

  #resultDecision(call, turn) {
    const { model } = this;
    const decide = (approved) => model.act(model.confirmResult(turn.id, call.toolCallId, approved));
    return h(
      'div.decision',
      { role: 'group', aria: { label: 'Decision' } },
      h('p', {}, h('strong', {}, 'May the agent have this result?')),
      h(
        'div.buttons',
        {},
        h('button.primary', { type: 'button', onclick: () => decide(true) }, 'Hand it over'),
        h('button.danger', { type: 'button', onclick: () => decide(false) }, 'Keep it back'),
      ),
    );
  }
}

function inputOf(call) {
  const input = typeof call.toolInput === 'string' ? call.toolInput : (call.toolInput?.uri ?? JSON.stringify(call.toolInput));
  return h('div', {}, h('p.hint', {}, call.toolName, ' was given'), h('pre', { tabIndex: 0 }, input));
}

function outcome(call) {
  const parts = (call.content ?? []).map(contentOf);
  if (parts.length && call.status === 'completed') parts.unshift(h('p.hint', {}, 'It answered'));
  if (call.selectedOption) parts.push(h('p.hint', {}, `Decided: ${call.selectedOption.label}`));
  if (call.status === 'cancelled') parts.push(h('p.hint', {}, plain(call.reasonMessage) || { denied: 'It was denied.', skipped: 'It was left out.', 'result-denied': 'The result was kept back.' }[call.reason] || call.reason));
  if (call.error) parts.push(h('p.notice', { data: { kind: 'error' } }, call.error.message));
  return parts;
}

function contentOf(content) {
  switch (content.type) {
    case 'text':
      return h('pre', { tabIndex: 0 }, content.text);
    case 'subagent': {
      const session = new URLSearchParams(location.hash.slice(1)).get('session');
      return h('p', {}, h('a', { href: `#${new URLSearchParams({ session, chat: content.resource })}` }, `Worker: ${content.title}`));
    }
    case 'resource':
      return h('p', {}, h('code', {}, content.uri));
    case 'fileEdit':
      return h('p', {}, 'Changed ', h('code', {}, content.after?.uri ?? content.before?.uri ?? ''));
    default:
      return h('p.hint', {}, content.type);
  }
}
