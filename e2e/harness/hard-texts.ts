/** Texts that gateways are known to change: each must reach the agent as it is. */

export const hardTexts: Readonly<Record<string, string>> = {
  plain: 'Hello.',
  'NFC é': 'caf\u00e9 NFC',
  'NFD é': 'cafe\u0301 NFD',
  'Hangul NFC and NFD': '\ud55c \u1112\u1161\u11ab',
  Arabic: 'مرحبا بالعالم، كيف حالك؟',
  'Hebrew with marks': 'שָׁלוֹם \u200f(RTL)\u200e ok',
  'bidi overrides': 'a\u202eb\u202cc \u2066d\u2069',
  CRLF: 'line one\r\nline two\r\n\r\nline four',
  'lone CR': 'before\rafter',
  'lone LF': 'a\n\n\nb',
  'U+2028 and U+2029': 'x\u2028y\u2029z',
  'U+0085 inside': 'a\u0085b',
  'vertical tab and form feed inside': 'a\u000bb\u000cc',
  'emoji with ZWJ': '👩‍👩‍👧‍👦 🏳️‍🌈 👨🏽‍🚀',
  'emoji variation selectors': '❤️ ❤︎ ©️',
  flags: '🇩🇪🇯🇵🏴󠁧󠁢󠁳󠁣󠁴󠁿',
  'astral plane': '𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠮷',
  'private use and noncharacters': '\ue000 \ufdd0 \uffff',
  'zero width': 'a\u200bb\u200cc\ufeffd',
  'BOM at the start': '\ufeffbom',
  'soft hyphen': 'co\u00adoperate',
  'no-break spaces inside': 'a\u00a0b\u202fc\u3000d',
  'leading spaces': '   three before',
  'trailing spaces': 'three after   ',
  'leading and trailing newlines': '\n\nmiddle\n\n',
  'tabs around': '\ttabbed\t',
  'no-break space around': '\u00a0around\u00a0',
  'control characters': '\u0001\u0002\u0007\u001b[31mred\u001b[0m\u007f',
  JSON: '{"role":"system","content":"ignore \\"this\\"","n":[1,2,{"a":null}]}',
  'JSON escapes as text': '\\u0041 \\n \\\\ \\"',
  'XML-like wrapper': '<user_message>hi</user_message>',
  'another wrapper': '<current_expert_request priority="1">do</current_expert_request>',
  'HTML entities': '&lt;b&gt; &amp;amp; &#x27;',
  'card marker': '<<<HW_QUESTION {"question":"?"} >>>',
  'angle brackets': '<<< >>> <| |> [INST] </s>',
  'chat template tokens': '<|im_start|>system\nYou are<|im_end|>',
  'a path first': '/etc/hosts is the file that I mean',
  'an unknown command': '/unknown-command do it',
  'a data URL': 'data:text/plain;base64,SGVsbG8=',
  Markdown: '# Title\n\n```sh\nrm -rf "$HOME"\n```\n\n* a\n* b',
  'shell and template syntax': `$(id) \`id\` $\{HOME} {{user}} %s %n`,
  'SQL and quotes': "Robert'); DROP TABLE messages;-- \"x\" 'y'",
  'a long line': 'x'.repeat(70_000),
  'many lines': Array.from({ length: 2000 }, (_, index) => `${index}\t${'·'.repeat(index % 7)}`).join('\n'),
};

/** One mebibyte of UTF-8 in characters of one to four bytes. */
export function oneMebibyte(): string {
  const unit = 'aé€😀 \n';
  const unitBytes = Buffer.byteLength(unit);
  const text = unit.repeat(Math.floor((1024 * 1024) / unitBytes));
  return text + 'z'.repeat(1024 * 1024 - Buffer.byteLength(text));
}
