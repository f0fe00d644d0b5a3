import { UsageError } from './arguments.js';
import type { Arguments, CommandIo, Commands, Options } from './command.interface.js';

export const help = `Usage: nestjs-webhook-token completion <bash|zsh|fish>

Prints a script that completes commands and options, also of npx nestjs-webhook-token:

  npx nestjs-webhook-token completion bash > ~/.webhook-token.bash   and in ~/.bashrc: source ~/.webhook-token.bash
  npx nestjs-webhook-token completion zsh > ~/.webhook-token.zsh     and in ~/.zshrc: source ~/.webhook-token.zsh
  npx nestjs-webhook-token completion fish > ~/.config/fish/conf.d/webhook-token.fish

Exit code: 0 printed, 2 wrong usage.
`;

const NAME = 'nestjs-webhook-token';

type CommandOptions = readonly (readonly [command: string, options: readonly string[]])[];

const SCRIPTS: Readonly<Record<string, (commands: CommandOptions) => string>> = {
  bash: (commands) => `_nestjs_webhook_token() {
  local words="" at=0
  while [ "\${COMP_WORDS[$at]##*/}" != ${NAME} ]; do
    at=$((at + 1))
    [ "$at" -lt "$COMP_CWORD" ] || return 0
  done
  case "\${COMP_WORDS[$((at + 1))]}" in
${commands.map(([name, options]) => `    ${name}) words="${options.join(' ')}" ;;`).join('\n')}
  esac
  if [ "$COMP_CWORD" -eq $((at + 1)) ]; then words="${commands.map(([name]) => name).join(' ')} --help --version"; fi
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _nestjs_webhook_token ${NAME} npx
`,
  zsh: (commands) => `autoload -Uz bashcompinit && bashcompinit
${SCRIPTS['bash']!(commands)}`,
  fish: (commands) =>
    commands
      .flatMap(([name, options]) => [
        `complete -c ${NAME} -n __fish_use_subcommand -a ${name}`,
        ...options.map(
          (option) =>
            `complete -c ${NAME} -n "__fish_seen_subcommand_from ${name}" -l ${option.slice(2)}`,
        ),
      ])
      .concat(
        `complete -c npx -n "__fish_seen_subcommand_from ${NAME}" -x -a "(__fish_complete_subcommand)"`,
        '',
      )
      .join('\n'),
};

export async function run(
  { positionals: [shell = '', ...more] }: Arguments<Options>,
  io: CommandIo,
  all: Commands,
): Promise<number> {
  if (more.length > 0 || !Object.hasOwn(SCRIPTS, shell)) {
    throw new UsageError('Pass one shell: bash, zsh or fish.');
  }
  const commands: (readonly [string, readonly string[]])[] = [];
  for (const [name, [, load]] of Object.entries(all)) {
    commands.push([name, optionsOf((await load()).help)]);
  }
  io.stdout.write(SCRIPTS[shell]!(commands));
  return 0;
}

/** The options that a help lists, at the beginning of its lines. */
function optionsOf(help: string): string[] {
  const listed = [...help.matchAll(/^ {2}(--[a-z-]+)/gm)].map(([, option]) => option!);
  return [...new Set([...listed, '--help'])];
}
