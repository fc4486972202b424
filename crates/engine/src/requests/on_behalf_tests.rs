//! What comes through another engine, and what does not.

use azekura_proto::attr::AttrChange;
use azekura_proto::frame::encode_nested;
use azekura_proto::limits::RELAY_SLOT;
use azekura_proto::message::{Answer, ChangeStream, Reply, Request, Role, ShardRef};
use azekura_proto::{Incarnation, Oid, SessionId, Status, TargetId};

use crate::crash_tests::Pool;
use crate::requests::attachment::Attachment;
use crate::service::Service;
use crate::service_tests::{attach, create, head};

struct Client {
    service: Service,
    attachment: Attachment,
    file: Oid,
}

impl Client {
    fn new(pool: &Pool) -> Self {
        let service = pool.service();
        let attachment = attach(&service);
        let file = create((pool, &service), &attachment, b"file", 1);
        Self { service, attachment, file }
    }

    fn stream(&self, number: u32, sequence: u64) -> ChangeStream {
        ChangeStream { number, sequence, run: self.service.node().incarnation }
    }

    fn write(&self) -> Request<'static> {
        let data = ShardRef { oid: self.file, shard: 0, is_file: true };
        Request::Write { data, offset: 0 }
    }

    /// Whether the engine comes to the target by itself or not makes no difference.
    fn relay(&self, stream: ChangeStream, request: &Request<'_>, bulk: &[u8]) -> Answer {
        let request = encode_nested(request).unwrap();
        let relay = Request::Relay { to: self.file.home(), stream, request };
        self.attachment.call(&head(TargetId(0), 0), &relay, bulk).0
    }

    fn contents(&self) -> Vec<u8> {
        let data = ShardRef { oid: self.file, shard: 0, is_file: true };
        let read = Request::Read { data, offset: 0, bytes: 100 };
        self.attachment.call(&head(self.file.home(), 0), &read, &[]).1
    }
}

#[test]
fn of_a_stream_that_was_given_up_nothing_is_carried_out() {
    let pool = Pool::new();
    let client = Client::new(&pool);
    let write = client.write();
    assert_eq!(client.relay(client.stream(1, 1), &write, b"first"), Ok(Reply::Done));
    let fence = Request::Fence { slots: vec![(RELAY_SLOT, 1)] };
    assert_eq!(client.attachment.call(&head(TargetId(0), 0), &fence, &[]).0, Ok(Reply::Done));
    assert_eq!(client.relay(client.stream(1, 2), &write, b"late!"), Err(Status::Busy));
    assert_eq!(client.contents(), b"first");
    assert_eq!(client.relay(client.stream(2, 2), &write, b"again"), Ok(Reply::Done));
    assert_eq!(client.contents(), b"again");
    // The next stream is the end of the one before without a word.
    assert_eq!(client.relay(client.stream(3, 3), &write, b"third"), Ok(Reply::Done));
    assert_eq!(client.relay(client.stream(2, 4), &write, b"late!"), Err(Status::Busy));
    // Nor does a copy of an earlier change come after a later one.
    assert_eq!(client.relay(client.stream(3, 2), &write, b"late!"), Err(Status::Busy));
    assert_eq!(client.contents(), b"third");
}

#[test]
fn nothing_is_taken_up_behind_a_change_that_is_to_come_again() {
    let pool = Pool::new();
    let client = Client::new(&pool);
    let gone = Request::SetAttr {
        oid: Oid::new(client.file.container(), client.file.class(), client.file.home(), 1 << 20),
        change: AttrChange { mode: Some(0o600), ..AttrChange::default() },
    };
    // That it cannot be done at all is told to its client, and what comes behind it goes on.
    assert_eq!(client.relay(client.stream(1, 1), &gone, &[]), Err(Status::Stale));
    assert_eq!(client.relay(client.stream(1, 2), &client.write(), b"then"), Ok(Reply::Done));
    let elsewhere = ChangeStream { run: Incarnation(77), ..client.stream(1, 3) };
    assert_eq!(client.relay(elsewhere, &client.write(), b"never"), Err(Status::Busy));
    assert_eq!(client.relay(client.stream(1, 4), &client.write(), b"never"), Err(Status::Busy));
    assert_eq!(client.contents(), b"then");
    assert_eq!(client.relay(client.stream(2, 5), &client.write(), b"anew"), Ok(Reply::Done));
}

#[test]
fn other_requests_do_not_come_through_other_engines() {
    let pool = Pool::new();
    let client = Client::new(&pool);
    let look = Request::Lookup { dir: pool.root, name: b"file" };
    let unlink = Request::Unlink { dir: pool.root, name: b"file" };
    for request in [&look, &unlink, &Request::Ping] {
        assert_eq!(client.relay(client.stream(1, 1), request, &[]), Err(Status::Invalid));
    }
    let peer = client.service.attach(SessionId([1; 16]), Role::Engine, true).unwrap().0;
    let session = client.attachment.session();
    let home_of_name = client.service.node().entry_target(pool.root, b"file");
    let ask = |from: &Attachment, client, stream, request: &Request<'_>, bulk: &[u8]| {
        let target = if matches!(request, Request::Lookup { name, .. } if *name == b"file") {
            home_of_name
        } else {
            TargetId(0)
        };
        let request = encode_nested(request).unwrap();
        from.call(&head(target, 0), &Request::OnBehalf { client, stream, request }, bulk).0
    };
    assert!(ask(&peer, session, None, &look, &[]).is_ok());
    assert_eq!(ask(&client.attachment, session, None, &look, &[]), Err(Status::Invalid));
    assert_eq!(ask(&peer, session, None, &unlink, &[]), Err(Status::Invalid));
    let stream = Some(client.stream(4, 9));
    assert_eq!(ask(&peer, session, stream, &unlink, &[]), Err(Status::Invalid));
    // Of somebody who has never been here.
    let stranger = SessionId([9; 16]);
    assert_eq!(ask(&peer, stranger, stream, &client.write(), b"x"), Err(Status::Busy));
    let broken = Request::OnBehalf { client: session, stream, request: vec![255; 9] };
    assert_eq!(peer.call(&head(TargetId(0), 0), &broken, &[]).0, Err(Status::Invalid));
    assert_eq!(client.contents(), b"");
}
