use protocol::nfs3::{LinkArgs, LinkWcc, NfsStat, Outcome};
use xdr::Writer;

use crate::files::stateless::changer;
use crate::nfs3_reply::{answer, fattr, resolve_writable, status, wcc_data};
use crate::request::{Request, Target};

/// LINK (RFC 1813 §3.3.15).
pub(super) async fn serve(request: &Request<'_>, args: LinkArgs, reply: &mut Writer) -> NfsStat {
    let targets = resolve_writable(request, &args.file)
        .and_then(|file| resolve_writable(request, &args.link.dir).map(|directory| (file, directory)));
    let (file, directory) = match targets {
        Ok(targets) => targets,
        Err(status) => return answer(reply, &Outcome::<LinkWcc, _>::Fail(status, LinkWcc::default())),
    };
    match link(request, &file, &directory, &args.link.name).await {
        Ok(wcc) => answer(reply, &Outcome::<_, LinkWcc>::Ok(wcc)),
        Err(status) => {
            let wcc = LinkWcc { file_attributes: file.post_op().await, linkdir_wcc: directory.wcc().await };
            answer(reply, &Outcome::<LinkWcc, _>::Fail(status, wcc))
        }
    }
}

async fn link(
    request: &Request<'_>,
    file: &Target<'_>,
    directory: &Target<'_>,
    name: &[u8],
) -> Result<LinkWcc, NfsStat> {
    if file.export.id != directory.export.id {
        return Err(NfsStat::XDEV);
    }
    if matches!(name, b"." | b"..") {
        return Err(NfsStat::EXIST);
    }
    let linked = changer(request).link(directory.place(), &file.handle, name).await.map_err(status)?;
    Ok(LinkWcc {
        file_attributes: Some(fattr(file.export, &linked.attributes)),
        linkdir_wcc: wcc_data(directory.export, &linked.directory),
    })
}
