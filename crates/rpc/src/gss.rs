//! RPCSEC_GSS version 1 (RFC 2203): credentials, arguments and results of context creation, and protected bodies of calls and
//! replies. Tokens and checksums are opaque here; the mechanism defines them.

use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

use crate::auth::MAX_AUTH_BODY;

/// The supported version of RPCSEC_GSS (RFC 2203 §5). Version 2 adds channel bindings (RFC 5403), version 3
/// assertions (RFC 7861).
pub const RPCSEC_GSS_VERS_1: u32 = 1;

/// The maximum sequence number (RFC 2203 §5, `MAXSEQ`).
pub const MAXSEQ: u32 = 0x8000_0000;

/// The maximum length in bytes of a context handle. RFC 2203 §5 sets no bound, but the handle must fit a credential. The
/// handles of this project's server have 16 bytes.
pub const MAX_HANDLE: usize = 128;

/// The maximum length in bytes of a context creation token. RFC 2203 §5.2.2 sets no bound; a Kerberos ticket with
/// authorization data stays below 64 KiB (MS-KILE §3.1.5.4: 65,535 bytes for a user in many groups).
pub const MAX_TOKEN: usize = 64 << 10;

/// The maximum length in bytes of a checksum, which is that of a verifier. RFC 4121 §4.2.6.1 needs 16 bytes and at most 24
/// for the checksum itself.
pub const MAX_CHECKSUM: usize = MAX_AUTH_BODY;

xdr::constants! {
    /// The purpose of a call (RFC 2203 §5, `rpc_gss_proc_t`).
    pub struct GssProc: u32 {
        /// A procedure call of the program.
        DATA = 0,
        /// The first call that creates a context.
        INIT = 1,
        /// A further call that creates a context.
        CONTINUE_INIT = 2,
        /// Destroys a context.
        DESTROY = 3,
    }
}

/// The protection of arguments and results (RFC 2203 §5, `rpc_gss_service_t`). The header always has a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub enum Service {
    /// None.
    #[xdr(case = 1)]
    None,
    /// A checksum.
    #[xdr(case = 2)]
    Integrity,
    /// Encryption, which includes a checksum.
    #[xdr(case = 3)]
    Privacy,
}

/// The body of an RPCSEC_GSS credential (RFC 2203 §5, `rpc_gss_cred_vers_1_t`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GssCredential {
    /// The purpose of the call.
    pub procedure: GssProc,
    /// Sequence number in the context, 0 to [`MAXSEQ`].
    pub sequence: u32,
    /// [`Service`] on the wire. Undefined during context creation, and must be ignored then (§5.2.2).
    pub service: u32,
    /// The context's handle; empty in the first call.
    pub handle: Opaque<MAX_HANDLE>,
}

/// Why an RPCSEC_GSS credential is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialError {
    /// Its version is not supported.
    Version {
        /// True for an existing context, false for context creation.
        is_data: bool,
    },
    /// It cannot be decoded as version 1.
    Garbled(DecodeError),
}

impl From<DecodeError> for CredentialError {
    fn from(error: DecodeError) -> Self {
        Self::Garbled(error)
    }
}

impl GssCredential {
    /// Decodes a credential's body. Trailing bytes are an error.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub fn parse(body: &Opaque<MAX_AUTH_BODY>) -> Result<Self, CredentialError> {
        let mut reader = Reader::new(body.bytes().clone());
        match reader.u32()? {
            RPCSEC_GSS_VERS_1 => {}
            // Versions 2 and 3 start with the same fields (RFC 5403 §2, RFC 7861 §2.6).
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

    /// Returns the service if its value is defined.
    #[must_use]
    pub fn service(&self) -> Option<Service> {
        match self.service {
            1 => Some(Service::None),
            2 => Some(Service::Integrity),
            3 => Some(Service::Privacy),
            _ => None,
        }
    }

    /// Encodes the credential's body, with its version.
    ///
    /// # Panics
    /// Never: the body has at most 148 bytes, which is below [`MAX_AUTH_BODY`].
    #[must_use]
    pub fn to_body(&self) -> Opaque<MAX_AUTH_BODY> {
        let mut writer = Writer::new();
        writer.u32(RPCSEC_GSS_VERS_1);
        self.encode(&mut writer);
        Opaque::new(writer.into_bytes()).expect("a bounded handle fits a credential")
    }
}

/// The arguments of a call that creates a context (RFC 2203 §5.2.2, `rpc_gss_init_arg`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct InitArgs {
    /// The client's output of `GSS_Init_sec_context`.
    pub token: Opaque<MAX_TOKEN>,
}

/// The results of a call that creates a context (RFC 2203 §5.2.3.1, `rpc_gss_init_res`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct InitResult {
    /// The context's handle for later calls; empty on failure.
    pub handle: Opaque<MAX_HANDLE>,
    /// The major status of `GSS_Accept_sec_context` (values in RFC 2203 appendix A).
    pub major: u32,
    /// The minor status, defined by the mechanism.
    pub minor: u32,
    /// The number of sequence numbers that may be outstanding at once.
    pub window: u32,
    /// The next input of `GSS_Init_sec_context`; empty if none is needed, or on failure.
    pub token: Opaque<MAX_TOKEN>,
}

/// `GSS_S_COMPLETE` (RFC 2203 appendix A): the context is established.
pub const GSS_S_COMPLETE: u32 = 0;

/// `GSS_S_CONTINUE_NEEDED` (RFC 2203 appendix A): the client must send another token.
pub const GSS_S_CONTINUE_NEEDED: u32 = 1;

/// `GSS_S_NO_CONTEXT` (RFC 2203 appendix A).
pub const GSS_S_NO_CONTEXT: u32 = 8 << 16;

/// `GSS_S_FAILURE` (RFC 2203 appendix A).
pub const GSS_S_FAILURE: u32 = 13 << 16;

/// Arguments or results with a checksum (RFC 2203 §5.3.2.2, `rpc_gss_integ_data`). `MAX` is the maximum length of the
/// record.
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

/// Returns the number of bytes that the verifier's checksum covers: the call's header up to the end of the credential
/// (RFC 2203 §5.3.1).
#[must_use]
pub fn signed_length(credential: &Opaque<MAX_AUTH_BODY>) -> usize {
    // xid, direction, RPC version, program, version, procedure; then flavor and length of the credential.
    const FIXED: usize = (6 + 2) * 4;
    FIXED + credential.len().next_multiple_of(4)
}
