// A question of the agent: its fields, which everybody in the chat sees filled, and the answer.

import { h, icon, replace, set } from '../shared/dom.js';
import { markdown } from '../shared/markdown.js';

const RESPONSES = { accept: 'Answered', decline: 'Declined', cancel: 'Not answered' };
let number = 0;

export class QuestionView {
  element = h('section.question');
  #fields = null;
  #answered = null;

  constructor(_, model) {
    this.model = model;
  }

  update(part) {
    const { request, response } = part;
    if (response !== this.#answered || !this.#fields) this.#build(request, response);
    this.#answered = response;
    for (const { question, show, element } of this.#fields) {
      // Who types is not interrupted by what they typed before.
      const value = request.answers?.[question.id]?.value;
      if (!element.contains(document.activeElement)) show(value ? value.value : question.defaultValue, value?.freeformValues);
    }
    const may = !response && this.model.may('chat:answer');
    for (const control of this.element.querySelectorAll('button, input, textarea')) control.disabled = !may;
    if (this.send) this.send.disabled ||= !this.#complete(request);
  }

  #build(request, response) {
    const { model } = this;
    const asked = request.questions?.length ? request.questions : [];
    this.#fields = asked.map((question) => this.#field(request, question));
    this.send = null;
    const head = request.message && request.message !== asked[0]?.message ? h('div.markdown', {}, markdown(request.message)) : null;
    const link = request.url && /^https?:/.test(request.url) ? h('a', { href: request.url, target: '_blank', rel: 'noopener noreferrer' }, request.url) : null;
    const body = response
      ? h('p.hint', {}, RESPONSES[response] ?? response)
      : h(
          'div.buttons',
          {},
          (this.send = h('button.primary', { type: 'button', onclick: () => model.act(model.complete(request.id, 'accept', this.#answers())) }, 'Answer')),
          h('button', { type: 'button', onclick: () => model.act(model.complete(request.id, 'cancel')) }, 'Do not answer'),
        );
    replace(this.element, h('p.question-head', {}, icon('question'), response ? 'Question' : 'The agent asks'), head, link, this.#fields.map((one) => one.element), body);
  }

  #answers() {
    const answers = {};
    for (const { question, read } of this.#fields) {
      const value = read();
      answers[question.id] = value ? { state: 'submitted', value } : { state: 'skipped' };
    }
    return answers;
  }

  #complete(request) {
    return (request.questions ?? []).every((question) => !question.required || this.#fields.find((one) => one.question === question || one.question.id === question.id)?.read());
  }

  /** A field: its element, what is in it, and how it is shown. What is filled in goes to everybody as a draft. */
  #field(request, question) {
    const name = `question-${++number}`;
    const control = CONTROLS[question.kind]?.(question, name) ?? CONTROLS.text(question, name);
    let timer = null;
    const changed = () => {
      clearTimeout(timer);
      const tell = () => {
        const value = control.read();
        this.model.answer(request.id, question.id, value ? { state: 'draft', value } : null).catch(() => {});
      };
      timer = setTimeout(tell, control.slow ? 400 : 0);
      if (this.send) this.send.disabled = !this.#complete(request);
    };
    control.element.addEventListener('input', changed);
    const label = h('legend', {}, question.message || question.title || '', question.required ? null : h('span.hint', {}, ' (optional)'));
    const element = h('fieldset', {}, label, control.element);
    return { question, element, read: control.read, show: control.show };
  }
}

const labelOf = (question) => ({ aria: { label: question.message || question.title || 'Answer' } });

function typed(question, props, kind, parse) {
  const input = h('input', { ...props, ...labelOf(question) });
  return {
    element: input,
    slow: true,
    read: () => (input.value.trim() === '' || Number.isNaN(parse(input.value)) ? null : { kind, value: parse(input.value) }),
    show: (value) => (input.value = value ?? ''),
  };
}

function choices(question, name, type) {
  const inputs = question.options.map((option) => h('input', { type, name, value: option.id }));
  const element = h(
    'div.choices',
    {},
    question.options.map((option, at) => h('label.choice', {}, inputs[at], h('span', {}, option.label, option.description ? h('span.hint', {}, ` ${option.description}`) : null))),
  );
  const show = (value) => inputs.forEach((input) => set(input, { checked: [value].flat().includes(input.value) }));
  return { element, inputs, show, chosen: () => inputs.filter((input) => input.checked).map((input) => input.value) };
}

/** Beside choices, a place for other words where the agent takes them. */
function ownWords(question, made) {
  if (!question.allowFreeformInput) return { ...made, words: () => [] };
  const field = h('input', { type: 'text', placeholder: 'In your own words', aria: { label: `In your own words: ${question.message || question.title || ''}` } });
  return {
    element: h('div.own-words', {}, made.element, field),
    field,
    slow: true,
    words: () => [field.value.trim()].filter(Boolean),
    show: (value, words) => {
      made.show(value);
      field.value = words?.join(', ') ?? '';
    },
  };
}

const CONTROLS = {
  text(question) {
    const field = h('textarea', { rows: 2, ...labelOf(question) });
    return {
      element: field,
      slow: true,
      read: () => (field.value.trim() ? { kind: 'text', value: field.value } : null),
      show: (value) => (field.value = value ?? ''),
    };
  },
  number: (question) => typed(question, { type: 'number', step: 'any', min: question.min, max: question.max }, 'number', Number),
  integer: (question) => typed(question, { type: 'number', step: 1, min: question.min, max: question.max }, 'number', (text) => Math.trunc(Number(text))),
  boolean(question, name) {
    const made = choices({ options: [{ id: 'true', label: 'Yes' }, { id: 'false', label: 'No' }] }, name, 'radio');
    return {
      ...made,
      read: () => (made.chosen().length ? { kind: 'boolean', value: made.chosen()[0] === 'true' } : null),
      show: (value) => made.show(value === undefined ? [] : String(value)),
    };
  },
  'single-select'(question, name) {
    const made = choices(question, name, 'radio');
    const own = ownWords(question, made);
    // It is the one or the other.
    own.field?.addEventListener('input', () => own.words().length && made.inputs.forEach((input) => (input.checked = false)));
    made.inputs.forEach((input) => input.addEventListener('input', () => own.field && (own.field.value = '')));
    return {
      ...own,
      read: () => {
        const [value] = made.chosen();
        if (value !== undefined) return { kind: 'selected', value };
        return own.words().length ? { kind: 'selected', value: '', freeformValues: own.words() } : null;
      },
    };
  },
  'multi-select'(question, name) {
    const made = choices(question, name, 'checkbox');
    const own = ownWords(question, made);
    const within = (count) => count >= (question.min ?? 1) && count <= (question.max ?? Infinity);
    return {
      ...own,
      read: () => {
        const more = own.words().length ? { freeformValues: own.words() } : {};
        return within(made.chosen().length + own.words().length) ? { kind: 'selected-many', value: made.chosen(), ...more } : null;
      },
    };
  },
};
