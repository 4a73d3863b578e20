//! Reading the command line, quickly for the verbs that leads call most.

use std::ffi::OsString;

use clap::{Args, Parser};

use super::arguments::{Arguments, RunArguments, Verb};

impl Arguments {
    /// Reads the command line, the program's name first.
    ///
    /// The verbs that leads call most are tried by themselves first: the parser then builds one
    /// verb instead of all. Whatever is not plainly right goes through the whole parser, which
    /// knows how to say what is wrong.
    pub fn read(arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        let verb = match arguments.get(1).and_then(|word| word.to_str()) {
            Some("run" | "start") => read_alone(&arguments, |parsed: RunArguments| Verb::Run(Box::new(parsed))),
            Some("status") => read_alone(&arguments, Verb::Status),
            _ => None,
        };
        match verb {
            Some(parsed) => Ok(parsed),
            None => Self::try_parse_from(arguments),
        }
    }
}

/// One verb with the flags that every verb has.
#[derive(Debug, Parser)]
#[command(disable_help_flag = true, args_override_self = false)]
struct Alone<T: Args> {
    #[arg(long, conflicts_with = "no_json")]
    json: bool,
    #[arg(long)]
    no_json: bool,
    #[command(flatten)]
    verb: T,
}

fn read_alone<T: Args>(arguments: &[OsString], verb: impl FnOnce(T) -> Verb) -> Option<Arguments> {
    let Alone { json, no_json, verb: parsed } = Alone::try_parse_from(arguments.get(1..)?).ok()?;
    Some(Arguments { json, no_json, verb: verb(parsed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Command lines, right and wrong, that both ways of reading must take alike.
    const LINES: [&[&str]; 12] = [
        &["lane", "run", "--task", "x"],
        &["lane", "start", "--task", "x", "--json", "--holdout", "a", "--holdout", "b"],
        &["lane", "run", "--brief", "b", "--cwd", "d", "--wait"],
        &["lane", "run", "--wait", "5m", "--task", "x", "--no-json"],
        &["lane", "run", "--json", "--no-json", "--task", "x"],
        &["lane", "run", "--task", "x", "--task", "y"],
        &["lane", "run", "--unknown"],
        &["lane", "run", "--help"],
        &["lane", "status"],
        &["lane", "status", "abc", "--json"],
        &["lane", "status", "--limit", "x"],
        &["lane", "--json", "status", "--all"],
    ];

    #[test]
    fn the_short_way_reads_what_the_whole_parser_reads() {
        for line in LINES {
            let words: Vec<OsString> = line.iter().map(OsString::from).collect();
            let shown = |read: Result<Arguments, clap::Error>| match read {
                Ok(arguments) => format!("{arguments:?}"),
                Err(error) => error.to_string(),
            };
            assert_eq!(shown(Arguments::read(words.clone())), shown(Arguments::try_parse_from(words)), "{line:?}");
        }
    }
}
