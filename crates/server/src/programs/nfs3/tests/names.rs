//! Invalid names of entries (RFC 1813 §3.2).

use super::*;

/// Returns the statuses of each procedure that takes a name, with this one.
fn with_name(pair: &Pair, name: &[u8]) -> Vec<(&'static str, NfsStat)> {
    let place = || DirOpArgs { dir: pair.root, name: Filename::new(name.to_vec()).unwrap() };
    let (file, attributes) = (pair.lookup(b"file").into_result().unwrap().object, Sattr::default());
    let symlink_data = NfsPath::from_static(b"file");
    let symlink = SymlinkArgs { where_: place(), symlink_attributes: attributes, symlink_data };
    let how = CreateHow::Guarded(attributes);
    let fifo = MknodData::Fifo(attributes);
    vec![
        ("LOOKUP", pair.status(Proc::LOOKUP, &LookupArgs { what: place() })),
        ("CREATE", pair.status(Proc::CREATE, &CreateArgs { where_: place(), how })),
        ("MKDIR", pair.status(Proc::MKDIR, &MkdirArgs { where_: place(), attributes })),
        ("SYMLINK", pair.status(Proc::SYMLINK, &symlink)),
        ("MKNOD", pair.status(Proc::MKNOD, &MknodArgs { where_: place(), what: fifo })),
        ("LINK", pair.status(Proc::LINK, &LinkArgs { file, link: place() })),
        ("REMOVE", pair.status(Proc::REMOVE, &RemoveArgs { object: place() })),
        ("RMDIR", pair.status(Proc::RMDIR, &RemoveArgs { object: place() })),
        ("RENAME from", pair.status(Proc::RENAME, &RenameArgs { from: place(), to: pair.at(b"new") })),
        ("RENAME to", pair.status(Proc::RENAME, &RenameArgs { from: pair.at(b"file"), to: place() })),
    ]
}

/// Returns the names in a directory.
fn listed(pair: &Pair) -> Vec<Vec<u8>> {
    let args = ReaddirArgs { dir: pair.root, cookie: 0, cookieverf: [0; 8], count: 4096 };
    let page = pair.call::<ReaddirResult>(Proc::READDIR, &args).into_result().unwrap();
    let mut names: Vec<_> = page.reply.entries.iter().map(|entry| entry.name.to_vec()).collect();
    names.sort();
    names
}

#[test]
fn invalid_names_are_refused_by_every_procedure() {
    let pair = pair();
    pair.file(b"file");
    let (longest, longer) = (vec![b'x'; 255], vec![b'x'; 256]);
    for (name, expected) in [
        // "must not be null nor may it be the null string … NFS3ERR_ACCES"; "characters that it can not handle": the same.
        (&b""[..], NfsStat::ACCES),
        (b"/", NfsStat::ACCES),
        (b"a/b", NfsStat::ACCES),
        (b"../file", NfsStat::ACCES),
        (b"a\0b", NfsStat::ACCES),
        (b"file\0", NfsStat::ACCES),
        // "exceeds the … maximum filename length", no_trunc being TRUE.
        (&longer, NfsStat::NAMETOOLONG),
    ] {
        for (procedure, status) in with_name(&pair, name) {
            assert_eq!(status, expected, "{procedure} of {:?}", name.escape_ascii().to_string());
        }
    }
    assert_eq!(listed(&pair), [&b"."[..], b"..", b"file"]);
    let longest = DirOpArgs { dir: pair.root, name: Filename::new(longest).unwrap() };
    let how = CreateHow::Guarded(Sattr::default());
    assert_eq!(pair.status(Proc::CREATE, &CreateArgs { where_: longest, how }), NfsStat::OK);
}

#[test]
fn dot_and_dot_dot_are_found_and_not_created_or_removed() {
    let pair = pair();
    pair.file(b"file");
    assert_eq!(pair.lookup(b".").into_result().unwrap().object, pair.root);
    assert_eq!(pair.lookup(b"..").into_result().unwrap().object, pair.root, "nothing is above the top");
    // §3.3.13, of RMDIR: "the filename, `.`, is illegal …: NFS3ERR_INVAL. … `..`, is illegal …: NFS3ERR_EXIST."
    for (name, rmdir) in [(&b"."[..], NfsStat::INVAL), (b"..", NfsStat::EXIST)] {
        let expected = [
            ("LOOKUP", NfsStat::OK),
            // They exist already.
            ("CREATE", NfsStat::EXIST),
            ("MKDIR", NfsStat::EXIST),
            ("SYMLINK", NfsStat::EXIST),
            ("MKNOD", NfsStat::EXIST),
            ("LINK", NfsStat::EXIST),
            // They are directories.
            ("REMOVE", NfsStat::ISDIR),
            ("RMDIR", rmdir),
            // §3.3.14: "`.` and `..`, are illegal as either from.name or to.name. … NFS3ERR_INVAL".
            ("RENAME from", NfsStat::INVAL),
            ("RENAME to", NfsStat::INVAL),
        ];
        assert_eq!(with_name(&pair, name), expected);
    }
    assert_eq!(listed(&pair), [&b"."[..], b"..", b"file"]);
}
