//! Validity of names.

use protocol::nfs4::types::Status;

/// Checks that an entry of a directory could have this name. The file system checks the length.
///
/// Names need not be UTF-8. RFC 8881 §14.4 would let the server refuse others with INVAL; like Linux's server, this one
/// keeps the bytes, since file systems hold names of older encodings that must remain reachable. `fs_charset_cap` reports this.
pub(crate) fn check(name: &[u8]) -> Result<(), Status> {
    match name {
        // RFC 8881 §18.13.3, and others alike: "If the component is a zero-length string … the error NFS4ERR_INVAL will be
        // returned."
        [] => Err(Status::INVAL),
        // RFC 8881 §15.1.7.2: BADNAME, for instance for ".." "on a server whose file system uses that name for links to
        // parent directories". LOOKUPP goes there.
        b"." | b".." => Err(Status::BADNAME),
        // RFC 8881 §15.1.7.1, .2: a character that the server does not support; a name that it does not.
        _ if name.contains(&0) => Err(Status::BADCHAR),
        _ if name.contains(&b'/') => Err(Status::BADNAME),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_names_that_no_entry_can_have() {
        for (name, status) in [
            (&b""[..], Status::INVAL),
            (b".", Status::BADNAME),
            (b"..", Status::BADNAME),
            (b"a/b", Status::BADNAME),
            (b"a\0b", Status::BADCHAR),
        ] {
            assert_eq!(check(name), Err(status), "{name:?}");
        }
        for name in [&b"..."[..], b"\xff\xfe", "na\u{ef}ve".as_bytes(), b" ", &[b'x'; 300]] {
            assert_eq!(check(name), Ok(()), "{name:?}");
        }
    }
}
