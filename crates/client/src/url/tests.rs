//! URLs and options: text to values and back.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn url(text: &str) -> Url {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    match text.parse::<Url>() {
        Ok(url) => panic!("{text} is {url:?}"),
        Err(error) => error.to_string(),
    }
}

fn options(list: &str) -> Options {
    let mut options = Options::default();
    options.apply_list(list).unwrap_or_else(|error| panic!("{list}: {error}"));
    options
}

fn refused_option(list: &str) -> String {
    match Options::default().apply_list(list) {
        Ok(()) => panic!("{list} is accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_url_has_host_port_path_and_options() {
    let url = url("nfs://nfs-1.example.org:2050/export/a%20b?version=4.1&nconnect=4&noac");
    assert_eq!(*url.host(), Host::Name("nfs-1.example.org".into()));
    assert_eq!(url.path(), b"/export/a b");
    let expected = Options {
        port: Some(2050),
        version: Some(Version::V4_1),
        connections: Some(4),
        attribute_cache: Some(false),
        ..Options::default()
    };
    assert_eq!(url.options, expected);
    assert_eq!(url.to_string(), "nfs://nfs-1.example.org:2050/export/a%20b?version=4.1&nconnect=4&noac");
}

#[test]
fn addresses_of_both_families_are_parsed() {
    let ipv6: Ipv6Addr = "fe80::1".parse().unwrap();
    for (text, host, shown) in [
        ("nfs://192.0.2.7/", Host::V4(Ipv4Addr::new(192, 0, 2, 7)), "nfs://192.0.2.7/"),
        ("nfs://[fe80::1]/", Host::V6(ipv6, None), "nfs://[fe80::1]/"),
        ("nfs://[fe80::1%25eth0]:20/", Host::V6(ipv6, Some("eth0".into())), "nfs://[fe80::1%25eth0]:20/"),
        ("nfs://[fe80::1%eth0]/", Host::V6(ipv6, Some("eth0".into())), "nfs://[fe80::1%25eth0]/"),
        ("nfs://[fe80::1%2]/", Host::V6(ipv6, Some("2".into())), "nfs://[fe80::1%252]/"),
    ] {
        let url = url(text);
        assert_eq!((url.host(), url.to_string()), (&host, shown.to_owned()), "{text}");
    }
}

#[test]
fn slashes_at_the_beginning_count_once() {
    for text in ["nfs://h/a/b", "nfs://h//a/b", "nfs://h///a/b"] {
        assert_eq!(url(text).path(), b"/a/b", "{text}");
    }
    for text in ["nfs://h", "nfs://h/", "nfs://h//", "nfs://h?soft"] {
        assert_eq!(url(text).path(), b"/", "{text}");
    }
    assert_eq!(url("nfs://h/a//b/").path(), b"/a//b/");
}

#[test]
fn paths_are_raw_bytes() {
    assert_eq!(url("nfs://h/%ff%FE%25%3f").path(), b"/\xff\xfe%?");
    assert_eq!(url("nfs://h/ä").path(), "/ä".as_bytes());
    assert_eq!(url("nfs://h/ä").to_string(), "nfs://h/%C3%A4");
    assert_eq!(url("nfs://h/%E2%82%AC").to_string(), "nfs://h/%E2%82%AC");
}

#[test]
fn errors_of_urls_name_the_cause() {
    for (text, message) in [
        ("http://h/a", "expected nfs://HOST/PATH"),
        ("/export", "expected nfs://HOST/PATH"),
        ("nfs:///a", "no server"),
        ("nfs://h:0/", "expected a port from 1 to 65535"),
        ("nfs://h:70000/", "expected a port from 1 to 65535"),
        ("nfs://h:+1/", "expected a port from 1 to 65535"),
        ("nfs://h:/", "expected a port from 1 to 65535"),
        ("nfs://fe80::1/", "in brackets: nfs://[fe80::1]/"),
        ("nfs://[fe80::1/", "in brackets"),
        ("nfs://[fe80::x]/", "expected an IPv6 address in brackets"),
        ("nfs://10.0.0/", "neither a host name nor an address"),
        ("nfs://root@h/", "give uid= and gid="),
        ("nfs://h/a%2Fb", "no name contains a slash"),
        ("nfs://h/a%00b", "zero byte"),
        ("nfs://h/a%2", "two hexadecimal digits"),
        ("nfs://h/a%+1", "two hexadecimal digits"),
        ("nfs://h/a b", "write %20"),
        ("nfs://h/a#b", "write %23"),
        ("nfs://h:1/?port=2", "two ports: :1 and port=2"),
        ("nfs://h/?soft=%ff", "options are text"),
    ] {
        let error = refused(text);
        assert!(error.contains(message), "{text}: {error}");
    }
    assert!(refused(&format!("nfs://h/{}", "a".repeat(URL_MAX))).contains("at most 65536 bytes"));
}

#[test]
fn a_repeated_port_must_be_equal() {
    assert_eq!(url("nfs://h/?nfsport=7").to_string(), "nfs://h:7/");
    assert_eq!(url("nfs://h:7/?port=7").options.port, Some(7));
}

#[test]
fn the_syntax_of_mount_is_accepted() {
    let source = |text: &[u8]| Url::from_mount_source(text);
    let found = source(b"[fe80::1%eth0]:/export/a%20").unwrap();
    assert_eq!((found.host().to_string(), found.path()), ("[fe80::1%25eth0]".into(), &b"/export/a%20"[..]));
    assert_eq!(source(b"server:/a:/\xff").unwrap().path(), b"/a:/\xff");
    assert_eq!(source(b"nfs://h/a%20").unwrap().path(), b"/a ");
    assert!(source(b"/dev/sda1").unwrap_err().to_string().contains("HOST:/PATH"));
    assert!(source(b"host:relative").unwrap_err().to_string().contains("HOST:/PATH"));
}

#[test]
fn options_have_the_names_of_nfs_5() {
    let list = "vers=4,minorversion=1,proto=tcp,port=2049,hard,timeo=600,retrans=2,rsize=1048576,wsize=1048576,\
                acregmin=3,acregmax=60,acdirmin=30,acdirmax=60,lookupcache=positive,nordirplus,noresvport,nolock,nocto,\
                nconnect=16,max_connect=1,sec=sys,mountport=20048,nlmport=4045,jukebox=50,mountproto=tcp,mountvers=3,nofsc,sharecache,intr,\
                xprtsec=none,nodelegations,slots=64,v3_calls=256,clientaddr=192.0.2.7,callback_port=4046";
    let expected = Options {
        version: Some(Version::V4_1),
        port: Some(2049),
        mount_port: Some(20048),
        nlm_port: Some(4045),
        transport: Some(Transport::Tcp),
        mount_transport: Some(Transport::Tcp),
        security: Some(Security::Sys),
        uid: None,
        gid: None,
        connections: Some(16),
        slots: Some(64),
        v3_calls: Some(256),
        read_size: Some(1_048_576),
        write_size: Some(1_048_576),
        timeout_deciseconds: Some(600),
        retransmissions: Some(2),
        jukebox_deciseconds: Some(50),
        recovery: Some(Recovery::Hard),
        file_attributes_min_seconds: Some(3),
        file_attributes_max_seconds: Some(60),
        directory_attributes_min_seconds: Some(30),
        directory_attributes_max_seconds: Some(60),
        attribute_cache: None,
        close_to_open: Some(false),
        lookup_cache: Some(LookupCache::Positive),
        readdir_plus: Some(ReaddirPlus::Never),
        reserved_port: Some(false),
        local_lock: Some(LocalLock::All),
        delegations: Some(false),
        client_address: Some([192, 0, 2, 7].into()),
        callback_port: Some(4046),
    };
    assert_eq!(options(list), expected);
}

#[test]
fn versions_have_several_spellings() {
    for list in
        ["version=4.1", "vers=4.1", "nfsvers=4.1", "v4.1", "vers=4,minorversion=1", "minorversion=1,vers=4"]
    {
        assert_eq!(options(list).version, Some(Version::V4_1), "{list}");
    }
    assert_eq!(options("vers=4").version, Some(Version::V4));
    assert_eq!(options("vers=4.2,vers=3").version, Some(Version::V3));
    assert_eq!(options("vers=2").version, Some(Version::V2));
    assert_eq!(options("v2").version, Some(Version::V2));
    assert!(refused_option("vers=5").contains("expected one of 2, 3, 4, 4.0, 4.1, 4.2"));
}

#[test]
fn the_last_option_of_a_kind_applies() {
    assert_eq!(options("tcp,udp").transport, Some(Transport::Udp));
    assert_eq!(options("proto=udp6,proto=tcp,mountproto=udp").transport, Some(Transport::Tcp));
    assert_eq!(options("mountproto=udp6").mount_transport, Some(Transport::Udp));
    assert_eq!(options("soft,hard").recovery, Some(Recovery::Hard));
    let times = options("actimeo=7,acregmax=9");
    assert_eq!((times.file_attributes_min_seconds, times.file_attributes_max_seconds), (Some(7), Some(9)));
    assert_eq!(options("rdirplus=force,rdirplus").readdir_plus, Some(ReaddirPlus::Heuristic));
}

#[test]
fn unsupported_features_are_refused_by_name() {
    for (list, message) in [
        ("sec=krb5", "Kerberos is not supported by this client yet: use sec=sys"),
        ("sec=krb5p", "Kerberos is not supported"),
        ("sec=none", "expected one of sys"),
        ("xprtsec=tls", "TLS is not supported by this client yet"),
        ("xprtsec=mtls", "TLS is not supported by this client yet"),
        ("proto=sctp", "expected one of tcp, udp"),
        ("rdma", "use TCP"),
        ("fsc", "no cache on a local disk"),
        ("bg", "mount(8)"),
    ] {
        let error = refused_option(list);
        assert!(error.contains(message) && error.contains(list), "{list}: {error}");
    }
}

#[test]
fn unknown_options_name_likely_ones() {
    assert_eq!(
        refused_option("acregmim=3"),
        "unknown option `acregmim`: did you mean `acregmin` or `acregmax`?"
    );
    assert!(refused_option("nconect=3").contains("did you mean `nconnect`"));
    assert_eq!(refused_option("zzz"), "unknown option `zzz`: see nfs(5)");
}

#[test]
fn values_are_required_and_bounded() {
    for (list, message) in [
        ("nconnect", "`nconnect` needs a value"),
        ("nconnect=0", "from 1 to 16"),
        ("nconnect=17", "from 1 to 16"),
        ("nconnect=+1", "whole number"),
        ("nconnect=", "whole number"),
        ("rsize=512", "from 1024"),
        ("uid=4294967295", "from 0 to 4294967294"),
        ("soft=1", "takes no value"),
        ("tcp=1", "takes no value"),
        ("udp=1", "takes no value"),
        ("mountvers=2", "only mountvers=1, 3 is"),
        ("max_connect=4", "only max_connect=1 is"),
        ("mountvers", "only mountvers=1, 3 is"),
        ("rdirplus=some", "force, none"),
        ("lookupcache=some", "all, pos, none"),
        ("clientaddr=host", "an IP address"),
        ("callback_port=0", "1 to 65535"),
    ] {
        let error = refused_option(list);
        assert!(error.contains(message), "{list}: {error}");
    }
    assert_eq!(options(",,"), Options::default());
}

fn any_host() -> impl Strategy<Value = Host> {
    let scope = of("[a-zA-Z0-9][a-zA-Z0-9._~-]{0,14}");
    prop_oneof![
        "[a-z][a-z0-9-]{0,20}(\\.[a-z0-9-]{1,10}){0,3}".prop_map(Host::Name),
        any::<Ipv4Addr>().prop_map(Host::V4),
        (any::<Ipv6Addr>(), scope).prop_map(|(address, scope)| Host::V6(address, scope)),
    ]
}

fn any_options() -> impl Strategy<Value = Options> {
    let ports = (of(1_u16..), of(1_u16..), of(1_u16..), of(1_u16..), of(any::<IpAddr>()));
    let identity = (of(0..u32::MAX), of(0..u32::MAX));
    let requests = (of(1_u32..=1024), of(1_u32..=65_536));
    let sizes = (of(1_u32..=16), of(1024_u32..=16 << 20), of(1024_u32..=16 << 20));
    let times = (of(1_u32..=360_000), of(0_u32..=1000), of(1_u32..=360_000));
    let seconds = || of(0_u32..=86_400 * 366);
    let cache = (seconds(), seconds(), seconds(), seconds());
    let words = (
        of(select(Version::ALL)),
        of(select(Security::ALL)),
        of(select(Recovery::ALL)),
        of(select(LookupCache::ALL)),
        of(select(ReaddirPlus::ALL)),
        of(select(LocalLock::ALL)),
        of(select(Transport::ALL)),
        of(select(Transport::ALL)),
    );
    let flags = (of(any::<bool>()), of(any::<bool>()), of(any::<bool>()), of(any::<bool>()));
    (ports, identity, requests, sizes, times, cache, words, flags).prop_map(
        |(ports, identity, requests, sizes, times, cache, words, flags)| Options {
            version: words.0,
            port: ports.0,
            mount_port: ports.1,
            nlm_port: ports.2,
            security: words.1,
            uid: identity.0,
            gid: identity.1,
            connections: sizes.0,
            slots: requests.0,
            v3_calls: requests.1,
            read_size: sizes.1,
            write_size: sizes.2,
            timeout_deciseconds: times.0,
            retransmissions: times.1,
            jukebox_deciseconds: times.2,
            recovery: words.2,
            file_attributes_min_seconds: cache.0,
            file_attributes_max_seconds: cache.1,
            directory_attributes_min_seconds: cache.2,
            directory_attributes_max_seconds: cache.3,
            attribute_cache: flags.0,
            close_to_open: flags.1,
            lookup_cache: words.3,
            readdir_plus: words.4,
            reserved_port: flags.2,
            local_lock: words.5,
            transport: words.6,
            mount_transport: words.7,
            delegations: flags.3,
            client_address: ports.4,
            callback_port: ports.3,
        },
    )
}

proptest! {
    /// A printed URL parses to the same value.
    #[test]
    fn printing_and_parsing_is_the_identity(
        host in any_host(),
        path in proptest::collection::vec(1_u8.., 0..40),
        options in any_options(),
    ) {
        let url = Url::new(host, &path, options).unwrap();
        prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url));
    }

    /// Options printed as a list parse to the same values.
    #[test]
    fn a_printed_list_parses_to_the_same_options(options in any_options()) {
        let mut parsed = Options::default();
        parsed.apply_list(&options.words().join(",")).unwrap();
        prop_assert_eq!(parsed, options);
    }

    /// No text makes the parser panic, and what it accepts survives printing.
    #[test]
    fn any_text_is_parsed_or_refused(text in "(nfs://)?[ -~ä]{0,60}") {
        if let Ok(url) = text.parse::<Url>() {
            prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url));
        }
    }
}
