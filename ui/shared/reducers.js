// States from actions: the protocol's reducers, as far as a page keeps states. Pure: a state that changes is a new object, with
// what did not change in it kept, so that who draws it sees by comparison what to draw again.
//
// They have to agree with the host's own fold to the last field; a test in the browser compares them. Left out: terminals,
// changesets, annotations, customizations and MCP servers, which this host does not serve.
// Source: AHP 1.0.0, actions.

import { reduceChat } from './reduce-chat.js';
import { ACTIVITY, change, flag, INPUT_NEEDED, IN_PROGRESS, IS_ARCHIVED, IS_READ, upsert, withDirectory, withoutDirectory } from './states.js';

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

function withReplaced(state, { directory, replacement }) {
  const list = state.workingDirectories ?? [];
  const at = list.indexOf(directory);
  if (at < 0) return state;
  if (list.slice(0, at).includes(replacement)) return change(state, { workingDirectories: list.toSpliced(at, 1) });
  const replaced = list.map((one, i) => (i === at ? replacement : one)).filter((one, i) => i === at || one !== replacement);
  return change(state, { workingDirectories: replaced });
}
