//! `enfys touch`.

use std::process::ExitCode;

use clap::Args;
use client::attributes::{SetAttributes, SetTime, Timestamp};
use client::errno::Errno;
use client::fs::OpenOptions;
use client::results::OpenMode;
use client::url::Url;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::output::run as run_command;
use super::session::{Failure, Session, parse_url};
use super::umask::umask;

/// Mode of new files before the umask.
const MODE: u32 = 0o666;

#[derive(Debug, Args)]
pub struct TouchArguments {
    /// Files to touch
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Do not create files
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// Change only the time of access
    #[arg(short = 'a')]
    pub access: bool,
    /// Change only the time of modification
    #[arg(short = 'm')]
    pub modification: bool,
    /// Set this time instead of the server's: 2026-01-31T12:00:00, with Z or an offset, or @SECONDS since 1970
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub date: Option<Timestamp>,
}

/// Sets times, and creates missing files.
pub fn run(arguments: &TouchArguments) -> ExitCode {
    run_command("touch", async |session, output| {
        for url in &arguments.urls {
            if let Err(failure) = touch(session, url, arguments).await {
                output.fail(&failure);
            }
        }
    })
}

async fn touch(session: &Session, url: &Url, arguments: &TouchArguments) -> Result<(), Failure> {
    let location = session.locate(url).await?;
    let time = arguments.date.map_or(SetTime::Now, SetTime::To);
    let only = |given: bool, other: bool| if given || !other { time } else { SetTime::Keep };
    let set = SetAttributes {
        atime: only(arguments.access, arguments.modification),
        mtime: only(arguments.modification, arguments.access),
        ..SetAttributes::default()
    };
    match location.fs.set_attributes(&location.path, &set, true).await {
        Ok(_) => return Ok(()),
        Err(error) if error.errno() != Errno::ENOENT => return Err(location.failed("touch", &error)),
        Err(_) if arguments.no_create => return Ok(()),
        Err(_) => {}
    }
    let options = OpenOptions {
        mode: OpenMode::WRITE,
        create: true,
        permissions: MODE & !umask(),
        ..OpenOptions::READ
    };
    let file = location.fs.open(&location.path, &options).await;
    let file = file.map_err(|error| location.failed("create", &error))?;
    // A new file has the server's time already.
    let set = match arguments.date {
        Some(_) => {
            file.set_attributes(&set).await.map(|_| ()).map_err(|error| location.failed("touch", &error))
        }
        None => Ok(()),
    };
    let closed = file.close().await.map_err(|error| location.failed("close", &error));
    set.and(closed)
}

/// Parses a time of the command line; without a zone it is local.
fn time(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "expected a time, as in 2026-01-31T12:00:00, 2026-01-31T12:00:00Z or @1700000000, found `{text}`"
        )
    };
    let found = match text.strip_prefix('@') {
        Some(seconds) => {
            jiff::Timestamp::from_second(seconds.parse().map_err(|_| wrong())?).map_err(|_| wrong())?
        }
        None => match text.parse::<jiff::Timestamp>() {
            Ok(time) => time,
            Err(_) => {
                let local: DateTime = text.parse().map_err(|_| wrong())?;
                local.to_zoned(TimeZone::system()).map_err(|_| wrong())?.timestamp()
            }
        },
    };
    let nanoseconds = found.as_nanosecond();
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).map_err(|_| wrong())?;
    Ok(Timestamp { seconds, nanoseconds: nanoseconds.rem_euclid(1_000_000_000) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed() {
        for (text, seconds, nanoseconds) in [
            ("@1700000000", 1_700_000_000, 0),
            ("@-1", -1, 0),
            ("1970-01-01T00:00:01Z", 1, 0),
            ("1970-01-01T02:00:01.5+02:00", 1, 500_000_000),
            ("1969-12-31T23:59:59.25Z", -1, 250_000_000),
        ] {
            assert_eq!(time(text), Ok(Timestamp { seconds, nanoseconds }), "{text}");
        }
        for wrong in ["", "yesterday", "@", "@x", "2026-13-01", "12:00"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
