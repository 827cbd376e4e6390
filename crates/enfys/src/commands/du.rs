//! `enfys du`.

use std::collections::HashSet;
use std::process::ExitCode;

use clap::Args;
use client::attributes::{Attributes, FileKind, FsId};
use client::url::Url;

use super::attributes::storage;
use super::human::SizeUnit;
use super::output::{Output, run as run_command};
use super::quote::Quoting;
use super::session::{Failure, Session, below, failed, parse_url, text};
use super::walk::{Entry, Step, Walk};

/// The unit of sizes without an option.
const BLOCK: u64 = 1024;
/// Maximum number of remembered files with several names; of further ones every name counts.
const LINKED_MAX: usize = 1 << 20;

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct DuArguments {
    /// Trees to measure
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Show only the sum of each URL
    #[arg(short, long)]
    pub summarize: bool,
    /// Show sizes as 1.5K, 20M
    #[arg(short, long)]
    pub human_readable: bool,
    /// Show files too, not only directories
    #[arg(short, long, conflicts_with = "summarize")]
    pub all: bool,
    /// Show directories down to this depth
    #[arg(short = 'd', long, value_name = "N", conflicts_with = "summarize")]
    pub max_depth: Option<usize>,
    /// Count the sizes of files instead of the storage that they use
    #[arg(long)]
    pub apparent_size: bool,
    /// Show the sum of all URLs at the end
    #[arg(short = 'c', long)]
    pub total: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    pub help: Option<bool>,
}

/// Shows the storage that trees use.
pub fn run(arguments: &DuArguments) -> ExitCode {
    run_command("du", async |session, output| {
        let unit = if arguments.human_readable { SizeUnit::Binary } else { SizeUnit::Blocks(BLOCK) };
        let mut measure = Measure { arguments, output, unit, linked: HashSet::new() };
        let mut total = 0_u64;
        for url in &arguments.urls {
            match measure.tree(session, url).await {
                Ok(bytes) => total = total.saturating_add(bytes),
                Err(failure) => output.fail(&failure),
            }
        }
        if arguments.total {
            output.print(format!("{}\ttotal\n", unit.print(total)).as_bytes());
        }
    })
}

struct Measure<'a> {
    arguments: &'a DuArguments,
    output: &'a Output,
    unit: SizeUnit,
    /// Files with several names that were counted.
    linked: HashSet<(FsId, u64)>,
}

impl Measure<'_> {
    /// Prints the sizes of a tree, and returns the sum.
    async fn tree(&mut self, session: &Session, url: &Url) -> Result<u64, Failure> {
        let location = session.locate(url).await?;
        let start = Entry::start(location.object("access", false).await?);
        if !start.is_directory() {
            let Some(bytes) = self.bytes(&start.object.attributes) else { return Ok(0) };
            self.print(url, bytes);
            return Ok(bytes);
        }
        let mut walk = Walk::new(location.fs.clone(), start, usize::MAX);
        // The sums of the directories that the walk is in, by depth.
        let mut sums: Vec<u64> = Vec::new();
        while let Some(step) = walk.next() {
            match step {
                Step::Enter(entry) if entry.is_directory() => {
                    let listing = walk.list(&entry).await.unwrap_or_else(|cause| {
                        let url = below(url, &entry.path);
                        self.output.fail(&failed("list", &url, &cause));
                        Vec::new()
                    });
                    sums.push(self.bytes(&entry.object.attributes).unwrap_or_default());
                    walk.descend(entry, listing);
                }
                Step::Enter(entry) => {
                    let Some(bytes) = self.bytes(&entry.object.attributes) else { continue };
                    if let Some(sum) = sums.last_mut() {
                        *sum = sum.saturating_add(bytes);
                    }
                    if self.arguments.all && self.shows(entry.depth) {
                        self.print(&below(url, &entry.path), bytes);
                    }
                }
                Step::Leave(entry) => {
                    let sum = sums.pop().unwrap_or_default();
                    if self.shows(entry.depth) {
                        self.print(&below(url, &entry.path), sum);
                    }
                    match sums.last_mut() {
                        Some(above) => *above = above.saturating_add(sum),
                        None => return Ok(sum),
                    }
                }
            }
        }
        Ok(0)
    }

    fn shows(&self, depth: usize) -> bool {
        let most = if self.arguments.summarize { 0 } else { self.arguments.max_depth.unwrap_or(usize::MAX) };
        depth <= most
    }

    /// Returns an object's part of the sum; `None` for a further name of a file, which is neither counted nor shown.
    fn bytes(&mut self, attributes: &Attributes) -> Option<u64> {
        if attributes.nlink > 1 && attributes.kind != FileKind::Directory {
            let file = (attributes.fsid, attributes.fileid);
            if self.linked.len() < LINKED_MAX && !self.linked.insert(file) {
                return None;
            }
        }
        Some(if self.arguments.apparent_size { attributes.size } else { storage(attributes) })
    }

    fn print(&self, url: &Url, bytes: u64) {
        let name = Quoting::of_terminal(self.output.is_terminal()).quote(text(url).as_bytes());
        let size = self.unit.print(bytes);
        self.output.print(&[size.as_bytes(), b"\t", &name, b"\n"].concat());
    }
}
