// A conversation as it was at a moment, read from a chat's state: for the eye, not to write in.

import { h } from '../shared/dom.js';
import { count, dateTime } from '../shared/format.js';

/** The turns of `state`, the one that ran then, and what waited. `showMore` asks for older turns. */
export function conversation(state, showMore) {
  const turns = state.turns ?? [];
  const waiting = [...(state.steeringMessage ? [['Steering', state.steeringMessage]] : []), ...(state.queuedMessages ?? []).map((message) => ['Queued', message])];
  return h(
    'div.conversation',
    {},
    state.turnsNextCursor ? h('p', {}, h('button.small', { type: 'button', onclick: showMore }, 'Older turns')) : null,
    turns.map((turn) => drawn(turn, turn.state === 'complete' ? null : turn.state)),
    state.activeTurn ? drawn(state.activeTurn, 'running') : null,
    waiting.map(([kind, pending]) => h('div.said-by.waiting-message', {}, h('p.who', {}, h('span.chip', {}, kind)), prose(pending.message?.text ?? ''))),
    state.draft?.text ? h('div.said-by.waiting-message', {}, h('p.who', {}, h('span.chip', {}, 'Draft')), prose(state.draft.text)) : null,
    turns.length || state.activeTurn ? null : h('p.empty', {}, 'Nothing had been said.'),
  );
}

const prose = (text) => h('div.prose', {}, text);

function drawn(turn, state) {
  const { message, responseParts = [] } = turn;
  const sender = message?._meta?.['scrollback.sender'];
  const kind = { running: 'running', error: 'error', cancelled: 'waiting' }[state];
  return h(
    'article.turn',
    { data: { turn: turn.id } },
    h('div.said-by.question', {}, h('p.who', {}, sender ?? message?.origin?.kind ?? 'message', turn.startedAt ? h('time', { dateTime: turn.startedAt }, dateTime(turn.startedAt)) : null), prose(message?.text ?? ''), (message?.attachments ?? []).map((attached) => h('span.chip', {}, attached.label ?? attached.type))),
    h('div.said-by', {}, state ? h('p.who', {}, h('span.chip', { data: { kind } }, state)) : null, responseParts.map(part), turn.usage ? h('p.hint', {}, usage(turn.usage)) : null),
  );
}

const usage = ({ inputTokens, outputTokens }) => [inputTokens !== undefined ? `${count(inputTokens)} tokens in` : '', outputTokens !== undefined ? `${count(outputTokens)} out` : ''].filter(Boolean).join(', ');

function part(one) {
  switch (one.kind) {
    case 'markdown':
      return prose(one.content);
    case 'reasoning':
      return h('details.reasoning', {}, h('summary', {}, 'Reasoning'), prose(one.content));
    case 'toolCall':
      return tool(one.toolCall);
    case 'systemNotification':
      return h('p.notice', {}, textOf(one.content));
    case 'error':
      return h('p.notice', { data: { kind: 'error' } }, one.error?.message ?? one.message ?? 'It failed.');
    case 'inputRequest':
      return h('p.notice', {}, `Asked: ${textOf(one.request?.message) || 'a question'}`, one.response ? ` – ${one.response}` : ' – not answered yet');
    default:
      return h('p.hint', {}, one.kind);
  }
}

function tool(call) {
  const said = (call.content ?? []).map((item) => item.text ?? item.resource ?? item.type).join('\n');
  return h(
    'details.tool',
    {},
    h('summary', {}, h('code', {}, call.toolName ?? call.displayName ?? 'tool'), ' ', h('span.chip', { data: { kind: call.status === 'pending-confirmation' ? 'waiting' : null } }, call.status ?? '')),
    call.toolInput ? h('pre', {}, h('code', {}, String(call.toolInput))) : null,
    said ? h('pre', {}, h('code', {}, said)) : null,
  );
}

const textOf = (value) => (typeof value === 'string' ? value : value?.markdown ?? '');
