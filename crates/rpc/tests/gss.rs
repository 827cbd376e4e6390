//! RPCSEC_GSS compared with bytes derived by hand from RFC 2203 §5.

use bytes::Bytes;
use rpc::auth::{AuthFlavor, OpaqueAuth};
use rpc::gss::{
    CredentialError, GssCredential, GssProc, InitArgs, InitResult, IntegrityData, MAX_TOKEN, MAXSEQ,
    PrivacyData, Service, signed_length,
};
use rpc::message::CallHeader;
use xdr::{DecodeError, Opaque, from_bytes, to_bytes};

fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>().into()
}

fn parse(body: Bytes) -> Result<GssCredential, CredentialError> {
    GssCredential::parse(&Opaque::new(body).unwrap())
}

/// Version, DATA, sequence number 7, integrity, a handle of six bytes.
const CREDENTIAL: [u32; 7] = [1, 0, 7, 2, 6, 0x6865_6e66, 0x7973_0000];

#[test]
fn credential_starts_with_its_version() {
    let credential = parse(words(&CREDENTIAL)).unwrap();
    let handle = Opaque::from_static(b"henfys");
    assert_eq!(credential, GssCredential { procedure: GssProc::DATA, sequence: 7, service: 2, handle });
    assert_eq!(credential.service(), Some(Service::Integrity));
    assert_eq!(credential.to_body().bytes(), &words(&CREDENTIAL));
    assert_eq!(MAXSEQ, 0x8000_0000);
}

#[test]
fn services_have_values_one_to_three() {
    let service = |number| parse(words(&[1, 1, 0, number, 0])).unwrap().service();
    // RFC 2203 §5: "the enumerated value for 0 is reserved".
    assert_eq!([service(0), service(4), service(u32::MAX)], [None; 3]);
    let known = [Service::None, Service::Integrity, Service::Privacy];
    assert_eq!([service(1), service(2), service(3)].map(Option::unwrap), known);
}

#[test]
fn rejects_truncated_credentials_and_trailing_bytes() {
    let whole = words(&CREDENTIAL);
    for length in 0..whole.len() {
        let error = parse(whole.slice(..length)).unwrap_err();
        assert!(
            matches!(error, CredentialError::Garbled(DecodeError::Truncated { .. })),
            "{length}: {error:?}"
        );
    }
    let longer = words(&[&CREDENTIAL[..], &[0]].concat());
    assert_eq!(parse(longer), Err(CredentialError::Garbled(DecodeError::TrailingBytes(4))));
    let handle_too_long = DecodeError::TooLong { length: 129, max: 128 };
    assert_eq!(parse(words(&[1, 0, 7, 2, 129])), Err(CredentialError::Garbled(handle_too_long)));
}

#[test]
fn other_versions_report_whether_a_context_exists() {
    for version in [0, 2, 3, 4] {
        for (procedure, is_data) in [(0, true), (1, false), (2, false), (3, true), (4, false), (5, false)] {
            assert_eq!(parse(words(&[version, procedure])), Err(CredentialError::Version { is_data }));
        }
    }
}

#[test]
fn checksum_covers_the_header_up_to_the_verifier() {
    let body = Opaque::new(words(&CREDENTIAL)).unwrap();
    let length = signed_length(&body);
    let credential = OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body };
    let call = to_bytes(&CallHeader { credential, ..CallHeader::new(1, 100_003, 4, 1) });
    // Then an AUTH_NONE verifier.
    assert_eq!(call.slice(length..), words(&[0, 0]));
    assert_eq!(call.slice(..32), words(&[1, 0, 2, 100_003, 4, 1, 6, 28]));
}

#[test]
fn context_creation_round_trips() {
    let args = words(&[5, 0x746f_6b65, 0x6e00_0000]);
    let token = Opaque::from_static(b"token");
    assert_eq!(from_bytes::<InitArgs>(args.clone()).unwrap(), InitArgs { token: token.clone() });
    assert_eq!(to_bytes(&InitArgs { token: token.clone() }), args);
    let handle = Opaque::from_static(b"h");
    let result = InitResult { handle, major: 1, minor: 3, window: 128, token };
    let wire = words(&[1, 0x6800_0000, 1, 3, 128, 5, 0x746f_6b65, 0x6e00_0000]);
    assert_eq!((to_bytes(&result), from_bytes(wire.clone()).unwrap()), (wire, result));
    let too_long = DecodeError::TooLong { length: MAX_TOKEN + 1, max: MAX_TOKEN };
    assert_eq!(from_bytes::<InitArgs>(words(&[MAX_TOKEN as u32 + 1])), Err(too_long));
}

#[test]
fn protected_data_round_trip() {
    let wire = words(&[8, 7, 0xaabb_ccdd, 3, 0x6d69_6300]);
    let data = from_bytes::<IntegrityData<64>>(wire.clone()).unwrap();
    assert_eq!((&data.body[..], &data.checksum[..]), (&words(&[7, 0xaabb_ccdd])[..], &b"mic"[..]));
    assert_eq!(to_bytes(&data), wire);
    let sealed = from_bytes::<PrivacyData<64>>(words(&[4, 0x0504_0200])).unwrap();
    assert_eq!(&sealed.body[..], [5, 4, 2, 0]);
    assert!(from_bytes::<PrivacyData<64>>(words(&[65])).is_err());
}
