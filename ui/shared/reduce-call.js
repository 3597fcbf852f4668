// A tool call, from its first word to its result. Source: AHP 1.0.0, the lifecycle of a tool call.

import { change, tidy } from './states.js';

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

/** A call as it begins. */
export const newCall = (action) => ({ ...base(action, { withInput: false }), status: 'streaming' });

/** What was open when the turn ended was left out. */
export function settled(call) {
  if (call.status === 'completed' || call.status === 'cancelled') return call;
  return {
    ...base(call),
    status: 'cancelled',
    invocationMessage: call.invocationMessage ?? '',
    reason: 'skipped',
  };
}

/** Folds an action into the call that it names; one that does not fit changes nothing. */
export function reduceCall(call, action) {
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
