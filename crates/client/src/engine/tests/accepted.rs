//! Connections that the server makes.

use super::*;

fn listening() -> Test {
    let test = Test::connected();
    {
        let mut listen = std::pin::pin!(test.engine.listen(Some(7)));
        let mut context = Context::from_waker(noop_waker_ref());
        assert!(listen.as_mut().poll(&mut context).is_pending());
        assert_eq!(test.action(), Some(Action::Listen { port: Some(7) }));
        let address = "192.0.2.7:7".parse().ok();
        test.engine.handle_listening(address);
        assert_eq!(listen.as_mut().poll(&mut context), Poll::Ready(address));
    }
    assert!(test.engine.is_listening());
    test
}

fn record() -> Bytes {
    null(9).concat().into()
}

fn callback(engine: &Engine) -> Option<CallbackPath> {
    match engine.poll_callback(&mut Context::from_waker(noop_waker_ref())) {
        Poll::Ready(Some((path, _))) => Some(path),
        _ => None,
    }
}

fn reply(engine: &Engine, id: AcceptedId) -> Poll<Option<Bytes>> {
    engine.poll_accepted_reply(id, &mut Context::from_waker(noop_waker_ref()))
}

/// Makes a call over a connection, and answers it.
fn exchange(engine: &Engine, id: AcceptedId, is_proven: bool) {
    assert!(engine.handle_accepted_call(id, record()));
    let path = callback(engine).unwrap();
    assert_eq!(path, CallbackPath::Accepted(id));
    engine.answer(path, Some(Bytes::from_static(b"reply")), is_proven);
    assert_eq!(reply(engine, id), Poll::Ready(Some(Bytes::from_static(b"reply"))));
    assert!(reply(engine, id).is_pending());
}

#[test]
fn replies_leave_over_the_connection_of_the_call() {
    let Test { engine, .. } = listening();
    let (one, two) = (engine.handle_accepted().unwrap(), engine.handle_accepted().unwrap());
    exchange(&engine, two, true);
    exchange(&engine, one, true);
    assert!(engine.handle_accepted_call(one, record()));
    engine.handle_accepted_closed(one);
    engine.answer(callback(&engine).unwrap(), Some(Bytes::new()), true);
    assert_eq!((reply(&engine, one), engine.handle_accepted_call(one, record())), (Poll::Ready(None), false));
    engine.shut_down();
    assert_eq!((reply(&engine, two), engine.handle_accepted()), (Poll::Ready(None), None));
}

#[test]
fn nothing_is_accepted_without_a_listener() {
    let test = Test::connected();
    assert_eq!((test.engine.handle_accepted(), test.engine.is_listening()), (None, false));
    let mut listen = std::pin::pin!(test.engine.listen(None));
    let mut context = Context::from_waker(noop_waker_ref());
    assert!(listen.as_mut().poll(&mut context).is_pending());
    test.engine.handle_listening(None);
    assert_eq!(listen.as_mut().poll(&mut context), Poll::Ready(None));
    let mut ended = std::pin::pin!(test.engine.listen(None));
    assert!(ended.as_mut().poll(&mut context).is_pending());
    test.engine.shut_down();
    assert_eq!(ended.as_mut().poll(&mut context), Poll::Ready(None));
}

#[test]
fn a_connection_that_has_proved_itself_outlives_a_flood_of_others() {
    let Test { engine, .. } = listening();
    let proven = engine.handle_accepted().unwrap();
    exchange(&engine, proven, true);
    let flood: Vec<_> = (0..100).map(|_| engine.handle_accepted().unwrap()).collect();
    let open = flood.iter().filter(|id| reply(&engine, **id).is_pending()).count();
    assert_eq!(open, ACCEPTED_MAX - 1);
    exchange(&engine, proven, true);
    // The server connects again, because it has restarted.
    let newest = engine.handle_accepted().unwrap();
    exchange(&engine, newest, true);
}

#[test]
fn calls_without_replies_are_bounded() {
    let Test { engine, .. } = listening();
    let id = engine.handle_accepted().unwrap();
    assert!(!engine.handle_accepted_call(id, Bytes::from_static(b"no call")));
    for _ in 0..ACCEPTED_CALLS_MAX {
        assert!(engine.handle_accepted_call(id, record()));
    }
    assert!(!engine.handle_accepted_call(id, record()));
    // Replies that are not taken count, too.
    engine.answer(callback(&engine).unwrap(), Some(Bytes::new()), false);
    assert!(!engine.handle_accepted_call(id, record()));
    assert!(reply(&engine, id).is_ready() && engine.handle_accepted_call(id, record()));
    // A call that has no reply ends its connection.
    engine.answer(callback(&engine).unwrap(), None, false);
    assert_eq!(reply(&engine, id), Poll::Ready(None));
}
