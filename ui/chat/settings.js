// What can be changed in a running session: the properties that its schema names so, as fields of a dialog.

import { h } from '../shared/dom.js';
import { ask, field } from '../shared/dialog.js';

const TYPES = ['boolean', 'string', 'number', 'integer'];

/** The properties of a session's configuration that can be changed now, with their names. */
export function changeable(session) {
  const all = Object.entries(session?.config?.schema.properties ?? {});
  return all.filter(([, property]) => property.sessionMutable && !property.readOnly && (property.enum || TYPES.includes(property.type)));
}

/** Asks for new values; resolves with those that are others than before, or null. */
export async function askForSettings(session) {
  const { values } = session.config;
  const controls = changeable(session).map(([name, property]) => ({ name, property, ...controlOf(property, values[name] ?? property.default) }));
  const fields = controls.map(({ property, element }) => field(property.title, element, property.description));
  const read = () => controls.filter((one) => one.element.value !== one.before).map(({ name, value }) => [name, value()]);
  const changed = await ask({ title: 'Settings of the session', fields, confirm: 'Change', read });
  return changed?.length ? Object.fromEntries(changed) : null;
}

/** Where the host names all values they are chosen from, else they are written. */
function controlOf(property, value) {
  const choices = property.type === 'boolean' ? [true, false] : property.enumDynamic ? null : property.enum;
  if (choices) {
    const labels = property.type === 'boolean' ? ['On', 'Off'] : (property.enumLabels ?? []);
    const element = h('select', {}, choices.map((one, at) => h('option', { value: String(at) }, labels[at] ?? String(one))));
    element.value = String(choices.indexOf(value));
    return { element, before: element.value, value: () => choices[Number(element.value)] };
  }
  const isNumber = property.type !== 'string';
  const element = h('input', { type: isNumber ? 'number' : 'text', step: property.type === 'integer' ? '1' : 'any', value: value ?? '' });
  return { element, before: element.value, value: () => (isNumber ? Number(element.value) : element.value) };
}
