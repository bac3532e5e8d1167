/**
 * What a file operation may fail with. The name is the errno's; the number is Linux's, as the kernel protocol wants it.
 */

export const errnoNumbers = {
  EPERM: 1,
  ENOENT: 2,
  EIO: 5,
  EBADF: 9,
  EAGAIN: 11,
  ENOMEM: 12,
  EACCES: 13,
  EBUSY: 16,
  EEXIST: 17,
  EXDEV: 18,
  ENOTDIR: 20,
  EISDIR: 21,
  EINVAL: 22,
  ENFILE: 23,
  EFBIG: 27,
  ENOSPC: 28,
  EROFS: 30,
  EMLINK: 31,
  ERANGE: 34,
  ENAMETOOLONG: 36,
  ENOSYS: 38,
  ENOTEMPTY: 39,
  ELOOP: 40,
  ENXIO: 6,
  EPROTO: 71,
  EILSEQ: 84,
  EOPNOTSUPP: 95,
  ESTALE: 116,
  EDQUOT: 122,
} as const;
export type Errno = keyof typeof errnoNumbers;

/** A failure that belongs to the caller of a file operation, not to the machine. */
export class FileError extends Error {
  readonly errno: Errno;

  constructor(errno: Errno, detail: string) {
    super(`${errno}: ${detail}`);
    this.name = 'FileError';
    this.errno = errno;
  }
}
