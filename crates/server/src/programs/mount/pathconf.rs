use protocol::mount::{PathConf, PathConfBit};
use protocol::nfs2::{MAXNAMLEN, MAXPATHLEN};
use xdr::{Encode, Writer};

use super::mnt::find;
use crate::request::Request;

/// PATHCONF of version 2: the values of pathconf(2) for a directory that the client may mount. Returns whether the call failed.
pub(super) async fn serve(request: &Request<'_>, path: &[u8], reply: &mut Writer) -> bool {
    let found = find(request, path).await;
    let is_error = found.is_err();
    let mut results = PathConf {
        link_max: 0,
        max_canon: 0,
        max_input: 0,
        name_max: 0,
        path_max: 0,
        pipe_buf: 0,
        vdisable: 0,
        unused: 0,
        mask: 0,
        more_mask: 0,
    };
    // Terminals and pipes are the client's own.
    for bit in [PathConfBit::MAX_CANON, PathConfBit::MAX_INPUT, PathConfBit::PIPE_BUF, PathConfBit::VDISABLE]
    {
        results.set(bit);
    }
    match found {
        Ok((export, _)) => {
            let properties = export.backend.properties();
            // Some clients read the numbers as signed 16 bits, link_max as signed 32 bits.
            results.link_max = properties.max_links.min(i32::MAX as u32);
            results.name_max = properties.max_name.min(MAXNAMLEN as u32);
            results.path_max = MAXPATHLEN as u32;
            results.set(PathConfBit::NO_TRUNC);
            if properties.chown_restricted {
                results.set(PathConfBit::CHOWN_RESTRICTED);
            }
        }
        Err(_) => {
            for bit in
                [PathConfBit::ERROR, PathConfBit::LINK_MAX, PathConfBit::NAME_MAX, PathConfBit::PATH_MAX]
            {
                results.set(bit);
            }
        }
    }
    results.encode(reply);
    is_error
}
