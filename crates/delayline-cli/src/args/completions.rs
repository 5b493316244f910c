//! `delayline completions`.

use clap_complete::Shell;

/// Print a shell completion script
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Completions {
    /// Shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

const HELP: &str = "\
Examples:
  delayline completions bash > ~/.local/share/bash-completion/completions/delayline
  delayline completions zsh > ~/.zfunc/_delayline       # with ~/.zfunc in fpath
  delayline completions fish > ~/.config/fish/completions/delayline.fish";
