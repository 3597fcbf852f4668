// A fork of a chat at any moment, asked for over the protocol as any client does.

import { h, icon } from '../shared/dom.js';
import { base } from '../shared/api.js';
import { ask, tell, tellError } from '../shared/dialog.js';
import { token } from '../shared/token.js';
import { needs, to } from './links.js';

/** How long the host may take, in milliseconds. */
const PATIENCE = 20_000;

/** A button that forks `chat` as it was right after event `at()`, and goes to the session that the fork is in. */
export function forkButton({ chat, at, me, go, label = 'Fork from here', primary = false }) {
  if (!me.maySomewhere('chat:fork')) return needs('chat:fork', 'Forking');
  const seq = () => (typeof at === 'function' ? at() : at);
  const fork = async () => {
    const lead = `A new chat begins with the turns that had ended at event ${seq()}. This one stays as it is.`;
    if (!(await ask({ title: 'Fork the chat', lead, confirm: 'Fork' }))) return;
    const made = await forkAt(chat, seq());
    tell('The fork is there.');
    go(to('session', { uri: made }));
  };
  return h('button', { type: 'button', class: primary ? 'primary' : 'small', onclick: () => fork().catch(tellError) }, icon('fork'), label);
}

/** Forks `chat` after event `serverSeq`; resolves with the URI of the new chat. */
export async function forkAt(chat, serverSeq) {
  const made = `ahp-chat:/fork-${random()}`;
  await overSocket([{ method: 'x-scrollback/forkAt', params: { channel: chat, chat: made, serverSeq } }]);
  return made;
}

const random = () => [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

/** Sends requests over a socket of their own, after a handshake, one after the other; resolves with the last answer. */
function overSocket(requests) {
  const address = new URL(base);
  address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
  if (token()) address.searchParams.set('tkn', token());
  const handshake = { method: 'initialize', params: { channel: 'ahp-root://', protocolVersions: ['1.0.0'], clientId: `admin-${random()}` } };
  const all = [handshake, ...requests];
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(address);
    const timer = setTimeout(() => end(reject, new Error('The host did not answer in time.')), PATIENCE);
    const end = (settle, value) => {
      clearTimeout(timer);
      settle(value);
      socket.close();
    };
    const send = (id) => socket.send(JSON.stringify({ jsonrpc: '2.0', id, ...all[id] }));
    socket.addEventListener('open', () => send(0));
    socket.addEventListener('close', () => end(reject, new Error('The host closed the connection.')));
    socket.addEventListener('message', ({ data }) => {
      const { id, result, error } = JSON.parse(data);
      if (id === undefined) return;
      if (error) end(reject, new Error(error.message));
      else if (id + 1 < all.length) send(id + 1);
      else end(resolve, result);
    });
  });
}
