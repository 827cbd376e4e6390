use std::ops::ControlFlow;

use protocol::nfs2::{MAXDATA, ReaddirArgs, Stat};
use vfs::{Entry, Error, ReadDir, ReadDirEnd};
use xdr::{Encode, Mark, Writer, padding};

use super::cookies::{Meaning, ShortCookies};
use super::reply::{Failure, fold, resolve};
use crate::files::lookup::dots;
use crate::files::object::File;
use crate::request::{Request, Target};

/// Cookies of the two entries that backends do not list.
const DOT: u32 = 1;
const DOT_DOT: u32 = 2;

/// Bytes of a reply around its entries: status, the end of the list, and end-of-file.
const AROUND: usize = 4 + 4 + 4;

/// READDIR (RFC 1094 §2.2.17).
pub(super) async fn serve(
    request: &Request<'_>,
    args: ReaddirArgs,
    cookies: &ShortCookies,
    reply: &mut Writer,
) -> Result<(), Failure> {
    let target = resolve(request, &args.dir)?;
    let directory = File::new(target.export, target.handle).key(request.server).fileid;
    let number = u32::from_be_bytes(args.cookie);
    let start = reply.mark();
    Stat::OK.encode(reply);
    let room = (args.count as usize).min(MAXDATA).saturating_sub(AROUND);
    let mut page = Page { start: reply.mark(), room, entries: 0, is_full: false, failed: None, reply };
    if number < DOT_DOT {
        page.push_dots(&target, number).await?;
    }
    let cookie = if number <= DOT_DOT { 0 } else { cookie_of(&target, cookies, directory, number).await? };
    let mut visit = |entry: Entry<'_>| match cookies.shorten(directory, entry.cookie) {
        Some(number) => page.push(entry.name, entry.fileid, number),
        None => page.fail(),
    };
    let end = list(&target, cookie, &mut visit).await?;
    if let Some(error) = page.failed {
        return Err(error.into());
    }
    // Not even one entry fits. Version 2 has no status for that.
    if page.is_full && page.entries == 0 {
        return Err(Stat::IO.into());
    }
    let is_all = end.eof && !page.is_full;
    reply.bool(false);
    reply.bool(is_all);
    debug_assert!(reply.length_since(start) <= MAXDATA);
    Ok(())
}

type Visit<'v> = &'v mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send);

/// Visits the entries after a cookie. Backends expect the verifier of the cookie, which version 2 does not have: they get the
/// current one.
async fn list(target: &Target<'_>, cookie: u64, visit: Visit<'_>) -> Result<ReadDirEnd, Error> {
    let (backend, request) = (&target.export.backend, ReadDir { cookie, verifier: [0; 8], plus: false });
    let listed = backend.readdir(&target.context, &target.handle, request, visit).await;
    if listed.as_ref().err() != Some(&Error::BadCookie) {
        return listed;
    }
    let first = ReadDir { cookie: 0, ..request };
    let mut none = |_: Entry<'_>| ControlFlow::Break(());
    let verifier = backend.readdir(&target.context, &target.handle, first, &mut none).await?.verifier;
    backend.readdir(&target.context, &target.handle, ReadDir { verifier, ..request }, visit).await
}

/// Returns the backend's cookie for a number.
///
/// # Errors
/// [`Error::BadCookie`] if it is not known, and none or several of the directory's cookies have it as their hash.
async fn cookie_of(
    target: &Target<'_>,
    cookies: &ShortCookies,
    directory: u64,
    number: u32,
) -> Result<u64, Error> {
    if let Meaning::Cookie(cookie) = cookies.meaning(directory, number) {
        return Ok(cookie);
    }
    let (mut found, mut is_single) = (None, true);
    let mut visit = |entry: Entry<'_>| {
        if cookies.is_hash_of(number, directory, entry.cookie) {
            is_single = found.replace(entry.cookie).is_none();
        }
        if is_single { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    list(target, 0, &mut visit).await?;
    found.filter(|_| is_single).ok_or(Error::BadCookie)
}

/// Writes the entries of a reply.
struct Page<'p> {
    /// The start of the entries.
    start: Mark,
    /// Bytes for entries.
    room: usize,
    entries: usize,
    is_full: bool,
    failed: Option<Error>,
    reply: &'p mut Writer,
}

impl Page<'_> {
    /// Writes `.` and `..`, which backends do not list.
    async fn push_dots(&mut self, target: &Target<'_>, after: u32) -> Result<(), Failure> {
        let [(_, own), (_, parent)] = dots(target).await?;
        if after < DOT {
            let _ = self.push(b".", own.fileid, DOT);
        }
        let _ = self.push(b"..", parent.fileid, DOT_DOT);
        Ok(())
    }

    /// Writes an entry; breaks if it does not fit.
    fn push(&mut self, name: &[u8], fileid: u64, cookie: u32) -> ControlFlow<()> {
        let bytes = 4 + 4 + 4 + name.len() + padding(name.len()) + 4;
        if self.is_full || self.reply.length_since(self.start) + bytes > self.room {
            self.is_full = true;
            return ControlFlow::Break(());
        }
        self.entries += 1;
        self.reply.bool(true);
        self.reply.u32(fold(fileid));
        self.reply.opaque(name);
        self.reply.u32(cookie);
        ControlFlow::Continue(())
    }

    /// Ends the listing with an error: no number is free for a cookie.
    fn fail(&mut self) -> ControlFlow<()> {
        self.failed = Some(Error::ServerFault);
        ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use protocol::nfs2::{Proc, ReaddirArgs, ReaddirOk, ReaddirRes, Stat};

    use crate::programs::nfs2::tests::{Client, WideCookies};

    impl Client {
        fn readdir(&self, dir: [u8; 32], cookie: [u8; 4], count: u32) -> Result<ReaddirOk, Stat> {
            match self.call::<ReaddirRes>(Proc::READDIR, &ReaddirArgs { dir, cookie, count }) {
                ReaddirRes::Ok(ok) => Ok(ok),
                ReaddirRes::Fail(status) => Err(status),
            }
        }

        /// Lists the root in pages; calls `between` after each.
        fn list(&self, count: u32, mut between: impl FnMut(&Self, &ReaddirOk)) -> Vec<Vec<u8>> {
            let (mut names, mut cookie) = (Vec::new(), [0; 4]);
            loop {
                let page = self.readdir(self.root, cookie, count).unwrap();
                names.extend(page.entries.iter().map(|entry| entry.name.to_vec()));
                between(self, &page);
                if page.eof {
                    return names;
                }
                cookie = page.entries.last().expect("entries before the end").cookie;
            }
        }

        fn fill(&self, count: usize) -> Vec<Vec<u8>> {
            let names: Vec<_> = (0..count).map(|number| format!("{number:04}").into_bytes()).collect();
            for name in &names {
                self.create(name);
            }
            [vec![b".".to_vec(), b"..".to_vec()], names].concat()
        }
    }

    #[test]
    fn lists_every_name_once_with_any_size_of_pages() {
        for wide in [false, true] {
            let client = if wide { Client::over(WideCookies::new) } else { Client::new() };
            let mut expected = client.fill(300);
            expected.sort();
            for count in [40, 100, 1024, 8192, u32::MAX] {
                let mut names = client.list(count, |_, page| {
                    let bytes = xdr::to_bytes(&ReaddirRes::Ok(page.clone())).len();
                    assert!(bytes <= count.min(8192) as usize, "{bytes} of {count} bytes");
                });
                names.sort();
                assert_eq!(names, expected, "pages of {count} bytes, wide: {wide}");
            }
        }
    }

    #[test]
    fn continues_after_any_entry_and_during_removals() {
        for wide in [false, true] {
            let client = if wide { Client::over(WideCookies::new) } else { Client::new() };
            let expected: BTreeSet<_> = client.fill(50).into_iter().collect();
            let whole = client.readdir(client.root, [0; 4], 8192).unwrap();
            for (at, entry) in whole.entries.iter().enumerate() {
                let rest = client.readdir(client.root, entry.cookie, 8192).unwrap();
                assert_eq!(rest.entries[..], whole.entries[at + 1..], "after entry {at}");
            }
            // As `rm -r` does.
            let names = client.list(200, |client, page| {
                for entry in page.entries.iter().filter(|entry| entry.name[0] != b'.') {
                    assert_eq!(client.remove(&entry.name), Stat::OK);
                }
            });
            assert_eq!(names.len(), expected.len());
            assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }

    #[test]
    fn a_restarted_server_continues() {
        let client = Client::over(WideCookies::new);
        let mut expected = client.fill(300);
        expected.sort();
        let mut names = client.list(1000, |client, _| client.restart());
        names.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn wrong_directories_cookies_and_counts_are_refused() {
        let client = Client::over(WideCookies::new);
        let file = client.create(b"file");
        assert_eq!(client.readdir(file, [0; 4], 8192), Err(Stat::NOTDIR));
        assert_eq!(client.readdir(client.root, [0xff; 4], 8192), Err(Stat::IO));
        for count in [0, 12, 12 + 16] {
            assert_eq!(client.readdir(client.root, [0; 4], count), Err(Stat::IO), "no room for an entry");
        }
        let first = client.readdir(client.root, [0; 4], 12 + 20).unwrap();
        assert_eq!((&*first.entries[0].name, first.entries.len(), first.eof), (&b"."[..], 1, false));
    }
}
