//! Credentials compared with bytes derived by hand from RFC 5531 appendix A.

use bytes::Bytes;
use rpc::auth::{
    AuthFlavor, AuthStatus, AuthSys, CredentialCache, GroupList, Identity, MAX_AUTH_BODY, OpaqueAuth,
    authenticate,
};
use xdr::{DecodeError, Opaque, to_bytes};

fn credential(flavor: AuthFlavor, body: &[u8]) -> OpaqueAuth {
    OpaqueAuth { flavor, body: Opaque::new(Bytes::copy_from_slice(body)).unwrap() }
}

fn sys(body: &[u8]) -> Result<Identity, AuthStatus> {
    authenticate(&credential(AuthFlavor::SYS, body))
}

fn example() -> AuthSys {
    AuthSys {
        stamp: 0x0102_0304,
        machine_name: Opaque::from_static(b"krypton"),
        uid: 1000,
        gid: 100,
        gids: GroupList::new(&[4, 24]).unwrap(),
    }
}

const EXAMPLE: &[u8] =
    b"\x01\x02\x03\x04\0\0\0\x07krypton\0\0\0\x03\xe8\0\0\0\x64\0\0\0\x02\0\0\0\x04\0\0\0\x18";

#[test]
fn auth_sys_round_trips() {
    assert_eq!(&to_bytes(&example())[..], EXAMPLE);
    assert_eq!(sys(EXAMPLE), Ok(Identity::Sys(example())));
    assert_eq!(OpaqueAuth::sys(&example()), credential(AuthFlavor::SYS, EXAMPLE));
}

#[test]
fn accepts_auth_sys_at_its_bounds() {
    let longest = AuthSys {
        machine_name: Opaque::new(vec![b'm'; 255]).unwrap(),
        gids: GroupList::new(&[u32::MAX; 16]).unwrap(),
        ..example()
    };
    let opaque = OpaqueAuth::sys(&longest);
    assert_eq!(opaque.body.len(), 340);
    assert!(opaque.body.len() <= MAX_AUTH_BODY);
    assert_eq!(authenticate(&opaque), Ok(Identity::Sys(longest)));
    assert_eq!(GroupList::new(&[0; 17]), Err(DecodeError::TooLong { length: 17, max: 16 }));
}

#[test]
fn rejects_malformed_auth_sys_as_bad_credential() {
    for length in 0..EXAMPLE.len() {
        assert_eq!(sys(&EXAMPLE[..length]), Err(AuthStatus::BADCRED), "cut at {length}");
    }
    assert_eq!(sys(&[EXAMPLE, &[0; 4]].concat()), Err(AuthStatus::BADCRED), "trailing bytes");
    let groups = [&b"\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x11"[..], &[0; 17 * 4]].concat();
    assert_eq!(sys(&groups), Err(AuthStatus::BADCRED), "17 groups");
    let name = [&b"\0\0\0\0\0\0\x01\0"[..], &[b'm'; 256], &[0; 12]].concat();
    assert_eq!(sys(&name), Err(AuthStatus::BADCRED), "a name of 256 bytes");
}

#[test]
fn accepts_auth_none_and_rejects_other_flavors() {
    let status = |flavor| authenticate(&credential(flavor, b"1234"));
    assert_eq!(authenticate(&OpaqueAuth::NONE), Ok(Identity::None));
    assert_eq!(status(AuthFlavor::SHORT), Err(AuthStatus::REJECTEDCRED));
    assert_eq!(status(AuthFlavor::RPCSEC_GSS), Err(AuthStatus::REJECTEDCRED));
    assert_eq!(status(AuthFlavor(4711)), Err(AuthStatus::REJECTEDCRED));
    assert_eq!(status(AuthFlavor::TLS), Err(AuthStatus::BADCRED));
}

#[test]
fn cache_returns_the_last_credential_only() {
    let first = OpaqueAuth::sys(&example());
    let second = OpaqueAuth::sys(&AuthSys { uid: 1001, ..example() });
    let mut cache = CredentialCache::default();
    assert_eq!(cache.get(&first), None);
    assert_eq!(cache.get(&OpaqueAuth::NONE), None, "empty at the start");
    cache.insert(&first, 1);
    assert_eq!(cache.get(&first), Some(&1));
    assert_eq!(cache.get(&second), None);
    cache.insert(&second, 2);
    assert_eq!((cache.get(&first), cache.get(&second)), (None, Some(&2)));
    cache.clear();
    assert_eq!(cache.get(&second), None);
}

#[test]
fn cache_ignores_only_the_stamp_of_auth_sys() {
    let mut cache = CredentialCache::default();
    cache.insert(&OpaqueAuth::sys(&example()), ());
    let hit = |credential: &OpaqueAuth| cache.get(credential).is_some();
    assert!(hit(&OpaqueAuth::sys(&AuthSys { stamp: 9, ..example() })));
    for at in 4..EXAMPLE.len() {
        let mut body = EXAMPLE.to_vec();
        body[at] ^= 1;
        assert!(!hit(&credential(AuthFlavor::SYS, &body)), "byte {at} was not compared");
    }
    assert!(!hit(&credential(AuthFlavor::SYS, &EXAMPLE[..EXAMPLE.len() - 4])));
    assert!(!hit(&credential(AuthFlavor::SHORT, EXAMPLE)));
}

#[test]
fn cache_compares_all_bytes_of_other_flavors_and_short_bodies() {
    let mut cache = CredentialCache::default();
    cache.insert(&credential(AuthFlavor::SHORT, b"1234"), ());
    assert!(cache.get(&credential(AuthFlavor::SHORT, b"1234")).is_some());
    assert!(cache.get(&credential(AuthFlavor::SHORT, b"0234")).is_none());
    cache.insert(&credential(AuthFlavor::SYS, b"12"), ());
    assert!(cache.get(&credential(AuthFlavor::SYS, b"13")).is_none());
}
