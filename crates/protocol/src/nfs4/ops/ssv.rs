//! SET_SSV and the messages of SSV GSS (RFC 8881 §18.47, §2.10.9).

use xdr::{Decode, Encode, Opaque};

use super::session::{SequenceArgs, SequenceResult};
use crate::nfs4::types::{MAX_GSS, Outcome};

/// Maximum length of a message that an SSV token protects, in bytes: a record with 16 MiB of data.
pub const MAX_SSV_TEXT: usize = 17 << 20;

/// `SET_SSV4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetSsvArgs {
    /// Combined with the current SSV by exclusive or.
    pub ssv: Opaque<MAX_GSS>,
    /// HMAC over [`DigestArgs`].
    pub digest: Opaque<MAX_GSS>,
}

/// `ssa_digest_input4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DigestArgs {
    /// The SEQUENCE of the same compound.
    pub sequence: SequenceArgs,
}

/// `ssr_digest_input4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct DigestResult {
    /// The SEQUENCE of the same compound.
    pub sequence: SequenceResult,
}

/// `SET_SSV4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetSsvOk {
    /// HMAC over [`DigestResult`].
    pub digest: Opaque<MAX_GSS>,
}

/// `SET_SSV4res`.
pub type SetSsvResult = Outcome<SetSsvOk>;

/// `ssv_subkey4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SsvSubkey {
    /// Signature, initiator to target.
    MicI2T = 1,
    /// Signature, target to initiator.
    MicT2I = 2,
    /// Encryption, initiator to target.
    SealI2T = 3,
    /// Encryption, target to initiator.
    SealT2I = 4,
}

/// `ssv_mic_plain_tkn4`: the signed data.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SsvMicPlain {
    /// Sequence number of the SSV.
    pub ssv_sequence: u32,
    /// The message.
    pub plain: Opaque<MAX_SSV_TEXT>,
}

/// `ssv_mic_tkn4`: the signature.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SsvMic {
    /// Sequence number of the SSV.
    pub ssv_sequence: u32,
    /// HMAC.
    pub hmac: Opaque<MAX_GSS>,
}

/// `ssv_seal_plain_tkn4`: the encrypted data.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SsvSealPlain {
    /// Random bytes.
    pub confounder: Opaque<MAX_GSS>,
    /// Sequence number of the SSV.
    pub ssv_sequence: u32,
    /// The message.
    pub plain: Opaque<MAX_SSV_TEXT>,
    /// Padding to the cipher's block size.
    pub pad: Opaque<MAX_GSS>,
}

/// `ssv_seal_cipher_tkn4`: the encrypted message.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SsvSealCipher {
    /// Sequence number of the SSV.
    pub ssv_sequence: u32,
    /// Initialization vector.
    pub iv: Opaque<MAX_GSS>,
    /// The encrypted [`SsvSealPlain`].
    pub encrypted: Opaque<MAX_SSV_TEXT>,
    /// HMAC over the plain text.
    pub hmac: Opaque<MAX_GSS>,
}
