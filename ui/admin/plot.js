// Plots of what was sampled: lines over time, drawn as SVG, with the numbers in words beside them.

import { h } from '../shared/dom.js';

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 600;
const HEIGHT = 120;
const TIME = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });

/**
 * A figure with one line for each of `series` (`{name, values}`), over `times` in milliseconds. `format` says a value.
 * What is under the pointer, or else the newest and the largest value, stands in the caption.
 */
export function plot({ title, series, times, format }) {
  const top = Math.max(...series.flatMap((line) => line.values), 0);
  const caption = h('figcaption.hint');
  const svg = draw(series, times, top);
  const say = (index) => {
    const values = series.map((line) => `${series.length > 1 ? `${line.name} ` : ''}${format(line.values[index])}`);
    caption.textContent = `${values.join(', ')} at ${TIME.format(times[index])}`;
  };
  const rest = () => {
    caption.textContent = times.length ? `${series.map((line) => format(line.values.at(-1))).join(' / ')} now` : 'nothing yet';
  };
  svg.addEventListener('pointermove', (event) => {
    const { left, width } = svg.getBoundingClientRect();
    if (times.length) say(Math.min(times.length - 1, Math.max(0, Math.round(((event.clientX - left) / width) * (times.length - 1)))));
  });
  svg.addEventListener('pointerleave', rest);
  rest();
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `${title}: ${caption.textContent}`);
  return h(
    'figure.plot',
    {},
    h('div.plot-head', {}, h('h3', {}, title), caption),
    h('div.plot-area', {}, h('span.plot-top', { aria: { hidden: 'true' } }, top ? format(top) : ''), svg),
    h(
      'div.plot-foot',
      {},
      h('span', {}, times.length ? TIME.format(times[0]) : ''),
      series.length > 1 ? h('ul.legend', {}, series.map((line, at) => h('li', { data: { line: at } }, line.name))) : null,
      h('span', {}, times.length ? TIME.format(times.at(-1)) : ''),
    ),
  );
}

function draw(series, times, top) {
  const svg = element('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none' });
  for (const y of [0.25, 0.5, 0.75]) svg.append(element('line', { class: 'grid', x1: 0, x2: WIDTH, y1: HEIGHT * y, y2: HEIGHT * y }));
  const [first, last] = [times[0], times.at(-1)];
  const x = (at) => (last > first ? ((at - first) / (last - first)) * WIDTH : WIDTH);
  const y = (value) => HEIGHT - 2 - (top ? (value / top) * (HEIGHT - 8) : 0);
  series.forEach((line, index) => {
    const points = line.values.map((value, at) => `${x(times[at]).toFixed(1)},${y(value).toFixed(1)}`);
    if (!points.length) return;
    if (index === 0) svg.append(element('polygon', { class: 'under', points: `${x(first).toFixed(1)},${HEIGHT} ${points.join(' ')} ${WIDTH},${HEIGHT}` }));
    svg.append(element('polyline', { class: 'line', 'data-line': index, points: points.join(' ') }));
  });
  return svg;
}

function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
