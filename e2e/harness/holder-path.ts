/** Where a holder finds the system's programs: the PATH that the machine gives it, without Hermes' own. */
export const holderPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
