//! NFS version 3 (RFC 1813): one procedure, one file.

use xdr::{Reader, Writer};

use crate::request::{Request, Served};

/// Whether executing a call of this procedure twice is not the same as once.
pub(crate) fn is_non_idempotent(_procedure: u32) -> bool {
    false
}

/// Serves one call; the arguments are read from `arguments`, the results appended to `reply`.
pub(crate) async fn procedure(
    _request: &Request<'_>,
    procedure: u32,
    _arguments: Reader,
    _reply: &mut Writer,
) -> Served {
    match procedure {
        0 => Served::Done { is_error: false },
        _ => Served::NoProcedure,
    }
}
