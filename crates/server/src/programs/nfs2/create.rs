use protocol::nfs2::{CreateArgs, DirOpArgs, Sattr, Stat};
use vfs::{Create, CreateMode, Created, Error, SetAttributes};
use xdr::Writer;

use super::reply::{
    FIFO_DEVICE, Failure, answer, check_size, decode_device, fattr, fattr_after_change, mode, object,
    resolve_writable, set_attributes,
};
use crate::files::stateless::{admit_truncation, changer};
use crate::request::{Request, Target};

/// CREATE (RFC 1094 §2.2.10). An existing file is taken, and truncated if the attributes have a size. By a convention of Sun, a type in
/// the mode creates another object, with the size as its device number.
pub(super) async fn serve(
    request: &Request<'_>,
    args: CreateArgs,
    reply: &mut Writer,
) -> Result<(), Failure> {
    let mut set = set_attributes(&args.attributes)?;
    let what = object_of(&args.attributes)?;
    if !matches!(what, Create::File(_)) {
        set.size = None;
    }
    let target = resolve_writable(request, &args.where_.dir)?;
    let created = create(request, &target, &args.where_, &what, &set).await?;
    let shown = match created.is_new || set.size.is_some() {
        true => fattr_after_change(target.export, &created.attributes),
        false => fattr(target.export, &created.attributes)?,
    };
    answer(reply, object(request, target.export, &created.handle, shown)?)
}

/// Returns the object that CREATE requests.
fn object_of(attributes: &Sattr) -> Result<Create, Failure> {
    let bits = if attributes.mode == Sattr::IGNORE { 0 } else { attributes.mode & mode::TYPE };
    Ok(match bits {
        0 | mode::REGULAR => Create::File(CreateMode::Unchecked),
        mode::CHARACTER if attributes.size == FIFO_DEVICE => Create::Fifo,
        mode::FIFO => Create::Fifo,
        mode::CHARACTER => Create::CharDevice(decode_device(attributes.size)),
        mode::BLOCK => Create::BlockDevice(decode_device(attributes.size)),
        mode::SOCKET => Create::Socket,
        // 16 bits of -1 are not a mode.
        mode::TYPE => Create::File(CreateMode::Unchecked),
        _ => return Err(Error::Invalid.into()),
    })
}

/// Creates any object: CREATE, MKDIR and SYMLINK.
pub(super) async fn create(
    request: &Request<'_>,
    target: &Target<'_>,
    DirOpArgs { name, .. }: &DirOpArgs,
    what: &Create,
    set: &SetAttributes,
) -> Result<Created, Failure> {
    if matches!(&name[..], b"." | b"..") {
        return Err(Stat::EXIST.into());
    }
    set.size.map_or(Ok(()), |size| check_size(target.export, size))?;
    // An existing file is truncated.
    let cuts = matches!(what, Create::File(_)) && set.size.is_some();
    let _changing = if cuts { Box::pin(admit_truncation(request, target, name)).await? } else { None };
    let created = changer(request).create(target.place(), name, what, set).await;
    created.map_err(|error| match error {
        Error::IsDirectory | Error::IsSymlink | Error::WrongKind => Stat::EXIST.into(),
        error => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{CreateArgs, DirOpRes, FileType, Proc, Sattr, Stat};

    use crate::programs::nfs2::tests::{Client, found, place};

    impl Client {
        fn create_as(&self, name: &[u8], attributes: Sattr) -> DirOpRes {
            self.call(Proc::CREATE, &CreateArgs { where_: place(self.root, name), attributes })
        }
    }

    #[test]
    fn an_existing_file_is_truncated_if_a_size_is_given() {
        let client = Client::new();
        let file = client.create(b"file");
        client.write(file, 0, b"content");
        let same = found(client.create_as(b"file", Sattr { mode: 0o600, ..Sattr::NONE }));
        assert_eq!((same.file, same.attributes.size, same.attributes.mode), (file, 7, 0o100_644));
        let cut = found(client.create_as(b"file", Sattr { size: 0, ..Sattr::NONE }));
        assert_eq!((cut.file, cut.attributes.size), (file, 0));
    }

    #[test]
    fn a_large_file_is_refused_unless_it_is_truncated() {
        let client = Client::new();
        let file = client.large_file(b"large", 1 << 33);
        assert_eq!(client.create_as(b"large", Sattr::NONE), DirOpRes::Fail(Stat::FBIG));
        let cut = found(client.create_as(b"large", Sattr { size: 7, ..Sattr::NONE }));
        assert_eq!((cut.file, cut.attributes.size), (file, 7));
    }

    #[test]
    fn a_type_in_the_mode_creates_that_object() {
        let client = Client::new();
        for (name, mode, size, expected) in [
            (&b"regular"[..], 0o100_640, u32::MAX, (FileType::REG, 0o100_640, 0)),
            (b"typeless", 0o640, 3, (FileType::REG, 0o100_640, 0)),
            (b"fifo", 0o020_640, u32::MAX, (FileType::CHR, 0o020_640, u32::MAX)),
            (b"other fifo", 0o010_640, 0, (FileType::CHR, 0o020_640, u32::MAX)),
            (b"character", 0o020_640, 0x0501, (FileType::CHR, 0o020_640, 0x0501)),
            (b"block", 0o060_640, 0x0801, (FileType::BLK, 0o060_640, 0x0801)),
            (b"socket", 0o140_640, 0, (FileType::NON, 0o140_640, 0)),
        ] {
            let made = found(client.create_as(name, Sattr { mode, size, ..Sattr::NONE })).attributes;
            let name = name.escape_ascii();
            assert_eq!((made.file_type, made.mode, made.rdev), expected, "{name}");
        }
        let directory = Sattr { mode: 0o040_755, ..Sattr::NONE };
        assert_eq!(client.create_as(b"directory", directory), DirOpRes::Fail(Stat::IO));
    }

    #[test]
    fn names_that_are_taken_or_not_allowed_are_refused() {
        let client = Client::new();
        client.mkdir(b"directory");
        for (name, expected) in [
            (&b"directory"[..], Stat::EXIST),
            (b".", Stat::EXIST),
            (b"..", Stat::EXIST),
            (b"", Stat::ACCES),
            (b"a/b", Stat::ACCES),
            (&[b'x'; 256], Stat::NAMETOOLONG),
        ] {
            let result = client.create_as(name, Sattr::NONE);
            assert_eq!(result, DirOpRes::Fail(expected), "{}", name.escape_ascii());
        }
        let read_only = Client::with(|options| options.read_only = true);
        assert_eq!(read_only.create_as(b"file", Sattr::NONE), DirOpRes::Fail(Stat::ROFS));
    }

    #[test]
    fn a_repeated_create_has_the_first_ones_reply() {
        let client = Client::new();
        let args = CreateArgs { where_: place(client.root, b"file"), attributes: Sattr::NONE };
        let first = client.call_as::<DirOpRes>(200, Proc::CREATE, &args);
        assert_eq!(client.remove(b"file"), Stat::OK);
        assert_eq!(client.call_as::<DirOpRes>(200, Proc::CREATE, &args), first);
        let gone = client.call::<DirOpRes>(Proc::LOOKUP, &place(client.root, b"file"));
        assert_eq!(gone, DirOpRes::Fail(Stat::NOENT), "nothing was created again");
    }
}
