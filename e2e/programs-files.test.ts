/** Programs that copy, pack, search and edit files do in a holder what they do on plain disk. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { holderHas, testWith } from './harness/programs.ts';
import { onPlainDisk, sameAsPlainDisk, ToolShell } from './harness/tool-shell.ts';

const limitMs = 200_000;
let shell: ToolShell;
beforeAll(async () => {
  shell = await ToolShell.start();
}, limitMs);
afterAll(async () => {
  await shell?.[Symbol.asyncDispose]();
}, limitMs);

/** A tree with everything that an archive can hold, and `list`, which tells all about a tree but its inodes. */
const tree = String.raw`
mkdir -p tree/a/b tree/c $'tree/n\u00E4me with space' tree/deep/1/2/3/4/5/6/7/8
seq 300000 > tree/a/big
printf x > tree/a/b/small
: > tree/empty
ln -s ../a tree/c/link
ln -s nowhere tree/c/dangling
ln tree/a/big tree/c/hard
echo deep > tree/deep/1/2/3/4/5/6/7/8/file
echo x > $'tree/n\u00E4me with space/\u65E5\u672C\u8A9E.txt'
truncate -s 5M tree/sparse
echo middle | dd of=tree/sparse bs=1 seek=3000000 conv=notrunc status=none
chmod 4750 tree/a/b/small
chmod 440 tree/empty
chmod 1777 tree/c
find tree -depth -exec touch -h -d '2001-02-03T04:05:06.123456789Z' {} +
# Not how many names a directory has: that is 1 here, as on btrfs.
list() { (cd "$1" && find . -printf '%p %m %T@ %y %l ' \( -type f -printf '%n %s\n' -o -printf '\n' \) | sort); }
list tree > expected.txt
cat expected.txt
same() { list "$1" | diff expected.txt - && diff -r --no-dereference tree "$1" && echo "$2 is the same"; }
`;

testWith(holderHas('tar'))(
  'tar: links, holes, modes and nanoseconds survive a round trip',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'tar',
      `${tree}
      tar --format=pax -cSf t.tar tree && mkdir out && tar xpSf t.tar -C out
      same out/tree tar
      tar -df t.tar && echo no difference
      mkdir piped && tar --format=pax -cf - tree | gzip | tar xpzf - -C piped
      same piped/tree pipe
      tar --format=pax -cf u.tar --exclude=big --exclude=hard tree && tar -rf u.tar expected.txt && tar -tf u.tar | sort | tail -3
      cmp tree/sparse out/tree/sparse && tail -c +3000001 out/tree/sparse | sed -n 1p | tr -d '\\0'`,
    );
    expect(output).toContain('tar is the same\nno difference\npipe is the same\n');
  },
  limitMs,
);

testWith(holderHas('rsync'))(
  'rsync: a copy, then only what changed',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'rsync',
      `${tree}
      rsync -aHS tree/ copy/
      same copy rsync
      echo more >> tree/deep/1/2/3/4/5/6/7/8/file; rm tree/empty; mv tree/a/b/small tree/a/b/moved
      rsync -aHSi --delete --checksum tree/ copy/ | grep -v '^\\.d' | sort
      diff -r --no-dereference tree copy && rsync -aHSn --delete --checksum --out-format=%n tree/ copy/ | wc -l`,
    );
    expect(output).toContain('rsync is the same');
    expect(output).toContain('*deleting   empty');
  },
  limitMs,
);

testWith(holderHas('zip'), holderHas('unzip'))(
  'zip and unzip',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'zip',
      `${tree}
      (cd tree && zip -qry ../t.zip . -x './deep/*' && echo more >> a/b/small && zip -qu ../t.zip a/b/small)
      unzip -tqq t.zip && unzip -q t.zip -d out && rm -r tree/deep
      diff -r --no-dereference tree out && zipinfo -1 t.zip | sort && rm t.zip`,
    );
    expect(output).toContain('näme with space/日本語.txt');
  },
  limitMs,
);

testWith(holderHas('cp'), holderHas('dd'))(
  'cp, mv, ln, dd, truncate, fallocate, sync',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'cp',
      `${tree}
      cp -a --reflink=auto tree copied && same copied cp
      cp -a --sparse=always tree sparse && same sparse 'cp --sparse'
      cp -al tree linked && same_links=$(find linked -type f -links +1 | wc -l) && echo "$same_links linked" && rm -r linked
      cp -rT copied merged && cp -rfT tree merged && mv merged/c/dangling merged/c/renamed && mv -n merged/a/big merged/empty; mv -f merged/a/big merged/empty && ls -R merged
      mv copied elsewhere && same elsewhere mv && cp --remove-destination tree/empty elsewhere/a/big && stat -c '%s %a' elsewhere/a/big
      seq 500000 | dd of=d1 bs=64k iflag=fullblock conv=fsync status=none && dd if=d1 of=d2 bs=4k skip=3 seek=5 count=7 conv=notrunc,fdatasync status=none && cksum < d1 && cksum < d2
      dd if=/dev/zero bs=4k count=3 oflag=append conv=notrunc of=d2 status=none && stat -c %s d2 && dd if=d1 of=d3 bs=1M count=2 iflag=direct oflag=direct status=none && cksum < d3
      truncate -s +100 d1 && truncate -s %4096 d1 && truncate -s '<1000' d1 && stat -c %s d1
      fallocate -l 100000 f && stat -c %s f && fallocate -n -o 100000 -l 5000 f && stat -c %s f
      seq 30000 > g && fallocate -p -o 5000 -l 50000 g && stat -c %s g && cksum < g && fallocate -z -o 160000 -l 40000 g && stat -c %s g && cksum < g
      sync && sync d1 && sync -f d1 && shred -n1 -u d1 && ls`,
    );
    expect(output).toContain('cp is the same\ncp --sparse is the same\n');
    expect(output).toContain('mv is the same\n');
  },
  limitMs,
);

testWith(holderHas('find'), holderHas('rg'))(
  'find and ripgrep over 2,000 files',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'find',
      String.raw`
      for d in $(seq 40); do mkdir d$d; for f in $(seq 50); do echo "line $f of $d" > d$d/f$f.txt; done; done
      find . -exec touch -h -d @1000000000 {} + && touch -d @1000000001 ref && touch -d @1000000002 d5/f5.txt
      find . -type f | wc -l && find . -type f -newer ref && ln d1/f1.txt hard && find . -type f -links 2 | sort
      find . -inum "$(stat -c %i hard)" | sort && find . -samefile hard | wc -l && find . -name 'f1*' -size -2 | wc -l
      find . -newermt @1000000001 ! -type d | sort && mkdir e && find . -empty && find . -perm 644 -type f | wc -l
      find . -maxdepth 1 -type d -regex '.*[13]' | sort && find d2 -name 'f4?.txt' -printf '%P %s %m\n' | sort
      rg -c 'line 5 ' | sort | sed -n 1,3p && rg --files | wc -l && rg -l 'of 7$' | wc -l && rg -uu -o --no-filename 'line 4\d of 39' --sort path
      echo '*.txt' > .ignore && rg --files | sort && rg --no-ignore --hidden --files --glob '!d*' | sort && rm .ignore
      grep -rl 'of 7$' . | wc -l && find d3 -name '*.txt' -exec sed -i 's/line/LINE/' {} + && rg -l LINE | wc -l && ls d3 | wc -l
      find . -name 'f9.txt' -print0 | xargs -0 -n 10 -P 4 rm && find . -name 'f?.txt' | wc -l && find d9 -delete && ls | wc -l && du -a d10 | wc -l`,
    );
    expect(output).toStartWith('2001\n./d5/f5.txt\n./d1/f1.txt\n./hard\n');
  },
  limitMs,
);

testWith(
  holderHas('patch'),
  holderHas('diff'),
  holderHas('sed'),
  holderHas('sort'),
)(
  'patch, diff, sed, sort with temporary files, awk, split, comm, install',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'edit',
      `
      seq 100 > x && sed 's/^50$/fifty/; 70d' x > y && ! diff -u --label a --label b x y > p && cat p
      patch -b x < p && cmp x y && ls && patch -R x < p && ! patch --dry-run -R x < p > said && grep -c ignored said
      mkdir -p a/src b/src && seq 10 > a/src/f && seq 10 | sed 's/3/three/' > b/src/f && echo new > b/src/n && ! diff -ruN --label x/src/f --label x/src/f a b > tree.patch
      ln x hard && sed -i.orig 's/^1$/one/' x && stat -c '%n %h' x hard x.orig && head -1 x hard && sed -i --follow-symlinks 2d x && wc -l x
      perl -pi.bak -e 's/one/two/' x && head -1 x && awk -i inplace '{ print $1 + 1 }' x.bak 2>/dev/null || awk '{ s += $1 } END { print s }' x
      seq 300000 | sort -R --random-source=hard > shuffled && sort -n -S 1M -T . shuffled -o shuffled && cksum < shuffled && sort -c -n shuffled && ls
      split -n l/3 -d shuffled part- && cat part-0? | cmp - shuffled && comm -12 <(head -5 part-00) <(seq 3) && tac part-02 | sed -n 1p
      install -D -m 750 x sub/dir/installed && stat -c %a sub/dir/installed && csplit -s x 10 20 && wc -l xx0? 
      # In the shared view a pipe is refused: whoever opened it there would wait for ever.
      pipe=$(mktemp -u) && mkfifo "$pipe" && (seq 5 > "$pipe" &) && paste -sd+ < "$pipe" && rm "$pipe" && tee t1 t2 < x > /dev/null && cmp t1 t2 && cat x t1 > t3 && iconv -f utf-8 -t utf-16 x | wc -c`,
    );
    expect(output).toContain('patching file x');
  },
  limitMs,
);

testWith(holderHas('vim'))(
  'vim: in place, by renaming, swap files and recovery, undo files',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'vim',
      String.raw`
      export TERM=xterm
      edit() { vim -Nu NONE -i NONE -es "$@" < /dev/null || echo "vim: $?"; }
      printf 'one\ntwo\nthree\n' > a.txt && ln a.txt hard.txt && chmod 640 a.txt
      edit -c '%s/two/TWO/' -c wq a.txt && cat hard.txt && stat -c '%n %h %a' a.txt hard.txt
      edit -c 'set backup backupskip= backupcopy=no writebackup' -c '%s/one/ONE/' -c wq a.txt && cat a.txt hard.txt && stat -c '%n %h %a' *.txt a.txt~
      [ a.txt~ -ef hard.txt ] && echo 'the backup is the old inode'
      edit -c 'set updatecount=1' -c 'normal Gonew' -c preserve -c 'w! !ls -A > listed' -c q! a.txt; cat listed; ls -A
      (edit -c 'set directory=.' -c 'normal Golost' -c preserve -c 'call system("kill -9 " . getpid())' a.txt) 2> /dev/null; ls -A
      edit -r a.txt -c 'w! recovered.txt' -c q!; cat recovered.txt; rm -f .*.swp
      edit -c 'set undofile undodir=.' -c 'normal Goundo' -c wq a.txt && edit -c 'set undofile undodir=.' -c 'normal u' -c wq a.txt && cat a.txt && ls -A
      edit -c 'args *.txt' -c 'argdo %s/T/t/ge | update' -c qa && cat *.txt`,
    );
    expect(output).toContain('the backup is the old inode');
    expect(output).toContain('.a.txt.swp');
  },
  limitMs,
);

testWith(holderHas('bash'))(
  'a rename in a loop is never seen half done, by readers beside it',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'rename',
      `
      echo 0 > t
      (for i in $(seq 100); do seq $((i * 20)) > t.tmp; mv t.tmp t; done; touch finished) &
      until [ -e finished ]; do tail -1 t | grep -q '0$' || echo "torn: $(wc -c < t)"; done
      wait; wc -l < t; ls`,
    );
    expect(output).toContain('2000\n');
  },
  limitMs,
);

test(
  'where a program fails on purpose, the comparison fails too',
  async () => {
    const refused = await onPlainDisk('echo before; false; echo after');
    expect(refused).toEqual({ output: 'before\n', exitCode: 1 });
    await expect(sameAsPlainDisk(shell, 'differ', 'stat -f -c %T .')).rejects.toThrow();
    await expect(sameAsPlainDisk(shell, 'fail', 'false')).rejects.toThrow();
  },
  limitMs,
);
