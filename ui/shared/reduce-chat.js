// A chat: its turns, the one that runs, and what waits. Source: AHP 1.0.0, actions of chats.

import { newCall, reduceCall, settled } from './reduce-call.js';
import { ACTIVITY, change, ERROR, flag, IDLE, INPUT_NEEDED, IN_PROGRESS, IS_ARCHIVED, IS_READ, tidy, upsert, withDirectory, withoutDirectory } from './states.js';

export function reduceChat(state, action) {
  switch (action.type) {
    case 'chat/turnStarted':
      return started(state, action);
    case 'chat/turnComplete':
      return ended(state, action, 'complete');
    case 'chat/turnCancelled':
      return ended(state, action, 'cancelled');
    case 'chat/error':
      return ended(state, action, 'error', action.part);
    case 'chat/turnResume':
      return resumed(state, action);
    case 'chat/truncated':
      return truncated(state, action.turnId);
    case 'chat/turnsLoaded': {
      const known = new Set(state.turns.map((turn) => turn.id));
      const older = action.turns.filter((turn) => !known.has(turn.id));
      return change(state, { turns: [...older, ...state.turns], turnsNextCursor: action.turnsNextCursor });
    }
    case 'chat/responsePart':
      return action.part.kind === 'error' ? state : inTurn(state, action, (turn) => withPart(turn, action.part));
    case 'chat/delta':
      return said(state, action, 'markdown');
    case 'chat/reasoning':
      return said(state, action, 'reasoning');
    case 'chat/usage':
      return inTurn(state, action, (turn) => change(turn, { usage: action.usage }));
    case 'chat/toolCallStart':
      return inTurn(state, action, (turn) => withPart(turn, { kind: 'toolCall', toolCall: newCall(action) }));
    case 'chat/toolCallDelta':
    case 'chat/toolCallContentChanged':
      return inCall(state, action);
    case 'chat/toolCallReady':
    case 'chat/toolCallConfirmed':
    case 'chat/toolCallComplete':
    case 'chat/toolCallResultConfirmed':
    case 'chat/toolCallAuthRequired':
    case 'chat/toolCallAuthResolved': {
      const next = inCall(state, action);
      return next === state ? state : change(next, { status: statusOf(next) });
    }
    case 'chat/inputRequested':
      return asked(state, action.request);
    case 'chat/inputAnswerChanged':
      return inRequest(state, action.requestId, (part) => {
        const answers = { ...part.request.answers, [action.questionId]: action.answer };
        return withAnswers(part, tidy(answers));
      });
    case 'chat/inputCompleted': {
      const next = inRequest(state, action.requestId, (part) => ({
        ...withAnswers(part, { ...part.request.answers, ...action.answers }),
        response: action.response,
      }));
      return next === state ? state : change(next, { status: statusOf(next) });
    }
    case 'chat/pendingMessageSet': {
      const entry = { id: action.id, message: action.message };
      if (action.kind === 'steering') return change(state, { steeringMessage: entry });
      return change(state, { queuedMessages: upsert(state.queuedMessages, entry, (one) => one.id) });
    }
    case 'chat/pendingMessageRemoved':
      return unqueued(state, action.id, action.kind);
    case 'chat/queuedMessagesReordered': {
      const waiting = state.queuedMessages;
      if (!waiting) return state;
      const listed = [...new Set(action.order)].map((id) => waiting.find((one) => one.id === id)).filter(Boolean);
      const rest = waiting.filter((one) => !listed.includes(one)).sort((a, b) => (a.id < b.id ? -1 : 1));
      return change(state, { queuedMessages: [...listed, ...rest] });
    }
    case 'chat/draftChanged':
      return change(state, { draft: action.draft });
    case 'chat/activityChanged':
      return change(state, { activity: action.activity });
    case 'chat/isReadChanged':
      return change(state, { status: flag(state.status, IS_READ, action.isRead) });
    case 'chat/isArchivedChanged':
      return change(state, { status: flag(state.status, IS_ARCHIVED, action.isArchived) });
    case 'chat/movableChanged':
      return change(state, { movable: action.movable });
    case 'chat/changesetsChanged':
      return change(state, { changesets: action.changesets });
    case 'chat/canvasesChanged':
      return change(state, { canvases: action.canvases });
    case 'chat/workingDirectorySet':
      return withDirectory(state, action.directory);
    case 'chat/workingDirectoryRemoved':
      return withoutDirectory(state, action.directory);
    case 'chat/backgroundWorkSet':
      return change(state, { backgroundWork: upsert(state.backgroundWork, action.work, (work) => work.id) });
    case 'chat/backgroundWorkRemoved':
      return state.backgroundWork
        ? change(state, { backgroundWork: state.backgroundWork.filter((work) => work.id !== action.id) })
        : state;
    // The protocol has no chat action for a title: it is the session's, on the chat's channel.
    case 'session/titleChanged':
      return change(state, { title: action.title });
    default:
      return state;
  }
}

function statusOf(state, terminal) {
  const parts = state.activeTurn?.responseParts ?? [];
  const waits = parts.some(
    (part) =>
      (part.kind === 'inputRequest' && !part.response) ||
      (part.kind === 'toolCall' && ['pending-confirmation', 'pending-result-confirmation', 'auth-required'].includes(part.toolCall.status)),
  );
  const activity = terminal ?? (waits ? INPUT_NEEDED : state.activeTurn ? IN_PROGRESS : IDLE);
  return (state.status & ~ACTIVITY) | activity;
}

function started(state, action) {
  const activeTurn = { id: action.turnId, startedAt: action.startedAt, message: action.message, responseParts: [] };
  let next = change(state, { activeTurn, modifiedAt: action.startedAt });
  next = change(next, { status: flag(statusOf(next), IS_READ, false) });
  if (!action.queuedMessageId) return next;
  return unqueued(unqueued(next, action.queuedMessageId, 'steering'), action.queuedMessageId, 'queued');
}

function unqueued(state, id, kind) {
  if (kind === 'steering') return state.steeringMessage?.id === id ? change(state, { steeringMessage: undefined }) : state;
  if (!state.queuedMessages?.some((one) => one.id === id)) return state;
  const left = state.queuedMessages.filter((one) => one.id !== id);
  return change(state, { queuedMessages: left.length ? left : undefined });
}

function ended(state, action, how, errorPart) {
  const active = state.activeTurn;
  if (!active || active.id !== action.turnId) return state;
  const duration = Math.max(0, action.duration);
  const at = new Date(Date.parse(active.startedAt) + duration);
  if (Number.isNaN(at.getTime())) return state;
  const parts = active.responseParts.map((part) => (part.kind === 'toolCall' ? { ...part, toolCall: settled(part.toolCall) } : part));
  if (errorPart) parts.push({ kind: 'error', ...errorPart });
  const turn = tidy({
    id: active.id,
    startedAt: active.startedAt,
    duration,
    message: active.message,
    responseParts: parts,
    usage: active.usage,
    state: how,
  });
  const next = change(state, { activeTurn: undefined, turns: [...state.turns, turn], modifiedAt: at.toISOString() });
  return change(next, { status: statusOf(next, how === 'error' ? ERROR : undefined) });
}

function resumed(state, action) {
  const turn = state.turns.at(-1);
  const last = turn?.responseParts.at(-1);
  const fits = !state.activeTurn && turn?.id === action.turnId && turn.state === 'error' && last?.kind === 'error' && last.resumable;
  if (!fits) return state;
  const activeTurn = tidy({
    id: turn.id,
    startedAt: turn.startedAt ?? state.modifiedAt,
    message: turn.message,
    responseParts: turn.responseParts,
    usage: turn.usage,
  });
  const next = change(state, { turns: state.turns.slice(0, -1), activeTurn });
  return change(next, { status: flag(statusOf(next), IS_READ, false) });
}

function truncated(state, turnId) {
  const at = state.turns.findIndex((turn) => turn.id === turnId);
  if (turnId && at < 0) return state;
  const kept = turnId ? { turns: state.turns.slice(0, at + 1) } : { turns: [], turnsNextCursor: undefined };
  const next = change(state, { ...kept, activeTurn: undefined });
  return change(next, { status: statusOf(next) });
}

// The running turn

function inTurn(state, action, update) {
  if (state.activeTurn?.id !== action.turnId) return state;
  return change(state, { activeTurn: update(state.activeTurn) });
}

const withPart = (turn, part) => ({ ...turn, responseParts: [...turn.responseParts, part] });

const idOf = (part) => (part.kind === 'toolCall' ? part.toolCall.toolCallId : part.id);

/** Where a part stands, by its id: the first of that name, as the official reducers look for it. */
const placeOf = (parts, id) => parts.findIndex((part) => idOf(part) === id);

function said(state, action, kind) {
  return inTurn(state, action, (turn) => {
    const at = placeOf(turn.responseParts, action.partId);
    const part = turn.responseParts[at];
    if (part?.kind !== kind) return turn;
    return { ...turn, responseParts: turn.responseParts.with(at, { ...part, content: part.content + action.content }) };
  });
}

function inCall(state, action) {
  return inTurn(state, action, (turn) => {
    const at = turn.responseParts.findIndex((part) => part.kind === 'toolCall' && part.toolCall.toolCallId === action.toolCallId);
    if (at < 0) return turn;
    const part = turn.responseParts[at];
    const toolCall = reduceCall(part.toolCall, action);
    return toolCall === part.toolCall ? turn : { ...turn, responseParts: turn.responseParts.with(at, { ...part, toolCall }) };
  });
}

// Questions

function asked(state, request) {
  if (!state.activeTurn) return state;
  const parts = state.activeTurn.responseParts;
  const at = parts.findIndex((part) => isOpen(part, request.id));
  const known = parts[at];
  const part = { kind: 'inputRequest', request: tidy({ ...request, answers: request.answers ?? known?.request.answers }) };
  const responseParts = at < 0 ? [...parts, part] : parts.with(at, part);
  const next = change(state, { activeTurn: { ...state.activeTurn, responseParts } });
  return change(next, { status: flag(statusOf(next), IS_READ, false) });
}

const isOpen = (part, id) => part.kind === 'inputRequest' && !part.response && part.request.id === id;

function inRequest(state, id, update) {
  const parts = state.activeTurn?.responseParts ?? [];
  const at = parts.findIndex((part) => isOpen(part, id));
  if (at < 0) return state;
  return change(state, { activeTurn: { ...state.activeTurn, responseParts: parts.with(at, update(parts[at])) } });
}

const withAnswers = (part, answers) => ({
  ...part,
  request: tidy({ ...part.request, answers: Object.keys(answers).length ? answers : undefined }),
});
