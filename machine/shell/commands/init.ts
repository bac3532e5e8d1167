/** `git init`. */
import { type Command, repositoryOf } from '../command.ts';
import { fatal, leave } from '../endings.ts';
import { parseOptions } from '../options.ts';
import { Config } from '../repository/config.ts';
import { isRefName } from '../repository/revisions.ts';
import { binaryOf, bytesOf } from '../text.ts';
import type { Tree } from '../tree/tree.ts';

const hint = `hint: Using 'master' as the name for the initial branch. This default branch name
hint: is subject to change. To configure the initial branch name to use in all
hint: of your new repositories, which will suppress this warning, call:
hint: 
hint: \tgit config --global init.defaultBranch <name>
hint: 
hint: Names commonly chosen instead of 'master' are 'main', 'trunk' and
hint: 'development'. The just-created branch can be renamed via this command:
hint: 
hint: \tgit branch -m <name>
`;

export const init: Command = async (context, argv) => {
  const options = parseOptions(argv, { 'q|quiet': 'flag', bare: 'flag', 'b|initial-branch': 'value' });
  if (context.wanted.gitDirectory !== null || options.words.length > 1) leave('init of a directory of its own');
  const word = options.words[0] ?? '.';
  const asked = word.startsWith('/') ? word : `${context.cwd}/${word}`;
  await context.tree.makeDirectory(asked);
  const root = await context.tree.resolve(asked);
  if (root === null || root.lastIndexOf('/') < 0) leave('init outside of the tree');
  const isBare = options.has('bare');
  const directory = isBare ? root : `${root}/.git`;
  const config = new Config([...context.around.config.before, ...context.around.config.after]);
  if (config.has('init.templatedir') || context.environment.GIT_TEMPLATE_DIR) leave('a template');
  const branch = options.text('initial-branch') ?? config.get('init.defaultbranch') ?? 'master';
  if (!isRefName(binaryOf(branch))) throw fatal(`invalid initial branch name: '${branch}'`);
  const isThere = (await context.tree.lstat(`${directory}/HEAD`)) !== null;
  if (!isThere) {
    const isNamed = options.has('initial-branch') || config.has('init.defaultbranch');
    if (!isNamed && !options.has('quiet')) context.output.say(hint);
    await makeRepository(context.tree, directory, branch, isBare);
  } else {
    if (options.has('initial-branch')) context.output.say(`warning: re-init: ignored --initial-branch=${branch}\n`);
    await repositoryOf({ ...context, wanted: { ...context.wanted, cwd: root } });
  }
  if (!options.has('quiet')) {
    const kind = isThere ? 'Reinitialized existing' : 'Initialized empty';
    context.output.out(`${kind} Git repository in ${binaryOf(directory)}/\n`);
  }
  return 0;
};

/** The directories and files of a new repository. */
export async function makeRepository(tree: Tree, directory: string, branch: string, isBare: boolean): Promise<void> {
  for (const name of ['objects/info', 'objects/pack', 'refs/heads', 'refs/tags', 'info', 'branches', 'hooks']) {
    await tree.makeDirectory(`${directory}/${name}`);
  }
  const config =
    `[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = ${isBare}\n` +
    (isBare ? '' : '\tlogallrefupdates = true\n');
  await tree.write(`${directory}/config`, bytesOf(config));
  await tree.write(`${directory}/HEAD`, bytesOf(`ref: refs/heads/${binaryOf(branch)}\n`));
  const description = "Unnamed repository; edit this file 'description' to name the repository.\n";
  await tree.write(`${directory}/description`, bytesOf(description));
  const exclude =
    "# git ls-files --others --exclude-from=.git/info/exclude\n# Lines that start with '#' are comments.\n" +
    '# For a project mostly in C, the following would be a good set of\n# exclude patterns (uncomment them if you want to use them):\n' +
    '# *.[oa]\n# *~\n';
  await tree.write(`${directory}/info/exclude`, bytesOf(exclude));
}
