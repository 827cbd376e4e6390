//! NFS version 4 (RFC 8881 for 4.1): one operation, one file in `ops`.
//!
//! A call goes through [`compound`], which decodes its operations one by one as they run. What clients hold (leases,
//! sessions, opens, locks) is in [`state`], which is synchronous: no operation waits while it holds state.

mod attributes;
mod compound;
mod names;
mod object;
mod ops;
pub(crate) mod pseudo;
mod rows;
mod set_attributes;
pub mod state;
mod status;

use xdr::{Reader, Writer};

use crate::request::{Request, Served};

/// Procedure numbers (RFC 8881 §16.1, §16.2).
const NULL: u32 = 0;
const COMPOUND: u32 = 1;

/// Serves one call; the arguments are read from `arguments`, the results appended to `reply`.
pub(crate) async fn procedure(
    request: &Request<'_>,
    procedure: u32,
    arguments: Reader,
    reply: &mut Writer,
) -> Served {
    match procedure {
        NULL => Served::Done { is_error: false },
        COMPOUND => compound::serve(request, arguments, reply).await,
        _ => Served::NoProcedure,
    }
}
