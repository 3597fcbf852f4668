// States from actions: the protocol's reducers, as far as a page keeps states. Pure: a state that changes is a new object, with
// what did not change in it kept, so that who draws it sees by comparison what to draw again.
//
// They have to agree with the host's own fold to the last field; a test in the browser compares them. Left out: terminals,
// changesets, annotations, customizations and MCP servers, which this host does not serve.
// Source: AHP 1.0.0, actions.

const ACTIVITY = 31;
const IDLE = 1;
const ERROR = 2;
const IN_PROGRESS = 8;
const INPUT_NEEDED = 24;
const IS_READ = 32;
const IS_ARCHIVED = 64;

/** What somebody or something is at, by a status: `idle`, `error`, `running` or `waiting`. */
export function activityOf(status = IDLE) {
  const activity = status & ACTIVITY;
  if ((activity & INPUT_NEEDED) === INPUT_NEEDED) return 'waiting';
  if (activity & IN_PROGRESS) return 'running';
  return activity & ERROR ? 'error' : 'idle';
}

export const isRead = (status = 0) => Boolean(status & IS_READ);
export const isArchived = (status = 0) => Boolean(status & IS_ARCHIVED);

const flag = (status, bit, on) => (on ? status | bit : status & ~bit);

/** An object without the fields that are not there: absent and null are one thing in the protocol. */
function tidy(object) {
  for (const key of Object.keys(object)) if (object[key] === undefined || object[key] === null) delete object[key];
  return object;
}

const change = (object, changes) => tidy({ ...object, ...changes });

/** A list with the entry put in the place of the one of its name, else behind all others. */
function upsert(list = [], entry, nameOf) {
  const at = list.findIndex((one) => nameOf(one) === nameOf(entry));
  return at < 0 ? [...list, entry] : list.with(at, entry);
}

/** Folds an action into the state of the channel that it came on, by what the state is; an action that does not fit changes nothing. */
export function reduce(channel, state, action) {
  if (channel === 'ahp-root://') return reduceRoot(state, action);
  if (channel.startsWith('ahp-canvas:')) return action.type === 'canvas/stateChanged' ? action.canvas : state;
  return Array.isArray(state.turns) ? reduceChat(state, action) : reduceSession(state, action);
}

const merged = (config, action) =>
  config && change(config, { values: action.replace ? action.config : { ...config.values, ...action.config } });

export function reduceRoot(state, action) {
  switch (action.type) {
    case 'root/agentsChanged':
      return change(state, { agents: action.agents });
    case 'root/activeSessionsChanged':
      return change(state, { activeSessions: action.activeSessions });
    case 'root/terminalsChanged':
      return change(state, { terminals: action.terminals });
    case 'root/configChanged':
      return state.config ? change(state, { config: merged(state.config, action) }) : state;
    default:
      return state;
  }
}

// Sessions

const SUMMARY_FIELDS = ['title', 'status', 'activity', 'modifiedAt', 'changes', 'origin', 'workingDirectories'];

export function reduceSession(state, action) {
  switch (action.type) {
    case 'session/ready':
      return change(state, { lifecycle: 'ready' });
    case 'session/creationFailed':
      return change(state, { lifecycle: 'failed', creationError: action.error });
    case 'session/chatAdded':
      return change(state, { chats: upsert(state.chats, action.summary, (chat) => chat.resource) });
    case 'session/chatRemoved': {
      if (!state.chats.some((chat) => chat.resource === action.chat)) return state;
      const chats = state.chats.filter((chat) => chat.resource !== action.chat);
      return change(state, { chats, defaultChat: state.defaultChat === action.chat ? undefined : state.defaultChat });
    }
    case 'session/chatUpdated': {
      const changes = {};
      for (const field of SUMMARY_FIELDS) if (action.changes[field] != null) changes[field] = action.changes[field];
      return change(state, {
        chats: state.chats.map((chat) => (chat.resource === action.chat ? change(chat, changes) : chat)),
      });
    }
    case 'session/defaultChatChanged':
      return change(state, { defaultChat: action.defaultChat });
    case 'session/chatsReordered': {
      const chats = action.chats.map((uri) => state.chats.find((chat) => chat.resource === uri));
      const isComplete = chats.length === state.chats.length && new Set(chats).size === chats.length && !chats.includes(undefined);
      return isComplete ? change(state, { chats }) : state;
    }
    case 'session/titleChanged':
      return change(state, { title: action.title });
    case 'session/isReadChanged':
      return change(state, { status: flag(state.status, IS_READ, action.isRead) });
    case 'session/isArchivedChanged':
      return change(state, { status: flag(state.status, IS_ARCHIVED, action.isArchived) });
    case 'session/activityChanged':
      return change(state, { activity: action.activity });
    case 'session/changesetsChanged':
      return change(state, { changesets: action.changesets });
    case 'session/configChanged':
      return state.config ? change(state, { config: merged(state.config, action) }) : state;
    case 'session/metaChanged':
      return change(state, { _meta: action._meta });
    case 'session/serverToolsChanged':
      return change(state, { serverTools: action.tools });
    case 'session/activeClientSet':
      return change(state, { activeClients: upsert(state.activeClients, action.activeClient, (client) => client.clientId) });
    case 'session/activeClientRemoved':
      return change(state, { activeClients: state.activeClients.filter((client) => client.clientId !== action.clientId) });
    case 'session/workingDirectorySet':
      return withDirectory(state, action.directory);
    case 'session/workingDirectoryRemoved':
      return withoutDirectory(state, action.directory);
    case 'session/workingDirectoryReplaced':
      return withReplaced(state, action);
    case 'session/inputNeededSet': {
      const inputNeeded = upsert(state.inputNeeded, action.request, (request) => request.id);
      return change(state, { inputNeeded, status: needing(state.status, inputNeeded) });
    }
    case 'session/inputNeededRemoved': {
      if (!state.inputNeeded?.some((request) => request.id === action.id)) return state;
      const left = state.inputNeeded.filter((request) => request.id !== action.id);
      return change(state, { inputNeeded: left.length ? left : undefined, status: needing(state.status, left) });
    }
    default:
      return state;
  }
}

/** Work that a client does for the agent is nothing that waits for somebody. */
function needing(status, inputNeeded) {
  const waits = inputNeeded.some((request) => request.kind !== 'toolClientExecution');
  return waits ? (status & ~ACTIVITY) | INPUT_NEEDED : status & ~(INPUT_NEEDED & ~IN_PROGRESS);
}

function withDirectory(state, directory) {
  const list = state.workingDirectories ?? [];
  return list.includes(directory) ? change(state, { workingDirectories: list }) : change(state, { workingDirectories: [...list, directory] });
}

function withoutDirectory(state, directory) {
  const list = state.workingDirectories;
  return list ? change(state, { workingDirectories: list.filter((one) => one !== directory) }) : state;
}

function withReplaced(state, { directory, replacement }) {
  const list = state.workingDirectories ?? [];
  const at = list.indexOf(directory);
  if (at < 0) return state;
  if (list.slice(0, at).includes(replacement)) return change(state, { workingDirectories: list.toSpliced(at, 1) });
  const replaced = list.map((one, i) => (i === at ? replacement : one)).filter((one, i) => i === at || one !== replacement);
  return change(state, { workingDirectories: replaced });
}

// Chats

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

/** What was open when the turn ended was left out. */
function settled(call) {
  if (call.status === 'completed' || call.status === 'cancelled') return call;
  return {
    ...base(call),
    status: 'cancelled',
    invocationMessage: call.invocationMessage ?? '',
    reason: 'skipped',
  };
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

// Tool calls

/** What a call is through all of its states. */
function base(call, { withInput = true } = {}) {
  return tidy({
    toolCallId: call.toolCallId,
    toolName: call.toolName,
    displayName: call.displayName,
    intention: call.intention,
    toolInput: withInput ? call.toolInput : undefined,
    contributor: call.contributor,
    _meta: call._meta,
  });
}

const newCall = (action) => ({ ...base(action, { withInput: false }), status: 'streaming' });

function inCall(state, action) {
  return inTurn(state, action, (turn) => {
    const at = turn.responseParts.findIndex((part) => part.kind === 'toolCall' && part.toolCall.toolCallId === action.toolCallId);
    if (at < 0) return turn;
    const part = turn.responseParts[at];
    const toolCall = reduceCall(part.toolCall, action);
    return toolCall === part.toolCall ? turn : { ...turn, responseParts: turn.responseParts.with(at, { ...part, toolCall }) };
  });
}

function reduceCall(call, action) {
  switch (action.type) {
    case 'chat/toolCallDelta':
      if (call.status !== 'streaming') return call;
      return change(call, {
        partialInput: action.content == null ? call.partialInput : (call.partialInput ?? '') + action.content,
        _meta: action._meta ?? call._meta,
        invocationMessage: action.invocationMessage ?? call.invocationMessage,
      });
    case 'chat/toolCallReady':
      return ready(call, action);
    case 'chat/toolCallConfirmed':
      return confirmed(call, action);
    case 'chat/toolCallComplete':
      return completed(call, action);
    case 'chat/toolCallContentChanged':
      return call.status === 'running' ? change(call, { content: action.content, _meta: action._meta ?? call._meta }) : call;
    case 'chat/toolCallResultConfirmed':
      return resultConfirmed(call, action);
    case 'chat/toolCallAuthRequired':
      if (call.status !== 'running' || call.contributor?.kind !== 'mcp') return call;
      return change(call, { status: 'auth-required', auth: action.auth, _meta: action._meta ?? call._meta });
    case 'chat/toolCallAuthResolved':
      if (call.status !== 'auth-required') return call;
      return change(call, { status: 'running', auth: undefined, _meta: action._meta ?? call._meta });
    default:
      return call;
  }
}

/** Who runs a call is never changed by what comes later. */
function contributorOf(current, next) {
  if (!next) return current;
  if (current?.kind === 'client') return next.kind === 'client' && next.clientId === current.clientId ? next : current;
  return next.kind === 'client' ? current : next;
}

function ready(call, action) {
  if (!['streaming', 'running', 'pending-confirmation'].includes(call.status)) return call;
  const pending = call.status === 'pending-confirmation' ? call : {};
  const next = {
    ...base(call, { withInput: call.status !== 'streaming' }),
    intention: action.intention ?? call.intention,
    toolInput: action.toolInput ?? (call.status === 'streaming' ? undefined : call.toolInput),
    contributor: contributorOf(call.contributor, action.contributor),
    _meta: action._meta ?? call._meta,
    invocationMessage: action.invocationMessage,
  };
  if (action.confirmed) return tidy({ ...next, status: 'running', confirmed: action.confirmed });
  return tidy({
    ...next,
    status: 'pending-confirmation',
    confirmationTitle: action.confirmationTitle ?? pending.confirmationTitle,
    riskAssessment: action.riskAssessment ?? pending.riskAssessment,
    edits: action.edits ?? pending.edits,
    editable: action.editable ?? pending.editable,
    options: action.options ?? pending.options,
  });
}

function confirmed(call, action) {
  if (call.status !== 'pending-confirmation') return call;
  const common = {
    ...base(call),
    _meta: action._meta ?? call._meta,
    invocationMessage: call.invocationMessage,
    selectedOption: call.options?.find((option) => option.id === action.selectedOptionId),
  };
  if (action.approved) {
    const edited = action.editedToolInput != null && typeof call.toolInput === 'string';
    return tidy({
      ...common,
      status: 'running',
      toolInput: edited ? action.editedToolInput : call.toolInput,
      confirmed: action.confirmed ?? 'not-needed',
    });
  }
  return tidy({
    ...common,
    status: 'cancelled',
    reason: action.reason ?? 'denied',
    reasonMessage: action.reasonMessage,
    userSuggestion: action.userSuggestion,
  });
}

function completed(call, action) {
  const { result } = action;
  const fromAuth = call.status === 'auth-required';
  if (!['running', 'pending-confirmation', 'auth-required'].includes(call.status) || (fromAuth && result.success)) return call;
  const asked = call.status === 'pending-confirmation';
  return tidy({
    ...base(call),
    _meta: action._meta ?? call._meta,
    invocationMessage: call.invocationMessage,
    status: action.requiresResultConfirmation && !fromAuth ? 'pending-result-confirmation' : 'completed',
    success: result.success,
    pastTenseMessage: result.pastTenseMessage,
    content: result.content ?? (fromAuth ? call.content : undefined),
    structuredContent: result.structuredContent,
    error: result.error,
    confirmed: asked ? 'not-needed' : call.confirmed,
    selectedOption: asked ? undefined : call.selectedOption,
  });
}

function resultConfirmed(call, action) {
  if (call.status !== 'pending-result-confirmation') return call;
  if (action.approved) return change(call, { status: 'completed', _meta: action._meta ?? call._meta });
  return tidy({
    ...base(call),
    _meta: action._meta ?? call._meta,
    invocationMessage: call.invocationMessage,
    status: 'cancelled',
    reason: 'result-denied',
    selectedOption: call.selectedOption,
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
