//! Headers recorded from other programs: they decode to the fields that tshark shows, and encode to the same bytes.

use std::path::Path;

use bytes::Bytes;
use rpc::auth::{AuthFlavor, Identity, OpaqueAuth, authenticate};
use rpc::gss::GssCredential;
use rpc::message::{
    AcceptStatus, AcceptedReply, CallHeader, Rejection, ReplyBody, ReplyHeader, VersionRange, peek,
};
use xdr::{Reader, Writer};

type Fields = Vec<(String, String)>;

fn golden(name: &str) -> (Fields, Bytes) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).with_extension("hex");
    let text = std::fs::read_to_string(path).unwrap();
    let (head, hex) = text.split_once("---\n").unwrap();
    let fields =
        head.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once(" = ").unwrap());
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    (fields.map(|(a, b)| (a.to_owned(), b.to_owned())).collect(), digits.chunks(2).map(octet).collect())
}

fn show_auth(auth: &OpaqueAuth, put: &mut impl FnMut(&str, String)) {
    put("rpc.auth.flavor", auth.flavor.0.to_string());
    if auth.flavor == AuthFlavor::SYS {
        let Ok(Identity::Sys(sys)) = authenticate(auth) else { panic!("AUTH_SYS was refused") };
        put("rpc.auth.stamp", format!("{:#010x}", sys.stamp));
        put("rpc.auth.machinename", String::from_utf8(sys.machine_name.to_vec()).unwrap());
        put("rpc.auth.uid", sys.uid.to_string());
        put("rpc.auth.gid", sys.gid.to_string());
        sys.gids.iter().for_each(|gid| put("rpc.auth.gid", gid.to_string()));
        assert_eq!(OpaqueAuth::sys(&sys), *auth);
    }
}

/// Shows a credential or a verifier of RPCSEC_GSS.
fn show_gss(auth: &OpaqueAuth, is_credential: bool, put: &mut impl FnMut(&str, String)) {
    if auth.flavor != AuthFlavor::RPCSEC_GSS {
        return;
    }
    if !is_credential {
        return put("rpc.authgss.token_length", auth.body.len().to_string());
    }
    let gss = GssCredential::parse(&auth.body).unwrap();
    put("rpc.authgss.version", "1".to_owned());
    put("rpc.authgss.procedure", gss.procedure.0.to_string());
    put("rpc.authgss.seqnum", gss.sequence.to_string());
    put("rpc.authgss.service", gss.service.to_string());
    put("rpc.authgss.context.length", gss.handle.len().to_string());
    let octets: Vec<_> = gss.handle.iter().map(|octet| format!("{octet:02x}")).collect();
    put("rpc.authgss.context", octets.join(":"));
    assert_eq!(gss.to_body(), auth.body);
}

fn show(message: &Bytes) -> Fields {
    let mut fields = Fields::new();
    let mut put = |name: &str, value: String| fields.push((name.to_owned(), value));
    let (xid, message_type) = peek(message).unwrap();
    put("rpc.xid", format!("{xid:#010x}"));
    put("rpc.msgtyp", message_type.0.to_string());
    let mut reader = Reader::new(message.clone());
    let mut writer = Writer::new();
    if message_type.0 == 0 {
        let header = CallHeader::parse(&mut reader).unwrap();
        put("rpc.version", "2".to_owned());
        put("rpc.program", header.program.to_string());
        put("rpc.programversion", header.version.to_string());
        put("rpc.procedure", header.procedure.to_string());
        show_auth(&header.credential, &mut put);
        show_gss(&header.credential, true, &mut put);
        show_auth(&header.verifier, &mut put);
        show_gss(&header.verifier, false, &mut put);
        xdr::Encode::encode(&header, &mut writer);
    } else {
        let header = ReplyHeader::parse(&mut reader).unwrap();
        match &header.body {
            ReplyBody::Accepted(AcceptedReply { verifier, status }) => {
                put("rpc.replystat", "0".to_owned());
                show_auth(verifier, &mut put);
                let (number, versions) = match status {
                    AcceptStatus::Success => (0, None),
                    AcceptStatus::ProgramUnavailable => (1, None),
                    AcceptStatus::ProgramMismatch(versions) => (2, Some(versions)),
                    AcceptStatus::ProcedureUnavailable => (3, None),
                    AcceptStatus::GarbageArguments => (4, None),
                    AcceptStatus::SystemError => (5, None),
                };
                put("rpc.state_accept", number.to_string());
                if let Some(VersionRange { low, high }) = versions {
                    put("rpc.programversion.min", low.to_string());
                    put("rpc.programversion.max", high.to_string());
                }
            }
            ReplyBody::Denied(Rejection::AuthError(status)) => {
                put("rpc.replystat", "1".to_owned());
                put("rpc.state_reject", "1".to_owned());
                put("rpc.state_auth", status.0.to_string());
            }
            ReplyBody::Denied(Rejection::RpcMismatch(VersionRange { low, high })) => {
                put("rpc.replystat", "1".to_owned());
                put("rpc.state_reject", "0".to_owned());
                put("rpc.version.min", low.to_string());
                put("rpc.version.max", high.to_string());
            }
        }
        xdr::Encode::encode(&header, &mut writer);
    }
    writer.raw(reader.peek());
    assert_eq!(writer.into_bytes(), *message, "the encoding differs");
    fields
}

#[test]
fn headers_match_tshark() {
    for name in [
        "call_none",
        "call_sys",
        "call_gss",
        "success",
        "prog_mismatch",
        "prog_unavail",
        "proc_unavail",
        "garbage_args",
        "auth_error_badcred",
        "auth_error_credproblem",
        "rpc_mismatch",
    ] {
        let (fields, message) = golden(name);
        assert_eq!(show(&message), fields, "{name}");
    }
}
