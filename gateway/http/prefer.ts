/** `Prefer: wait=SECONDS` (RFC 7240). */

const waitPreference = /(?:^|,)\s*wait\s*=\s*"?(\d{1,9})"?\s*(?=;|,|$)/i;

/** The seconds to wait, at most `most`; null without the preference. One that cannot be read is ignored, as the RFC says. */
export function preferredWait(header: string | null, most: number): number | null {
  const seconds = header === null ? undefined : waitPreference.exec(header)?.[1];
  return seconds === undefined ? null : Math.min(Number(seconds), most);
}
