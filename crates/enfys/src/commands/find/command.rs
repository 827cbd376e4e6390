//! `enfys find`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use clap::Args;
use client::url::Url;

use super::test::Entry as Tested;
use super::{Action, Context, Expression, parse};
use crate::commands::attributes::now;
use crate::commands::human::SizeUnit;
use crate::commands::list::{ListFormat, Listed};
use crate::commands::names::OwnerNames;
use crate::commands::output::{Output, run as run_command};
use crate::commands::quote::Quoting;
use crate::commands::session::{Failure, Location, Session, below, failed, parse_url, text};
use crate::commands::time::TimeFormat;
use crate::commands::walk::{Entry, Step, Walk};

const HELP: &str = "\
Examples:
  enfys find nfs://server/export -name '*.log' -size +10M -mtime +7
  enfys find nfs://server/export -type d -empty -delete
  enfys find nfs://server/export '(' -name .git -prune ')' -o -type f -print0 | xargs -0 enfys ls -l

Tests: -name -iname -path -ipath PATTERN, -type fdlbcsp, -size N[cwbkMG], -empty, -newer URL, -mtime -atime -ctime DAYS, \
-mmin -amin -cmin MINUTES, -perm MODE, -user -group NAME, -uid -gid -links -inum N, -true, -false. +N is more than N, -N \
less.
Actions: -print, -print0, -ls, -delete, -prune, -quit. Without one, matching entries are printed.
Operators: ( ) ! -a -o and `,`. Options: -maxdepth N, -mindepth N, -depth.

Entries are printed as URLs that other commands take. -path and -ipath match the path on the server, as in /export/dir/*.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct FindArguments {
    /// URLs where the search starts, and then the expression
    #[arg(
        value_name = "URL… EXPRESSION",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<OsString>,
}

/// Finds entries and executes actions on them.
pub fn run(arguments: &FindArguments) -> ExitCode {
    run_command("find", async |session, output| {
        if let Err(failure) = find(session, output, &arguments.words).await {
            output.fail(&failure);
        }
    })
}

async fn find(session: &Session, output: &Output, words: &[OsString]) -> Result<(), Failure> {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_vec()).collect();
    let is_expression = |word: &[u8]| word.starts_with(b"-") || matches!(word, b"(" | b"!" | b")" | b",");
    let count = words.iter().position(|word| is_expression(word)).unwrap_or(words.len());
    let (urls, words) = words.split_at(count);
    if urls.is_empty() {
        return Err(Failure::new("a URL is expected before the expression"));
    }
    let urls: Vec<Url> = urls.iter().map(|url| url_of(url)).collect::<Result<_, _>>()?;
    let names = OwnerNames::new(false);
    let expression = parse(words, &names).map_err(Failure::new)?;
    let mut references = Vec::new();
    for reference in &expression.references {
        let url = url_of(reference)?;
        let location = session.locate(&url).await?;
        references.push(location.object("access", true).await?.attributes.mtime);
    }
    let now = now();
    let search = Search {
        output,
        expression: &expression,
        context: Context { now, references },
        names: &names,
        time: TimeFormat::local(now, false),
    };
    for url in &urls {
        match search.tree(session, url).await {
            Ok(Flow::Continue) => {}
            Ok(Flow::Quit) => break,
            Err(failure) => output.fail(&failure),
        }
    }
    Ok(())
}

fn url_of(text: &[u8]) -> Result<Url, Failure> {
    let shown = String::from_utf8_lossy(text);
    parse_url(&shown).map_err(Failure::new)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Continue,
    Quit,
}

/// The request of an entry's evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Outcome {
    prunes: bool,
    quits: bool,
    /// Whether the entry was removed.
    deleted: bool,
}

impl Outcome {
    /// Counts a removed entry in its directory, the last of these.
    fn count(self, left: &mut [usize]) {
        if let (true, Some(left)) = (self.deleted, left.last_mut()) {
            *left = left.saturating_sub(1);
        }
    }
}

struct Search<'a> {
    output: &'a Output,
    expression: &'a Expression,
    context: Context,
    names: &'a OwnerNames,
    time: TimeFormat,
}

impl Search<'_> {
    async fn tree(&self, session: &Session, url: &Url) -> Result<Flow, Failure> {
        let location = session.locate(url).await?;
        let start = Entry::start(location.object("access", false).await?);
        let Expression { max_depth, is_depth_first, needs_emptiness, .. } = *self.expression;
        let mut walk = Walk::new(location.fs.clone(), start, max_depth);
        // Entries that are left in the directories that the walk is in, by depth.
        let mut left: Vec<usize> = Vec::new();
        while let Some(step) = walk.next() {
            let entry = match step {
                Step::Enter(entry) => entry,
                Step::Leave(entry) => {
                    let is_empty = left.pop() == Some(0);
                    if is_depth_first {
                        let outcome = self.evaluate(&location, &entry, is_empty).await;
                        outcome.count(&mut left);
                        if outcome.quits {
                            return Ok(Flow::Quit);
                        }
                    }
                    continue;
                }
            };
            let goes_in = entry.is_directory() && entry.depth < max_depth;
            let lists = goes_in || needs_emptiness && entry.is_directory();
            if !is_depth_first && !needs_emptiness || !lists {
                // No listing is needed to decide.
                let outcome = self.evaluate(&location, &entry, false).await;
                outcome.count(&mut left);
                if outcome.quits {
                    return Ok(Flow::Quit);
                }
                if !lists || outcome.prunes {
                    walk.skip(&entry);
                    continue;
                }
            }
            let listing = match walk.list(&entry).await {
                Ok(listing) => listing,
                Err(cause) => {
                    self.output.fail(&failed("list", &below(url, &entry.path), &cause));
                    // A directory that cannot be listed counts as not empty.
                    if is_depth_first || needs_emptiness {
                        let outcome = self.evaluate(&location, &entry, false).await;
                        outcome.count(&mut left);
                        if outcome.quits {
                            return Ok(Flow::Quit);
                        }
                    }
                    continue;
                }
            };
            let is_empty = listing.is_empty();
            if !is_depth_first && needs_emptiness {
                let outcome = self.evaluate(&location, &entry, is_empty).await;
                if outcome.quits {
                    return Ok(Flow::Quit);
                }
                if outcome.prunes {
                    walk.skip(&entry);
                    continue;
                }
            }
            left.push(listing.len());
            walk.descend(entry, if goes_in { listing } else { Vec::new() });
        }
        Ok(Flow::Continue)
    }

    /// Evaluates the expression for an entry, and executes its actions.
    async fn evaluate(&self, location: &Location, entry: &Entry, is_empty: bool) -> Outcome {
        let mut outcome = Outcome::default();
        if entry.depth < self.expression.min_depth {
            return outcome;
        }
        let url = below(&location.url, &entry.path);
        let name = url.path().split(|byte| *byte == b'/').rfind(|name| !name.is_empty()).unwrap_or(b"/");
        let tested = Tested {
            path: url.path(),
            name,
            attributes: &entry.object.attributes,
            is_empty_directory: is_empty,
        };
        let mut evaluation = self.expression.start();
        while let Some(action) = evaluation.next(&tested, &self.context) {
            match action {
                Action::Print => {
                    // With the options, so that other commands reach it in the same way, as the same user.
                    let shown =
                        Quoting::of_terminal(self.output.is_terminal()).quote(url.to_string().as_bytes());
                    self.output.print(&[&shown, &b"\n"[..]].concat());
                }
                Action::Print0 => self.output.print(&[url.to_string().as_bytes(), b"\0"].concat()),
                Action::List => self.list(&url, entry),
                Action::Delete => {
                    if self.delete(location, entry, &url).await {
                        outcome.deleted = true;
                    } else {
                        evaluation.failed();
                    }
                }
                Action::Prune => outcome.prunes = true,
                Action::Quit => {
                    outcome.quits = true;
                    break;
                }
            }
        }
        outcome
    }

    /// Prints a line as `ls -dils`.
    fn list(&self, url: &Url, entry: &Entry) {
        let format = ListFormat {
            is_long: true,
            shows_file_id: true,
            quoting: Quoting::of_terminal(self.output.is_terminal()),
            width: None,
            size: SizeUnit::Blocks(1),
            time: &self.time,
            names: self.names,
        };
        let name = text(url).into_bytes();
        let listed = Listed { name, attributes: entry.object.attributes, target: None };
        self.output.print(&format.print(&[listed]));
    }

    /// Removes an entry; a directory only if it is empty. Returns whether it no longer exists.
    async fn delete(&self, location: &Location, entry: &Entry, url: &Url) -> bool {
        let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let found = match entry.parent {
            Some(parent) => Ok((parent, name.to_vec())),
            None => location.parent("remove").await.map(|(parent, name)| (parent.handle, name)),
        };
        let (parent, name) = match found {
            Ok(found) => found,
            Err(failure) => {
                self.output.fail(&failure);
                return false;
            }
        };
        let (client, caller) = (location.fs.client(), location.fs.caller());
        let removed = if entry.is_directory() {
            client.remove_directory(caller, parent, &name).await
        } else {
            client.remove_file(caller, parent, &name).await
        };
        removed.map_err(|cause| self.output.fail(&failed("remove", url, &cause))).is_ok()
    }
}
