/** Replies with and without a card, as models write them and as nobody should. */

export const plainCard = {
  question: 'Which colour?',
  options: [
    { id: 'red', label: 'Red' },
    { id: 'blue', label: 'Blue > green' },
  ],
  allowText: false,
};

export const block = (value: unknown = plainCard, space = ' '): string =>
  `<<<HW_QUESTION${space}${typeof value === 'string' ? value : JSON.stringify(value)}${space}>>>`;

const strange = {
  question: 'Quote "me", \\ and >>> and {"a": "}"}\nsecond line 👩‍👩‍👧',
  options: [],
  allowText: true,
};

/** Reply → the text that a client gets. Each of these has a card. */
export const lifted: readonly (readonly [name: string, reply: string, shown: string])[] = [
  ['nothing else', block(), ''],
  ['at the end', `Before.\n\n${block()}`, 'Before.\n\n'],
  ['at the beginning', `${block()}\nAfter.`, 'After.'],
  ['between paragraphs', `Before.\n\n${block()}\n\nAfter.`, 'Before.\n\n\nAfter.'],
  ['between lines, CRLF', `Before.\r\n${block()}\r\nAfter.\r\n`, 'Before.\r\nAfter.\r\n'],
  ['within a line', `Choose: ${block()} or not.\n`, 'Choose:  or not.\n'],
  ['at the end of a line', `Choose: ${block()}\nAfter.`, 'Choose: \nAfter.'],
  ['a line break alone behind it', `${block()}\n`, ''],
  ['a lone CR behind it', `${block()}\rx`, '\rx'],
  ['a CR at the very end', `a\n${block()}\r`, 'a\n\r'],
  ['over lines', `a\n${block(JSON.stringify(plainCard, null, 2), '\n')}\nb`, 'a\nb'],
  ['without blanks', `a\n${block(plainCard, '')}\nb`, 'a\nb'],
  ['strange characters', `a 👩‍👩‍👧${block(strange)}é`, 'a 👩‍👩‍👧é'],
  ['one angle more on either side', `<${block(plainCard)}>`, '<>'],
  ['the beginnings of markers before', `<<<HW_<<<HW_QUEST <<${block()}<<<`, '<<<HW_<<<HW_QUEST <<<<<'],
  ['a second one', `${block()}\n${block(strange)}\nb`, `${block(strange)}\nb`],
  ['a malformed second one', `${block()} <<<HW_QUESTION {`, ' <<<HW_QUESTION {'],
  ['more than is shown', block({ ...plainCard, style: 'buttons' }), ''],
  ['an end twice', `${block()}>>>`, '>>>'],
];

const options = (count: number) => Array.from({ length: count }, (_, n) => ({ id: `o${n}`, label: `Option ${n}` }));

/** Replies without a card: what a client gets is what the agent wrote. */
export const prose: readonly (readonly [name: string, reply: string])[] = [
  ['empty', ''],
  ['no marker', 'if (a <<< b) { "x >>> y" }'],
  ['a marker that is not whole', 'a <<<HW_QUESTIO'],
  ['a marker alone', '<<<HW_QUESTION'],
  ['a marker and its end', '<<<HW_QUESTION>>>'],
  ['another word', `<<<HW_QUESTIONS ${JSON.stringify(plainCard)} >>>`],
  ['in small letters', `<<<hw_question ${JSON.stringify(plainCard)} >>>`],
  ['unclosed', `a\n<<<HW_QUESTION ${JSON.stringify(plainCard)}\nand so on`],
  ['closed by two', `<<<HW_QUESTION ${JSON.stringify(plainCard)} >> x`],
  ['no JSON', '<<<HW_QUESTION What now? >>>\nb'],
  ['broken JSON', '<<<HW_QUESTION {"question": "a", } >>>\nb'],
  ['an unfinished string', '<<<HW_QUESTION {"question": "a }\n >>>\nb'],
  ['a list', `<<<HW_QUESTION [${JSON.stringify(plainCard)}] >>>`],
  ['two objects', `<<<HW_QUESTION ${JSON.stringify(plainCard)}${JSON.stringify(plainCard)} >>>`],
  ['nested', `<<<HW_QUESTION ${block()} >>>`],
  ['nested in the JSON', `<<<HW_QUESTION {"question": ${block()}} >>> b`],
  ['nested in a string', block({ ...plainCard, question: block('{}') })],
  ['one after a malformed one', `<<<HW_QUESTION {} >>>\n${block()}`],
  ['nothing to answer with', block({ ...plainCard, options: [] })],
  ['a blank question', block({ ...plainCard, question: ' \n' })],
  ['no allowText', block({ question: 'a', options: plainCard.options })],
  ['a text for allowText', block({ ...plainCard, allowText: 'true' })],
  ['an id twice', block({ ...plainCard, options: [...plainCard.options, ...plainCard.options] })],
  ['a blank id', block({ ...plainCard, options: [{ id: '', label: 'x' }] })],
  ['a label of two lines', block({ ...plainCard, options: [{ id: 'a', label: 'x\ny' }] })],
  ['no label', block({ ...plainCard, options: [{ id: 'a' }] })],
  ['too many options', block({ ...plainCard, options: options(21) })],
  ['a question that is too long', block({ ...plainCard, question: 'x'.repeat(2_001) })],
  ['half a character', block('{"question":"\\ud800","options":[],"allowText":true}')],
  ['a NUL', block('{"question":"a\\u0000","options":[],"allowText":true}')],
  ['longer than a block may be', block({ ...plainCard, note: 'x'.repeat(16_384) })],
  ['long and without an end', `<<<HW_QUESTION {"question": "${'x'.repeat(20_000)}`],
];

export const mostOptions = { question: 'x'.repeat(2_000), options: options(20), allowText: true };
