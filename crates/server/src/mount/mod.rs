//! MOUNT versions 1 and 3 (RFC 1094 Appendix A, RFC 1813 Appendix I).

use xdr::{Reader, Writer};

use crate::request::{Request, Served};

/// Serves one call; the arguments are read from `arguments`, the results appended to `reply`.
pub(crate) fn procedure(
    _request: &Request<'_>,
    _version: u32,
    procedure: u32,
    _arguments: Reader,
    _reply: &mut Writer,
) -> Served {
    match procedure {
        0 => Served::Done { is_error: false },
        _ => Served::NoProcedure,
    }
}
