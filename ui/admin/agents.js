// The agents that are configured, and whether each can start here.

import { h, replace } from '../shared/dom.js';
import { get } from '../shared/api.js';

export const title = 'Agents';

export async function show(place, { signal }) {
  const agents = await get('api/agents', {}, { signal });
  replace(
    place,
    h('div.page-head', {}, h('h1', {}, title), h('p.lead', {}, 'Which agents there are, and whether each can start here.')),
    h('div.cards', {}, agents.map(card)),
  );
}

function card(agent) {
  return h(
    'section.card',
    {},
    h('h2', {}, agent.displayName),
    h('p', {}, h('code', {}, agent.provider), agent.version ? ` ${agent.version}` : ''),
    h('p', {}, h('span.chip', { data: { kind: agent.starts ? 'running' : 'error' } }, agent.starts ? 'starts here' : 'does not start')),
    agent.problem ? h('p.notice', {}, agent.problem) : null,
    can(agent.capabilities ?? {}),
  );
}

const WORDS = {
  fork: 'forks',
  sideChat: 'side chats',
  steering: 'steering',
  rewind: 'going back',
  compact: 'compaction',
  resume: 'goes on after a crash',
  images: 'images',
  stopsWorkers: 'stops workers',
};

/** What an agent can do by itself; what it cannot, the host does in its place where that is possible. */
function can(capabilities) {
  const able = Object.keys(WORDS).filter((name) => capabilities[name]);
  return able.length ? h('p.chips', {}, able.map((name) => h('span.chip', {}, WORDS[name]))) : null;
}
