/** Git's dates: those that it is given, and the ways in which it shows them. */
import { fatal, leave } from '../endings.ts';
import type { Person } from './parse.ts';

export interface Moment {
  readonly seconds: number;
  /** `+0200` */
  readonly zone: string;
}

/** The present, in the caller's time zone. */
export function present(environment: Readonly<Record<string, string>>): Moment {
  const ms = Date.now();
  return { seconds: Math.floor(ms / 1000), zone: zoneAt(ms, environment.TZ) };
}

/** `+0200` of a time zone at a moment. */
export function zoneAt(ms: number, timeZone: string | undefined): string {
  if (timeZone === undefined || timeZone === '' || /^(UTC|GMT)?0?$/.test(timeZone)) {
    return timeZone === undefined ? zoneText(-new Date(ms).getTimezoneOffset()) : '+0000';
  }
  let parts: Intl.DateTimeFormatPart[];
  try {
    const format = new Intl.DateTimeFormat('en-US', {
      timeZone: timeZone.replace(/^:/, ''),
      timeZoneName: 'longOffset',
    });
    parts = format.formatToParts(ms);
  } catch {
    // Not a name of the time zone database.
    return leave(`the time zone ${timeZone}`);
  }
  const offset = parts.find(({ type }) => type === 'timeZoneName')?.value ?? '';
  const match = /([+-])(\d\d):(\d\d)/.exec(offset);
  return match ? `${match[1]}${match[2]}${match[3]}` : '+0000';
}

function zoneText(minutes: number): string {
  const [sign, size] = [minutes < 0 ? '-' : '+', Math.abs(minutes)];
  return `${sign}${String(Math.floor(size / 60)).padStart(2, '0')}${String(size % 60).padStart(2, '0')}`;
}

export function zoneMinutes(zone: string): number {
  const size = Number(zone.slice(1, 3)) * 60 + Number(zone.slice(3, 5));
  return zone.startsWith('-') ? -size : size;
}

const isoDate = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?)?\s*(Z|[+-]\d\d:?\d\d)?$/;
const rfcDate = /^(?:[A-Z][a-z]{2}, )?(\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) ([+-]\d{4})$/;
const months = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const days = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];

/** A date of `GIT_AUTHOR_DATE` or `--date`: exact forms alone; what git guesses is left to it. */
export function parseDate(text: string, environment: Readonly<Record<string, string>>): Moment {
  const raw = /^@?(\d{5,}) ([+-]\d{4})$/.exec(text) ?? /^@(\d+)$/.exec(text);
  if (raw) return { seconds: Number(raw[1]), zone: raw[2] ?? '+0000' };
  const iso = isoDate.exec(text);
  if (iso?.[4] !== undefined) {
    const [, year, month, day, hour, minute, second] = iso;
    const ms = Date.UTC(
      Number(year),
      Number(month) - 1,
      Number(day),
      Number(hour),
      Number(minute),
      Number(second ?? 0),
    );
    const zone = iso[7] === 'Z' ? '+0000' : iso[7]?.replace(':', '');
    return inZone(ms, zone, environment);
  }
  const rfc = rfcDate.exec(text);
  if (rfc && months.includes(rfc[2]!)) {
    const ms = Date.UTC(
      Number(rfc[3]),
      months.indexOf(rfc[2]!),
      Number(rfc[1]),
      Number(rfc[4]),
      Number(rfc[5]),
      Number(rfc[6]),
    );
    return inZone(ms, rfc[7], environment);
  }
  if (text === '') throw fatal(`invalid date format: ${text}`);
  return leave(`the date ${JSON.stringify(text)}`);
}

function inZone(ms: number, zone: string | undefined, environment: Readonly<Record<string, string>>): Moment {
  const known = zone ?? zoneAt(ms, environment.TZ);
  return { seconds: ms / 1000 - zoneMinutes(known) * 60, zone: known };
}

export type DateFormat = 'default' | 'iso' | 'iso-strict' | 'short' | 'rfc' | 'raw' | 'unix' | 'relative';

const formats: Readonly<Record<string, DateFormat>> = {
  default: 'default',
  iso: 'iso',
  iso8601: 'iso',
  'iso-strict': 'iso-strict',
  'iso8601-strict': 'iso-strict',
  short: 'short',
  rfc: 'rfc',
  rfc2822: 'rfc',
  raw: 'raw',
  unix: 'unix',
  relative: 'relative',
};

export function dateFormat(name: string): DateFormat {
  return formats[name] ?? leave(`the date format ${name}`);
}

export function formatDate(person: Pick<Person, 'seconds' | 'zone'>, format: DateFormat): string {
  if (format === 'raw') return `${person.seconds} ${person.zone}`;
  if (format === 'unix') return String(person.seconds);
  if (format === 'relative') return relative(person.seconds);
  const local = new Date((person.seconds + zoneMinutes(person.zone) * 60) * 1000);
  const two = (value: number) => String(value).padStart(2, '0');
  const day = `${local.getUTCFullYear()}-${two(local.getUTCMonth() + 1)}-${two(local.getUTCDate())}`;
  const time = `${two(local.getUTCHours())}:${two(local.getUTCMinutes())}:${two(local.getUTCSeconds())}`;
  const weekday = days[local.getUTCDay()]!;
  const month = months[local.getUTCMonth()]!;
  switch (format) {
    case 'short':
      return day;
    case 'iso':
      return `${day} ${time} ${person.zone}`;
    case 'iso-strict':
      return `${day}T${time}${person.zone === '+0000' ? '+00:00' : `${person.zone.slice(0, 3)}:${person.zone.slice(3)}`}`;
    case 'rfc':
      return `${weekday}, ${local.getUTCDate()} ${month} ${local.getUTCFullYear()} ${time} ${person.zone}`;
    case 'default':
      return `${weekday} ${month} ${local.getUTCDate()} ${time} ${local.getUTCFullYear()} ${person.zone}`;
  }
}

function relative(seconds: number): string {
  const age = Math.floor(Date.now() / 1000) - seconds;
  if (age < 0) return 'in the future';
  const said = (count: number, unit: string) => `${count} ${unit}${count === 1 ? '' : 's'} ago`;
  if (age < 90) return said(age, 'second');
  const minutes = Math.floor((age + 30) / 60);
  if (minutes < 90) return said(minutes, 'minute');
  const hours = Math.floor((minutes + 30) / 60);
  if (hours < 36) return said(hours, 'hour');
  const whole = Math.floor((hours + 12) / 24);
  if (whole < 14) return said(whole, 'day');
  if (whole < 70) return said(Math.floor((whole + 3) / 7), 'week');
  if (whole < 365) return said(Math.floor((whole + 15) / 30), 'month');
  if (whole < 1825) {
    const total = Math.floor((whole * 12 * 2 + 365) / (365 * 2));
    const [years, rest] = [Math.floor(total / 12), total % 12];
    if (rest === 0) return said(years, 'year');
    return `${years} year${years === 1 ? '' : 's'}, ${said(rest, 'month')}`;
  }
  return said(Math.floor((whole + 183) / 365), 'year');
}
