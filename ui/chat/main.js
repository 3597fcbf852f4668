// The chat window: a small client of the protocol, put together.

import { h, iconButton, replace, text } from '../shared/dom.js';
import { topBar } from '../shared/frame.js';
import { takeFromAddress } from '../shared/token.js';
import { tellError } from '../shared/dialog.js';
import { Composer } from './composer.js';
import { Head } from './head.js';
import { ENDED, Model } from './model.js';
import { newSession, Sidebar } from './sidebar.js';
import { Transcript } from './transcript.js';
import { titleOfChat } from './words.js';

const DROPPED = 'The connection dropped. What happens meanwhile is caught up with when it is back.';

takeFromAddress();
const model = new Model();
// What somebody did and the host refused is said in its words.
model.act = (promise) =>
  promise.catch((error) => {
    tellError(error);
    if (error.code === 'not-permitted') model.askAgainWhoIAm();
  });
model.addEventListener('fault', ({ detail }) => tellError(detail));

const drawer = iconButton('menu', 'Sessions', () => toggle(), { class: 'icon-button drawer-button', aria: { label: 'Sessions', expanded: 'false', controls: 'sessions' } });
const sidebar = new Sidebar(model, { onNavigate: () => toggle(false) });
const head = new Head(model);
const transcript = new Transcript(model);
const composer = new Composer(model);
const bannerText = h('span');
const retry = h('button.small', { type: 'button', onclick: () => model.connection.tryNow() }, 'Try now');
const banner = h('div.banner', { role: 'status', hidden: true }, bannerText, retry);
const problem = h('div.empty', { hidden: true });
const start = h('button.primary', { type: 'button', onclick: () => newSession(model).catch(tellError) }, 'Begin a session');
const welcome = h(
  'div.welcome',
  {},
  h('h1', {}, 'Every chat is a log'),
  h('p.lead', {}, 'Talk with an agent here, approve what it does, go back to any moment, and fork there. What you see is on disk before you see it.'),
  start,
);
const announcer = h('div.said', { role: 'status', aria: { live: 'polite' } });
const veil = h('div.veil', { hidden: true, onclick: () => toggle(false) });
const main = h('main.chat', { id: 'main' }, banner, welcome, problem, head.element, transcript.element, composer.element);
replace(document.body, h('a.skip', { href: '#message', onclick: skip }, 'To the message'), topBar('chat', drawer), h('div.app', {}, sidebar.element, veil, main), announcer);
// For tests and for the curious.
window.scrollback = model;

let drawing = false;
let shownChat = null;
let heard = {};
model.addEventListener('change', () => {
  if (drawing) return;
  drawing = true;
  // A page that nobody sees has no frames.
  (document.hidden ? setTimeout : requestAnimationFrame)(draw);
});
document.addEventListener('keydown', (event) => event.key === 'Escape' && toggle(false));
draw();

function draw() {
  drawing = false;
  const { session, chatState } = model;
  const focused = document.activeElement;
  const { state, problem: reason } = model.connection;
  banner.hidden = !(state === 'lost' || reason);
  banner.dataset.kind = state;
  text(bannerText, state === 'lost' ? DROPPED : (reason ?? ''));
  welcome.hidden = Boolean(session) || !(model.listed || reason);
  start.hidden = !(model.isOpen && model.me.maySomewhere.has('session:create'));
  const fault = model.problem ?? (model.ended ? ENDED : null);
  problem.hidden = !fault;
  text(problem, fault ?? '');
  transcript.element.hidden = !chatState;
  sidebar.update();
  head.update();
  transcript.update();
  composer.update();
  document.title = chatState ? `${titleOfChat(model.chatSummary ?? chatState)} · Scrollback` : 'Scrollback';
  announce(chatState);
  if (chatState && shownChat !== model.chat) {
    shownChat = model.chat;
    if (!matchMedia('(pointer: coarse)').matches && !document.querySelector('dialog[open]')) composer.focus();
  }
  if (!focused?.isConnected && document.activeElement === document.body && !document.querySelector('dialog[open]')) refocus();
  document.body.dataset.ready = model.connection.state;
}

/** What somebody pressed may be gone with the answer to it: what waits next has the focus, else the message. */
function refocus() {
  const next = transcript.element.querySelector('.decision button:enabled, .question :is(input, textarea, button):enabled');
  if (next) return next.focus();
  if (!matchMedia('(pointer: coarse)').matches) composer.focus();
  if (document.activeElement === document.body) transcript.element.focus();
}

/** Says to who does not see it that an answer is finished, or that something waits. */
function announce(state) {
  const now = { chat: model.chat, running: Boolean(state?.activeTurn), waits: (state?.status & 24) === 24, turns: state?.turns.length ?? 0 };
  if (now.chat === heard.chat) {
    if (now.waits && !heard.waits) text(announcer, 'The agent waits for you.');
    else if (!now.running && heard.running) text(announcer, 'The answer is finished.');
    else if (now.running && !heard.running) text(announcer, 'The agent is working.');
  }
  heard = now;
}

/** The sessions in a drawer, where there is no room beside the chat. */
function toggle(open = !document.body.hasAttribute('data-drawer')) {
  document.body.toggleAttribute('data-drawer', open);
  veil.hidden = !open;
  drawer.setAttribute('aria-expanded', String(open));
  if (open) sidebar.element.querySelector('a, button')?.focus();
}

function skip(event) {
  event.preventDefault();
  composer.focus();
}
