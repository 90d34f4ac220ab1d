//! Writes completions and manual pages: a program's command line in; scripts of a shell and pages for man(1) out.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Args, Command, ValueEnum};
use clap_complete::{generate, shells};
use clap_mangen::Man;

/// The command line of `completion`.
#[derive(Clone, Copy, Debug, Args)]
pub struct CompletionArgs {
    /// The shell that reads them
    #[arg(value_enum)]
    shell: Shell,
}

/// Shells that complete words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// Fish.
    Fish,
}

impl CompletionArgs {
    /// The script for a shell that completes `program`, whose command line is `command`.
    pub fn print(self, program: &'static str, command: &Command) -> String {
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set()).cloned();
        let mut command = Command::new(program).args(command.get_arguments().cloned()).subcommands(shown);
        let (name, mut script) = (program.to_owned(), Vec::new());
        match self.shell {
            Shell::Bash => generate(shells::Bash, &mut command, name, &mut script),
            Shell::Zsh => generate(shells::Zsh, &mut command, name, &mut script),
            Shell::Fish => generate(shells::Fish, &mut command, name, &mut script),
        }
        String::from_utf8_lossy(&script).into_owned()
    }
}

/// The command line of `man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Write a page for each command into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl ManArgs {
    /// The program's own page; or what was written, a path on each line.
    ///
    /// **Errors:** a sentence, if a page cannot be written.
    pub fn print(&self, mut command: Command) -> Result<String, String> {
        // Each page then knows the name that its command is called by.
        command.build();
        let Some(folder) = &self.out else { return page(&command).map_err(|error| error.to_string()) };
        let failed = |path: &PathBuf, error: io::Error| format!("{}: {error}", path.display());
        fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        let mut written = String::new();
        for (name, text) in pages(&command).map_err(|error| error.to_string())? {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|error| failed(&path, error))?;
            written += &format!("{}\n", path.display());
        }
        Ok(written)
    }
}

/// The page of a command and of each below it, by the names of their files.
fn pages(command: &Command) -> io::Result<Vec<(String, String)>> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let mut all = vec![(format!("{name}.1"), page(command)?)];
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    for below in shown {
        all.extend(pages(below)?);
    }
    Ok(all)
}

fn page(command: &Command) -> io::Result<String> {
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
