use protocol::nfs2::DirOpArgs;
use xdr::Writer;

use super::reply::{Failure, answer, fattr, object, resolve};
use crate::files::lookup::find;
use crate::request::Request;

/// LOOKUP (RFC 1094 §2.2.5).
pub(super) async fn serve(request: &Request<'_>, args: DirOpArgs, reply: &mut Writer) -> Result<(), Failure> {
    let target = resolve(request, &args.dir)?;
    let (export, found) = find(request, &target, &args.name).await?;
    answer(reply, object(request, export, &found.handle, fattr(export, &found.attributes)?)?)
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{DirOpRes, Proc, Stat};

    use crate::programs::nfs2::tests::{Client, found, place};

    #[test]
    fn finds_names_dots_and_nothing_else() {
        let client = Client::new();
        let directory = client.mkdir(b"directory");
        let lookup = |dir, name: &[u8]| client.call::<DirOpRes>(Proc::LOOKUP, &place(dir, name));
        assert_eq!(found(lookup(client.root, b"directory")).file, directory);
        assert_eq!(found(lookup(directory, b"..")).file, client.root);
        assert_eq!(found(lookup(client.root, b"..")).file, client.root, "the top is its own parent");
        assert_eq!(found(lookup(directory, b".")).file, directory);
        for (name, expected) in [
            (&b"none"[..], Stat::NOENT),
            (b"", Stat::ACCES),
            (b"a/b", Stat::ACCES),
            (&[b'x'; 256], Stat::NAMETOOLONG),
        ] {
            assert_eq!(lookup(client.root, name), DirOpRes::Fail(expected), "{}", name.escape_ascii());
        }
        let file = client.create(b"file");
        assert_eq!(lookup(file, b"name"), DirOpRes::Fail(Stat::NOTDIR));
    }

    #[test]
    fn a_large_file_is_refused_unless_sizes_are_clamped() {
        for (clamps, expected) in [(false, Err(Stat::FBIG)), (true, Ok(u32::MAX))] {
            let client = Client::with(|options| {
                if clamps {
                    options.v2_large_files = crate::LargeFiles::Clamp;
                }
            });
            client.large_file(b"large", 1 << 32);
            let result = client.call::<DirOpRes>(Proc::LOOKUP, &place(client.root, b"large"));
            let size = match result {
                DirOpRes::Ok(ok) => Ok(ok.attributes.size),
                DirOpRes::Fail(status) => Err(status),
            };
            assert_eq!(size, expected);
        }
    }
}
