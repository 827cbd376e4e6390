//! RPCSEC_GSS version 1 (RFC 2203): the credential of its calls, the arguments and results that make a context, and the bodies
//! of calls and replies whose data are protected. What the tokens and checksums say is the mechanism's business.

use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

use crate::auth::MAX_AUTH_BODY;

/// The one version of RPCSEC_GSS that is spoken here (RFC 2203 §5). Version 2 adds channel bindings (RFC 5403), version 3
/// assertions (RFC 7861).
pub const RPCSEC_GSS_VERS_1: u32 = 1;

/// The greatest sequence number (RFC 2203 §5, `MAXSEQ`).
pub const MAXSEQ: u32 = 0x8000_0000;

/// The greatest length in bytes of a context's handle here. RFC 2203 §5 has no bound; ours are 16 bytes, and another server's
/// must fit a credential.
pub const MAX_HANDLE: usize = 128;

/// The greatest length in bytes of a token that makes a context. RFC 2203 §5.2.2 has no bound; a Kerberos ticket with its
/// authorization data stays below 64 KiB (MS-KILE §3.1.5.4 has 65,535 for a PAC's users in many groups).
pub const MAX_TOKEN: usize = 64 << 10;

/// The greatest length in bytes of a checksum (RFC 4121 §4.2.6.1: 16 bytes and at most 24 of the checksum itself): as much as a
/// verifier holds.
pub const MAX_CHECKSUM: usize = MAX_AUTH_BODY;

xdr::constants! {
    /// What a call is for (RFC 2203 §5, `rpc_gss_proc_t`).
    pub struct GssProc: u32 {
        /// A call of the program.
        DATA = 0,
        /// The first call that makes a context.
        INIT = 1,
        /// Another one.
        CONTINUE_INIT = 2,
        /// Ends a context.
        DESTROY = 3,
    }
}

/// How a call's arguments and results are protected (RFC 2203 §5, `rpc_gss_service_t`). The header always has a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub enum Service {
    /// Not at all.
    #[xdr(case = 1)]
    None,
    /// By a checksum.
    #[xdr(case = 2)]
    Integrity,
    /// By encryption, which has a checksum too.
    #[xdr(case = 3)]
    Privacy,
}

/// The body of an RPCSEC_GSS credential (RFC 2203 §5, `rpc_gss_cred_vers_1_t`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GssCredential {
    /// What the call is for.
    pub procedure: GssProc,
    /// Its number in the context; 0 to [`MAXSEQ`].
    pub sequence: u32,
    /// [`Service`] as it stands there: while a context is made it is undefined, and must be ignored (§5.2.2).
    pub service: u32,
    /// The context; empty for the first call.
    pub handle: Opaque<MAX_HANDLE>,
}

/// Why a credential of RPCSEC_GSS cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialError {
    /// It is of another version, which this server does not speak.
    Version {
        /// Whether it is for a context that exists, and not for one to be made.
        is_data: bool,
    },
    /// It is no credential of version 1.
    Garbled(DecodeError),
}

impl From<DecodeError> for CredentialError {
    fn from(error: DecodeError) -> Self {
        Self::Garbled(error)
    }
}

impl GssCredential {
    /// Reads a credential's body, which it must fill to the last byte.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub fn parse(body: &Opaque<MAX_AUTH_BODY>) -> Result<Self, CredentialError> {
        let mut reader = Reader::new(body.bytes().clone());
        match reader.u32()? {
            RPCSEC_GSS_VERS_1 => {}
            // Versions 2 and 3 begin alike (RFC 5403 §2, RFC 7861 §2.6).
            _ => {
                let procedure = GssProc::decode(&mut reader)?;
                let is_data = matches!(procedure, GssProc::DATA | GssProc::DESTROY);
                return Err(CredentialError::Version { is_data });
            }
        }
        let credential = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(credential)
    }

    /// The service, where it is one.
    #[must_use]
    pub fn service(&self) -> Option<Service> {
        match self.service {
            1 => Some(Service::None),
            2 => Some(Service::Integrity),
            3 => Some(Service::Privacy),
            _ => None,
        }
    }

    /// The whole body of the credential, with its version.
    ///
    /// # Panics
    /// Never: at most 148 bytes are below [`MAX_AUTH_BODY`].
    #[must_use]
    pub fn to_body(&self) -> Opaque<MAX_AUTH_BODY> {
        let mut writer = Writer::new();
        writer.u32(RPCSEC_GSS_VERS_1);
        self.encode(&mut writer);
        Opaque::new(writer.into_bytes()).expect("a bounded handle fits a credential")
    }
}

/// The arguments of a call that makes a context (RFC 2203 §5.2.2, `rpc_gss_init_arg`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct InitArgs {
    /// What `GSS_Init_sec_context` returned to the client.
    pub token: Opaque<MAX_TOKEN>,
}

/// Its results (RFC 2203 §5.2.3.1, `rpc_gss_init_res`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct InitResult {
    /// What to call the context from now on; empty where it failed.
    pub handle: Opaque<MAX_HANDLE>,
    /// What `GSS_Accept_sec_context` returned (RFC 2203 appendix A has the numbers).
    pub major: u32,
    /// The mechanism's own reason.
    pub minor: u32,
    /// How many sequence numbers may be under way at once.
    pub window: u32,
    /// What `GSS_Init_sec_context` takes next; empty where there is nothing or it failed.
    pub token: Opaque<MAX_TOKEN>,
}

/// `GSS_S_COMPLETE` (RFC 2203 appendix A): the context is made.
pub const GSS_S_COMPLETE: u32 = 0;

/// `GSS_S_CONTINUE_NEEDED` (RFC 2203 appendix A): the client must send another token.
pub const GSS_S_CONTINUE_NEEDED: u32 = 1;

/// `GSS_S_NO_CONTEXT` (RFC 2203 appendix A).
pub const GSS_S_NO_CONTEXT: u32 = 8 << 16;

/// `GSS_S_FAILURE` (RFC 2203 appendix A).
pub const GSS_S_FAILURE: u32 = 13 << 16;

/// Arguments or results with a checksum (RFC 2203 §5.3.2.2, `rpc_gss_integ_data`); `MAX` bounds them by the record that they
/// came in.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct IntegrityData<const MAX: usize> {
    /// The sequence number and the arguments or results, as XDR.
    pub body: Opaque<MAX>,
    /// `GSS_GetMIC` over `body`'s bytes.
    pub checksum: Opaque<MAX_CHECKSUM>,
}

/// Encrypted arguments or results (RFC 2203 §5.3.2.3, `rpc_gss_priv_data`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct PrivacyData<const MAX: usize> {
    /// `GSS_Wrap` of the sequence number and the arguments or results.
    pub body: Opaque<MAX>,
}

/// How many bytes a call's header has up to and with the credential: what the verifier's checksum is of (RFC 2203 §5.3.1).
#[must_use]
pub fn signed_length(credential: &Opaque<MAX_AUTH_BODY>) -> usize {
    // xid, direction, RPC version, program, version, procedure; then flavor and length of the credential.
    const FIXED: usize = (6 + 2) * 4;
    FIXED + credential.len().next_multiple_of(4)
}
