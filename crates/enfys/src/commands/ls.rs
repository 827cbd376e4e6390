//! `enfys ls`.

use std::cmp::Ordering;
use std::process::ExitCode;

use clap::Args;
use client::attributes::{Attributes, FileKind};
use client::results::Object;
use client::url::Url;

use super::attributes::now;
use super::human::SizeUnit;
use super::list::{ListFormat, Listed};
use super::names::OwnerNames;
use super::output::{Output, run as run_command};
use super::quote::Quoting;
use super::session::{Failure, Location, Session, below, failed, parse_url, shown, text};
use super::time::TimeFormat;
use super::walk::{Entry, Listing, Step, Walk};

/// Columns of a terminal whose width is unknown.
const WIDTH: usize = 80;

const HELP: &str = "\
Examples:
  enfys ls nfs://server/export
  enfys ls -lh 'nfs://server:2050/export/a dir?version=4.1'

Names are sorted by their bytes. On a terminal they stand in columns, and those with special characters are quoted for \
a shell. Exit status: 1 if something below a URL cannot be listed, 2 if a URL cannot be accessed.";

#[derive(Debug, Args)]
#[command(after_help = HELP, disable_help_flag = true)]
pub struct LsArguments {
    /// What to list
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Show attributes, one entry a line
    #[arg(short)]
    pub long: bool,
    /// List directories with everything below
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Show sizes as 1.5K, 20M (with -l)
    #[arg(short, long)]
    pub human_readable: bool,
    /// Show names that begin with a dot
    #[arg(short, long)]
    pub all: bool,
    /// Same as --all: `.` and `..` are never shown
    #[arg(short = 'A', long)]
    pub almost_all: bool,
    /// List directories themselves, not their entries
    #[arg(short, long)]
    pub directory: bool,
    /// One name a line
    #[arg(short = '1')]
    pub one: bool,
    /// Show the numbers of files
    #[arg(short, long)]
    pub inode: bool,
    /// Show numbers of users and groups (with -l)
    #[arg(short, long)]
    pub numeric_uid_gid: bool,
    /// Sort by time, newest first
    #[arg(short = 't')]
    pub by_time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S')]
    pub by_size: bool,
    /// Reverse the order
    #[arg(short, long)]
    pub reverse: bool,
    /// Show times with seconds and zone (implies -l)
    #[arg(long)]
    pub full_time: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    pub help: Option<bool>,
}

/// Lists files and directories.
pub fn run(arguments: &LsArguments) -> ExitCode {
    run_command("ls", async |session, output| {
        let names = OwnerNames::new(arguments.numeric_uid_gid);
        let time = TimeFormat::local(now(), arguments.full_time);
        let is_long = arguments.long || arguments.full_time;
        let format = ListFormat {
            is_long,
            shows_file_id: arguments.inode,
            quoting: Quoting::of_terminal(output.is_terminal()),
            width: (output.is_terminal() && !arguments.one).then(terminal_width),
            size: if arguments.human_readable { SizeUnit::Binary } else { SizeUnit::Blocks(1) },
            time: &time,
            names: &names,
        };
        Lister { arguments, output, format, printed: false }.all(session).await;
    })
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|width| *width > 0)
        .unwrap_or(WIDTH)
}

struct Lister<'a> {
    arguments: &'a LsArguments,
    output: &'a Output,
    format: ListFormat<'a>,
    /// Whether something was printed, after which an empty line comes.
    printed: bool,
}

impl Lister<'_> {
    async fn all(mut self, session: &Session) {
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for url in &self.arguments.urls {
            let found = match session.locate(url).await {
                Ok(location) => {
                    // As in coreutils, -l shows a link that is named itself.
                    let follow = !self.format.is_long && !self.arguments.directory;
                    location.object("access", follow).await.map(|object| (location, object))
                }
                Err(failure) => Err(failure),
            };
            match found {
                Ok((location, object))
                    if object.attributes.kind == FileKind::Directory && !self.arguments.directory =>
                {
                    directories.push((location, object));
                }
                Ok((location, object)) => {
                    let name = text(url).into_bytes();
                    let target = self.target(&location, object).await;
                    files.push(Listed { name, attributes: object.attributes, target });
                }
                Err(failure) => self.output.fail_with(2, &failure),
            }
        }
        self.sort(&mut files);
        if !files.is_empty() {
            self.output.print(&self.format.print(&files));
            self.printed = true;
        }
        let has_headers = self.arguments.urls.len() > 1 || self.arguments.recursive;
        for (location, object) in directories {
            self.directory(&location, Entry::start(object), has_headers).await;
        }
    }

    /// Prints a directory, and with -R everything below.
    async fn directory(&mut self, location: &Location, start: Entry, has_headers: bool) {
        let max_depth = if self.arguments.recursive { usize::MAX } else { 1 };
        let mut walk = Walk::new(location.fs.clone(), start, max_depth);
        while let Some(step) = walk.next() {
            let Step::Enter(entry) = step else { continue };
            let goes_in = entry.is_directory() && entry.depth < max_depth;
            if !goes_in {
                continue;
            }
            let url = below(&location.url, &entry.path);
            let listing = match walk.list(&entry).await {
                Ok(listing) => listing,
                Err(cause) => {
                    let status = if entry.depth == 0 { 2 } else { 1 };
                    self.output.fail_with(status, &failed("open directory", &url, &cause));
                    continue;
                }
            };
            for (name, object) in listing.iter().filter(|(name, _)| !self.shows(name)) {
                walk.skip(&entry.child(name, *object));
            }
            let listing = self.visible(listing);
            self.print(location, &url, &listing, has_headers).await;
            walk.descend(entry, listing);
        }
    }

    /// Prints the entries of one directory.
    async fn print(&mut self, location: &Location, url: &Url, listing: &Listing, has_headers: bool) {
        if self.printed {
            self.output.print(b"\n");
        }
        self.printed = true;
        if has_headers {
            self.output.print(format!("{}:\n", shown(url)).as_bytes());
        }
        let mut entries = Vec::new();
        for (name, object) in listing {
            let target = self.target(location, *object).await;
            entries.push(Listed { name: name.clone(), attributes: object.attributes, target });
        }
        if self.format.is_long {
            self.output.print(self.format.total(&entries).as_bytes());
        }
        self.output.print(&self.format.print(&entries));
    }

    /// Returns where a link leads, if that is shown.
    async fn target(&self, location: &Location, object: Object) -> Option<Vec<u8>> {
        if !self.format.is_long || object.attributes.kind != FileKind::Symlink {
            return None;
        }
        let fs = &location.fs;
        match fs.client().read_link(fs.caller(), object.handle).await {
            Ok(target) => Some(target.to_vec()),
            Err(cause) => {
                let failure = Failure::new(format!(
                    "cannot read a symbolic link below {}: {cause}",
                    shown(&location.url)
                ));
                self.output.fail(&failure);
                None
            }
        }
    }

    fn shows(&self, name: &[u8]) -> bool {
        self.arguments.all || self.arguments.almost_all || !name.starts_with(b".")
    }

    /// Returns the entries that are shown, in their order.
    fn visible(&self, mut listing: Listing) -> Listing {
        listing.retain(|(name, _)| self.shows(name));
        listing
            .sort_by(|one, other| self.order((&one.0, &one.1.attributes), (&other.0, &other.1.attributes)));
        listing
    }

    fn sort(&self, entries: &mut [Listed]) {
        entries
            .sort_by(|one, other| self.order((&one.name, &one.attributes), (&other.name, &other.attributes)));
    }

    fn order(&self, one: (&[u8], &Attributes), other: (&[u8], &Attributes)) -> Ordering {
        let order = if self.arguments.by_time {
            other.1.mtime.cmp(&one.1.mtime)
        } else if self.arguments.by_size {
            other.1.size.cmp(&one.1.size)
        } else {
            Ordering::Equal
        };
        let order = order.then_with(|| one.0.cmp(other.0));
        if self.arguments.reverse { order.reverse() } else { order }
    }
}
