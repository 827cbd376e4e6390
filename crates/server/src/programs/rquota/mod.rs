//! RQUOTA versions 1 and 2 (`rquota.x`): quotas of users and groups, as quota(1) shows them on clients. Quotas cannot be set.
//!
//! quota(1) sends from any port, over UDP. Therefore a caller needs no port below 1024, and another user of its machine can claim to be it: the
//! answers are numbers about files that the caller's own LOOKUPs could count.

mod getquota;
#[cfg(test)]
mod tests;

use protocol::rquota::{
    ExtGetQuotaArgs, ExtSetQuotaArgs, GetQuotaArgs, Proc, QuotaKind as WireKind, QuotaResult, QuotaStatus,
    SetQuotaArgs, VERSION_1,
};
use vfs::QuotaKind;
use xdr::{Decode, Encode, Reader, Writer};

use self::getquota::{Asked, find};
use crate::request::{Request, Served};

/// Serves a procedure of a version; the arguments are read from `arguments`, the results appended to `reply`.
pub(crate) async fn procedure(
    request: &Request<'_>,
    (version, procedure): (u32, u32),
    mut arguments: Reader,
    reply: &mut Writer,
) -> Served {
    let result = match Proc(procedure) {
        Proc::NULL => None,
        // A quota that the file system has is enforced.
        Proc::GETQUOTA | Proc::GETACTIVEQUOTA => match asked(version, &mut arguments) {
            Some(Ok(asked)) => Some(find(request, &asked).await),
            Some(Err(status)) => Some(Err(status)),
            None => return Served::GarbageArguments,
        },
        Proc::SETQUOTA | Proc::SETACTIVEQUOTA => {
            let is_valid = match version {
                VERSION_1 => SetQuotaArgs::decode(&mut arguments).is_ok(),
                _ => ExtSetQuotaArgs::decode(&mut arguments).is_ok(),
            };
            if !is_valid {
                return Served::GarbageArguments;
            }
            Some(Err(QuotaStatus::EPERM))
        }
        _ => return Served::NoProcedure,
    };
    let is_error = matches!(result, Some(Err(_)));
    if let Some(result) = result {
        result.map_or_else(QuotaResult::Fail, QuotaResult::Ok).encode(reply);
    }
    request.server.metrics.rquota[procedure as usize].count(is_error);
    Served::Done { is_error }
}

/// Decodes the arguments of GETQUOTA. `None` if they are malformed; a status if they name no kind of quota.
fn asked(version: u32, arguments: &mut Reader) -> Option<Result<Asked, QuotaStatus>> {
    if version == VERSION_1 {
        let GetQuotaArgs { path, uid } = GetQuotaArgs::decode(arguments).ok()?;
        return Some(Ok(Asked { path, kind: QuotaKind::User, id: uid.cast_unsigned() }));
    }
    let ExtGetQuotaArgs { path, kind, id } = ExtGetQuotaArgs::decode(arguments).ok()?;
    let kind = match kind {
        WireKind::USER => QuotaKind::User,
        WireKind::GROUP => QuotaKind::Group,
        _ => return Some(Err(QuotaStatus::NOQUOTA)),
    };
    Some(Ok(Asked { path, kind, id: id.cast_unsigned() }))
}
