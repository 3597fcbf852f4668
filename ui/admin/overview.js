// What the host does now, what it did in the last hour, and what needs looking after.

import { h, replace } from '../shared/dom.js';
import { get, pause } from '../shared/api.js';
import { tellError } from '../shared/dialog.js';
import { bytes, count, duration, many, short } from '../shared/format.js';
import { to } from './links.js';
import { plot } from './plot.js';

export const title = 'Overview';

/** How often it is asked again, in milliseconds. */
const AGAIN = 5_000;
const SPANS = [['15m', '15 minutes'], ['1h', 'an hour'], ['6h', '6 hours'], ['24h', 'a day']];

export async function show(place, { signal }) {
  let span = '1h';
  let first = await get('api/overview', { since: span }, { signal });
  const state = h('div.overview-state');
  const running = h('p.hint');
  const figures = h('div.cards.figures');
  const plots = h('div.plots');
  const lists = h('div.lists');
  const select = h('select', { id: 'span', onchange: () => ((span = select.value), look().catch(tellError)) }, SPANS.map(([value, words]) => h('option', { value, selected: value === span }, words)));
  replace(
    place,
    h('div.page-head', {}, h('h1', {}, title), h('p.lead', {}, 'What this host is doing now.')),
    state,
    running,
    figures,
    h('div.section-head', {}, h('h2', {}, 'Lately'), h('div.inline-field', {}, h('label', { htmlFor: 'span' }, 'The last'), select)),
    plots,
    lists,
  );
  const paint = (overview) => {
    say(state, told(overview));
    running.textContent = runs(overview);
    replace(figures, ...numbers(overview));
    replace(plots, ...drawn(overview));
    const focused = lists.contains(document.activeElement) ? document.activeElement.href : null;
    replace(lists, ...named(overview));
    if (focused) lists.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  };
  let asked = 0;
  const look = async () => {
    const mine = ++asked;
    const overview = await get('api/overview', { since: span }, { signal });
    if (mine === asked) paint(overview);
  };
  paint(first);
  first = null;
  keep(look, state, signal);
}

/** Looks again until the page is left. A host that does not answer is told of, and asked again. */
async function keep(look, state, signal) {
  for (;;) {
    await pause(AGAIN, signal);
    if (signal.aborted) return;
    if (document.hidden) continue;
    await look().catch((error) => {
      if (!signal.aborted) say(state, [h('p.notice', { data: { kind: 'error' }, role: 'alert' }, `${error.message} It is asked again.`)]);
    });
  }
}

/** Says it where it is not said already: a screen reader tells an alert each time that it comes. */
function say(state, notices) {
  const words = notices.map((notice) => notice?.textContent ?? '').join('\n');
  if (state.said === words) return;
  state.said = words;
  replace(state, ...notices);
}

const runs = ({ version, host, startedAt, at }) => `${host} runs Scrollback ${version}, for ${duration(new Date(at) - new Date(startedAt))} now.`;

function told({ problem, warnings }) {
  const well = problem || warnings.length
    ? null
    : h('p.well', {}, h('span.chip', { data: { kind: 'running' } }, 'Well'), ' Events are taken, and no limit is near.');
  const notices = warnings.map((warning) =>
    h('p.notice', { data: { kind: warning.serious ? 'error' : null }, role: warning.serious ? 'alert' : null }, warning.text, ' ', h('code', {}, warning.about)),
  );
  return [well, ...notices];
}

function numbers({ now }) {
  const figure = (label, value, more) => h('div.card.figure-card', {}, h('p.figure-label', {}, label), h('p.figure', {}, value), more ? h('p.hint', {}, more) : null);
  return [
    figure('Turns running', count(now.running), `${many(now.processes, 'process', 'processes')} of agents`),
    figure('Connections', count(now.connections), many(now.subscriptions, 'subscription')),
    figure('Sessions', count(now.sessions), `${count(now.sessionsAwake)} awake, with ${many(Math.max(0, now.actors - now.sessionsAwake), 'chat')}`),
    figure('Newest event', count(now.newestSeq), `${count(now.events)} since the start`),
    figure('Log on disk', bytes(now.diskBytes), now.freeBytes === undefined ? null : `${bytes(now.freeBytes)} free`),
    figure('Reconnects', `${count(now.replays)} / ${count(now.snapshots)}`, 'replayed / by snapshot, channels'),
  ];
}

function drawn({ samples, every }) {
  const times = samples.map((sample) => sample.at);
  const of = (key) => samples.map((sample) => sample[key]);
  const line = (key, name) => ({ name, values: of(key) });
  const ms = (value) => (value >= 10 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`);
  const apart = times.length > 1 ? (times.at(-1) - times[0]) / (times.length - 1) : every;
  const unit = apart < 90_000 ? `${Math.round(apart / 1000)} s` : `${Math.round(apart / 60_000)} min`;
  return [
    plot({ title: `Events in ${unit}`, series: [line('events', 'events')], times, format: count }),
    plot({ title: `Bytes in ${unit}`, series: [line('bytes', 'bytes')], times, format: bytes }),
    plot({ title: 'Time of commits', series: [line('commitP99', '99 of 100'), line('commitP50', 'half')], times, format: ms }),
    plot({ title: 'Time of syncs', series: [line('syncP99', '99 of 100'), line('syncP50', 'half')], times, format: ms }),
    plot({ title: 'Connections', series: [line('connections', 'connections')], times, format: count }),
    plot({ title: 'Reconnects answered', series: [line('replays', 'by replay'), line('snapshots', 'by snapshot')], times, format: count }),
  ];
}

function named({ running, awake, connected, limitsMet, now }) {
  const list = (heading, rows, none) => h('section.card', {}, h('h2', {}, heading), rows.length ? h('ul.rows', {}, rows) : h('p.hint', {}, none));
  const chat = (one) => h('li', {}, h('a', { href: to('log', { channel: one.chat }) }, one.title || short(one.session)), h('span.hint', {}, one.activity ?? ''));
  const session = (one) => h('li', {}, h('a', { href: to('session', { uri: one.session }) }, one.title || short(one.session)), h('span.hint', {}, one.activity ?? ''));
  const person = (one) => h('li', {}, h('span', {}, one.principal), h('span.number', {}, count(one.connections)));
  const limit = (one) => h('li', {}, h('code', {}, one.limit), h('span.number', {}, `${count(one.times)} times`));
  return [
    list(`At work (${count(now.running)})`, running.map(chat), 'No turn is running.'),
    list(`Awake (${count(now.sessionsAwake)})`, awake.map(session), 'No session is in memory.'),
    list(`Connected (${count(now.connections)})`, connected.map(person), 'Nobody is connected.'),
    list('Limits that were met', limitsMet.map(limit), 'None since the start.'),
  ];
}
