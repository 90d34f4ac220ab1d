//! Takes the examples out of a page.

use std::path::Path;

/// One command of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Example {
    /// Where it stands in the page, counted from 1.
    pub(super) line: usize,
    /// All its lines, without the prompt.
    pub(super) command: String,
    /// What the page shows below it; empty where it shows nothing.
    pub(super) shown: String,
    /// Whether a line `^C` ends it.
    pub(super) interrupted: bool,
}

impl Example {
    /// Whether the command goes on beside the ones that follow it.
    pub(super) fn is_in_background(&self) -> bool {
        self.command.ends_with('&')
    }

    /// The folder of the configuration with which the command runs a sidecar.
    pub(super) fn sidecar(&self) -> Option<&str> {
        let file = self.command.strip_prefix("capd run --config ")?.split(' ').next()?;
        file.strip_suffix("/capd.toml")
    }

    /// What the reader types while the command runs: yes, to the question of `capd pair`.
    pub(super) fn answer(&self) -> &'static str {
        if self.command.starts_with("capd pair") { "y\n" } else { "" }
    }

    /// What the command prints of what the page shows: the answer, and the end of its line, are the terminal's.
    pub(super) fn printed(&self) -> String {
        self.shown.replace("[y/N] y\n", "[y/N] ")
    }

    /// Whether the command needs a program, by its name or path in it.
    pub(super) fn names(&self, program: &str) -> bool {
        let is_path = program.starts_with('/');
        is_path && self.command.contains(program)
            || self.command.split(|char: char| !char.is_alphanumeric()).any(|word| word == program)
    }

    /// Whether the command goes on until it is ended, so that a reader gives it a terminal of its own.
    pub(super) fn runs_until_ended(&self) -> bool {
        // With a code, `capd pair` goes to the machine that waits, and ends.
        let has_other_end = self.is_in_background()
            || ["--help", "--print-config", "@"].iter().any(|word| self.command.contains(word));
        !has_other_end
            && ["capd run", "capd dev", "capd pair", "capctl serve"].iter().any(|words| {
                self.command.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            })
    }
}

#[derive(Debug)]
pub(super) struct Page {
    pub(super) examples: Vec<Example>,
    /// How many commands stand in blocks that do not run.
    pub(super) left_out: usize,
}

impl Page {
    /// Reads a page of the project.
    pub(super) fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self::parse(name, &text)
    }

    pub(super) fn parse(name: &str, text: &str) -> Self {
        let mut page = Self { examples: Vec::new(), left_out: 0 };
        let mut lines = text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            let Some(info) = line.trim_start().strip_prefix("```") else { continue };
            let block: Vec<_> =
                lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim_start() != "```").collect();
            let commands = block.iter().filter(|line| line.starts_with("$ ")).count();
            match info {
                "" | "console" => page.examples.extend(examples(&block, at + 2)),
                "text" => page.left_out += commands,
                "python" | "toml" | "yaml" if commands == 0 => page.examples.extend(saved(&block, at + 2)),
                // A shell script, to be read or pasted as a whole.
                "sh" => page.left_out += block.len(),
                _ => assert_eq!(
                    commands,
                    0,
                    "{name}:{}: commands in a block of {info}: say console or text",
                    at + 1
                ),
            }
        }
        page
    }
}

/// What a reader does with a file that says its name in its first line, such as `# shout.py` or `# provider/count.py`: saves it.
fn saved(block: &[&str], line: usize) -> Option<Example> {
    let name = block.first()?.strip_prefix("# ")?;
    let is_file = [".py", ".toml", ".yaml"].iter().any(|end| name.ends_with(end));
    if !is_file || name.contains(' ') || name.starts_with('/') || name.contains("..") {
        return None;
    }
    // An editor makes the folder of a file that it saves.
    let folder =
        name.rsplit_once('/').map(|(folder, _)| format!("mkdir -p -m 700 {folder}\n")).unwrap_or_default();
    let command = format!("{folder}cat > {name} <<'END OF FILE'\n{}\nEND OF FILE", block.join("\n"));
    Some(Example { line, command, shown: String::new(), interrupted: false })
}

/// The examples of a block whose first line is number `first` of its page.
fn examples(block: &[&str], first: usize) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut lines = block.iter().enumerate();
    while let Some((at, line)) = lines.next() {
        if let Some(command) = line.strip_prefix("$ ") {
            let mut command = command.to_owned();
            // What a shell would read on for: the text of a `<<EOF`, and the line after a backslash.
            let end = here_document(&command);
            while let Some(word) = &end
                && let Some((_, line)) = lines.next()
            {
                command += &format!("\n{line}");
                if line == word {
                    break;
                }
            }
            while command.ends_with('\\')
                && let Some((_, line)) = lines.next()
            {
                command += &format!("\n{line}");
            }
            examples.push(Example { line: first + at, command, shown: String::new(), interrupted: false });
        } else if let Some(example) = examples.last_mut() {
            // Lines above the first command are a synopsis or a file.
            if *line == "^C" {
                example.interrupted = true;
            } else {
                example.shown += &format!("{line}\n");
            }
        }
    }
    for example in &mut examples {
        example.shown.truncate(example.shown.trim_end().len());
    }
    examples
}

/// The word that ends the text which a command brings along.
fn here_document(command: &str) -> Option<String> {
    let (_, word) = command.split_once("<<")?;
    let word = word.split_whitespace().next()?.trim_matches(['\'', '"']);
    Some(word.to_owned())
}

#[test]
fn a_page_is_read_command_by_command() {
    let text = "# Page\n\n```\ncapctl id\n```\n\n```console\n$ cat > a <<EOF\nx = 1\n$ EOF\nEOF\n$ capctl id\ndid:key:z\n\n\
                $ capd run --config \\\n  a\nready\n^C\n```\n\n```text\n$ cargo build\n```\n\n```sh\ncargo test\n```\n\n\
                ```python\n# a.py\nprint(1)\n```\n\n```python\nprint(2)\n```\n";
    let page = Page::parse("a.md", text);
    assert_eq!(page.left_out, 2);
    let example = |line, command: &str, shown: &str, interrupted| Example {
        line,
        command: command.to_owned(),
        shown: shown.to_owned(),
        interrupted,
    };
    let expected = [
        example(8, "cat > a <<EOF\nx = 1\n$ EOF\nEOF", "", false),
        example(12, "capctl id", "did:key:z", false),
        example(15, "capd run --config \\\n  a", "ready", true),
        example(30, "cat > a.py <<'END OF FILE'\n# a.py\nprint(1)\nEND OF FILE", "", false),
    ];
    assert_eq!(page.examples, expected);
    assert_eq!(
        page.examples.iter().map(Example::runs_until_ended).collect::<Vec<_>>(),
        [false, false, true, false]
    );
}
